#include "server/rpc/daemon.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

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

TEST(CheckListenAddressTest, OnlyLoopbackUnlessAllowed) {
  for (const char* address : {"127.0.0.1:8090", "127.10.255.3:0", "localhost:8090", "[::1]:1"})
    EXPECT_TRUE(CheckListenAddress(address, false).ok()) << address;
  for (const char* address : {"0.0.0.0:8090", "10.1.2.1:8090", "[::]:8090", "127.evil.example:1",
                              "128.0.0.1:1", "127.1:80", ":8090", "ctrl:8090"}) {
    EXPECT_TRUE(absl::IsPermissionDenied(CheckListenAddress(address, false))) << address;
    EXPECT_TRUE(CheckListenAddress(address, true).ok()) << address;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(CheckListenAddress("8090", true)));
}

}  // namespace
}  // namespace vpod::rpc
