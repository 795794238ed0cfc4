#include "server/rpc/liveness.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/base/unique_fd.h"
#include "server/rpc/bounded_listener.h"
#include "server/rpc/call_guard.h"
#include "server/security/certificates.h"

namespace vpod::rpc {
namespace {

using std::chrono::milliseconds;

// A service manager; what it hears comes one message at a time.
class Manager {
 public:
  Manager() : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    const std::string name = absl::StrCat("@vpod-liveness-test-", getpid());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path, sizeof(address.sun_path) - 1);
    address.sun_path[0] = '\0';
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())),
              0);
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  ~Manager() { unsetenv("NOTIFY_SOCKET"); }
  // Waits for the next.
  std::string Next() const {
    char text[64];
    const ssize_t size = recv(fd_.get(), text, sizeof(text), 0);
    return size < 0 ? "" : std::string(text, static_cast<size_t>(size));
  }
  bool HasHeard() const {
    char byte;
    return recv(fd_.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) > 0;
  }

 private:
  base::UniqueFd fd_;
};

// A server without services: it answers every call with a refusal.
class Server {
 public:
  explicit Server(const std::optional<base::Tls>& tls = std::nullopt) {
    grpc::ServerBuilder builder;
    listener_ = *BoundedListener::Open("127.0.0.1:0", GuardedCredentials(tls), builder);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
    listener_->Start();
  }
  ~Server() {
    listener_->Close();
    server_->Shutdown(std::chrono::system_clock::now());
  }
  std::string endpoint() const { return listener_->LocalEndpoint(); }

 private:
  grpc::CallbackGenericService service_;
  std::shared_ptr<BoundedListener> listener_;
  std::unique_ptr<grpc::Server> server_;
};

// Takes connections, and answers nothing.
class Mute {
 public:
  Mute() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd_.get(), generic, size), 0);
    EXPECT_EQ(listen(fd_.get(), 16), 0);
    EXPECT_EQ(getsockname(fd_.get(), generic, &size), 0);
    endpoint_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  const std::string& endpoint() const { return endpoint_; }

 private:
  base::UniqueFd fd_;
  std::string endpoint_;
};

Liveness::Options Asking(const std::string& endpoint) {
  return {.questions = {{endpoint, "/some.Service/Method"}},
          .interval = milliseconds(20),
          .patience = milliseconds(300)};
}

// Waits until a round has ended like that.
void Await(const Liveness& liveness, bool ok) {
  while (liveness.Status().ok() != ok) std::this_thread::sleep_for(milliseconds(1));
}

TEST(LivenessTest, TheManagerIsToldWhileTheDaemonAnswersAndItsWorkGoesOn) {
  const Manager manager;
  const Server server;
  Liveness liveness;
  liveness.Beat();
  Liveness::Options options = Asking(server.endpoint());
  options.patience = std::chrono::minutes(1);
  liveness.Start(options);
  EXPECT_EQ(manager.Next(), "WATCHDOG=1");
  // It answers, but does nothing else.
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_FALSE(manager.HasHeard());
  liveness.Beat();
  EXPECT_EQ(manager.Next(), "WATCHDOG=1");
  EXPECT_TRUE(liveness.Status().ok());
}

TEST(LivenessTest, APortThatAcceptsNobodyIsNoticed) {
  const Manager manager;
  const Mute mute;
  Liveness liveness;
  liveness.Beat();
  liveness.Start(Asking(mute.endpoint()));
  Await(liveness, false);
  EXPECT_EQ(liveness.Status().message(),
            absl::StrCat("no answer at ", mute.endpoint(), " within 300 ms"));
  EXPECT_FALSE(manager.HasHeard());
}

TEST(LivenessTest, EveryPortIsAsked) {
  const Server server;
  const Mute mute;
  Liveness liveness;
  Liveness::Options options = Asking(server.endpoint());
  options.questions.push_back({mute.endpoint(), "/some.Service/Method"});
  liveness.Start(options);
  Await(liveness, false);
  EXPECT_TRUE(absl::StrContains(liveness.Status().message(), mute.endpoint()));
}

TEST(LivenessTest, AnInjectedHangIsNone) {
  const Manager manager;
  const Mute mute;
  std::atomic<bool> hangs = true;
  Liveness liveness;
  liveness.Beat();
  Liveness::Options options = Asking(mute.endpoint());
  options.is_excused = [&] { return hangs.load(); };
  liveness.Start(options);
  EXPECT_EQ(manager.Next(), "WATCHDOG=1");
  EXPECT_TRUE(liveness.Status().ok());
  hangs = false;
  Await(liveness, false);
  hangs = true;
  Await(liveness, true);
}

// The name in the certificate is the host's as others know it, which may be any.
TEST(LivenessTest, AsksWithTls) {
  const std::string directory = testing::TempDir() + "/liveness";
  std::filesystem::remove_all(directory);
  ASSERT_TRUE(security::GenerateCertificates(directory, {}).ok());
  const std::string own = directory + "/server/";
  const auto tls = base::ReadTls({own + "ca.crt", own + "server.crt", own + "server.key"});
  ASSERT_TRUE(tls.ok()) << tls.status();
  const Manager manager;
  const Server server(*tls);
  Liveness liveness;
  liveness.Beat();
  Liveness::Options options = Asking(server.endpoint());
  options.tls = *tls;
  options.patience = std::chrono::minutes(1);
  liveness.Start(options);
  EXPECT_EQ(manager.Next(), "WATCHDOG=1");
  EXPECT_TRUE(liveness.Status().ok());
}

// A daemon that is told to stop does not wait for a question to be answered.
TEST(LivenessTest, StopsWhileItAsks) {
  const Mute mute;
  Liveness liveness;
  Liveness::Options options = Asking(mute.endpoint());
  options.patience = std::chrono::hours(1);
  liveness.Start(options);
  liveness.Stop();
  EXPECT_TRUE(liveness.Status().ok());
}

// As when gRPC has the thread that asks do the work of somebody else's connection.
TEST(LivenessTest, AQuestionThatDoesNotEndIsNoAnswer) {
  const Server server;
  std::promise<void> goes_on;
  Liveness liveness;
  liveness.Start({.questions = {{server.endpoint(), "/none"}},
                  .is_excused =
                      [future = goes_on.get_future().share(), test = std::this_thread::get_id()] {
                        if (std::this_thread::get_id() != test) future.wait();
                        return false;
                      },
                  .interval = std::chrono::milliseconds(1),
                  .patience = std::chrono::milliseconds(1)});
  while (liveness.Status().ok()) std::this_thread::yield();
  EXPECT_EQ(liveness.Status().message(), "the check whether the end-points answer hangs");
  goes_on.set_value();
}

}  // namespace
}  // namespace vpod::rpc
