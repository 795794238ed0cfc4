// TLS as clients meet it: who is let in, and what the others are told.
#include "device/base/tls.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "device/base/connection_failure.h"
#include "device/base/grpc_connect.h"
#include "device/base/unique_fd.h"
#include "proto/vipu/v1/vipuuser.grpc.pb.h"
#include "server/rpc/call_guard.h"
#include "server/security/certificates.h"

namespace vpod {
namespace {

using base::Peer;
using base::Tls;

Tls Read(const std::string& directory, const std::string& role) {
  const std::string at = directory + "/" + role + "/";
  const auto tls = base::ReadTls({at + "ca.crt", at + role + ".crt", at + role + ".key"});
  EXPECT_TRUE(tls.ok()) << tls.status();
  return tls.value_or(Tls());
}

class TlsTest : public testing::Test {
 protected:
  static std::string Generate(const char* name) {
    const std::string directory = testing::TempDir() + "/tls_test/" + name;
    std::filesystem::remove_all(directory);
    EXPECT_TRUE(security::GenerateCertificates(directory, {}).ok());
    return directory;
  }
  void Serve(const std::optional<Tls>& tls) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", rpc::GuardedCredentials(tls), &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  grpc::Status Call(const std::optional<Tls>& tls, Peer peer = Peer::kController) {
    const auto stub =
        vipuuser::VipuUser::NewStub(base::Connect("127.0.0.1:" + std::to_string(port_), peer, tls));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    vipuuser::GetServerInfoReply reply;
    return stub->GetServerInfo(&context, {}, &reply);
  }
  std::string Failure(const std::optional<Tls>& tls, const grpc::Status& status) const {
    return base::ConnectionFailure(tls, "127.0.0.1:" + std::to_string(port_), status);
  }

  vipuuser::VipuUser::Service service_;  // answers everything with UNIMPLEMENTED
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

TEST_F(TlsTest, UsersAndDaemonsOfThePodAreLetIn) {
  const std::string pod = Generate("pod");
  Serve(Read(pod, "server"));
  for (const char* role : {"client", "server"}) {
    EXPECT_EQ(Call(Read(pod, role)).error_code(), grpc::UNIMPLEMENTED) << role;
    EXPECT_EQ(Call(Read(pod, role), Peer::kAgent).error_code(), grpc::UNIMPLEMENTED) << role;
  }
}

TEST_F(TlsTest, OthersAreRefusedAndToldWhy) {
  const std::string ours = Generate("ours"), theirs = Generate("theirs");
  Serve(Read(ours, "server"));
  const auto hint = [&](const std::optional<Tls>& tls) {
    const grpc::Status status = Call(tls);
    EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE);
    return Failure(tls, status);
  };
  EXPECT_EQ(hint(std::nullopt),
            "it closed the connection: it may expect TLS (--tls-ca, --tls-cert, --tls-key)");
  Tls client = Read(ours, "client");
  client.ca = Read(theirs, "client").ca;
  EXPECT_EQ(hint(client),
            "its certificate is not a server's of the authority in " + client.files.ca);
  client = Read(theirs, "client");
  client.ca = Read(ours, "client").ca;
  const std::string refused =
      "it closed the connection: it may not accept the certificate " + client.files.certificate;
  EXPECT_EQ(hint(client), refused);
  client.certificate = client.key = "";  // none at all
  EXPECT_EQ(hint(client), refused);
}

// As a controller does that is killed while somebody connects.
TEST_F(TlsTest, APeerThatDiesIsNotTakenForOneThatExpectsTls) {
  base::UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
  port_ = ntohs(address.sin_port);
  std::thread dies([&] {
    const base::UniqueFd client(accept(listener.get(), nullptr, nullptr));
    listener.Reset();
  });
  const grpc::Status status = Call(std::nullopt);
  dies.join();
  EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(Failure(std::nullopt, status), "the connection broke off") << status.error_message();
}

TEST_F(TlsTest, ServerWithoutTlsIsNamed) {
  const Tls client = Read(Generate("pod"), "client");
  Serve(std::nullopt);
  EXPECT_EQ(Failure(client, Call(client)), "it does not speak TLS");
}

TEST_F(TlsTest, CertificateOfAUserMakesNoServer) {
  const std::string pod = Generate("pod");
  Serve(Read(pod, "client"));
  for (const Peer peer : {Peer::kController, Peer::kAgent})
    EXPECT_EQ(Call(Read(pod, "client"), peer).error_code(), grpc::UNAVAILABLE);
}

TEST_F(TlsTest, AServerThatIsDownIsNotBlamedForItsCertificate) {
  const Tls client = Read(Generate("pod"), "client");
  Serve(client);
  server_->Shutdown();
  EXPECT_EQ(Failure(client, Call(client)), "nobody listens there");
  EXPECT_EQ(Failure(std::nullopt, Call(std::nullopt)), "nobody listens there");
}

}  // namespace
}  // namespace vpod
