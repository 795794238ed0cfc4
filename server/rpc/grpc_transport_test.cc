// The transport over gRPC, between two servers of this process; with TLS and without.
#include "server/rpc/grpc_transport.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "device/base/grpc_connect.h"
#include "device/base/mutex.h"
#include "proto/fabric/v1/fabric.grpc.pb.h"
#include "server/rpc/call_guard.h"
#include "server/security/certificates.h"

namespace vpod::rpc {
namespace {

using fabric::v1::Fabric;

// A process's side: keeps what arrives.
class Side : public Fabric::WithRawCallbackMethod_Carry<Fabric::Service> {
 public:
  struct Message {
    std::string header;
    std::vector<std::byte> payload;
  };

  explicit Side(const std::optional<base::Tls>& tls) : transport_(tls) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", GuardedCredentials(tls), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~Side() override {
    transport_.Stop();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Carry(
      grpc::CallbackServerContext*) override {
    return TakeCargo(
        [this](absl::string_view header, size_t bytes) { return Receive(header, bytes); });
  }

  // Sends and waits until the payload is no longer needed; whether it went well.
  bool Send(const std::string& to, const std::string& header,
            const std::vector<std::byte>& payload) {
    std::optional<bool> result;
    transport_.Send(to, header, payload, [&](const absl::Status& status) {
      base::MutexLock lock(mutex_);
      result = status.ok();
      changed_.notify_all();
    });
    base::MutexLock lock(mutex_);
    lock.Wait(changed_, [&] { return result.has_value(); });
    return *result;
  }
  std::shared_ptr<Message> Await(size_t number) {
    base::MutexLock lock(mutex_);
    lock.Wait(changed_, [&] { return messages_.size() > number; });
    return messages_[number];
  }
  void AwaitTorn(size_t number) {
    base::MutexLock lock(mutex_);
    lock.Wait(changed_, [&] { return torn_ == number; });
  }
  GrpcTransport& transport() { return transport_; }
  const std::string& address() const { return address_; }
  int received() const { return received_; }

 private:
  fabric::Landing Receive(absl::string_view header, size_t bytes) {
    ++received_;
    if (bytes > 64 << 20) return {};
    auto message = std::make_shared<Message>();
    message->header = std::string(header);
    message->payload.resize(bytes);
    return {message->payload.data(), [this, message](const absl::Status& status) {
              base::MutexLock lock(mutex_);
              if (status.ok()) {
                messages_.push_back(message);
              } else {
                ++torn_;
              }
              changed_.notify_all();
            }};
  }

  base::Mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Message>> messages_ ABSL_GUARDED_BY(mutex_);
  size_t torn_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<int> received_ = 0;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
  GrpcTransport transport_;
};

std::vector<std::byte> Pattern(size_t bytes) {
  std::vector<std::byte> pattern(bytes);
  for (size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<std::byte>(i * 7 + i / 251);
  return pattern;
}

class GrpcTransportTest : public ::testing::TestWithParam<bool> {
 protected:
  static std::optional<base::Tls> Tls() {
    if (!GetParam()) return std::nullopt;
    static const base::Tls tls = [] {
      const std::string directory = ::testing::TempDir() + "/grpc_transport_test";
      std::filesystem::remove_all(directory);
      EXPECT_TRUE(security::GenerateCertificates(directory, {}).ok());
      const std::string at = directory + "/server/";
      auto read = base::ReadTls({at + "ca.crt", at + "server.crt", at + "server.key"});
      EXPECT_TRUE(read.ok()) << read.status();
      return *std::move(read);
    }();
    return tls;
  }
};
INSTANTIATE_TEST_SUITE_P(Tls, GrpcTransportTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Tls" : "Clear"; });

TEST_P(GrpcTransportTest, CarriesMessagesOfAllSizes) {
  Side a(Tls()), b(Tls());
  size_t number = 0;
  for (size_t bytes : {0ul, 1ul, 1000ul, 1ul << 20, (1ul << 20) + 1, 20'000'000ul}) {
    const auto payload = Pattern(bytes);
    ASSERT_TRUE(a.Send(b.address(), "header " + std::to_string(bytes), payload));
    const auto message = b.Await(number++);
    EXPECT_EQ(message->header, "header " + std::to_string(bytes));
    EXPECT_EQ(message->payload, payload);
  }
}

TEST_P(GrpcTransportTest, BothWaysAtOnce) {
  Side a(Tls()), b(Tls());
  const auto payload = Pattern(3'000'000);
  std::atomic<int> sent = 0;
  for (int i = 0; i < 16; ++i) {
    a.transport().Send(b.address(), "a", payload, [&](const absl::Status& s) { sent += s.ok(); });
    b.transport().Send(a.address(), "b", payload, [&](const absl::Status& s) { sent += s.ok(); });
  }
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(a.Await(i)->payload, payload);
    EXPECT_EQ(b.Await(i)->payload, payload);
  }
  // The last `sent` may come after the payload's arrival; an empty message each way follows it.
  EXPECT_TRUE(a.Send(b.address(), "end", {}));
  EXPECT_TRUE(b.Send(a.address(), "end", {}));
  EXPECT_EQ(sent, 32);
}

TEST_P(GrpcTransportTest, ALostPeerIsAnErrorOfTheSend) {
  Side a(Tls());
  auto b = std::make_unique<Side>(Tls());
  const std::string address = b->address();
  ASSERT_TRUE(a.Send(address, "hello", Pattern(10)));
  b->Await(0);
  b.reset();
  const auto payload = Pattern(20'000'000);
  EXPECT_FALSE(a.Send(address, "anybody there?", payload));
  EXPECT_FALSE(a.Send(address, "again", payload));
}

TEST_P(GrpcTransportTest, WhatWaitsIsToldOfTheEnd) {
  Side a(Tls()), b(Tls());
  std::atomic<int> told = 0;
  const auto payload = Pattern(1'000'000);
  for (int i = 0; i < 100; ++i)
    a.transport().Send(b.address(), "x", payload, [&](const absl::Status&) { ++told; });
  a.transport().Stop();
  EXPECT_EQ(told, 100);
  EXPECT_FALSE(a.Send(b.address(), "later", {}));
}

// Writes raw pieces into a stream; the status with which it ends.
grpc::StatusCode Say(const Side& to, const std::optional<base::Tls>& tls,
                     const std::vector<std::string>& pieces) {
  struct Reactor : grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
    void OnWriteDone(bool ok) override {
      if (!ok || ++at == pieces.size()) return StartWritesDone();
      Write();
    }
    void Write() {
      const grpc::Slice slice(pieces[at]);
      buffer = grpc::ByteBuffer(&slice, 1);
      StartWrite(&buffer);
    }
    void OnDone(const grpc::Status& status) override {
      base::MutexLock lock(mutex);
      code = status.error_code();
      changed.notify_all();
    }
    std::vector<std::string> pieces;
    size_t at = 0;
    grpc::ByteBuffer buffer;
    grpc::ClientContext context;
    base::Mutex mutex;
    std::condition_variable changed;
    std::optional<grpc::StatusCode> code;
  } reactor;
  reactor.pieces = pieces;
  grpc::GenericStub stub(base::Connect(to.address(), base::Peer::kAgent, tls));
  stub.PrepareBidiStreamingCall(&reactor.context, "/vpod.fabric.v1.Fabric/Carry", {}, &reactor);
  reactor.Write();
  reactor.StartCall();
  base::MutexLock lock(reactor.mutex);
  lock.Wait(reactor.changed, [&] { return reactor.code.has_value(); });
  return *reactor.code;
}

std::string Piece(const std::string& header, uint64_t bytes, const std::string& data) {
  fabric::v1::Cargo cargo;
  cargo.set_header(header);
  cargo.set_payload_bytes(bytes);
  cargo.set_data(data);
  return cargo.SerializeAsString();
}

// Protobuf's own serialisation is understood, whatever else a sender may use.
TEST_P(GrpcTransportTest, TheReceiverChecksTheForm) {
  Side b(Tls());
  EXPECT_EQ(Say(b, Tls(), {Piece("h", 5, "abc"), Piece("", 0, "de"), Piece("i", 0, "")}),
            grpc::StatusCode::OK);
  EXPECT_EQ(b.Await(0)->header, "h");
  EXPECT_EQ(b.Await(0)->payload.size(), 5u);
  EXPECT_EQ(b.Await(1)->header, "i");
  const int before = b.received();
  const std::string long_header(257, 'h');
  for (const std::vector<std::string>& wrong : {
           std::vector<std::string>{Piece(long_header, 0, "")},
           {Piece("", 0, "data of nothing")},
           {std::string("\xff\xff\xff", 3)},
           {std::string("\x1a\xff\xff\xff\x7f", 5)},  // data that are not there
           {std::string((1 << 20) + 1000, '\0')},     // longer than a piece
       }) {
    EXPECT_EQ(Say(b, Tls(), wrong), grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_EQ(b.received(), before);
  // Messages that had begun are reported as broken off.
  EXPECT_EQ(Say(b, Tls(), {Piece("h", 3, "abcd")}), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Say(b, Tls(), {Piece("h", 3, "ab"), Piece("i", 3, "abc")}),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Say(b, Tls(), {Piece("h", 3, "ab")}), grpc::StatusCode::OK);
  b.AwaitTorn(3);
}

TEST_P(GrpcTransportTest, APayloadThatNobodyWantsGoesNowhere) {
  Side a(Tls()), b(Tls());
  EXPECT_EQ(Say(b, Tls(), {Piece("h", ~0ull, std::string(1000, 'x'))}), grpc::StatusCode::OK);
  EXPECT_TRUE(a.Send(b.address(), "x", Pattern(100)));
  EXPECT_EQ(b.Await(0)->header, "x");
}

}  // namespace
}  // namespace vpod::rpc
