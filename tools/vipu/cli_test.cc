// Whole commands against a canned controller: what they ask, what they print, how they end.
#include "tools/vipu/cli.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/vipu/fake_controller.h"
#include "device/base/file.h"
#include "proto/vipu/v1/vipuadmin.pb.h"
#include "proto/vipu/v1/vipuuser.pb.h"

namespace vpod::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class CliTest : public ::testing::Test {
 protected:
  CliTest()
      : before_(fs::current_path()),
        directory_(fs::path(::testing::TempDir()) /
                   ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    fs::current_path(directory_);
    for (const char* name : {"IPUOF_VIPU_API_HOST", "VIPU_CLI_API_PORT", "VIPU_CLI_CONFIG",
                             "VIPU_CLI_API_USER_ID", "VIPU_CLI_API_ACCESS_KEY"})
      unsetenv(name);
    setenv("HOME", directory_.c_str(), 1);
    setenv("IPUOF_CONFIG_DIR", (directory_ / "ipuof").c_str(), 1);
    setenv("VIPU_CLI_API_HOST", controller_.address().c_str(), 1);
  }
  ~CliTest() override {
    fs::current_path(before_);
    fs::remove_all(directory_);
  }

  // Runs "vipu-admin create agent …"; words are separated by blanks.
  int Run(const std::string& line) {
    std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    const bool admin = words.at(0) == "vipu-admin";
    words.erase(words.begin());
    std::ostringstream out, err;
    const int code = VipuMain(admin, words, out, err);
    out_ = out.str();
    err_ = err.str();
    return code;
  }
  void ExpectSuccess(const std::string& line) {
    EXPECT_EQ(Run(line), 0) << err_;
    EXPECT_EQ(err_, "");
  }
  // The hint names the help of the words that are known: "vipu create partition --help".
  void ExpectUsageError(const std::string& line, const std::string& message, size_t known = 3) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    const std::string tool = words[0];
    const auto begin = words.begin(), end = begin + std::min(known, words.size());
    EXPECT_EQ(Run(line), 2) << line;
    EXPECT_EQ(err_, absl::StrCat(tool, ": error: ", message, " Try '",
                                 absl::StrJoin(begin, end, " "), " --help'.\n"));
    EXPECT_EQ(out_, "");
  }

  const fs::path before_, directory_;
  vipu::FakeController controller_;
  std::string out_, err_;
};

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

// --- partitions ---

// Returns the controller's partition: p1 of 4 reconfigurable IPUs in two GCDs.
vipuuser::GetPartitionReply ExistingPartition() {
  vipuuser::GetPartitionReply reply;
  auto* r = reply.mutable_partition()->mutable_requirements();
  r->set_id("p1");
  r->set_size(4);
  r->set_allocation_id("a1");
  r->set_cluster_id("c1");
  r->set_reconfigurable(true);
  r->set_num_gcds(2);
  r->set_num_replicas(2);
  r->set_sync_type("ST_C2_COMPATIBLE");
  r->set_ipu_link_routing("DNC");
  r->set_gw_link_routing("DEFAULT");
  r->set_num_ilds(1);
  r->set_shared(false);
  reply.mutable_partition()->mutable_status()->set_state(vipuuser::PS_ACTIVE);
  for (uint32_t gcd = 0; gcd < 2; ++gcd) {
    for (uint32_t i = 0; i < 2; ++i) {
      auto* device = reply.mutable_partition()->add_gcds()->add_devices();
      device->set_agent_id("ag0");
      device->set_routing_id(i);
    }
  }
  return reply;
}

TEST_F(CliTest, CreatePartitionSendsEveryFlag) {
  ExpectSuccess(
      "vipu create partition p1 --size=8 --gcds 2 --gcd-sync-replicas 4 --routing dnc --gw-routing "
      "ring --sync-type pod-native-default --allocation a1 --index 0 --num-ilds 2 --no-auto-reset "
      "--relocatable --shared --no-wait");
  EXPECT_EQ(out_, "create partition (p1): success.\n");
  const auto request = controller_.Last<vipuuser::CreatePartitionRequest>("CreatePartition");
  EXPECT_FALSE(request.request_id().empty());
  EXPECT_TRUE(request.disable_auto_reset());
  EXPECT_TRUE(request.relocatable());
  const auto& r = request.requirements();
  EXPECT_EQ(r.id(), "p1");
  EXPECT_EQ(r.size(), 8u);
  EXPECT_EQ(r.num_gcds(), 2u);
  EXPECT_EQ(r.num_replicas(), 4u);
  EXPECT_EQ(r.ipu_link_routing(), "dnc");
  EXPECT_EQ(r.gw_link_routing(), "ring");
  EXPECT_EQ(r.sync_type(), "pod-native-default");
  EXPECT_EQ(r.allocation_id(), "a1");
  EXPECT_TRUE(r.has_index());
  EXPECT_EQ(r.num_ilds(), 2u);
  EXPECT_TRUE(r.shared());
  EXPECT_FALSE(r.reconfigurable());
}

TEST_F(CliTest, CreatePartitionEndsWithTheErrorOfAPartitionThatFails) {
  vipuuser::GetPartitionStatusReply reply;
  reply.mutable_status()->set_state(vipuuser::PS_ERROR);
  reply.mutable_status()->set_message("Agent ag0 does not answer.");
  controller_.Answer("GetPartitionStatus", {&reply});
  EXPECT_EQ(Run("vipu create partition p1 --size 4"), 1);
  EXPECT_EQ(out_, "");
  EXPECT_EQ(err_,
            "create partition (p1): failed. Partition is in state ERROR: Agent ag0 does not "
            "answer.\n");
}

TEST_F(CliTest, UpdatePartitionChangesOnlyWhatFlagsSay) {
  const auto existing = ExistingPartition();
  controller_.Answer("GetPartition", {&existing});
  ExpectSuccess("vipu update partition p1 --total-num-replicas 4 --no-wait");
  auto request = controller_.Last<vipuuser::UpdatePartitionRequest>("UpdatePartition");
  EXPECT_EQ(request.requirements().num_replicas(), 4u);
  auto unchanged = request.requirements();
  unchanged.set_num_replicas(2);
  EXPECT_EQ(unchanged.SerializeAsString(), existing.partition().requirements().SerializeAsString());

  ExpectSuccess("vipu update partition p1 --relocatable --no-auto-reset=false --no-wait");
  request = controller_.Last<vipuuser::UpdatePartitionRequest>("UpdatePartition");
  EXPECT_TRUE(request.relocatable());
  EXPECT_FALSE(request.disable_auto_reset());
}

TEST_F(CliTest, UpdatePartitionChoosesAgainWhatFollowsFromTheChange) {
  const auto existing = ExistingPartition();
  controller_.Answer("GetPartition", {&existing});
  ExpectSuccess("vipu update partition p1 --size 16 --no-wait");
  auto r = controller_.Last<vipuuser::UpdatePartitionRequest>("UpdatePartition").requirements();
  EXPECT_EQ(r.size(), 16u);
  EXPECT_TRUE(r.reconfigurable());
  EXPECT_EQ(r.ipu_link_routing(), "");
  EXPECT_EQ(r.num_ilds(), 0u);
  EXPECT_EQ(r.allocation_id(), "a1");
  ExpectSuccess("vipu update partition p1 --reconfigurable=false --num-gcds 1 --no-wait");
  r = controller_.Last<vipuuser::UpdatePartitionRequest>("UpdatePartition").requirements();
  EXPECT_FALSE(r.reconfigurable());
  EXPECT_EQ(r.sync_type(), "");
  EXPECT_EQ(r.num_gcds(), 1u);
  EXPECT_EQ(r.num_replicas(), 0u);
  EXPECT_EQ(r.ipu_link_routing(), "DNC");
}

TEST_F(CliTest, ResetAndUpdateRewriteOnlyFilesThatAreThere) {
  const auto existing = ExistingPartition();
  vipuuser::GetPartitionStatusReply status;
  *status.mutable_status() = existing.partition().status();
  controller_.Answer("GetPartition", {&existing});
  controller_.Answer("GetPartitionStatus", {&status});
  const fs::path file = directory_ / "ipuof/p1_gcd0.conf";
  for (const char* command : {"vipu reset partition p1", "vipu update partition p1 --shared"}) {
    ExpectSuccess(command);
    EXPECT_FALSE(fs::exists(directory_ / "ipuof")) << command;
  }
  ExpectSuccess("vipu create partition p1 --size 4 --num-gcds 2");
  for (const char* command : {"vipu reset partition p1", "vipu update partition p1 --shared"}) {
    ASSERT_TRUE(fs::exists(file));
    std::ofstream(file) << "{}";
    ExpectSuccess(command);
    EXPECT_NE(base::ReadFile(file).find("\"devices\""), std::string::npos) << command;
  }
}

TEST_F(CliTest, ListPartitionsNamesTheDevicesInJson) {
  vipuuser::ListPartitionsReply list;
  *list.add_partitions() = ExistingPartition().partition();
  controller_.Answer("ListPartitions", {&list});
  ExpectSuccess("vipu list partitions --showjson");
  EXPECT_EQ(json::parse(out_).at(0).at("partition").at("spec").at("ipus").size(), 4u);
  using Request = vipuuser::ListPartitionsRequest;
  EXPECT_TRUE(controller_.Last<Request>("ListPartitions").with_devices());
  ExpectSuccess("vipu list partitions");
  EXPECT_FALSE(controller_.Last<Request>("ListPartitions").with_devices());
}

// p10 is ACTIVE, p2 PENDING.
vipuuser::ListPartitionsReply TwoPartitions() {
  vipuuser::ListPartitionsReply list;
  for (const char* id : {"p10", "p2"}) {
    auto* partition = list.add_partitions();
    partition->mutable_requirements()->set_id(id);
    partition->mutable_requirements()->set_size(4);
    partition->mutable_status()->set_created_by("alice");
  }
  list.mutable_partitions(0)->mutable_status()->set_state(vipuuser::PS_ACTIVE);
  return list;
}

TEST_F(CliTest, ListsAreSortedFilteredAndPrintedAsAsked) {
  const auto list = TwoPartitions();
  controller_.Answer("ListPartitions", {&list});
  ExpectSuccess("vipu list partitions -o name");
  EXPECT_EQ(out_, "p10\np2\n");
  ExpectSuccess("vipu-admin list partitions -o name --sort-by partition");
  EXPECT_EQ(out_, "p2\np10\n");
  ExpectSuccess("vipu list partitions --no-headers --filter state=active,size=4");
  EXPECT_EQ(out_,
            " p10         | -       | 0    | -          | -           | 4    | 0    | ACTIVE\n");
  ExpectSuccess("vipu list partitions -o csv --filter state=pending");
  EXPECT_EQ(out_,
            "Partition,Cluster,ILDs,GW Routing,ILD Routing,Size,GCDs,State,Replicas,"
            "Reconfigurable,Created by,Created at,Error\n"
            "p2,,0,,,4,0,PENDING,0,No,alice,1970-01-01T00:00:00Z,\n");
  ExpectSuccess("vipu list partitions -o wide --filter partition=p2");
  EXPECT_NE(out_.find("| Created by "), std::string::npos) << out_;
}

TEST_F(CliTest, ListsAreJsonAndYamlOfTheObjectsThatRemain) {
  const auto list = TwoPartitions();
  controller_.Answer("ListPartitions", {&list});
  ExpectSuccess("vipu list partitions --showjson");
  const std::string json_text = out_;
  ExpectSuccess("vipu list partitions -o json");
  EXPECT_EQ(out_, json_text);
  ExpectSuccess("vipu list partitions -o json --filter partition=p2");
  ASSERT_EQ(json::parse(out_).size(), 1u);
  EXPECT_EQ(json::parse(out_)[0]["partition"]["id"], "p2");
  ExpectSuccess("vipu list partitions -o yaml --sort-by partition");
  EXPECT_EQ(out_.rfind("- partition:\n    id: \"p2\"\n    spec:\n      ipus: []\n", 0), 0u) << out_;
  EXPECT_NE(out_.find("\n  state: \"PS_PENDING\"\n"), std::string::npos) << out_;
  ExpectSuccess("vipu list partitions -o yaml --filter partition=none");
  EXPECT_EQ(out_, "[]\n");
}

TEST_F(CliTest, WrongListFlagsAreNamed) {
  constexpr char kColumns[] =
      "Unknown column 'nothing'; give one of Allocation ID, Agents, Cluster ID.";
  ExpectUsageError("vipu list allocations --sort-by nothing", kColumns);
  ExpectUsageError("vipu list allocations --filter nothing=1", kColumns);
  ExpectUsageError("vipu list allocations --filter agents",
                   "Flag --filter needs COLUMN=VALUE, not 'agents'.");
  ExpectUsageError("vipu list allocations -o xml",
                   "Flag --output is one of table|name|wide|csv|yaml|json, not 'xml'.");
  EXPECT_EQ(Run("vipu list allocations -o csv --showjson"), 2);
  EXPECT_NE(err_.find("Flags --showjson and --output exclude each other."), std::string::npos);
  ExpectUsageError("vipu list allocations --watch=0",
                   "Flag --watch takes 0.1 to 86400 seconds, not '0'.");
  ExpectUsageError("vipu-admin list events --follow -o csv",
                   "Flag --follow goes with --no-headers or -o json, but with no other flag of "
                   "lists.");
  EXPECT_EQ(Run("vipu get partition p -o json"), 2);
  EXPECT_NE(err_.find("Unknown flag: --output."), std::string::npos) << err_;
}

// A reader that goes away after so many lists.
class Reader : public std::stringbuf {
 public:
  explicit Reader(int lists) : left_(lists) {}

 protected:
  int sync() override { return --left_ > 0 ? 0 : -1; }

 private:
  int left_;
};

TEST_F(CliTest, WatchGoesOnUntilNobodyReads) {
  const auto list = TwoPartitions();
  controller_.Answer("ListPartitions", {&list});
  Reader reader(3);
  std::ostream out(&reader);
  std::ostringstream err;
  VipuMain(false, {"list", "partitions", "-o", "name", "--watch=0.1"}, out, err);
  EXPECT_EQ(reader.str(), "p10\np2\np10\np2\np10\np2\n");
}

TEST_F(CliTest, ListAgentsHasTheFactsOfGetAgent) {
  vipuadmin::ListAgentsReply list;
  list.add_agents()->set_id("ag1");
  vipuadmin::GetAgentReply one;
  one.mutable_agent()->set_id("ag1");
  (*one.mutable_agent()->mutable_facts())["Board serial number"] = "8203921-0007";
  one.mutable_agent()->add_ipus()->set_index(3);
  one.mutable_agent()->set_last_seen_ms(-1);
  controller_.Answer("ListAgents", {&list});
  controller_.Answer("GetAgent", {&one});
  ExpectSuccess("vipu-admin get agent ag1 --showjson");
  const json agent = json::parse(out_);
  ExpectSuccess("vipu-admin list agents --showjson");
  EXPECT_EQ(json::parse(out_), json::array({agent}));
  EXPECT_EQ(agent["ipus"][0]["pcie_id"], 3);
  EXPECT_EQ(agent["seen_at"], nullptr);
  ExpectSuccess("vipu-admin list agents -o wide");
  EXPECT_NE(out_.find("| 8203921-0007 "), std::string::npos) << out_;
}

TEST_F(CliTest, GetPartitionShowsOneGcdOnRequest) {
  const auto existing = ExistingPartition();
  controller_.Answer("GetPartition", {&existing});
  ExpectSuccess("vipu get partition p1 --gcd 1");
  EXPECT_NE(out_.find("\n GCD 1\n"), std::string::npos) << out_;
  EXPECT_EQ(out_.find("\n GCD 0\n"), std::string::npos) << out_;
  EXPECT_EQ(Run("vipu get partition p1 --gcd 2"), 1);
  EXPECT_EQ(err_, "get partition (p1): failed. Partition has 2 GCDs; GCD 2 does not exist.\n");
}

TEST_F(CliTest, WaitPartitionEndsInTheStateOrAtTheTimeout) {
  vipuuser::GetPartitionStatusReply status;
  status.mutable_status()->set_state(vipuuser::PS_ACTIVE);
  controller_.Answer("GetPartitionStatus", {&status});
  ExpectSuccess("vipu wait partition p1 --for ACTIVE --timeout 30s");
  EXPECT_EQ(out_, "wait partition (p1): success.\n");
  EXPECT_EQ(Run("vipu wait partition p1 --for removed --timeout 500ms"), 1);
  EXPECT_EQ(err_, "wait partition (p1): failed. No result within 0.5 s; partition is ACTIVE.\n");
  EXPECT_EQ(out_, "");
  // An ERROR may heal.
  status.mutable_status()->set_state(vipuuser::PS_ERROR);
  status.mutable_status()->set_message("Agent ag0 does not answer.");
  controller_.Answer("GetPartitionStatus", {&status});
  EXPECT_EQ(Run("vipu wait partition p1 --for active --timeout 500ms"), 1);
  EXPECT_EQ(err_,
            "wait partition (p1): failed. No result within 0.5 s; partition is ERROR: Agent ag0 "
            "does not answer.\n");
  ExpectSuccess("vipu wait partition p1 --for error");
}

TEST_F(CliTest, WaitPartitionKnowsThatItIsGone) {
  vipuuser::GetPartitionStatusReply status;
  status.mutable_status()->set_state(vipuuser::PS_REMOVED);
  controller_.Answer("GetPartitionStatus", {&status});
  ExpectSuccess("vipu wait partition p1 --for removed");
  EXPECT_EQ(Run("vipu wait partition p1 --for active"), 1);
  EXPECT_EQ(err_, "wait partition (p1): failed. Partition was removed.\n");
  controller_.Answer("GetPartitionStatus", {}, absl::NotFoundError("Partition p1 does not exist."));
  ExpectSuccess("vipu wait partition p1 --for removed");
  EXPECT_EQ(Run("vipu wait partition p1 --for active"), 1);
  EXPECT_EQ(err_, "wait partition (p1): failed. Partition p1 does not exist.\n");
  ExpectUsageError("vipu wait partition p1 --for gone",
                   "Flag --for is one of active|removed|pending|error, not 'gone'.");
  ExpectUsageError("vipu wait partition p1", "wait partition needs --for.");
}

TEST_F(CliTest, TimeoutsAreSecondsOrTimes) {
  for (const char* time : {"30", "30s", "2m", "0.5s", "100ms", "1h"})
    ExpectSuccess(absl::StrCat("vipu list partitions --timeout ", time));
  for (const char* no_time : {"0", "-1", "soon", "0s", "30x", "inf", "9999999h"}) {
    ExpectUsageError(
        absl::StrCat("vipu list partitions --timeout=", no_time),
        absl::StrCat("Flag --timeout needs a time such as 30, 30s or 2m, not '", no_time, "'."));
  }
}

// --- the command line itself ---

TEST_F(CliTest, WrongUsageIsNamed) {
  ExpectUsageError("vipu", "No command given.");
  ExpectUsageError("vipu frobnicate partition p", "Unknown verb 'frobnicate'.", 1);
  ExpectUsageError("vipu create", "'create' needs a noun, e.g. 'create partition'.", 2);
  ExpectUsageError("vipu create widget w", "Unknown noun 'widget'.", 2);
  ExpectUsageError("vipu create agent a --host h", "Cannot create agent with vipu.", 2);
  ExpectUsageError("vipu-admin discover cluster", "Cannot discover cluster with vipu-admin.", 2);
  ExpectUsageError("vipu get partition", "get partition needs an id.");
  ExpectUsageError("vipu get partition a|b", "Invalid id 'a|b'.");
  ExpectUsageError("vipu list partitions p", "Unexpected argument 'p'.");
  ExpectUsageError("vipu list partitions --size 4", "Unknown flag: --size.");
  ExpectUsageError("vipu list partitions --siez 4", "Unknown flag: --siez.");
  ExpectUsageError("vipu list partitions --api-port", "Flag --api-port needs a value.");
  ExpectUsageError("vipu list partitions --api-port=0",
                   "port '0' from --api-port must be a number from 1 to 65535.");
  ExpectUsageError("vipu create partition p --size 4 --size 8",
                   "Flag --size is given more than once.");
  ExpectUsageError("vipu create partition p --size 4x", "Flag --size needs a number, not '4x'.");
  for (const char* flag :
       {"--size", "--num-gcds", "--gcd-sync-replicas", "--total-num-replicas", "--num-ilds"}) {
    ExpectUsageError(absl::StrCat("vipu update partition p ", flag, " 0"),
                     absl::StrCat("Flag ", flag, " takes 1 or more, not 0."));
  }
  ExpectUsageError("vipu-admin create agent a --host h --port 0",
                   "Flag --port takes 1 or more, not 0.");
  ExpectUsageError("vipu create partition p --size 4294967296",
                   "Flag --size takes at most 4294967295, not 4294967296.");
  ExpectUsageError("vipu create partition p", "create partition needs --size.");
  ExpectUsageError("vipu create partition p --size 4 --shared=maybe",
                   "Flag --shared takes true or false, not 'maybe'.");
}

TEST_F(CliTest, GlobalFlagsStandAnywhere) {
  unsetenv("VIPU_CLI_API_HOST");
  for (const std::string& line : {"vipu -H " + controller_.address() + " list partitions",
                                  "vipu list -H" + controller_.address() + " partition",
                                  "vipu list partitions --api-host=" + controller_.address()}) {
    ExpectSuccess(line);
    EXPECT_EQ(out_.rfind(" Partition ", 0), 0u) << line;
  }
}

TEST_F(CliTest, EveryListAndGetHasJson) {
  for (const char* noun :
       {"agents", "clusters", "allocations", "partitions", "users", "events", "ipu-attrs"}) {
    ExpectSuccess(std::string("vipu-admin list ") + noun + " --showjson");
    EXPECT_EQ(json::parse(out_), json::array()) << noun;
  }
  for (const char* noun : {"agent", "cluster", "allocation", "partition", "user"}) {
    ExpectSuccess(std::string("vipu-admin get ") + noun + " x --showjson");
    EXPECT_TRUE(json::parse(out_).is_object()) << noun;
  }
  ExpectSuccess("vipu-admin discover agents --showjson");
  EXPECT_EQ(json::parse(out_), json::array());
}

TEST_F(CliTest, WhatChangesSomethingHasJson) {
  for (const char* command :
       {"create agent a --host h", "update agent a --port 1", "remove agent a",
        "create cluster a --agents x", "create allocation a --cluster c --agents x",
        "create partition a --size 4 --no-wait", "reset partition a --no-wait",
        "remove partition a", "remove user a", "inject agent a --fault agent-hang --seconds 1"}) {
    ExpectSuccess(absl::StrCat("vipu-admin ", command, " --showjson"));
    const std::vector<std::string> words = absl::StrSplit(command, ' ');
    const json expected = {
        {"verb", words[0]}, {"noun", words[1]}, {"id", "a"}, {"result", "success"}};
    EXPECT_EQ(json::parse(out_, nullptr, false), expected) << out_;
  }
  vipuadmin::CreateUserReply reply;
  reply.set_access_key("685X_K4uCzN");
  controller_.Answer("CreateUser", {&reply});
  ExpectSuccess("vipu-admin create user alice --showjson");
  EXPECT_EQ(json::parse(out_, nullptr, false).value("access_key", ""), "685X_K4uCzN") << out_;
  EXPECT_TRUE(fs::exists("alice.vipu-cli.hcl"));
}

TEST_F(CliTest, FailuresAreJsonToo) {
  controller_.Answer("GetPartition", {}, absl::NotFoundError("Partition p does not exist."));
  EXPECT_EQ(Run("vipu get partition p --showjson"), 1);
  EXPECT_EQ(err_, "get partition (p): failed. Partition p does not exist.\n");
  const json expected = {{"verb", "get"},       {"noun", "partition"},
                         {"id", "p"},           {"result", "failed"},
                         {"code", "NOT_FOUND"}, {"error", "Partition p does not exist."}};
  EXPECT_EQ(json::parse(out_, nullptr, false), expected) << out_;
  EXPECT_EQ(Run("vipu list partitions -o yaml -H 127.0.0.1:1"), 1);
  EXPECT_EQ(json::parse(out_, nullptr, false).value("code", ""), "UNAVAILABLE") << out_;
  EXPECT_EQ(Run("vipu list partitions --siez 4 --showjson"), 2);
  EXPECT_EQ(json::parse(out_, nullptr, false).value("error", ""), "Unknown flag: --siez.") << out_;
  EXPECT_EQ(Run("vipu list partitions --watch -o json -H 127.0.0.1:1"), 1);
  EXPECT_EQ(out_.find('\n'), out_.size() - 1) << out_;
}

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

TEST_F(CliTest, IpuofConfigurationsInJsonAreOneList) {
  const auto existing = ExistingPartition();
  controller_.Answer("GetPartition", {&existing});
  ExpectSuccess("vipu get partition p1 --ipuof-configs --showjson");
  EXPECT_EQ(json::parse(out_, nullptr, false).size(), 2u) << out_;
  ExpectSuccess("vipu get partition p1 --ipuof-configs --gcd 1 --showjson");
  EXPECT_TRUE(json::parse(out_, nullptr, false).is_object()) << out_;
}

TEST_F(CliTest, AnUnreachableControllerIsNamed) {
  EXPECT_EQ(Run("vipu list partitions -H 127.0.0.1:1"), 1);
  EXPECT_EQ(err_, "vipu: error: Cannot connect to the V-IPU server at 127.0.0.1:1.\n");
  EXPECT_EQ(Run("vipu get partition p -H 127.0.0.1:1"), 1);
  EXPECT_EQ(err_,
            "get partition (p): failed. Cannot connect to the V-IPU server at 127.0.0.1:1.\n");
}

}  // namespace
}  // namespace vpod::tools
