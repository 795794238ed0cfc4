// The command line of both tools: usage, flags, lists, JSON.
#include "tools/vipu/cli.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/render/table.h"
#include "proto/vipu/v1/vipuadmin.pb.h"
#include "proto/vipu/v1/vipuuser.pb.h"
#include "tools/vipu/cli_fixture.h"

namespace vpod::tools {
namespace {

using nlohmann::json;

// --- help ---

// "…" has three bytes.
TEST_F(CliTest, HelpOfFlagsBeginsInOneColumn) {
  ExpectSuccess("vipu-admin create allocation --help");
  const auto column_of = [&](const std::string& help) {
    const size_t at = out_.find(help), line = out_.rfind('\n', at) + 1;
    EXPECT_NE(at, std::string::npos) << help << "\n" << out_;
    return at == std::string::npos ? 0 : render::Columns(out_.substr(line, at - line));
  };
  const size_t column = column_of("users who may use it");
  EXPECT_EQ(column_of("agents in order: rack by rack"), column) << out_;
  EXPECT_EQ(column_of("cluster to take IPUs of"), column) << out_;
  EXPECT_EQ(column, std::string("  --cluster <cluster>  ").size()) << out_;
}

// --- lists ---

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

// --- the command line itself ---

TEST_F(CliTest, TimeoutsAreSecondsOrTimes) {
  for (const char* time : {"30", "30s", "2m", "0.5s", "100ms", "1h"})
    ExpectSuccess(absl::StrCat("vipu list partitions --timeout ", time));
  for (const char* no_time : {"0", "-1", "soon", "0s", "30x", "inf", "9999999h"}) {
    ExpectUsageError(
        absl::StrCat("vipu list partitions --timeout=", no_time),
        absl::StrCat("Flag --timeout needs a time such as 30, 30s or 2m, from 1ms to 4294967295s, "
                     "not '",
                     no_time, "'."));
  }
}

TEST_F(CliTest, WrongUsageIsNamed) {
  ExpectUsageError("vipu", "No command given.");
  ExpectUsageError("vipu frobnicate partition p", "Unknown verb 'frobnicate'.", 1);
  ExpectUsageError("vipu create", "'create' needs a noun, e.g. 'create partition'.", 2);
  ExpectUsageError("vipu create widget w", "Unknown noun 'widget'.", 2);
  ExpectUsageError("vipu create agent a --host h", "Cannot create agent with vipu.", 2);
  ExpectUsageError("vipu-admin discover cluster", "Cannot discover cluster with vipu-admin.", 2);
  ExpectUsageError("vipu get partition", "get partition needs an id.");
  ExpectUsageError("vipu get partition a|b",
                   "Invalid id 'a|b'. Ids have 1 to 63 letters, digits, '.', '_' and '-' and begin "
                   "with a letter or digit.");
  ExpectUsageError("vipu list partitions p", "Unexpected argument 'p'.");
  ExpectUsageError("vipu-admin backup", "backup needs a file.");
  ExpectUsageError("vipu list partitions --size 4", "Unknown flag: --size.");
  ExpectUsageError("vipu list partitions --siez 4", "Unknown flag: --siez.");
  ExpectUsageError("vipu list partitions --api-port", "Flag --api-port needs a value.");
  ExpectUsageError("vipu list partitions --api-port=0",
                   "port '0' from --api-port must be a number from 1 to 65535.");
  ExpectUsageError("vipu create partition p --size 4 --size 8",
                   "Flag --size is given more than once.");
  ExpectUsageError("vipu create partition p --size 4x",
                   "Flag --size needs a number of 1 or more, not '4x'.");
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

TEST_F(CliTest, AnUnreachableControllerIsNamed) {
  EXPECT_EQ(Run("vipu list partitions -H 127.0.0.1:1"), 1);
  EXPECT_EQ(err_,
            "vipu: error: Cannot connect to the V-IPU server at 127.0.0.1:1. Nobody listens there. "
            "The address is from --api-host.\n");
  EXPECT_EQ(Run("vipu get partition p -H 127.0.0.1:1"), 1);
  EXPECT_EQ(err_,
            "get partition (p): failed. Cannot connect to the V-IPU server at 127.0.0.1:1. Nobody "
            "listens there. The address is from --api-host.\n");
}

}  // namespace
}  // namespace vpod::tools
