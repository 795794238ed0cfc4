// Programs outside the tree: from `vpod new` to training on 16 replicas, with what deploy/install
// installed and nothing else of ours.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <regex>

#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

namespace fs = std::filesystem;

std::vector<double> Losses(const std::string& text) {
  static const std::regex line("step [0-9]+ loss ([0-9.]+)\n");
  std::vector<double> losses;
  for (std::sregex_iterator at(text.begin(), text.end(), line), end; at != end; ++at)
    losses.push_back(std::stod((*at)[1]));
  return losses;
}

class OwnProgramsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    char name[] = "/tmp/vpod-install-XXXXXX";
    directory_ = mkdtemp(name);
    const std::string built = directory_ + "/dist", prefix = directory_ + "/prefix";
    const Outcome installed =
        Command({"bash", "-c",
                 "deploy/stage " + built + " $INSTALLED && deploy/install --prefix " + prefix +
                     " --from " + built + " && rm -r " + built},
                {})
            .Wait();
    ASSERT_EQ(installed.code, 0) << installed.err;
    pod_ = new TestPod(16, {},
                       {{"PATH", prefix + "/bin:/usr/bin:/bin"},
                        {"PKG_CONFIG_PATH", prefix + "/lib/pkgconfig"},
                        {"PYTHONPATH", prefix + "/lib/python3.11/dist-packages"}});
    pod_->CreatePartition("p16", 16);
  }
  static void TearDownTestSuite() {
    delete pod_;
    pod_ = nullptr;
    std::error_code error;
    fs::remove_all(directory_, error);
  }

  // Makes the project and types the commands of its README: build it, run it alone, run it as a
  // job. `first` is typed before.
  static Outcome Follow(const std::string& words, const std::string& first) {
    return pod_->Shell("set -e; cd $HOME; vpod new digits " + words + "; cd digits; " + first +
                       "\neval \"$(sed -n '/^```sh$/,/^```$/{/^```sh$/d;/^```$/q;p}' README.md)\"; "
                       "cd ..; rm -r digits");
  }
  static void ExpectTrained(const Outcome& outcome) {
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const std::vector<double> losses = Losses(outcome.out);
    ASSERT_EQ(losses.size(), 40u) << outcome.out;
    EXPECT_LT(losses[19], losses[0] / 2) << outcome.out;
    EXPECT_LT(losses[39], losses[20] / 2) << outcome.out;
    EXPECT_NE(outcome.out.find("[1,0]<stdout>:step 19 loss "), std::string::npos) << outcome.out;
    EXPECT_EQ(pod_->AttachedIpus(), 0);
  }

  static inline std::string directory_;
  static inline TestPod* pod_ = nullptr;
};

TEST_F(OwnProgramsTest, WithCMake) {
  if (pod_->Shell("command -v cmake").code != 0)
    GTEST_SKIP() << "cmake is not installed (deploy/packages-test.txt)";
  const Outcome outcome = Follow("", "");
  ExpectTrained(outcome);
  EXPECT_NE(outcome.out.find("Built target program"), std::string::npos) << outcome.out;
}

TEST_F(OwnProgramsTest, WithPkgConfig) {
  // In the place of CMake.
  const Outcome outcome = Follow("", "cmake() { make; }");
  ExpectTrained(outcome);
  EXPECT_NE(outcome.out.find("g++ -std=c++20"), std::string::npos) << outcome.out;
}

TEST_F(OwnProgramsTest, InPython) { ExpectTrained(Follow("--python", "")); }

TEST_F(OwnProgramsTest, FindsTheVersion) {
  if (pod_->Shell("command -v cmake").code != 0)
    GTEST_SKIP() << "cmake is not installed (deploy/packages-test.txt)";
  const std::string version = pod_->Shell("pkg-config --modversion vpod").out;
  EXPECT_EQ("version: " + version, pod_->Run({"vpod", "--version"}).out);
  const auto find = [&](const std::string& wanted) {
    return pod_->Shell(
        "mkdir -p $HOME/find && cd $HOME/find && printf '%s\\n' 'cmake_minimum_required(VERSION "
        "3.18)' "
        "'project(find CXX)' 'find_package(vpod " +
        wanted + " REQUIRED)' >CMakeLists.txt && cmake -S . -B build");
  };
  const Outcome found = find("1.0");
  EXPECT_EQ(found.code, 0) << found.err;
  EXPECT_EQ(find(version.substr(0, version.size() - 1) + " EXACT").code, 0);
  EXPECT_NE(find("1.99").code, 0);
  EXPECT_NE(find("0.9").code, 0);
}

TEST(InstallTest, RefusesWhatItDoesNotUnderstand) {
  const auto install = [](const Words& words) {
    return Command(Words{"deploy/install"} + words, {}).Wait();
  };
  for (const Words& words : {Words{}, Words{"--prefix"}, Words{"--bogus"}, Words{"/usr/local"}}) {
    const Outcome refused = install(words);
    EXPECT_EQ(refused.code, 2) << refused.out;
    EXPECT_NE(refused.err.find("Try 'deploy/install --help'."), std::string::npos) << refused.err;
  }
  const Outcome nowhere = install({"--prefix", "/dev/null/prefix"});
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_EQ(nowhere.err, "install: error: cannot write to /dev/null/prefix\n");
  const Outcome empty = install({"--prefix", ::testing::TempDir(), "--from", "/nowhere"});
  EXPECT_EQ(empty.code, 1);
  EXPECT_EQ(empty.err, "install: error: /nowhere holds nothing that deploy/build made\n");
}

}  // namespace
}  // namespace vpod::testing
