#include "server/rpc/daemon.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "device/base/file.h"
#include "device/base/unique_fd.h"

namespace vpod::rpc {
namespace {

// A service manager's socket; what a service tells it.
class Manager {
 public:
  explicit Manager(const std::string& name) : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path, sizeof(address.sun_path) - 1);
    if (name[0] == '@') address.sun_path[0] = '\0';
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())),
              0);
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  ~Manager() { unsetenv("NOTIFY_SOCKET"); }

  std::string Heard() const {
    char text[64];
    const ssize_t size = recv(fd_.get(), text, sizeof(text), MSG_DONTWAIT);
    return size < 0 ? "" : std::string(text, static_cast<size_t>(size));
  }

 private:
  base::UniqueFd fd_;
};

TEST(NotifyReadyTest, TellsAManagerWithASocketFile) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/n";
  const std::filesystem::path before = std::filesystem::current_path();
  // Bazel's paths may be longer than a socket's name.
  std::filesystem::current_path(std::getenv("TEST_TMPDIR"));
  {
    Manager manager("n");
    NotifyReady();
    EXPECT_EQ(manager.Heard(), "READY=1");
  }
  unlink(path.c_str());
  std::filesystem::current_path(before);
}

TEST(NotifyReadyTest, TellsAManagerWithAnAbstractSocket) {
  Manager manager("@vpod-daemon-test-" + std::to_string(getpid()));
  NotifyReady();
  EXPECT_EQ(manager.Heard(), "READY=1");
}

TEST(NotifyReadyTest, DoesNothingUnasked) {
  unsetenv("NOTIFY_SOCKET");
  NotifyReady();
  setenv("NOTIFY_SOCKET", "/nowhere/notify", 1);
  NotifyReady();
  unsetenv("NOTIFY_SOCKET");
}

absl::Status CheckListen(const char* address, bool allowed_beyond) {
  return CheckEndPointOption("--listen", address, allowed_beyond, kTlsOrInsecureListen);
}

TEST(CheckEndPointOptionTest, OnlyLoopbackUnlessAllowed) {
  for (const char* address : {"127.0.0.1:8090", "127.10.255.3:0", "localhost:8090", "[::1]:1"})
    EXPECT_TRUE(CheckListen(address, false).ok()) << address;
  for (const char* address : {"0.0.0.0:8090", "10.1.2.1:8090", "[::]:8090", "127.evil.example:1",
                              "128.0.0.1:1", "127.1:80", "ctrl:8090"}) {
    EXPECT_EQ(CheckListen(address, false),
              absl::InvalidArgumentError(absl::StrCat(
                  "--listen: address '", address,
                  "' reaches beyond this host; that takes TLS, or --insecure-listen")));
    EXPECT_TRUE(CheckListen(address, true).ok()) << address;
  }
}

TEST(CheckEndPointOptionTest, AnAddressHasAHostAndAPort) {
  for (const char* bad : {"8090", ":8090", ""}) {
    EXPECT_EQ(CheckListen(bad, true), absl::InvalidArgumentError(absl::StrCat(
                                          "--listen: address '", bad, "' is not host:port")));
  }
  for (const char* bad : {"127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:http", "[::1]"}) {
    EXPECT_EQ(CheckListen(bad, true),
              absl::InvalidArgumentError(
                  absl::StrCat("--listen: address '", bad, "' needs a port from 0 to 65535")));
  }
}

int Option(const base::UniqueFd& socket, int level, int name) {
  int value = -1;
  socklen_t size = sizeof(value);
  getsockopt(socket.get(), level, name, &value, &size);
  return value;
}

TEST(EndConnectionsOfLostHostsTest, AsksTheOtherHostsOfAcceptedConnections) {
  const base::UniqueFd listening(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listening.get(), generic, size), 0);
  ASSERT_EQ(listen(listening.get(), 1), 0);
  ASSERT_EQ(getsockname(listening.get(), generic, &size), 0);
  const int timeout = 20000;  // as gRPC sets it
  setsockopt(listening.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout));
  EndConnectionsOfLostHosts(ntohs(address.sin_port));
  const base::UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(client.get(), generic, size), 0);
  const base::UniqueFd accepted(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_EQ(Option(accepted, SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(Option(accepted, IPPROTO_TCP, TCP_KEEPIDLE), 1);
  EXPECT_EQ(Option(accepted, IPPROTO_TCP, TCP_KEEPINTVL), 1);
  EXPECT_EQ(Option(accepted, IPPROTO_TCP, TCP_KEEPCNT), 2);
  EXPECT_EQ(Option(accepted, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
  EXPECT_EQ(Option(client, SOL_SOCKET, SO_KEEPALIVE), 0);
}

TEST(WaitForStopSignalTest, GoesOnAfterAHangup) {
  EXPECT_EXIT(
      {
        BlockStopSignals();
        raise(SIGHUP);  // the lowest number comes first
        raise(SIGTERM);
        std::_Exit(WaitForStopSignal() == SIGTERM ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

bool IsIgnored(int number) {
  struct sigaction action {};
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

TEST(WaitForStopSignalTest, ShowsOthersThatTheProcessIsEnding) {
  EXPECT_EXIT(
      {
        std::signal(SIGINT, SIG_IGN);  // as a shell script starts its background processes
        BlockStopSignals();
        if (IsIgnored(SIGINT) || IsIgnored(SIGTERM)) std::_Exit(1);
        raise(SIGINT);
        WaitForStopSignal();
        std::_Exit(IsIgnored(SIGINT) && IsIgnored(SIGTERM) ? 0 : 2);
      },
      testing::ExitedWithCode(0), "");
}

// Like an agent whose kernel runs on.
TEST(EndWithinTest, EndsAProcessWhateverItDoes) {
  EXPECT_EXIT(
      {
        EndWithin(std::chrono::seconds(0));
        while (true) pause();
      },
      testing::ExitedWithCode(0), "");
}

// Every log message is one line without controls; the formatter sees to it, not each call.
TEST(LogTest, EveryMessageIsOneHarmlessLine) {
  const std::string path = testing::TempDir() + "/LogTest.log";
  std::remove(path.c_str());
  ASSERT_TRUE(SetUpLog("info", path).ok());
  spdlog::info("user=\"{}\" text=\"{}\"", "\x1b[31mred", "a\nb\u202Ec");
  spdlog::info("{}", std::string(1 << 20, 'x'));
  spdlog::info("{}", "\xff");
  const std::string log = base::ReadFile(path);
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 3);
  EXPECT_NE(log.find(" info user=\"\uFFFD[31mred\" text=\"a\uFFFDb\uFFFDc\"\n"), std::string::npos)
      << log.substr(0, 200);
  EXPECT_LT(log.size(), size_t{16 << 10});
  EXPECT_EQ(log.substr(log.size() - 4), "\uFFFD\n");
  std::remove(path.c_str());
}

}  // namespace
}  // namespace vpod::rpc
