// Programs of PopTorch that two users run side by side on one POD.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/support/pod.h"
#include "tests/system/two_users.h"

namespace vpod::testing {
namespace {

using Json = nlohmann::json;
using ::testing::EndsWith;

constexpr char kProgram[] = "client/python/poptorch/_testing/side_by_side.py";

// An IPU in use: process id, command, user, id of the IPU.
using Use = std::tuple<std::string, std::string, std::string, std::string>;

std::map<std::string, std::string> Environment() {
  const auto modules = std::filesystem::absolute("client/python");
  return {{"PYTHONPATH", modules.string()},
          {"POPTORCH_IPU_MODEL", "0"},
          {"OMP_WAIT_POLICY", "passive"}};
}

// The rows of processes in what gc-monitor shows.
std::set<Use> InTable(const Outcome& monitor) {
  EXPECT_EQ(monitor.code, 0) << monitor.err;
  std::set<Use> uses;
  for (const absl::string_view line : absl::StrSplit(monitor.out, '\n')) {
    std::vector<std::string> cells = absl::StrSplit(line, '|');
    for (std::string& cell : cells) absl::StripAsciiWhitespace(&cell);
    const bool is_row = cells.size() == 11 && !cells[1].empty() &&
                        cells[1].find_first_not_of("0123456789") == std::string::npos;
    if (is_row) uses.emplace(cells[1], cells[2], cells[4], cells[5]);
  }
  return uses;
}

std::set<Use> InJson(const Outcome& monitor) {
  EXPECT_EQ(monitor.code, 0) << monitor.err;
  std::set<Use> uses;
  const Json json = Json::parse(monitor.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(json.is_object()) << monitor.out;
  for (const Json& card : json.value("cards", Json::array())) {
    for (const Json& ipu : card["ipus"]) {
      const auto text = [&](const char* key) { return ipu[key].get<std::string>(); };
      if (ipu.contains("PID")) uses.emplace(text("PID"), text("Command"), text("User"), text("ID"));
    }
  }
  return uses;
}

// The number of IPUs that each process has, with its command and user.
std::map<std::tuple<std::string, std::string, std::string>, int> Counted(
    const std::set<Use>& uses) {
  std::map<std::tuple<std::string, std::string, std::string>, int> counts;
  for (const auto& [pid, command, user, ipu] : uses) ++counts[{pid, command, user}];
  return counts;
}

class PopTorchUsersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("/usr/bin/python3 -c 'import numpy, torch' 2>/dev/null") != 0)
      GTEST_SKIP() << "python3-torch is not installed (deploy/packages-pytorch.txt)";
    if (std::system("unshare --user --map-user=1 true 2>/dev/null") != 0)
      GTEST_SKIP() << "no user namespaces here";
  }

  // A shell's words that train as another user of this host, in the shell's process, until `End`:
  // in a user namespace of their own, where our files are theirs.
  std::string Train(int user, int replicas) {
    return absl::StrCat("exec unshare --user --map-user=", user, " /usr/bin/python3 ", kProgram,
                        " ", user, " ", replicas, " ", File());
  }
  std::string File() { return pod_->directory() + "/end"; }
  // The programs end, each having trained as PyTorch does.
  void End(std::initializer_list<Command*> programs) {
    std::ofstream(File()) << "\n";
    for (Command* program : programs) {
      const Outcome outcome = program->Wait();
      EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
      EXPECT_THAT(outcome.out, EndsWith(" updates as in PyTorch\n"));
    }
  }
  static std::string Pid(const Command& program) { return std::to_string(program.pid()); }
  // The name of a user of this host.
  std::string Name(int user) {
    const std::string name = pod_->Run({"id", "-nu", std::to_string(user)}).out;
    return name.substr(0, name.find('\n'));
  }

  std::unique_ptr<TestPod> pod_;
};

TEST_F(PopTorchUsersTest, ShareAPartition) {
  pod_ = std::make_unique<TestPod>(4, std::vector<std::string>(), Environment());
  pod_->CreatePartition("p4", 4);
  const auto one = pod_->Start({"bash", "-c", Train(1, 1)}),
             two = pod_->Start({"bash", "-c", Train(2, 2)});
  for (Command* program : {one.get(), two.get()})
    ASSERT_TRUE(program->WaitForOutput("training")) << program->Err();

  const std::set<Use> uses = InTable(pod_->Run({"gc-monitor", "--no-card-info"}));
  EXPECT_THAT(Counted(uses), ::testing::UnorderedElementsAre(
                                 std::pair(std::tuple(Pid(*one), "python3", Name(1)), 1),
                                 std::pair(std::tuple(Pid(*two), "python3", Name(2)), 2)));
  EXPECT_NE(Name(1), Name(2));
  EXPECT_EQ(InJson(pod_->Run({"gc-monitor", "--json"})), uses);
  std::set<std::string> ipus;
  for (const auto& [pid, command, user, ipu] : uses) ipus.insert(ipu);
  EXPECT_EQ(ipus.size(), 3u);

  End({one.get(), two.get()});
  EXPECT_EQ(pod_->AttachedIpus(), 0);
}

// Each user has a partition and an access key, and sees what is on that partition. The
// administrator sees both.
TEST_F(PopTorchUsersTest, HavePartitionsOfTheirOwnOnASecurePod) {
  pod_ = std::make_unique<TestPod>(0, std::vector<std::string>(), Environment());
  for (const char* variable : {"VIPU_CLI_API_HOST", "VIPU_CLI_API_PORT", "IPUOF_CONFIG_DIR"})
    pod_->environment()[variable] = "";
  const std::string file = pod_->directory() + "/pod.yaml";
  std::ofstream(file) << "machines: 2\nmemory_limit: 1024\nsecure: true\napi_port: " << pod_->port()
                      << "\n"
                      << kTwoUsers;
  const Outcome up = pod_->Run({"vpod", "up", "-f", file});
  ASSERT_EQ(up.code, 0) << up.err;
  const auto as = [](const std::string& user, const std::string& script) -> Words {
    return {"bash", "-c", absl::StrCat("eval \"$(vpod env --user ", user, ")\"; ", script)};
  };
  for (const auto& [user, allocation] : {std::pair("alice", "a0"), {"bob", "a1"}}) {
    const Outcome created =
        pod_->Run(as(user, absl::StrCat("vipu create partition of-", user,
                                        " --size 2 --reconfigurable --allocation ", allocation)));
    ASSERT_EQ(created.code, 0) << created.err;
  }
  const auto one = pod_->Start(as("alice", Train(1, 1))), two = pod_->Start(as("bob", Train(2, 2)));
  for (Command* program : {one.get(), two.get()})
    ASSERT_TRUE(program->WaitForOutput("training")) << program->Err();

  const std::pair alices(std::tuple(Pid(*one), "python3", Name(1)), 1),
      bobs(std::tuple(Pid(*two), "python3", Name(2)), 2);
  const Words all = {"gc-monitor", "--all-partitions", "--no-card-info"};
  const std::set<Use> uses = InTable(pod_->Run(all));
  EXPECT_THAT(Counted(uses), ::testing::UnorderedElementsAre(alices, bobs));
  EXPECT_EQ(InJson(pod_->Run(all + Words{"--json"})), uses);
  const std::string command = "gc-monitor --all-partitions";
  EXPECT_THAT(Counted(InTable(pod_->Run(as("alice", command)))),
              ::testing::UnorderedElementsAre(alices));
  EXPECT_THAT(Counted(InJson(pod_->Run(as("bob", command + " --json")))),
              ::testing::UnorderedElementsAre(bobs));

  End({one.get(), two.get()});
  EXPECT_TRUE(InTable(pod_->Run(all)).empty());
}

}  // namespace
}  // namespace vpod::testing
