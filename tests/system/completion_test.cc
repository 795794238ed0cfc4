// Command lines completed by real shells, with the tools and a POD behind them.
#include <gtest/gtest.h>

#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

class CompletionTest : public ::testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() {
    pod_ = new TestPod(4);
    pod_->CreatePartition("training", 2);
  }
  static void TearDownTestSuite() {
    delete pod_;
    pod_ = nullptr;
  }
  void SetUp() override {
    if (pod_->Shell(std::string("command -v ") + GetParam()).code != 0)
      GTEST_SKIP() << GetParam() << " is not installed (deploy/packages-test.txt)";
  }

  // Returns the line after the keys are typed.
  std::string Typed(const std::string& keys) {
    const std::string shell = GetParam();
    const std::string prepare = shell == "zsh" ? "autoload -Uz compinit && compinit -u -D; " : "";
    const Outcome outcome = pod_->Run({"python3", Program("tests/support/type_in_shell.py"), shell,
                                       prepare + "source <(vipu completion " + shell +
                                           "); source <(vipu-admin completion " + shell + ")" +
                                           Script("vpod") + Script("poprun") + Script("gc-info"),
                                       keys});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  }

  static std::string Script(const std::string& tool) {
    return "; source <(vpod completion " + std::string(GetParam()) + " " + tool + ")";
  }

  static TestPod* pod_;
};
TestPod* CompletionTest::pod_ = nullptr;

TEST_P(CompletionTest, VerbsNounsAndFlags) {
  EXPECT_EQ(Typed("vipu cre\\tpart\\tp --reconf\\t"), "vipu create partition p --reconfigurable\n");
  EXPECT_EQ(Typed("vipu-admin test clu\\t"), "vipu-admin test cluster\n");
}

TEST_P(CompletionTest, ObjectsThatExist) {
  EXPECT_EQ(Typed("vipu get partition tr\\t"), "vipu get partition training\n");
  EXPECT_EQ(Typed("vipu-admin create cluster c --agents a\\t"),
            "vipu-admin create cluster c --agents ag0\n");
}

TEST_P(CompletionTest, ValuesOnBothSidesOfASign) {
  EXPECT_EQ(Typed("vipu-admin create cluster c --topology t\\t"),
            "vipu-admin create cluster c --topology torus\n");
  EXPECT_EQ(Typed("vipu-admin create cluster c --topology=t\\t"),
            "vipu-admin create cluster c --topology=torus\n");
  EXPECT_EQ(
      Typed("vipu --api-host=127.0.0.1:" + std::to_string(pod_->port()) + " get partition tr\\t"),
      "vipu --api-host=127.0.0.1:" + std::to_string(pod_->port()) + " get partition training\n");
}

TEST_P(CompletionTest, Files) {
  EXPECT_EQ(Typed("vipu --config " + pod_->home() + "/vipu-c\\t"),
            "vipu --config " + pod_->home() + "/vipu-cli.hcl\n");
}

TEST_P(CompletionTest, OptionsAndWordsOfOtherTools) {
  EXPECT_EQ(Typed("vpod stat\\t"), "vpod status\n");
  EXPECT_EQ(Typed("vpod up --machi\\t"), "vpod up --machine-type\n");
  EXPECT_EQ(Typed("vpod up --agents pro\\t"), "vpod up --agents processes\n");
  EXPECT_EQ(Typed("vpod use def\\t"), "vpod use default\n");
  EXPECT_EQ(Typed("vpod logs ag\\t"), "vpod logs agent\n");
  EXPECT_EQ(Typed("poprun --num-inst\\t"), "poprun --num-instances\n");
  EXPECT_EQ(Typed("poprun --process-placement=sp\\t"), "poprun --process-placement=spreadnuma\n");
  EXPECT_EQ(Typed("gc-info --list-d\\t"), "gc-info --list-devices\n");
}

INSTANTIATE_TEST_SUITE_P(Shells, CompletionTest, ::testing::Values("bash", "zsh"),
                         [](const auto& info) { return std::string(info.param); });

// fish shows its candidates without being typed at.
TEST(FishCompletionTest, AsksTheTools) {
  TestPod pod(4);
  if (pod.Shell("command -v fish").code != 0)
    GTEST_SKIP() << "fish is not installed (deploy/packages-test.txt)";
  pod.CreatePartition("training", 2);
  const auto candidates = [&](const std::string& line) {
    return pod
        .Run(
            {"fish", "--no-config", "-c",
             "vipu completion fish | source; for tool in vpod poprun gc-info; vpod completion fish "
             "$tool | source; end; complete -C '" +
                 line + "'"})
        .out;
  };
  EXPECT_EQ(candidates("vipu get partition tr"), "training\tACTIVE\n");
  EXPECT_EQ(candidates("vipu create partition p --reconf").rfind("--reconfigurable\t", 0), 0u);
  EXPECT_EQ(candidates("vipu --config " + pod.home() + "/vipu-c"), pod.home() + "/vipu-cli.hcl\n");
  EXPECT_EQ(candidates("vpod up --agents pro"), "processes\n");
  EXPECT_EQ(candidates("poprun --num-inst").rfind("--num-instances\t", 0), 0u);
  EXPECT_EQ(candidates("gc-info --list-d").rfind("--list-devices\t", 0), 0u);
}

}  // namespace
}  // namespace vpod::testing
