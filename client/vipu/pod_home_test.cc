#include "client/vipu/pod_home.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "client/vipu/config.h"
#include "client/vipu/ipuof_config.h"

namespace vpod::vipu {
namespace {

namespace fs = std::filesystem;

class PodHomeTest : public testing::Test {
 protected:
  PodHomeTest()
      : home_(fs::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(home_);
    fs::create_directories(home_);
    setenv("HOME", home_.c_str(), 1);
    for (const char* name :
         {"VPOD_HOME", "VPOD_ENV_HOME", "XDG_STATE_HOME", "IPUOF_VIPU_API_HOST",
          "VIPU_CLI_API_HOST", "VIPU_CLI_API_PORT", "VIPU_CLI_CONFIG", "IPUOF_CONFIG_DIR"})
      unsetenv(name);
  }
  ~PodHomeTest() override { fs::remove_all(home_); }

  // A POD of that home, as far as clients see it.
  static void MakePod(const std::string& home, const std::string& port) {
    fs::create_directories(home);
    std::ofstream(home + "/" + kPodClientFile)
        << "api-host=\"127.0.0.1\"\napi-port=\"" << port << "\"\n";
  }
  static std::string Port() {
    const auto config = DiscoverConfig({});
    return config.ok() ? std::to_string(config->port) : std::string(config.status().message());
  }

  const fs::path home_;
};

TEST_F(PodHomeTest, NamedPodsAreInTheUsersState) {
  EXPECT_EQ(*HomeOfPod("lab2"), (home_ / ".local/state/vpod/pods/lab2").string());
  EXPECT_EQ(*HomeOfPod("default"), (home_ / ".vpod").string());
  setenv("XDG_STATE_HOME", (home_ / "state").c_str(), 1);
  EXPECT_EQ(*HomeOfPod("lab2"), (home_ / "state/vpod/pods/lab2").string());
  EXPECT_EQ(NameOfPod(*HomeOfPod("lab2")), "lab2");
  EXPECT_EQ(NameOfPod(*HomeOfPod("default")), "default");
  EXPECT_EQ(NameOfPod("/elsewhere/lab2"), "");
  setenv("XDG_STATE_HOME", "relative", 1);
  EXPECT_EQ(*HomeOfPod("lab2"), (home_ / ".local/state/vpod/pods/lab2").string());
  unsetenv("HOME");
  EXPECT_EQ(HomeOfPod("lab2").status().message(), "neither XDG_STATE_HOME nor HOME is set");
}

TEST_F(PodHomeTest, NamesAreWords) {
  for (const char* name : {"", "..", ".x", "-x", "a/b", "a b", "ö", "a\n"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(HomeOfPod(name).status())) << name;
    EXPECT_TRUE(absl::IsInvalidArgument(UsePod(name))) << name;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(HomeOfPod(std::string(64, 'a')).status()));
  EXPECT_TRUE(HomeOfPod(std::string(63, 'a')).ok());
}

TEST_F(PodHomeTest, TheOneInUseIsMeantUnlessVpodHomeNamesAnother) {
  EXPECT_EQ(PodInUse(), "default");
  EXPECT_EQ(*PodHome(), (home_ / ".vpod").string());
  ASSERT_TRUE(UsePod("lab2").ok());
  EXPECT_EQ(PodInUse(), "lab2");
  EXPECT_EQ(*PodHome(), *HomeOfPod("lab2"));
  setenv("VPOD_HOME", "/elsewhere/", 1);
  EXPECT_EQ(*PodHome(), "/elsewhere");
  unsetenv("VPOD_HOME");
  ASSERT_TRUE(UsePod("default").ok());
  EXPECT_EQ(*PodHome(), (home_ / ".vpod").string());
  std::ofstream(home_ / ".local/state/vpod/in-use") << "no/name\n";
  EXPECT_EQ(PodInUse(), "default");
}

TEST_F(PodHomeTest, NamesAreThoseOfTheDirectories) {
  EXPECT_TRUE(PodNames().empty());
  for (const char* name : {"two", "one"}) fs::create_directories(*HomeOfPod(name));
  std::ofstream(*HomeOfPod("file")) << "";
  EXPECT_EQ(PodNames(), (std::vector<std::string>{"one", "two"}));
}

TEST_F(PodHomeTest, ToolsFollowThePodInUse) {
  MakePod(*HomeOfPod("lab2"), "1002");
  std::ofstream(home_ / ".vipu.hcl") << "api-host=\"127.0.0.1\"\napi-port=\"1001\"\n";
  EXPECT_EQ(Port(), "1001");
  ASSERT_TRUE(UsePod("lab2").ok());
  EXPECT_EQ(Port(), "1002");
  EXPECT_EQ(IpuofDirectory(), *HomeOfPod("lab2") + "/ipuof.conf.d");
  // The shell's environment takes precedence.
  setenv("VIPU_CLI_API_HOST", "127.0.0.1:1003", 1);
  EXPECT_EQ(Port(), "1003");
  unsetenv("VIPU_CLI_API_HOST");
  setenv("VPOD_HOME", (home_ / "third").c_str(), 1);
  MakePod((home_ / "third").string(), "1004");
  EXPECT_EQ(Port(), "1004");
  EXPECT_EQ(IpuofDirectory(), (home_ / "third/ipuof.conf.d").string());
}

TEST_F(PodHomeTest, APodInUseThatIsNotThereIsNamed) {
  ASSERT_TRUE(UsePod("lab2").ok());
  EXPECT_EQ(Port(), "the POD in use is lab2 in " + *HomeOfPod("lab2") +
                        ", where no POD is; 'vpod up' brings one up");
}

// Its port is not always 8090.
TEST_F(PodHomeTest, TheDefaultPodComesLast) {
  MakePod(*HomeOfPod("default"), "1005");
  if (fs::exists("/etc/vipu/vipu-cli.hcl")) GTEST_SKIP() << "this machine has a system file";
  EXPECT_EQ(Port(), "1005");
  std::ofstream(home_ / ".vipu.hcl") << "api-host=\"127.0.0.1\"\napi-port=\"1001\"\n";
  EXPECT_EQ(Port(), "1001");
}

}  // namespace
}  // namespace vpod::vipu
