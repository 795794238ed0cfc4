#include "tools/vipu/completion.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/strings/str_split.h"
#include "client/render/completion.h"
#include "client/vipu/fake_controller.h"
#include "proto/vipu/v1/vipuadmin.pb.h"
#include "proto/vipu/v1/vipuuser.pb.h"

namespace vpod::tools {
namespace {

class CompletionTest : public ::testing::Test {
 protected:
  CompletionTest() {
    unsetenv("IPUOF_VIPU_API_HOST");
    unsetenv("VIPU_CLI_API_PORT");
    setenv("VIPU_CLI_API_HOST", controller_.address().c_str(), 1);
    vipuadmin::ListAgentsReply agents;
    for (const char* id : {"ag0", "ag1", "other"}) agents.add_agents()->set_id(id);
    controller_.Answer("ListAgents", {&agents});
    vipuuser::ListPartitionsReply partitions;
    for (const char* id : {"p1", "p2"})
      partitions.add_partitions()->mutable_requirements()->set_id(id);
    controller_.Answer("ListPartitions", {&partitions});
  }

  // Candidates without their descriptions.
  static std::vector<std::string> Words(bool admin, const std::vector<std::string>& words) {
    std::vector<std::string> candidates;
    for (absl::string_view line : absl::StrSplit(Complete(admin, words), '\n', absl::SkipEmpty()))
      candidates.emplace_back(line.substr(0, line.find('\t')));
    return candidates;
  }

  vipu::FakeController controller_;
};

using List = std::vector<std::string>;

TEST_F(CompletionTest, VerbsOfTheTool) {
  EXPECT_EQ(Words(true, {"re"}), (List{"reset", "remove"}));
  EXPECT_EQ(Words(false, {"t"}), List());
  EXPECT_EQ(Words(true, {"t"}), List{"test"});
  EXPECT_EQ(Words(true, {}).size(), Words(true, {""}).size());
}

TEST_F(CompletionTest, NounsOfTheVerb) {
  EXPECT_EQ(Words(true, {"reset", ""}), (List{"partition", "agent", "cluster"}));
  EXPECT_EQ(Words(false, {"reset", ""}), List{"partition"});
  EXPECT_EQ(Words(false, {"list", "p"}), List{"partitions"});
  EXPECT_EQ(Words(false, {"delete", ""}), List{"partition"});
  EXPECT_EQ(Words(true, {"discover", ""}), List{"agents"});
}

TEST_F(CompletionTest, IdsOfExistingObjects) {
  EXPECT_EQ(Words(true, {"get", "agent", "a"}), (List{"ag0", "ag1"}));
  EXPECT_EQ(Words(false, {"remove", "partition", ""}), (List{"p1", "p2"}));
  EXPECT_EQ(Words(false, {"create", "partition", ""}), List());
  EXPECT_EQ(Complete(false, {"get", "partition", "p1"}), "p1\tPENDING\n");
}

TEST_F(CompletionTest, IdsOfTheControllerThatIsNamed) {
  const std::string address = controller_.address();
  setenv("VIPU_CLI_API_HOST", "127.0.0.1:1", 1);
  EXPECT_EQ(Words(false, {"get", "partition", ""}), List());
  EXPECT_EQ(Words(false, {"-H", address, "get", "partition", ""}), (List{"p1", "p2"}));
}

TEST_F(CompletionTest, FlagsOfTheCommandThatAreNotYetGiven) {
  const List flags = Words(false, {"reset", "partition", "p1", "--no"});
  EXPECT_EQ(flags, List{"--no-wait"});
  EXPECT_EQ(Words(false, {"reset", "partition", "p1", "--no-wait", "--no"}), List());
  EXPECT_EQ(Words(false, {"list", "partitions", "--size"}), List());
  EXPECT_EQ(Words(false, {"--showj"}), List{"--showjson"});
  EXPECT_EQ(Words(false, {"list", "partitions", "--watch", "--no"}), List{"--no-headers"});
  EXPECT_EQ(Words(false, {"list", "partitions", "-o", "y"}), List{"yaml"});
  EXPECT_EQ(Words(false, {"wait", "partition", "p1", "--for", "a"}), List{"active"});
}

TEST_F(CompletionTest, ValuesOfFlags) {
  EXPECT_EQ(Words(true, {"create", "cluster", "c", "--topology", ""}), (List{"mesh", "torus"}));
  EXPECT_EQ(Words(true, {"create", "cluster", "c", "--topology=t"}), List{"--topology=torus"});
  EXPECT_EQ(Words(true, {"create", "cluster", "c", "--agents", "ag0,a"}), List{"ag0,ag1"});
  EXPECT_EQ(Words(true, {"create", "cluster", "c", "--size", ""}), List());
  EXPECT_EQ(Words(true, {"--config", "x"}), List{render::kFiles});
  EXPECT_EQ(Words(true, {"--config=x"}), List{render::kFiles});
}

TEST_F(CompletionTest, NothingAfterAMistake) {
  EXPECT_EQ(Words(false, {"create", "widget", ""}), List());
  EXPECT_EQ(Words(false, {"--bogus", ""}), List());
  EXPECT_EQ(Words(false, {"frobnicate", ""}), List());
}

}  // namespace
}  // namespace vpod::tools
