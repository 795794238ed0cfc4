#include "client/vipu/config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "client/vipu/pod_home.h"

namespace vpod::vipu {
namespace {

namespace fs = std::filesystem;

// Nothing of the caller's environment and files is seen, apart from /etc.
class ConfigTest : public testing::Test {
 protected:
  ConfigTest()
      : home_(fs::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(home_);
    fs::create_directories(home_);
    setenv("HOME", home_.c_str(), 1);
    for (const char* name :
         {"IPUOF_VIPU_API_HOST", "IPUOF_VIPU_API_PORT", "VIPU_CLI_API_HOST", "VIPU_CLI_API_PORT",
          "VIPU_CLI_CONFIG", "VIPU_CLI_API_USER_ID", "VIPU_CLI_API_ACCESS_KEY", "VIPU_CLI_TLS_CA",
          "VIPU_CLI_TLS_CERT", "VIPU_CLI_TLS_KEY", "VPOD_HOME", "VPOD_ENV_HOME", "XDG_STATE_HOME"})
      unsetenv(name);
  }
  ~ConfigTest() override { fs::remove_all(home_); }

  std::string File(const std::string& name, const std::string& text) const {
    const std::string path = (home_ / name).string();
    std::ofstream(path) << text;
    return path;
  }
  static std::string Address(const ConfigFlags& flags = {}) {
    const auto config = DiscoverConfig(flags);
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? config->address() : "";
  }
  static std::string Error(const ConfigFlags& flags,
                           absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    const auto config = DiscoverConfig(flags);
    EXPECT_EQ(config.status().code(), code) << config.status();
    return std::string(config.status().message());
  }

  fs::path home_;
};

TEST_F(ConfigTest, DefaultIsLocalhost8090) {
  if (fs::exists("/etc/vipu/vipu-cli.hcl")) GTEST_SKIP() << "this machine has a system file";
  const auto config = DiscoverConfig({});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->address(), "localhost:8090");
  EXPECT_EQ(config->source, "default");
  EXPECT_EQ(config->user_id, OsUserName());
  EXPECT_EQ(config->access_key, "");
}

TEST_F(ConfigTest, EachSourceWinsOverTheNext) {
  File(".vipu.hcl", "api-host=\"home\"\napi-port=\"1001\"\n");
  EXPECT_EQ(Address(), "home:1001");
  const std::string named = File("named.hcl", "api-host=\"file\"\napi-port=\"1002\"\n");
  setenv("VIPU_CLI_CONFIG", named.c_str(), 1);
  EXPECT_EQ(Address(), "file:1002");
  const std::string flagged = File("flagged.hcl", "api-host=\"flagged\"\n");
  EXPECT_EQ(Address({.config_file = flagged}), "flagged:8090");
  setenv("VIPU_CLI_API_HOST", "cli", 1);
  setenv("VIPU_CLI_API_PORT", "1003", 1);
  EXPECT_EQ(Address({.config_file = flagged}), "cli:1003");
  setenv("IPUOF_VIPU_API_HOST", "ipuof", 1);
  setenv("IPUOF_VIPU_API_PORT", "1004", 1);
  EXPECT_EQ(Address(), "ipuof:1004");
  EXPECT_EQ(Address({.host = "flag", .port = "1005"}), "flag:1005");
}

TEST_F(ConfigTest, HostAndPortComeFromTheSameSource) {
  File(".vipu.hcl", "api-host=\"home\"\napi-port=\"1001\"\n");
  setenv("VIPU_CLI_API_HOST", "cli", 1);
  setenv("IPUOF_VIPU_API_PORT", "1004", 1);
  EXPECT_EQ(Address(), "cli:8090");
  EXPECT_EQ(Address({.host = "flag"}), "flag:8090");
}

TEST_F(ConfigTest, APortAloneGoesWithTheNextHost) {
  EXPECT_EQ(Address({.port = "1005"}), "localhost:1005");
  setenv("VIPU_CLI_API_PORT", "1003", 1);
  EXPECT_EQ(Address(), "localhost:1003");
  File(".vipu.hcl", "api-host=\"home\"\napi-port=\"1001\"\n");
  EXPECT_EQ(Address(), "home:1003");
  setenv("VIPU_CLI_API_HOST", "cli", 1);
  EXPECT_EQ(Address({.port = "1005"}), "cli:1005");
}

// Command lines that name a host only reach a POD at another port, too.
TEST_F(ConfigTest, AHostAloneHasThePortOfTheSameHost) {
  setenv("IPUOF_VIPU_API_HOST", "here", 1);
  setenv("IPUOF_VIPU_API_PORT", "1002", 1);
  setenv("VIPU_CLI_API_HOST", "there", 1);
  setenv("VIPU_CLI_API_PORT", "1003", 1);
  EXPECT_EQ(Address({.host = "here"}), "here:1002");
  EXPECT_EQ(Address({.host = "there"}), "there:1003");
  EXPECT_EQ(Address({.host = "there", .port = "1004"}), "there:1004");
  EXPECT_EQ(Address({.host = "elsewhere"}), "elsewhere:8090");
}

TEST_F(ConfigTest, ThePodOfVpodHomeComesBeforeTheUsersFile) {
  File(".vipu.hcl", "api-host=\"home\"\napi-port=\"1001\"\n");
  const std::string pod = (home_ / "pod").string();
  setenv("VPOD_HOME", pod.c_str(), 1);
  EXPECT_EQ(Error({}), "VPOD_HOME is " + pod + ", where no POD is; 'vpod up' brings one up");
  fs::create_directory(pod);
  File("pod/vipu-cli.hcl", "api-host=\"127.0.0.1\"\napi-port=\"1002\"\n");
  EXPECT_EQ(Address(), "127.0.0.1:1002");
  const std::string named = File("named.hcl", "api-host=\"file\"\n");
  EXPECT_EQ(Address({.config_file = named}), "file:8090");
  setenv("VIPU_CLI_API_HOST", "cli", 1);
  EXPECT_EQ(Address(), "cli:8090");
}

TEST_F(ConfigTest, AnEnvironmentOfAnotherPodIsRefused) {
  setenv("VIPU_CLI_API_HOST", "127.0.0.1", 1);
  setenv("VPOD_ENV_HOME", "/one", 1);
  EXPECT_EQ(Address(), "127.0.0.1:8090");
  setenv("VPOD_HOME", "/one/", 1);
  EXPECT_EQ(Address(), "127.0.0.1:8090");
  setenv("VPOD_HOME", "/two", 1);
  EXPECT_EQ(Error({}),
            "VPOD_HOME is /two, but this shell's variables are those of the POD in /one; run eval "
            "\"$(vpod env)\"");
  EXPECT_EQ(Address({.host = "h"}), "h:8090");
}

TEST_F(ConfigTest, AnEmptyOrMissingHomeIsNamed) {
  setenv("VPOD_HOME", "", 1);
  EXPECT_EQ(Error({}), "VPOD_HOME is empty; name a directory, or unset it for ~/.vpod");
  unsetenv("VPOD_HOME");
  EXPECT_EQ(*PodHome(), (home_ / ".vpod").string());
  unsetenv("HOME");
  EXPECT_EQ(PodHome().status().message(), "neither VPOD_HOME nor HOME is set");
  if (fs::exists("/etc/vipu/vipu-cli.hcl")) GTEST_SKIP() << "this machine has a system file";
  EXPECT_EQ(Address(), "localhost:8090");
}

TEST_F(ConfigTest, SourceIsNamedForPeople) {
  EXPECT_EQ(DiscoverConfig({.host = "h"})->source, "--api-host");
  setenv("VIPU_CLI_API_HOST", "cli", 1);
  EXPECT_EQ(DiscoverConfig({})->source, "VIPU_CLI_API_HOST");
  unsetenv("VIPU_CLI_API_HOST");
  const std::string path = File(".vipu.hcl", "api-host=\"home\"\n");
  EXPECT_EQ(DiscoverConfig({})->source, path);
}

TEST_F(ConfigTest, HostMayCarryThePort) {
  EXPECT_EQ(Address({.host = "10.1.3.101:8091"}), "10.1.3.101:8091");
  EXPECT_EQ(Address({.host = "10.1.3.101:8091", .port = "8092"}), "10.1.3.101:8092");
  EXPECT_EQ(Address({.host = "[::1]:8091"}), "[::1]:8091");
  EXPECT_EQ(Address({.host = "[::1]"}), "[::1]:8090");
  EXPECT_EQ(Address({.host = "::1", .port = "8091"}), "[::1]:8091");
  setenv("IPUOF_VIPU_API_HOST", "pod:9000", 1);
  EXPECT_EQ(Address(), "pod:9000");
}

TEST_F(ConfigTest, BadPortsAreRefusedWithTheirSource) {
  for (const char* bad : {"0", "65536", "-1", "x", "80 90", "99999999999"}) {
    EXPECT_EQ(Error({.host = "h", .port = bad}),
              std::string("port '") + bad + "' from --api-port must be a number from 1 to 65535");
  }
  EXPECT_EQ(Error({.host = "h:port"}),
            "port 'port' from --api-host must be a number from 1 to 65535");
  setenv("VIPU_CLI_API_HOST", "cli", 1);
  setenv("VIPU_CLI_API_PORT", "eight", 1);
  EXPECT_EQ(Error({}), "port 'eight' from VIPU_CLI_API_PORT must be a number from 1 to 65535");
}

TEST_F(ConfigTest, FileTakesBlanksAndComments) {
  const std::string path = File("c.hcl",
                                "# the POD of the second floor\n\n"
                                "  api-host = \"10.1.3.101\"  # rack 3\n"
                                "\tapi-port=\"8091\"\r\n"
                                "api-user-id=\"alice\"\n"
                                "api-access-key=\"685X_K4uC=#N\"\n"
                                "something-else=\"ignored\"");
  const auto config = DiscoverConfig({.config_file = path});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->address(), "10.1.3.101:8091");
  EXPECT_EQ(config->user_id, "alice");
  EXPECT_EQ(config->access_key, "685X_K4uC=#N");
}

TEST_F(ConfigTest, BadLinesAreRefusedWithTheirNumber) {
  for (const char* bad : {"api-host", "api-host=h", "api-host=\"h", "api-host=h\"", "api-host=\"",
                          "api-host=\"a\" \"b\"", "api-host=\"a\" b"}) {
    const std::string path = File("bad.hcl", std::string("# first\n") + bad + "\n");
    EXPECT_EQ(Error({.config_file = path}), path + " line 2 is not key=\"value\"") << bad;
  }
}

TEST_F(ConfigTest, NamedFileMustExistAndHaveAHost) {
  const std::string missing = (home_ / "missing.hcl").string();
  constexpr auto kUnreadable = absl::StatusCode::kFailedPrecondition;
  EXPECT_EQ(Error({.config_file = missing}, kUnreadable),
            "cannot read " + missing + ": No such file or directory");
  const std::string empty = File("empty.hcl", "");
  EXPECT_EQ(Error({.config_file = empty}), empty + " has no api-host");
  // A file that is named must be readable, even if the host comes from elsewhere.
  EXPECT_EQ(Error({.host = "h", .config_file = "/nope"}, kUnreadable),
            "cannot read /nope: No such file or directory");
}

TEST_F(ConfigTest, CredentialsOfFlagsWinOverEnvironmentAndFile) {
  File(".vipu.hcl", "api-host=\"h\"\napi-user-id=\"file\"\napi-access-key=\"k1\"\n");
  EXPECT_EQ(DiscoverConfig({})->user_id, "file");
  setenv("VIPU_CLI_API_USER_ID", "environment", 1);
  setenv("VIPU_CLI_API_ACCESS_KEY", "k2", 1);
  EXPECT_EQ(DiscoverConfig({})->user_id, "environment");
  EXPECT_EQ(DiscoverConfig({})->access_key, "k2");
  const auto config = DiscoverConfig({.user_id = "flag", .access_key = "k3"});
  EXPECT_EQ(config->user_id, "flag");
  EXPECT_EQ(config->access_key, "k3");
}

TEST_F(ConfigTest, CredentialsAreForTheirControllerOnly) {
  const std::string path =
      File("alice.hcl", "api-host=\"ctrl\"\napi-user-id=\"alice\"\napi-access-key=\"k1\"\n");
  setenv("VIPU_CLI_CONFIG", path.c_str(), 1);
  // As poprun's instances find it.
  setenv("IPUOF_VIPU_API_HOST", "ctrl", 1);
  EXPECT_EQ(DiscoverConfig({})->access_key, "k1");
  const auto other = DiscoverConfig({.host = "elsewhere"});
  EXPECT_EQ(other->user_id, OsUserName());
  EXPECT_EQ(other->access_key, "");
  // A key is not combined with the name of another user, but may come from another place.
  EXPECT_EQ(DiscoverConfig({.user_id = "bob"})->access_key, "");
  EXPECT_EQ(DiscoverConfig({.user_id = "alice"})->access_key, "k1");
  const auto two = DiscoverConfig({.access_key = "k2"});
  EXPECT_EQ(two->user_id + " " + two->access_key, "alice k2");
}

TEST_F(ConfigTest, AgentsAreReachedAsTheControllerThatNamedThem) {
  File(".vipu.hcl",
       "api-host=\"secure\"\ntls-ca=\"/no/ca\"\ntls-cert=\"/no/crt\"\ntls-key=\"/no/key\"\n");
  for (const char* secure : {"secure:8090", ""})
    EXPECT_TRUE(absl::IsFailedPrecondition(TlsOf(secure).status())) << secure;
  const auto other = TlsOf("other:8090");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_FALSE(other->has_value());
}

TEST_F(ConfigTest, TlsFilesAreAllOrNone) {
  EXPECT_FALSE(DiscoverConfig({})->tls.has_value());
  setenv("VIPU_CLI_TLS_CA", "/no/ca.crt", 1);
  EXPECT_EQ(Error({}, absl::StatusCode::kFailedPrecondition),
            "cannot read /no/ca.crt: No such file or directory (--tls-ca)");
  const std::string ca = File("ca.crt", "text\n");
  setenv("VIPU_CLI_TLS_CA", ca.c_str(), 1);
  EXPECT_EQ(Error({}), "TLS needs --tls-ca, --tls-cert and --tls-key; --tls-cert is missing");
  unsetenv("VIPU_CLI_TLS_CA");
  File(".vipu.hcl", "api-host=\"ctrl\"\ntls-ca=\"" + ca + "\"\n");
  EXPECT_EQ(Error({}), "TLS needs --tls-ca, --tls-cert and --tls-key; --tls-cert is missing");
  EXPECT_FALSE(DiscoverConfig({.host = "elsewhere"})->tls.has_value());
}

TEST_F(ConfigTest, WrittenFileCanBeCutByScriptsAndReadBack) {
  ClientConfig config;
  config.host = "10.1.3.101";
  config.port = 8091;
  const std::string text = HclText(config);
  EXPECT_EQ(text.rfind("api-host=\"10.1.3.101\"\napi-port=\"8091\"\n", 0), 0u) << text;
  EXPECT_EQ(Address({.config_file = File("written.hcl", text)}), "10.1.3.101:8091");
}

}  // namespace
}  // namespace vpod::vipu
