// PODs of `vpod up` whose users show access keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "device/base/file.h"
#include "tests/support/pod.h"
#include "tests/system/two_users.h"

namespace vpod::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPartitions[] = R"(partitions:
  - {id: p4, size: 4, allocation: a0, reconfigurable: true}
)";

class VpodSecureTest : public ::testing::Test {
 protected:
  VpodSecureTest() : pod_(0) {
    for (const char* variable : {"VIPU_CLI_API_HOST", "VIPU_CLI_API_PORT", "IPUOF_CONFIG_DIR"})
      pod_.environment()[variable] = "";
  }
  Outcome Up(const std::string& options) {
    return pod_.Shell("vpod up --memory-limit 1024 --api-port " + std::to_string(pod_.port()) +
                      " " + options);
  }
  Outcome Apply(const std::string& first_lines) {
    const std::string file = pod_.directory() + "/pod.yaml";
    std::ofstream(file) << "machines: 2\nmemory_limit: 1024\napi_port: " << pod_.port() << "\n"
                        << first_lines << kTwoUsers << kPartitions;
    return pod_.Run({"vpod", "up", "-f", file});
  }
  Outcome As(const std::string& user, const std::string& script) {
    return pod_.Shell("eval \"$(vpod env --user " + user + ")\"; " + script);
  }

  TestPod pod_;
};

TEST_F(VpodSecureTest, OneOptionMakesCertificatesAndKeysThatToolsFind) {
  const Outcome up = Up("--secure --pod 4");
  ASSERT_EQ(up.code, 0) << up.err;
  EXPECT_THAT(up.out, HasSubstr("API 127.0.0.1:" + std::to_string(pod_.port()) + " (secure)"));
  // With VPOD_HOME alone, and with the variables of `vpod env`.
  const std::string use =
      "vipu-admin list users -o name; vipu create partition p4 --size 4 --reconfigurable && "
      "gc-info --ipu-count && poprun --num-replicas 4 replica_job --runs 1 >&2 && "
      "vipu remove partition p4";
  for (const std::string& script : {use, "eval \"$(vpod env)\"; " + use}) {
    const Outcome used = pod_.Shell(script);
    EXPECT_EQ(used.code, 0) << used.err;
    EXPECT_THAT(used.out, HasSubstr("create partition (p4): success.\n4\n"));
  }
  // Without a key nothing is told.
  const Outcome stranger =
      pod_.Shell("unset VPOD_HOME; vipu --api-host 127.0.0.1:" + std::to_string(pod_.port()) +
                 " list partitions");
  EXPECT_EQ(stranger.code, 1);
  const Outcome wrong = pod_.Shell("vipu --api-access-key AAA-BBB-CCC list partitions");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.err, Not(HasSubstr("Cannot connect")));
  // Keys are for the owner's eyes.
  EXPECT_EQ(pod_.Shell("find $VPOD_HOME -name '*.key' -o -name '*.hcl' | xargs stat -c %a | sort "
                       "-u")
                .out,
            "600\n");
  EXPECT_THAT(pod_.Run({"vpod", "status"}).out, HasSubstr(" (secure)"));
  EXPECT_EQ(nlohmann::json::parse(pod_.Run({"vpod", "status", "--json"}).out)["secure"], true);
  EXPECT_EQ(pod_.Run({"vpod", "doctor"}).code, 0);
}

TEST_F(VpodSecureTest, ItStaysSecureWhenItIsRestored) {
  ASSERT_EQ(Up("--secure --pod 4 --agents processes").code, 0);
  ASSERT_EQ(pod_.Shell("vipu create partition p4 --size 4").code, 0);
  ASSERT_TRUE(EndProcess(pod_.ServerPid(), SIGKILL));
  ASSERT_TRUE(EndProcess(pod_.AgentPid(), SIGKILL));
  const Outcome up = pod_.Run({"vpod", "up"});
  ASSERT_EQ(up.code, 0) << up.err;
  EXPECT_THAT(up.out, HasSubstr(" (secure)"));
  EXPECT_EQ(pod_.Shell("vipu wait partition p4 --for active").code, 0);
  // Another kind of POD needs another directory.
  std::ofstream(pod_.directory() + "/open.yaml") << "machines: 1\nsecure: false\n";
  const Outcome other = pod_.Shell("vpod up -f " + pod_.directory() + "/open.yaml");
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("holds the state of a POD4"));
  EXPECT_THAT(other.err, HasSubstr(", secure,"));
  // Nothing of it is left for the next.
  ASSERT_EQ(pod_.Run({"vpod", "down"}).code, 0);
  EXPECT_FALSE(fs::exists(pod_.home() + "/vipu-certs"));
  EXPECT_FALSE(fs::exists(pod_.home() + "/vipu-cli.hcl"));
  ASSERT_EQ(Up("--pod 4").code, 0);
  EXPECT_EQ(pod_.Shell("vipu list partitions -o name").out, "");
}

TEST_F(VpodSecureTest, UsersOfAFileAreCheckedOrItIsSaidThatTheyAreNot) {
  const Outcome open = Apply("");
  ASSERT_EQ(open.code, 0) << open.err;
  EXPECT_THAT(open.err, HasSubstr("vpod: users are recorded, not checked"));
  EXPECT_EQ(std::count(open.err.begin(), open.err.end(), '\n'), 1) << open.err;
  ASSERT_EQ(pod_.Run({"vpod", "down"}).code, 0);

  const Outcome up = Apply("secure: true\n");
  ASSERT_EQ(up.code, 0) << up.err;
  EXPECT_EQ(up.err, "");
  EXPECT_EQ(As("alice", "vipu list allocations -o name").out, "a0\n");
  EXPECT_EQ(As("bob", "vipu list allocations -o name").out, "a1\n");
  const Outcome foreign = As("bob", "vipu remove partition p4");
  EXPECT_EQ(foreign.code, 1) << foreign.out;
  EXPECT_EQ(As("alice", "vipu reset partition p4").code, 0);
  EXPECT_EQ(As("bob", "vipu-admin list users").code, 1);
  // Only with the key: the name alone is not enough.
  EXPECT_EQ(As("bob", "VIPU_CLI_API_USER_ID=alice vipu reset partition p4").code, 1);
  const Outcome again = Apply("secure: true\n");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("nothing changed"));
  const Outcome nobody = pod_.Run({"vpod", "env", "--user", "nobody"});
  EXPECT_EQ(nobody.code, 1);
  EXPECT_THAT(nobody.err, HasSubstr("no user nobody has a key in " + pod_.home()));
  const Outcome wrong = pod_.Run({"vpod", "env", "--user", "../bob"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--user: Invalid id '../bob'. Ids have 1 to 63 letters"));
}

TEST_F(VpodSecureTest, AUsersShellHasTheFilesOfPartitionsThatTheUserMayUse) {
  const Outcome up = Apply("secure: true\n");
  ASSERT_EQ(up.code, 0) << up.err;
  const auto files_of = [&](const std::string& user) {
    return As(user, "ls \"$IPUOF_CONFIG_DIR\"").out;
  };
  // The administrator's partition is not shared.
  EXPECT_EQ(pod_.Shell("eval \"$(vpod env)\"; ls \"$IPUOF_CONFIG_DIR\"").out, "p4.conf\n");
  EXPECT_EQ(files_of("alice"), "");
  EXPECT_EQ(files_of("bob"), "");
  ASSERT_EQ(As("bob", "vipu create partition mine --size 2 --allocation a1 --reconfigurable").code,
            0);
  EXPECT_EQ(files_of("bob"), "mine.conf\n");
  EXPECT_EQ(As("bob", "gc-info --ipu-count").out, "2\n");
  ASSERT_EQ(pod_.Shell("vipu-admin update partition p4 --shared").code, 0);
  EXPECT_EQ(files_of("alice"), "p4.conf\n");
  EXPECT_EQ(As("alice", "gc-info --ipu-count").out, "4\n");
  EXPECT_EQ(files_of("bob"), "mine.conf\n");
  // What was removed meanwhile is no longer there, and a POD that is down changes nothing.
  ASSERT_EQ(pod_.Shell("vipu-admin remove partition p4").code, 0);
  EXPECT_EQ(files_of("alice"), "");
  ASSERT_EQ(pod_.Run({"vpod", "down", "--keep"}).code, 0);
  EXPECT_EQ(files_of("bob"), "mine.conf\n");
  ASSERT_EQ(pod_.Run({"vpod", "down"}).code, 0);
  EXPECT_FALSE(fs::exists(pod_.home() + "/bob.ipuof.conf.d"));
}

// The key of the administrator, as whom vpod calls, is not replaced behind its back.
TEST_F(VpodSecureTest, AFileMayNameTheAdministrator) {
  const std::string self = pod_.Run({"id", "-un"}).out;
  const std::string file = pod_.directory() + "/pod.yaml";
  std::ofstream(file) << "machines: 1\nmemory_limit: 1024\nsecure: true\napi_port: " << pod_.port()
                      << "\nusers:\n  - {id: " << self.substr(0, self.size() - 1)
                      << ", admin: true}\n";
  for (int i = 0; i < 2; ++i) {
    const Outcome up = pod_.Run({"vpod", "up", "-f", file});
    ASSERT_EQ(up.code, 0) << up.err;
    EXPECT_EQ(pod_.Shell("vipu-admin list users -o name").out, self);
  }
}

// A POD whose first start was interrupted between its storage and the file with the key.
TEST_F(VpodSecureTest, AnInterruptedStartIsBegunAgain) {
  ASSERT_EQ(Up("--secure --pod 4").code, 0);
  const std::string shape = base::ReadFile(pod_.home() + "/pod.json");
  ASSERT_EQ(pod_.Run({"vpod", "down", "--keep"}).code, 0);
  const auto json = [&](bool unfinished) {
    auto changed = nlohmann::json::parse(shape);
    changed["unfinished"] = unfinished;
    return changed.dump();
  };
  fs::remove(pod_.home() + "/vipu-cli.hcl");
  const Outcome lost = pod_.Run({"vpod", "up"});
  EXPECT_EQ(lost.code, 1);
  EXPECT_THAT(lost.err, HasSubstr("vipu-cli.hcl has no access key of the administrator"));
  // Nothing is lost that the advice in the message does not bring back.
  EXPECT_THAT(pod_.Run({"vpod", "doctor"}).out, HasSubstr("or 'vpod restore' a backup\n"));
  std::ofstream(pod_.home() + "/pod.json") << json(true);
  const Outcome up = pod_.Run({"vpod", "up"});
  EXPECT_EQ(up.code, 0) << up.err;
  EXPECT_EQ(pod_.Shell("vipu-admin list agents -o name").out, "ag0\n");
}

}  // namespace
}  // namespace vpod::testing
