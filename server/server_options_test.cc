#include "server/server_options.h"

#include <gtest/gtest.h>

#include <fstream>

namespace vpod {
namespace {

absl::StatusOr<std::optional<ServerOptions>> Parse(std::vector<const char*> words) {
  words.insert(words.begin(), "vipu-server");
  return ParseServerOptions(static_cast<int>(words.size()), words.data());
}

// Options that are well formed.
ServerOptions Good(std::vector<const char*> words) {
  const auto options = Parse(std::move(words));
  EXPECT_TRUE(options.ok()) << options.status();
  return options.ok() && options->has_value() ? **options : ServerOptions();
}

std::string Error(std::vector<const char*> words) {
  return std::string(Parse(std::move(words)).status().message());
}

// A configuration file; keys as `vipu-server --help` names them.
std::string File(const std::string& text) {
  const std::string path = testing::TempDir() + "/vipu-server.hcl";
  std::ofstream(path) << text;
  return path;
}

TEST(ServerOptionsTest, Defaults) {
  const ServerOptions options = Good({"--config", File("").c_str()});
  EXPECT_EQ(options.storage, "vipu-server.db");
  EXPECT_EQ(options.certs_dir, "vipu-certs");
  EXPECT_EQ(options.user_listen, "127.0.0.1:8090");
  EXPECT_TRUE(options.OneSocket());
  EXPECT_FALSE(options.WithTls());
  EXPECT_EQ(options.controller.agent_timeout, std::chrono::seconds(5));
  EXPECT_EQ(options.controller.partition_timeout, std::chrono::seconds(300));
}

TEST(ServerOptionsTest, TimesHaveToGoTogether) {
  const ServerOptions options =
      Good({"--agent-poll-interval", "250ms", "--provisioning-delay", "2s"});
  EXPECT_EQ(options.controller.agent_poll_interval, std::chrono::milliseconds(250));
  EXPECT_EQ(options.controller.provisioning_delay, std::chrono::seconds(2));
  EXPECT_EQ(Good({"--agent-timeout", "1s"}).controller.agent_poll_interval,
            std::chrono::milliseconds(500));
  EXPECT_EQ(Error({"--agent-poll-interval", "3s"}),
            "--agent-poll-interval must be at least 10ms and at most half of --agent-timeout. Try "
            "'vipu-server --help'.");
  EXPECT_EQ(Error({"--provisioning-delay", "300s"}),
            "--provisioning-delay must be less than --partition-timeout. Try 'vipu-server "
            "--help'.");
}

TEST(ServerOptionsTest, FileHoldsLongOptionsAndTheCommandLineWins) {
  const std::string path = File(
      "# the POD of the second floor\n\n"
      "storage=\"/var/lib/vipu/vipu-server.db\"\n"
      "secure=\"true\"  # users have keys\n"
      "  user-api-listen = \"10.1.3.101:8090\"\n"
      "admin-api-listen=\"10.9.0.1:8090\"\n"
      "tls-hosts=\"ctrl,10.1.3.102\"\n"
      "autodiscovery-listen-interfaces=\"eth0,eth1\"\n"
      "agent-timeout=\"10s\"\n"
      "partition-timeout=\"60\"\n");
  ServerOptions options = Good({"--config", path.c_str()});
  EXPECT_EQ(options.storage, "/var/lib/vipu/vipu-server.db");
  EXPECT_TRUE(options.secure);
  EXPECT_EQ(options.user_listen, "10.1.3.101:8090");
  EXPECT_FALSE(options.OneSocket());
  EXPECT_EQ(options.tls_hosts, (std::vector<std::string>{"ctrl", "10.1.3.102"}));
  EXPECT_EQ(options.controller.autodiscovery_interfaces,
            (std::vector<std::string>{"eth0", "eth1"}));
  EXPECT_EQ(options.controller.agent_timeout, std::chrono::seconds(10));
  EXPECT_EQ(options.controller.partition_timeout, std::chrono::seconds(60));
  options = Good({"--storage", "mine.db", "--config", path.c_str(), "--agent-timeout=250ms"});
  EXPECT_EQ(options.storage, "mine.db");
  EXPECT_EQ(options.controller.agent_timeout, std::chrono::milliseconds(250));
  EXPECT_EQ(options.user_listen, "10.1.3.101:8090");
  options = Good({"-a", "lo", "--config", path.c_str()});
  EXPECT_EQ(options.controller.autodiscovery_interfaces, (std::vector<std::string>{"lo"}));
}

TEST(ServerOptionsTest, AConfigurationThatCannotBeReadIsAFailure) {
  const absl::Status missing = Parse({"--config", "/no/such.hcl"}).status();
  EXPECT_EQ(missing, absl::FailedPreconditionError(
                         "--config: cannot read /no/such.hcl: No such file or directory"));
  EXPECT_EQ(Parse({"--config=/tmp"}).status(),
            absl::FailedPreconditionError("--config: cannot read /tmp: it is a directory"));
}

TEST(ServerOptionsTest, WrongUsageIsRefusedByName) {
  EXPECT_NE(Error({"--secre"}).find("--secre"), std::string::npos);
  const std::string unknown = File("secre=\"true\"\n");
  EXPECT_NE(Error({"--config", unknown.c_str()}).find("secre"), std::string::npos);
  const std::string wrong = File("agent-timeout=\"soon\"\n");
  EXPECT_EQ(Error({"--config", wrong.c_str()}),
            "--agent-timeout: 'soon' is not a time; write 5s or 250ms. Try 'vipu-server --help'.");
  EXPECT_EQ(Error({"--agent-timeout", "-1"}),
            "--agent-timeout: '-1' is out of range; use 0 s to 1 year. Try 'vipu-server --help'.");
  EXPECT_EQ(
      Error({"-a", "10.1.2.0/24"}),
      "--autodiscovery-listen-interfaces: '10.1.2.0/24' is not a network interface; use a name "
      "such as eth0. Try 'vipu-server --help'.");
  EXPECT_EQ(Error({"--storage", ""}), "--storage is empty. Try 'vipu-server --help'.");
  EXPECT_EQ(Error({"--secure=3"}),
            "--secure: '3' is neither true nor false. Try 'vipu-server --help'.");
  EXPECT_FALSE(Good({"--config", File("secure=\"false\"\n").c_str()}).secure);
  EXPECT_EQ(Error({"--certs-dir", ""}), "--certs-dir is empty. Try 'vipu-server --help'.");
  EXPECT_EQ(Error({"--init", "--check"}),
            "Give one of --init and --check. Try 'vipu-server --help'.");
  EXPECT_EQ(Error({"--restore", "b.db", "--salvage", "new.db"}),
            "Give one of --salvage and --restore. Try 'vipu-server --help'.");
  EXPECT_EQ(Error({"--default-user-id", "john", "--init"}),
            "--default-user-id works only with --init --secure. Try 'vipu-server --help'.");
}

}  // namespace
}  // namespace vpod
