// Commands of administrators: agents, clusters and their tests, faults, events, allocations, users.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "device/base/file.h"
#include "proto/vipu/v1/vipuadmin.pb.h"
#include "proto/vipu/v1/vipuuser.pb.h"
#include "tools/vipu/cli.h"
#include "tools/vipu/cli_fixture.h"

namespace vpod::tools {
namespace {

using nlohmann::json;

// --- agents ---

TEST_F(CliTest, CreateAgentIsThePublishedTranscript) {
  ExpectSuccess("vipu-admin create agent ag1 --host 10.1.2.1 --port 8081");
  EXPECT_EQ(out_, "create agent (ag1): success.\n");
  const auto request = controller_.Last<vipuadmin::CreateAgentRequest>("CreateAgent");
  EXPECT_EQ(request.id(), "ag1");
  EXPECT_EQ(request.host(), "10.1.2.1");
  EXPECT_EQ(request.port(), 8081u);
  ExpectSuccess("vipu-admin create agent ag1 --host=10.1.2.1");
  EXPECT_EQ(controller_.Last<vipuadmin::CreateAgentRequest>("CreateAgent").port(), 8080u);
}

TEST_F(CliTest, UpdateAgentSendsOnlyWhatIsGiven) {
  ExpectSuccess("vipu-admin update agent ag1 --port 8082");
  EXPECT_EQ(out_, "update agent (ag1): success.\n");
  const auto request = controller_.Last<vipuadmin::UpdateAgentRequest>("UpdateAgent");
  EXPECT_EQ(request.host(), "");
  EXPECT_EQ(request.port(), 8082u);
  ExpectUsageError("vipu-admin update agent ag1", "update agent needs --host or --port.");
}

TEST_F(CliTest, ResetAndRemoveNameTheObject) {
  for (const char* command : {"reset agent a1", "remove agent a1", "reset cluster c1",
                              "remove cluster c1", "remove allocation al", "remove user u",
                              "reset partition p --no-wait", "remove partition p"}) {
    ExpectSuccess(std::string("vipu-admin ") + command);
    const std::vector<std::string> words = absl::StrSplit(command, ' ');
    EXPECT_EQ(out_, words[0] + " " + words[1] + " (" + words[2] + "): success.\n");
  }
  EXPECT_EQ(controller_.Last<vipuadmin::ResetClusterRequest>("ResetCluster").id(), "c1");
  EXPECT_EQ(controller_.Last<vipuadmin::RemoveUserRequest>("RemoveUser").id(), "u");
  ExpectSuccess("vipu-admin delete agent a2");
  EXPECT_EQ(out_, "remove agent (a2): success.\n");
}

TEST_F(CliTest, DiscoverAgentsAddsOnRequest) {
  ExpectSuccess("vipu-admin discover agents");
  EXPECT_FALSE(controller_.Last<vipuadmin::DiscoverAgentsRequest>("DiscoverAgents").add());
  ExpectSuccess("vipu-admin discover agent --add");
  EXPECT_TRUE(controller_.Last<vipuadmin::DiscoverAgentsRequest>("DiscoverAgents").add());
}

// --- clusters ---

TEST_F(CliTest, CreateClusterSendsThePublishedCommandLine) {
  ExpectSuccess(
      "vipu-admin create cluster cl1x2 --agents ag1,ag2 --num-ipulinkdomains 2 --topology torus "
      "--cluster-topology looped");
  const auto cluster = controller_.Last<vipuadmin::CreateClusterRequest>("CreateCluster").cluster();
  EXPECT_EQ(cluster.id(), "cl1x2");
  ASSERT_EQ(cluster.agent_ids_size(), 2);
  EXPECT_EQ(cluster.agent_ids(1), "ag2");
  EXPECT_EQ(cluster.num_ipulinkdomains(), 2u);
  EXPECT_EQ(cluster.topology(), "torus");
  EXPECT_EQ(cluster.cluster_topology(), "looped");
  ExpectSuccess("vipu-admin update cluster cl1x2 --agents ag2,ag1");
  EXPECT_EQ(controller_.Last<vipuadmin::UpdateClusterRequest>("UpdateCluster").agent_ids(0), "ag2");
}

vipuadmin::TestClusterReply TestResult(const char* test, double seconds, uint32_t passed,
                                       uint32_t expected, const char* summary) {
  vipuadmin::TestClusterReply reply;
  reply.set_test(test);
  reply.set_seconds(seconds);
  reply.set_passed(passed);
  reply.set_expected(expected);
  reply.set_summary(summary);
  return reply;
}

TEST_F(CliTest, TestClusterPrintsTheTable) {
  const auto version =
      TestResult("Version", 0.02, 4, 4, "All agents report the same component versions");
  const auto cabling = TestResult("Cabling", 3.1, 12, 12, "All cables found where expected");
  const auto sync = TestResult("Sync-Link", 0.41, 6, 6, "All Sync-Links toggled");
  const auto training = TestResult("Link-Training", 8.75, 48, 48, "All IPU-Links trained");
  const auto traffic = TestResult("Traffic", 21.3, 16, 16, "No data errors");
  const auto gw = TestResult("GW-Link", 0, 0, 0, "Skipped: cluster has one ILD");
  controller_.Answer("TestCluster", {&version, &cabling, &sync, &training, &traffic, &gw});
  ExpectSuccess("vipu-admin test cluster c1");
  EXPECT_EQ(out_, R"(Showing test results for cluster c1
 Test Type     | Duration | Passed | Summary
-----------------------------------------------------------------------------------
 Version       | 0.02s    | 4/4    | All agents report the same component versions
 Cabling       | 3.10s    | 12/12  | All cables found where expected
 Sync-Link     | 0.41s    | 6/6    | All Sync-Links toggled
 Link-Training | 8.75s    | 48/48  | All IPU-Links trained
 Traffic       | 21.30s   | 16/16  | No data errors
 GW-Link       | 0.00s    | 0/0    | Skipped: cluster has one ILD
-----------------------------------------------------------------------------------
)");
  const auto request = controller_.Last<vipuadmin::TestClusterRequest>("TestCluster");
  EXPECT_EQ(request.id(), "c1");
  EXPECT_EQ(request.tests_size(), 0);
  EXPECT_FALSE(request.force());
}

TEST_F(CliTest, FailedTestsAreNamedBelowTheTable) {
  auto cabling = TestResult("Cabling", 3.1, 11, 12, "1 of 12 cables is not where expected");
  cabling.add_failures("ag1 NLC_E_0: leads to ag3 NLC_W_0");
  controller_.Answer("TestCluster", {&cabling});
  EXPECT_EQ(Run("vipu-admin test cluster c1 --cabling --force"), 1);
  EXPECT_NE(out_.find("---\nCabling: ag1 NLC_E_0: leads to ag3 NLC_W_0\n"), std::string::npos)
      << out_;
  EXPECT_EQ(err_, "test cluster (c1): failed. 1 of 1 tests failed.\n");
  const auto request = controller_.Last<vipuadmin::TestClusterRequest>("TestCluster");
  ASSERT_EQ(request.tests_size(), 1);
  EXPECT_EQ(request.tests(0), "cabling");
  EXPECT_TRUE(request.force());
  EXPECT_EQ(Run("vipu-admin test cluster c1 --showjson"), 1);
  EXPECT_EQ(json::parse(out_).at(0).at("failures").at(0), "ag1 NLC_E_0: leads to ag3 NLC_W_0");
}

TEST_F(CliTest, TestsThatDidNotRunAreNotCounted) {
  const auto cabling = TestResult("Cabling", 3.1, 11, 12, "1 failed");
  const auto sync = TestResult("Sync-Link", 0.41, 6, 6, "All Sync-Links toggled");
  const auto gw = TestResult("GW-Link", 0, 0, 0, "Skipped: not selected");
  controller_.Answer("TestCluster", {&cabling, &sync, &gw});
  EXPECT_EQ(Run("vipu-admin test cluster c1 --cabling --sync"), 1);
  EXPECT_EQ(err_, "test cluster (c1): failed. 1 of 2 tests failed.\n");
}

TEST_F(CliTest, TestsAreSelectedByTheirFlags) {
  ExpectSuccess(
      "vipu-admin test cluster c1 --versions --cabling --sync --links --traffic --gw-links");
  const auto request = controller_.Last<vipuadmin::TestClusterRequest>("TestCluster");
  const std::vector<std::string> tests(request.tests().begin(), request.tests().end());
  EXPECT_EQ(tests, (std::vector<std::string>{"versions", "cabling", "sync", "links", "traffic",
                                             "gw-links"}));
}

TEST_F(CliTest, ARefusedTestLeavesNoHeading) {
  controller_.Answer("TestCluster", {},
                     absl::FailedPreconditionError("Cluster c1 has active partitions."));
  EXPECT_EQ(Run("vipu-admin test cluster c1"), 1);
  EXPECT_EQ(out_, "");
  EXPECT_EQ(err_, "test cluster (c1): failed. Cluster c1 has active partitions.\n");
}

// --- faults and events ---

TEST_F(CliTest, InjectSendsTheFaultAndWhereItIs) {
  ExpectSuccess("vipu-admin inject agent ag0 --link NLC_E_0 --fault link-down");
  EXPECT_EQ(out_, "inject agent (ag0): success.\n");
  auto request = controller_.Last<vipuadmin::InjectRequest>("Inject");
  EXPECT_EQ(request.agent_id(), "ag0");
  EXPECT_EQ(request.fault().fault(), vipuagent::LINK_DOWN);
  EXPECT_EQ(request.fault().link(), "NLC_E_0");
  ExpectSuccess("vipu-admin inject agent ag0 --fault link-errors --link NLC_E_0 --rate 2.5");
  request = controller_.Last<vipuadmin::InjectRequest>("Inject");
  EXPECT_EQ(request.fault().fault(), vipuagent::LINK_ERRORS);
  EXPECT_EQ(request.fault().rate(), 2.5);
  ExpectSuccess("vipu-admin inject agent ag0 --fault link-corrupts --link NLC_E_0");
  EXPECT_EQ(controller_.Last<vipuadmin::InjectRequest>("Inject").fault().fault(),
            vipuagent::LINK_CORRUPTS);
  ExpectSuccess("vipu-admin inject agent ag0 --fault ipu-error --ipu 3 --error IPUSOFTERR");
  request = controller_.Last<vipuadmin::InjectRequest>("Inject");
  EXPECT_EQ(request.fault().fault(), vipuagent::IPU_ERROR);
  EXPECT_EQ(request.fault().pcie_id(), 3u);
  EXPECT_EQ(request.fault().error(), "IPUSOFTERR");
  ExpectUsageError("vipu-admin inject agent ag0 --fault ipu-error --ipu 3 --error IPUHARDERR",
                   "Flag --error is one of SOC0PGMERR|SOC1PGMERR|ELINKPGMERR|HEXOVERFLOWERR|"
                   "MCUPGMERR|SOC0SOFTERR|SOC1SOFTERR|ELINKSOFTERR|IPUSOFTERR|NMLINKDN0|NMLINKDN1|"
                   "MCUSOFTERR, not 'IPUHARDERR'.");
  ExpectSuccess("vipu-admin inject agent ag0 --fault agent-hang --seconds 5");
  request = controller_.Last<vipuadmin::InjectRequest>("Inject");
  EXPECT_EQ(request.fault().fault(), vipuagent::AGENT_HANG);
  EXPECT_EQ(request.fault().seconds(), 5);
  ExpectSuccess("vipu-admin inject agent ag0 --clear");
  EXPECT_EQ(controller_.Last<vipuadmin::InjectRequest>("Inject").fault().fault(),
            vipuagent::FAULT_NONE);
}

TEST_F(CliTest, EveryFaultOfTheContractHasAName) {
  ExpectSuccess("vipu-admin inject agent --help");
  const std::string help = out_;
  ExpectSuccess("vipu-admin __complete inject agent ag0 --fault ");
  // The empty last word is lost between blanks; ask for it.
  std::ostringstream out, err;
  VipuMain(true, {"__complete", "inject", "agent", "ag0", "--fault", ""}, out, err);
  const std::vector<std::string> names = absl::StrSplit(out.str(), '\n', absl::SkipEmpty());
  EXPECT_EQ(static_cast<int>(names.size()), vipuagent::Fault_descriptor()->value_count() - 1);
  for (const std::string& name : names) {
    EXPECT_NE(help.find("\n  " + name + " "), std::string::npos) << name;
    // Not "is one of": known, and wants something more or nothing.
    Run("vipu-admin inject agent ag0 --fault " + name);
    EXPECT_EQ(err_.find("is one of"), std::string::npos) << err_;
  }
}

TEST_F(CliTest, FaultsTakeTheFlagsTheyNeedAndNoOthers) {
  ExpectUsageError("vipu-admin inject agent ag0", "inject agent needs either --fault or --clear.");
  ExpectUsageError("vipu-admin inject agent ag0 --clear --fault link-down",
                   "inject agent needs either --fault or --clear.");
  ExpectUsageError("vipu-admin inject agent ag0 --fault link-down",
                   "Fault link-down needs --link.");
  ExpectUsageError("vipu-admin inject agent ag0 --fault memory-parity --ipu 0 --rate 1",
                   "Fault memory-parity does not take --rate.");
  ExpectUsageError("vipu-admin inject agent ag0 --fault agent-hang --seconds soon",
                   "Flag --seconds needs a number of 0 or more, not 'soon'.");
}

vipuadmin::Event Event(uint64_t number, const char* object, const char* text) {
  vipuadmin::Event event;
  event.set_number(number);
  event.set_time_ms(1683191561250);
  event.set_severity("INFO");
  event.set_object(object);
  event.set_user("alice");
  event.set_text(text);
  return event;
}

TEST_F(CliTest, ListEventsAsksForAnObjectAndANumber) {
  vipuadmin::ListEventsReply reply;
  *reply.add_events() = Event(7, "partition p1", "created");
  controller_.Answer("ListEvents", {&reply});
  ExpectUsageError("vipu-admin list events --object p1",
                   "Invalid --object 'p1': expected <noun>/<id>, e.g. partition/p1.");
  ExpectSuccess("vipu-admin list events --object partition/p1 --limit 5");
  EXPECT_NE(out_.find("\n 7           | 2023-05-04T09:12:41.250Z | INFO     | partition p1"),
            std::string::npos)
      << out_;
  const auto request = controller_.Last<vipuadmin::ListEventsRequest>("ListEvents");
  EXPECT_EQ(request.object(), "partition p1");
  EXPECT_EQ(request.limit(), 5u);
  ExpectSuccess("vipu-admin list events --showjson");
  EXPECT_EQ(json::parse(out_).at(0).at("number"), 7);
  EXPECT_EQ(json::parse(out_).at(0).at("time_ms"), 1683191561250);
  EXPECT_EQ(json::parse(out_).at(0).at("time"), "2023-05-04T09:12:41.250Z");
}

// --- allocations, attributes ---

TEST_F(CliTest, AllocationsOfUserAndAdministratorComeFromTheirEndPoints) {
  vipuuser::ListAllocationsReply reply;
  auto* allocation = reply.add_allocations();
  allocation->set_id("alloc-1");
  allocation->mutable_spec()->set_cluster_id("c1");
  allocation->mutable_spec()->add_agent_ids("ag0");
  controller_.Answer("ListAllocations", {&reply});
  ExpectSuccess("vipu get allocation alloc-1");
  EXPECT_NE(out_.find(" Cluster ID           | c1\n"), std::string::npos) << out_;
  EXPECT_EQ(Run("vipu get allocation nope"), 1);
  EXPECT_EQ(err_, "get allocation (nope): failed. Allocation nope does not exist.\n");

  vipuadmin::GetAllocationReply one;
  one.mutable_allocation()->set_id("alloc-1");
  one.mutable_allocation()->add_user_ids("alice");
  controller_.Answer("GetAllocation", {&one});
  ExpectSuccess("vipu-admin get allocation alloc-1 --showjson");
  EXPECT_EQ(json::parse(out_).at("user_ids"), json::array({"alice"}));
}

TEST_F(CliTest, UpdateAllocationTellsAnEmptyListFromNone) {
  ExpectSuccess("vipu-admin update allocation al --users=");
  const auto request = controller_.Last<vipuadmin::UpdateAllocationRequest>("UpdateAllocation");
  EXPECT_FALSE(request.has_agent_ids());
  ASSERT_TRUE(request.has_user_ids());
  EXPECT_EQ(request.user_ids().names_size(), 0);
  ExpectSuccess("vipu-admin create allocation al --cluster c1 --agents a,b --users u,v");
  const auto created = controller_.Last<vipuadmin::CreateAllocationRequest>("CreateAllocation");
  EXPECT_EQ(created.allocation().cluster_id(), "c1");
  EXPECT_EQ(created.allocation().agent_ids(1), "b");
  EXPECT_EQ(created.allocation().user_ids(0), "u");
}

// --- users ---

TEST_F(CliTest, CreateUserIsThePublishedTranscriptAndFile) {
  vipuadmin::CreateUserReply reply;
  reply.set_access_key("685X_K4uCzN");
  controller_.Answer("CreateUser", {&reply});
  ExpectSuccess("vipu-admin create user alice");
  EXPECT_EQ(out_,
            "create user (alice): success. Access key is '685X_K4uCzN'.\n"
            "vipu configuration file for the user 'alice' written: alice.vipu-cli.hcl\n"
            "Use 'vipu --config alice.vipu-cli.hcl' to switch to the user context.\n");
  const std::vector<std::string> address = absl::StrSplit(controller_.address(), ':');
  EXPECT_EQ(base::ReadFile("alice.vipu-cli.hcl"), "api-host=\"" + address[0] + "\"\napi-port=\"" +
                                                      address[1] +
                                                      "\"\napi-user-id=\"alice\"\n"
                                                      "api-access-key=\"685X_K4uCzN\"\n");
  struct stat status {};
  ASSERT_EQ(stat("alice.vipu-cli.hcl", &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_FALSE(
      controller_.Last<vipuadmin::CreateUserRequest>("CreateUser").user().has_allocation_ids());
  // The file switches to the user.
  unsetenv("VIPU_CLI_API_HOST");
  ExpectSuccess("vipu --config alice.vipu-cli.hcl list partitions");
  EXPECT_EQ(controller_.user_id(), "alice");
  EXPECT_EQ(controller_.access_key(), "") << "a key was sent in clear";
}

TEST_F(CliTest, TheKeyIsPrintedThoughTheFileCannotBeWritten) {
  vipuadmin::CreateUserReply reply;
  reply.set_access_key("685X_K4uCzN");
  controller_.Answer("CreateUser", {&reply});
  fs::create_directories("alice.vipu-cli.hcl/full");
  EXPECT_EQ(Run("vipu-admin create user alice --admin --allocations a,b"), 1);
  EXPECT_EQ(out_, "create user (alice): success. Access key is '685X_K4uCzN'.\n");
  EXPECT_NE(err_.find("cannot write alice.vipu-cli.hcl"), std::string::npos) << err_;
  const auto user = controller_.Last<vipuadmin::CreateUserRequest>("CreateUser").user();
  EXPECT_TRUE(user.admin());
  EXPECT_EQ(user.allocation_ids().names(1), "b");
}

TEST_F(CliTest, AnEmptyListOfAllocationsIsNone) {
  ExpectSuccess("vipu-admin create user alice --allocations=");
  const auto created = controller_.Last<vipuadmin::CreateUserRequest>("CreateUser").user();
  ASSERT_TRUE(created.has_allocation_ids());
  EXPECT_EQ(created.allocation_ids().names_size(), 0);
  ExpectSuccess("vipu-admin update user alice --allocations=");
  const auto updated = controller_.Last<vipuadmin::UpdateUserRequest>("UpdateUser");
  ASSERT_TRUE(updated.has_allocation_ids());
  EXPECT_EQ(updated.allocation_ids().names_size(), 0);
  for (const char* verb : {"create", "update"}) {
    ExpectSuccess(std::string("vipu-admin ") + verb + " user --help");
    EXPECT_NE(out_.find("the only allocations the user may use, '' for none (all)"),
              std::string::npos)
        << out_;
  }
}

TEST_F(CliTest, UpdateUserHandsOutANewKey) {
  vipuadmin::UpdateUserReply reply;
  reply.set_access_key("new_key_123");
  controller_.Answer("UpdateUser", {&reply});
  ExpectSuccess("vipu-admin update user alice --new-access-key");
  EXPECT_EQ(out_.rfind("update user (alice): success. Access key is 'new_key_123'.\n", 0), 0u);
  EXPECT_NE(base::ReadFile("alice.vipu-cli.hcl").find("new_key_123"), std::string::npos);
  ExpectSuccess("vipu-admin update user alice --all-allocations");
  EXPECT_EQ(out_, "update user (alice): success.\n");
  EXPECT_TRUE(controller_.Last<vipuadmin::UpdateUserRequest>("UpdateUser").all_allocations());
  ExpectUsageError("vipu-admin update user alice --all-allocations --allocations a",
                   "Flags --allocations and --all-allocations exclude each other.");
}

TEST_F(CliTest, WhatBecomesOfJobsIsSaidWithTheChange) {
  const auto said = [&](const std::string& flag) {
    ExpectSuccess("vipu-admin remove user u" + flag);
    ExpectSuccess("vipu-admin update user u --all-allocations" + flag);
    ExpectSuccess("vipu-admin update allocation a --users v" + flag);
    const auto jobs = controller_.Last<vipuadmin::RemoveUserRequest>("RemoveUser").jobs();
    EXPECT_EQ(controller_.Last<vipuadmin::UpdateUserRequest>("UpdateUser").jobs(), jobs);
    EXPECT_EQ(controller_.Last<vipuadmin::UpdateAllocationRequest>("UpdateAllocation").jobs(),
              jobs);
    return jobs;
  };
  EXPECT_EQ(said(""), vipuadmin::JOBS_UNDECIDED);
  EXPECT_EQ(said(" --end-jobs"), vipuadmin::JOBS_END);
  EXPECT_EQ(said(" --keep-jobs"), vipuadmin::JOBS_GO_ON);
  for (const char* command :
       {"remove user u", "update user u --new-access-key", "update allocation a --users v"}) {
    ExpectUsageError(std::string("vipu-admin ") + command + " --end-jobs --keep-jobs",
                     "Flags --end-jobs and --keep-jobs exclude each other.");
  }
}

TEST_F(CliTest, UsersInJsonTellNoneFromAll) {
  vipuadmin::ListUsersReply reply;
  reply.add_users()->set_id("all");
  reply.add_users()->set_id("none");
  reply.mutable_users(1)->mutable_allocation_ids();
  controller_.Answer("ListUsers", {&reply});
  ExpectSuccess("vipu-admin list users --showjson");
  EXPECT_EQ(json::parse(out_).at(0).at("allocation_ids"), nullptr);
  EXPECT_EQ(json::parse(out_).at(1).at("allocation_ids"), json::array());
}

// --- JSON ---

TEST_F(CliTest, WhatIsJsonAlreadyStaysOneDocument) {
  auto cabling = TestResult("Cabling", 3.1, 11, 12, "1 failed");
  controller_.Answer("TestCluster", {&cabling});
  EXPECT_EQ(Run("vipu-admin test cluster c1 --showjson"), 1);
  EXPECT_TRUE(json::parse(out_, nullptr, false).is_array()) << out_;
  vipuadmin::CreateUserReply reply;
  reply.set_access_key("685X_K4uCzN");
  controller_.Answer("CreateUser", {&reply});
  fs::create_directories("alice.vipu-cli.hcl/full");
  EXPECT_EQ(Run("vipu-admin create user alice --showjson"), 1);
  EXPECT_EQ(json::parse(out_, nullptr, false).value("access_key", ""), "685X_K4uCzN") << out_;
}

}  // namespace
}  // namespace vpod::tools
