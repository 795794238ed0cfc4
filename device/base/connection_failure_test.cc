#include "device/base/connection_failure.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "device/base/grpc_connect.h"
#include "device/base/unique_fd.h"

namespace vpod::base {
namespace {

// A port of 127.0.0.1 that answers one connection with some bytes, or does nothing.
class Server {
 public:
  enum class Answers { kBytes, kNothing, kNobody };
  explicit Server(Answers answers, std::string bytes = "")
      : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length);
    endpoint_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    if (answers == Answers::kNobody) return;
    EXPECT_EQ(listen(listener_.get(), 4), 0);
    if (answers == Answers::kNothing) return;
    thread_ = std::thread([this, bytes = std::move(bytes)] {
      const UniqueFd client(accept(listener_.get(), nullptr, nullptr));
      if (bytes.empty()) return;  // it closes
      EXPECT_EQ(write(client.get(), bytes.data(), bytes.size()),
                static_cast<ssize_t>(bytes.size()));
      done_.get_future().wait();
    });
  }
  ~Server() {
    done_.set_value();
    if (thread_.joinable()) thread_.join();
  }

  std::string Failure() const {
    grpc::GenericStub stub(Connect(endpoint_, Peer::kController, std::nullopt));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
    grpc::CompletionQueue queue;
    const grpc::Slice nothing;
    grpc::ByteBuffer request(&nothing, 1), reply;
    grpc::Status status;
    const auto call = stub.PrepareUnaryCall(&context, "/a/b", request, &queue);
    call->StartCall();
    call->Finish(&reply, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    EXPECT_TRUE(IsConnectionFailure(status)) << status.error_code();
    return ConnectionFailure(std::nullopt, endpoint_, status);
  }

 private:
  const UniqueFd listener_;
  std::string endpoint_;
  std::promise<void> done_;
  std::thread thread_;
};

TEST(ConnectionFailureTest, EachKindHasItsWords) {
  EXPECT_EQ(Server(Server::Answers::kNobody).Failure(), "nobody listens there");
  EXPECT_EQ(Server(Server::Answers::kNothing).Failure(), "it does not answer");
  for (const char* bytes :
       {"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "SSH-2.0-OpenSSH_8.4\r\n"}) {
    EXPECT_EQ(Server(Server::Answers::kBytes, bytes).Failure(),
              "another kind of server listens there")
        << bytes;
  }
  EXPECT_EQ(Server(Server::Answers::kBytes).Failure(),
            "it closed the connection: it may expect TLS (--tls-ca, --tls-cert, --tls-key)");
}

TEST(ConnectionFailureTest, WordsOfGrpcAreUnderstood) {
  const auto failure = [](const std::string& text) {
    return ConnectionFailure(std::nullopt, "ctrl:8090",
                             grpc::Status(grpc::StatusCode::UNAVAILABLE, text));
  };
  EXPECT_EQ(failure("DNS resolution failed for ctrl:8090: C-ares status is not ARES_SUCCESS "
                    "qtype=A name=ctrl is_balancer=0: Domain name not found"),
            "the name 'ctrl' is unknown");
  EXPECT_EQ(failure("failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:80: "
                    "Failed to connect to remote host: No route to host"),
            "there is no route to that host");
  EXPECT_EQ(failure("failed to connect to all addresses; last error: UNAVAILABLE: ipv4:10.0.0.1:80:"
                    " connection attempt timed out before receiving SETTINGS frame"),
            "it does not answer");
  EXPECT_EQ(failure("Socket closed"), "the connection broke off");
  EXPECT_EQ(AsSentence("nobody listens there"), "Nobody listens there.");
  EXPECT_FALSE(IsConnectionFailure(grpc::Status(grpc::StatusCode::NOT_FOUND, "no such thing")));
}

}  // namespace
}  // namespace vpod::base
