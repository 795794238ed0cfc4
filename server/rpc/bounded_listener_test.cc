#include "server/rpc/bounded_listener.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <deque>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/ipuof/v1/ipuof.grpc.pb.h"
#include "proto/vipu/v1/vipuuser.grpc.pb.h"
#include "server/rpc/agent_services.h"
#include "server/rpc/held_messages.h"

namespace vpod::rpc {
namespace {

using boost::asio::ip::tcp;

// By address at which the server listens.
class BoundedListenerTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit few = before_;
    few.rlim_cur = 300;  // 100 connections, and as many ends of the test's own
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    grpc::ServerBuilder builder;
    auto listener = BoundedListener::Open(absl::StrCat(GetParam(), ":0"),
                                          grpc::InsecureServerCredentials(), builder);
    if (!listener.ok() && std::string(GetParam()) == "[::1]")
      GTEST_SKIP() << "no IPv6 here: " << listener.status();
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    services_.RegisterOn(builder, listener_.get());
    server_ = builder.BuildAndStart();
    listener_->Start();
    channel_ = grpc::CreateChannel(absl::StrCat(GetParam(), ":", listener_->port()),
                                   grpc::InsecureChannelCredentials());
    ipuof_ = ipuof::v1::Ipuof::NewStub(channel_);
  }
  void TearDown() override {
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0);
    if (server_ == nullptr) return;
    agent_->gate().OpenForEver();
    listener_->Close();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  // A connection that says nothing.
  tcp::socket Connect() {
    tcp::socket socket(context_);
    const std::string host = GetParam();
    const auto address =
        boost::asio::ip::make_address(host.front() == '[' ? host.substr(1, host.size() - 2) : host);
    socket.connect(tcp::endpoint(address, static_cast<uint16_t>(listener_->port())));
    return socket;
  }
  // Reads until the server has closed it.
  static void AwaitEnd(tcp::socket& socket) {
    char bytes[256];
    boost::system::error_code error;
    while (!error) socket.read_some(boost::asio::buffer(bytes), error);
  }
  static bool HasEnded(tcp::socket& socket) {
    char bytes[256];
    while (true) {
      const ssize_t got = recv(socket.native_handle(), bytes, sizeof(bytes), MSG_DONTWAIT);
      if (got <= 0) return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    }
  }

  rlimit before_{};
  boost::asio::io_context context_;
  std::unique_ptr<agent::Agent> agent_ = *agent::Agent::Create({.num_machines = 1});
  AgentServices services_{*agent_};
  std::shared_ptr<BoundedListener> listener_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<ipuof::v1::Ipuof::Stub> ipuof_;
};

INSTANTIATE_TEST_SUITE_P(Addresses, BoundedListenerTest, testing::Values("127.0.0.1", "[::1]"));

TEST_P(BoundedListenerTest, AnswersDoNotWaitForAcknowledgements) {
  tcp::socket client = Connect();
  ASSERT_TRUE(
      channel_->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(60)));
  // The accepted end of the connection is a descriptor of this process, too.
  int found = 0;
  for (int fd = 0; fd < 300; ++fd) {
    tcp::endpoint peer;
    auto size = static_cast<socklen_t>(peer.capacity());
    if (getpeername(fd, peer.data(), &size) != 0) continue;
    peer.resize(size);
    if (peer != client.local_endpoint()) continue;
    ++found;
    int no_delay = 0;
    socklen_t length = sizeof(no_delay);
    ASSERT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &no_delay, &length), 0);
    EXPECT_EQ(no_delay, 1);
  }
  EXPECT_EQ(found, 1);
}

TEST_P(BoundedListenerTest, TheConnectionThatIsIdleLongestMakesRoom) {
  // The first connection has a call that waits for its client: it is never the one that goes.
  grpc::ClientContext context;
  const auto busy = ipuof_->Attach(&context);
  ipuof::v1::GetCountersReply reply;
  {
    // Answered on the same connection, so the call above has begun, too.
    grpc::ClientContext other;
    EXPECT_EQ(ipuof_->GetCounters(&other, {}, &reply).error_code(), grpc::StatusCode::NOT_FOUND);
  }
  std::vector<tcp::socket> idle;
  const size_t most = BoundedListener::MostConnections();
  for (size_t i = 1; i < most; ++i) idle.push_back(Connect());
  tcp::socket newest = Connect();
  AwaitEnd(idle.front());
  for (size_t i = 1; i < idle.size(); ++i) EXPECT_FALSE(HasEnded(idle[i])) << i;
  EXPECT_FALSE(HasEnded(newest));

  ipuof::v1::AttachRequest request;
  request.mutable_open()->set_partition_id("p");
  ASSERT_TRUE(busy->Write(request));
  ipuof::v1::AttachEvent event;
  EXPECT_FALSE(busy->Read(&event));
  EXPECT_EQ(busy->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_P(BoundedListenerTest, OneWithoutCallsIsIdleAgain) {
  ipuof::v1::GetCountersReply reply;
  {
    grpc::ClientContext context;
    EXPECT_EQ(ipuof_->GetCounters(&context, {}, &reply).error_code(), grpc::StatusCode::NOT_FOUND);
  }
  // Each takes the place of the connection that is idle longest; the turn of one that counted as
  // busy would never come.
  std::deque<tcp::socket> idle;
  const size_t most = BoundedListener::MostConnections();
  const auto has_ended = [&] { return channel_->GetState(false) != GRPC_CHANNEL_READY; };
  for (size_t i = 0; i < 20 * most && !has_ended(); ++i) {
    idle.push_back(Connect());
    if (idle.size() > most) idle.pop_front();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // gRPC closes them in its own time
  }
  EXPECT_TRUE(has_ended() ||
              channel_->WaitForStateChange(
                  GRPC_CHANNEL_READY, std::chrono::system_clock::now() + std::chrono::seconds(60)));
}

// Otherwise the listener would look at more and more of them, twenty times a second.
TEST_P(BoundedListenerTest, ConnectionsThatHaveEndedAreForgotten) {
  const auto call = [](ipuof::v1::Ipuof::Stub& stub) {
    grpc::ClientContext context;
    ipuof::v1::GetCountersReply reply;
    EXPECT_EQ(stub.GetCounters(&context, {}, &reply).error_code(), grpc::StatusCode::NOT_FOUND);
  };
  call(*ipuof_);
  EXPECT_EQ(listener_->NumConnections(), 1u);
  for (int i = 0; i < 20; ++i) {
    grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto stub = ipuof::v1::Ipuof::NewStub(grpc::CreateCustomChannel(
        absl::StrCat(GetParam(), ":", listener_->port()), grpc::InsecureChannelCredentials(), own));
    call(*stub);
    EXPECT_GE(listener_->NumConnections(), 2u);
  }
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (listener_->NumConnections() > 1 && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(listener_->NumConnections(), 1u);
  call(*ipuof_);
  EXPECT_EQ(listener_->NumConnections(), 1u);
}

// A frame of HTTP/2 (RFC 9113, 4.1).
std::string Frame(char kind, char flags, char stream, const std::string& content) {
  return std::string({0, static_cast<char>(content.size() >> 8), static_cast<char>(content.size()),
                      kind, flags, 0, 0, 0, stream}) +
         content;
}

// The bytes with which an HTTP/2 connection begins.
std::string Preface() {
  constexpr char kSettings = 4;
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, 0, 0, "");
}

// The headers of a call.
std::string Headers(char stream, const std::string& path) {
  constexpr char kHeaders = 1, kEndHeaders = 4;
  std::string headers;
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{":method", "POST"},
                                                        {":scheme", "http"},
                                                        {":path", path},
                                                        {":authority", "pod"},
                                                        {"content-type", "application/grpc"},
                                                        {"te", "trailers"}}) {
    headers += std::string(1, '\0') + static_cast<char>(name.size()) + name +
               static_cast<char>(value.size()) + value;
  }
  return Frame(kHeaders, kEndHeaders, stream, headers);
}

std::string Data(char stream, const std::string& content) { return Frame(0, 0, stream, content); }

// A server that holds few messages that are not complete, and a connection to it.
class HeldMessagesTest : public testing::Test {
 protected:
  void Start(uint64_t incomplete_bytes) {
    grpc::ServerBuilder builder;
    auto listener = BoundedListener::Open("127.0.0.1:0", grpc::InsecureServerCredentials(), builder,
                                          {.incomplete_bytes = incomplete_bytes});
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    agent_services_.RegisterOn(builder, listener_.get());
    builder.RegisterService(&user_service_);
    server_ = builder.BuildAndStart();
    listener_->Start();
    client_.connect(tcp::endpoint(boost::asio::ip::address_v4::loopback(),
                                  static_cast<uint16_t>(listener_->port())));
  }
  ~HeldMessagesTest() override {
    listener_->Close();
    server_->Shutdown(std::chrono::system_clock::now());
  }
  // False if the server has ended the connection.
  bool Send(const std::string& bytes) {
    boost::system::error_code error;
    boost::asio::write(client_, boost::asio::buffer(bytes), error);
    return !error;
  }
  // Whether the server ends the connection.
  bool IsEnded() {
    const timeval patience{30, 0};
    setsockopt(client_.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    char bytes[256];
    ssize_t got;
    while ((got = recv(client_.native_handle(), bytes, sizeof(bytes), 0)) > 0) {
    }
    return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }

 private:
  const std::unique_ptr<agent::Agent> agent_ = *agent::Agent::Create({.num_machines = 1});
  AgentServices agent_services_{*agent_};
  vipuuser::VipuUser::Service user_service_;
  std::shared_ptr<BoundedListener> listener_;
  std::unique_ptr<grpc::Server> server_;
  boost::asio::io_context context_;
  tcp::socket client_{context_};
};

TEST_F(HeldMessagesTest, OneThatComesSlowlyIsSeen) {
  constexpr size_t kMost = 16 << 10, kEnough = 5 * kMost;
  Start(kMost);
  ASSERT_TRUE(Send(Preface() + Headers(1, "/vpod.ipuof.v1.Ipuof/GetCounters") +
                   Data(1, std::string("\0\0\x10\0\0", 5))));  // a message of 1 MiB
  const std::string some = Data(1, std::string(200, 'x'));
  size_t sent = 0;
  for (; sent < kEnough && Send(some); sent += some.size())
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LT(sent, kEnough) << "so much of a message is held, of at most " << kMost;
}

// Each takes gRPC some 12 KiB, and a client a few bytes. gRPC tells of none of them.
TEST_F(HeldMessagesTest, CallsWithoutTheirMessageCount) {
  Start(64 << 10);
  std::string bytes = Preface();
  for (char call = 0; call < 20; ++call)
    bytes += Headers(static_cast<char>(2 * call + 1), "/vipuuser.VipuUser/GetServerInfo");
  ASSERT_TRUE(Send(bytes));
  EXPECT_TRUE(IsEnded()) << "20 calls wait for their messages";
}

using Ended = std::vector<size_t>;

TEST(ConnectionsToEndTest, NoneWhileTheLimitHolds) {
  EXPECT_EQ(ConnectionsToEnd({}, 0), Ended());
  EXPECT_EQ(ConnectionsToEnd({{"a", 40}, {"b", 60}}, 100), Ended());
}

TEST(ConnectionsToEndTest, OfOneHostThatWithMost) {
  EXPECT_EQ(ConnectionsToEnd({{"a", 30}, {"a", 50}, {"a", 40}}, 100), Ended({1}));
  EXPECT_EQ(ConnectionsToEnd({{"a", 30}, {"a", 50}, {"a", 40}}, 60), Ended({1, 2}));
  EXPECT_EQ(ConnectionsToEnd({{"a", 0}, {"a", 1}}, 0), Ended({1}));
}

TEST(ConnectionsToEndTest, OfSeveralHostsThatWithMostInTotal) {
  // The larger message of the other host is left alone.
  EXPECT_EQ(ConnectionsToEnd({{"b", 60}, {"a", 50}, {"a", 49}}, 120), Ended({1}));
  // Then the other host holds most.
  EXPECT_EQ(ConnectionsToEnd({{"b", 60}, {"a", 50}, {"a", 49}}, 60), Ended({1, 0}));
}

TEST(ConnectionsToEndTest, ManySmallMessagesOfOneHostEndNoneOfAnother) {
  std::vector<HeldMessages> connections = {{"victim", 10}};
  for (int i = 0; i < 300; ++i) connections.push_back({"attacker", 9});
  const Ended ended = ConnectionsToEnd(connections, 1920);
  EXPECT_EQ(ended.size(), 88u);  // 2710 - 88 * 9 = 1918
  for (const size_t each : ended) EXPECT_EQ(connections[each].host, "attacker") << each;
}

}  // namespace
}  // namespace vpod::rpc
