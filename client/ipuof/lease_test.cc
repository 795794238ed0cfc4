// Leases at an agent that misbehaves; those that work: tests/system.
#include "client/ipuof/lease.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <future>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "device/base/random_id.h"
#include "device/base/unique_fd.h"
#include "device/shm/segment.h"
#include "proto/ipuof/v1/ipuof.grpc.pb.h"

namespace vpod::ipuof {
namespace {

// A local socket that listens.
class LocalSocket {
 public:
  LocalSocket() : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name_.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name_.size());
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(fd_.get(), 4), 0);
  }
  const std::string& name() const { return name_; }
  int fd() const { return fd_.get(); }

 private:
  const std::string name_ = base::RandomId();
  const base::UniqueFd fd_;
};

// Grants every lease and opens a local socket on which nobody answers.
class HangingAgent : public v1::Ipuof::Service {
 public:
  HangingAgent() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~HangingAgent() override { server_->Shutdown(std::chrono::system_clock::now()); }
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  grpc::Status Attach(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::AttachEvent, v1::AttachRequest>* stream) override {
    v1::AttachRequest request;
    if (!stream->Read(&request)) return grpc::Status::OK;
    v1::AttachEvent event;
    event.mutable_attached()->set_lease_id(base::RandomId());
    event.mutable_attached()->set_local_socket(socket_.name());
    stream->Write(event);
    while (stream->Read(&request)) {
    }
    return grpc::Status::OK;
  }

  // As gRPC ends a call whose deadline is over, in whatever words.
  grpc::Status ResetDevice(grpc::ServerContext*, const v1::ResetDeviceRequest*,
                           v1::ResetDeviceReply*) override {
    return grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "deadline reached after 10s");
  }

  const LocalSocket socket_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Grants every lease, and is on another host unless its local socket says otherwise. What derives
// from it stops it before it ends.
class DistantAgent : public v1::Ipuof::Service {
 public:
  DistantAgent() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }

  std::unique_ptr<Lease> Grant() {
    LeaseOptions options;
    options.endpoint = "127.0.0.1:" + std::to_string(port_);
    options.on_lost = [](const absl::Status&) {};
    auto lease = Lease::Attach(vipu::Describe({}), options);
    EXPECT_TRUE(lease.ok()) << lease.status();
    return lease.ok() ? *std::move(lease) : nullptr;
  }

 protected:
  using Stream = grpc::ServerReaderWriter<v1::AttachEvent, v1::AttachRequest>;

  void Stop() { server_->Shutdown(std::chrono::system_clock::now()); }

  // The rest of a lease.
  virtual grpc::Status Hold(Stream* stream) = 0;
  virtual std::string LocalSocketName() const { return base::RandomId(); }

 private:
  grpc::Status Attach(grpc::ServerContext*, Stream* stream) override {
    v1::AttachRequest request;
    if (!stream->Read(&request)) return grpc::Status::OK;
    v1::AttachEvent event;
    event.mutable_attached()->set_lease_id(base::RandomId());
    event.mutable_attached()->set_local_socket(LocalSocketName());
    stream->Write(event);
    return Hold(stream);
  }

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class ListeningAgent : public DistantAgent {
 public:
  ~ListeningAgent() override { Stop(); }
  bool detached() const { return detached_; }
  bool cancelled() const { return cancelled_; }

 private:
  grpc::Status Hold(Stream* stream) override {
    for (v1::AttachRequest request; stream->Read(&request);) {
      cancelled_ = cancelled_ || request.has_cancel();
      detached_ = detached_ || request.has_detach();
    }
    return grpc::Status::OK;
  }

  std::atomic<bool> detached_ = false, cancelled_ = false;
};

// Ends the lease at the first call, and knows nothing of it any more.
class RevokingAgent : public DistantAgent {
 public:
  explicit RevokingAgent(grpc::Status why) : why_(std::move(why)) {}
  ~RevokingAgent() override {
    if (!revoked_) called_.set_value();
    Stop();
  }

 private:
  grpc::Status Hold(Stream*) override {
    called_.get_future().wait();
    return why_;
  }
  grpc::Status GetCounters(grpc::ServerContext*, const v1::GetCountersRequest*,
                           v1::GetCountersReply*) override {
    if (!std::exchange(revoked_, true)) called_.set_value();
    return {grpc::StatusCode::NOT_FOUND, "the lease does not exist or has ended"};
  }

  const grpc::Status why_;
  bool revoked_ = false;  // calls follow one another
  std::promise<void> called_;
};

// Is on this host, and ends the lease at the first request at the local socket after the lease was
// bound; it answers no such request.
class RevokingLocalAgent : public DistantAgent {
 public:
  explicit RevokingLocalAgent(grpc::Status why) : why_(std::move(why)) {
    thread_ = std::thread([this] { Serve(); });
  }
  ~RevokingLocalAgent() override {
    shutdown(socket_.fd(), SHUT_RDWR);
    thread_.join();
    Stop();
  }

 private:
  void Serve() {
    bool revoked = false;
    while (true) {
      const base::UniqueFd connection(accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!connection.valid()) break;
      char request = 0;
      if (recv(connection.get(), &request, 1, 0) != 1) continue;
      if (request == 'B') {
        EXPECT_EQ(send(connection.get(), "k", 1, MSG_NOSIGNAL), 1);
      } else if (!std::exchange(revoked, true)) {
        asked_.set_value();
      }
    }
    if (!revoked) asked_.set_value();
  }
  grpc::Status Hold(Stream*) override {
    asked_.get_future().wait();
    return why_;
  }
  std::string LocalSocketName() const override { return socket_.name(); }

  const grpc::Status why_;
  const LocalSocket socket_;
  std::promise<void> asked_;
  std::thread thread_;
};

TEST(LeaseTest, TheStreamsOfALeaseThatHasEndedBringTheReason) {
  const absl::Status why = absl::AbortedError("partition p1 was removed");
  RevokingLocalAgent agent({grpc::StatusCode::ABORTED, "partition p1 was removed"});
  const std::unique_ptr<Lease> lease = agent.Grant();
  ASSERT_NE(lease, nullptr);
  ASSERT_TRUE(lease->same_host());
  for (int call = 0; call < 2; ++call) EXPECT_EQ(lease->MapStreams().status(), why);
  const auto streams = shm::Segment::Create(4096);
  ASSERT_TRUE(streams.ok()) << streams.status();
  EXPECT_EQ(lease->ShareStreams(*streams), why);
}

TEST(LeaseTest, TheStreamsOfALeaseThatWasDetachedSayThatItHasEnded) {
  RevokingLocalAgent agent(grpc::Status::OK);
  const std::unique_ptr<Lease> lease = agent.Grant();
  ASSERT_NE(lease, nullptr);
  lease->Detach();
  const absl::Status status = lease->MapStreams().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("has ended"), std::string::npos) << status;
}

TEST(LeaseTest, TheStreamsOfAnAgentThatIsGoneBringTheReason) {
  auto agent = std::make_unique<RevokingLocalAgent>(
      grpc::Status(grpc::StatusCode::UNAVAILABLE, "the connection was reset"));
  const std::unique_ptr<Lease> lease = agent->Grant();
  ASSERT_NE(lease, nullptr);
  agent.reset();
  const absl::Status status = lease->MapStreams().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(" went away"), std::string::npos) << status;
}

TEST(LeaseTest, ACallOnALeaseThatHasEndedBringsTheReason) {
  RevokingAgent agent({grpc::StatusCode::ABORTED, "partition p1 was removed"});
  const std::unique_ptr<Lease> lease = agent.Grant();
  ASSERT_NE(lease, nullptr);
  for (int call = 0; call < 2; ++call)
    EXPECT_EQ(lease->Counters().status(), absl::AbortedError("partition p1 was removed"));
}

TEST(LeaseTest, ACallOnALeaseThatHasEndedWithoutAReasonSaysSo) {
  RevokingAgent agent(grpc::Status::OK);
  const std::unique_ptr<Lease> lease = agent.Grant();
  ASSERT_NE(lease, nullptr);
  const absl::Status status = lease->Counters().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("has ended"), std::string::npos) << status;
}

TEST(LeaseTest, AForkedChildLeavesTheLeaseToItsParent) {
  ListeningAgent agent;
  std::unique_ptr<Lease> lease = agent.Grant();
  ASSERT_NE(lease, nullptr);
  const pid_t child = fork();
  if (child == 0) {
    lease->CancelRuns();
    lease->Detach();
    lease.reset();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_FALSE(agent.detached());
  lease.reset();
  EXPECT_TRUE(agent.detached());
  EXPECT_FALSE(agent.cancelled());
}

TEST(LeaseTest, ACancelledRunIsNoDetach) {
  ListeningAgent agent;
  std::unique_ptr<Lease> lease = agent.Grant();
  ASSERT_NE(lease, nullptr);
  lease->CancelRuns();
  lease.reset();  // ends when the agent has heard all
  EXPECT_TRUE(agent.cancelled());
  EXPECT_TRUE(agent.detached());
}

TEST(LeaseTest, AnAgentThatHangsAtItsLocalListenerIsNamed) {
  HangingAgent agent;
  LeaseOptions options;
  options.endpoint = agent.endpoint();
  const auto lease = Lease::Attach(vipu::Describe({}), options);
  EXPECT_EQ(lease.status(), absl::UnavailableError("the agent at " + agent.endpoint() +
                                                   " does not answer on its local socket"));
}

TEST(LeaseTest, AnAgentThatHangsInAResetIsNamed) {
  HangingAgent agent;
  vipuuser::PartitionConfig config;
  config.add_devices()->set_endpoint(agent.endpoint());
  EXPECT_EQ(ResetDevice(vipu::Describe(config), 0, /*initialise_parity=*/false),
            absl::DeadlineExceededError("the agent at " + agent.endpoint() + " does not answer"));
}

TEST(LeaseTest, ACancelledRunDoesNotWaitForTheEndOfItsJob) {
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  const absl::Status lost = absl::AbortedError("instance 1 was lost");
  std::stop_source cancelled;
  const std::jthread cancels([&] { cancelled.request_stop(); });
  // They would wait for five minutes together, longer than the test may run.
  for (int call = 0; call < 100; ++call) EXPECT_EQ(AwaitTheEnd(lost, cancelled.get_token()), lost);
  unsetenv("OMPI_COMM_WORLD_SIZE");
}

}  // namespace
}  // namespace vpod::ipuof
