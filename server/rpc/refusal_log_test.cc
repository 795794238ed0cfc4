#include "server/rpc/refusal_log.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/base/grpc_connect.h"
#include "proto/vipu/v1/vipuuser.grpc.pb.h"
#include "server/rpc/call_guard.h"
#include "server/security/certificates.h"

namespace vpod::rpc {
namespace {

using vipuuser::VipuUser;

// Keeps what the daemon logs, and gives the log back at the end.
class LogTest : public testing::Test {
 protected:
  LogTest() {
    const auto logger = std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_));
    logger->set_pattern("%v");
    spdlog::set_default_logger(logger);
  }
  ~LogTest() override { spdlog::set_default_logger(before_); }

  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
  std::ostringstream text_;
};

TEST_F(LogTest, NoTextOfACallerLooksLikeAField) {
  LogRefusal("attach", CallerField("a\" user=\"root", false),
             absl::NotFoundError("no \"x\" user=\"root\"\nhere"));
  EXPECT_EQ(text_.str(),
            "refused call=\"attach\" claimed_user=\"a' user='root\" code=NOT_FOUND "
            "reason=\"no 'x' user='root'\uFFFDhere\"\n");
}

// A controller's end-point, of which every call that is let in is refused.
class RefusedCallsTest : public LogTest {
 protected:
  void Serve(bool secure) {
    std::optional<base::Tls> server, client;
    if (secure) {
      const std::string directory = testing::TempDir() + "/refusal_log_test";
      std::filesystem::remove_all(directory);
      ASSERT_TRUE(security::GenerateCertificates(directory, {}).ok());
      server = Certificate(directory + "/server/", "server");
      client = Certificate(directory + "/client/", "client");
    }
    const Authenticate by_key = [](const std::string& id, const std::string& key,
                                   const auto& done) {
      done(key == "right" ? absl::StatusOr<controller::Caller>(controller::Caller{.user_id = id})
                          : absl::UnauthenticatedError("wrong key"));
    };
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("localhost:0", GuardedCredentials(server, secure ? by_key : nullptr),
                             &port);
    builder.RegisterService(&service_);
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> watchers;
    watchers.push_back(LogRefusedCalls(secure));
    builder.experimental().SetInterceptorCreators(std::move(watchers));
    server_ = builder.BuildAndStart();
    stub_ = VipuUser::NewStub(
        base::Connect(absl::StrCat("localhost:", port), base::Peer::kController, client));
  }
  ~RefusedCallsTest() override {
    if (server_ != nullptr) server_->Shutdown();
  }

  template <class Request, class Reply>
  void Call(grpc::Status (VipuUser::Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
            const std::string& user, const std::string& key) {
    grpc::ClientContext context;
    context.AddMetadata("vipu-user-id", user);
    context.AddMetadata("vipu-access-key", key);
    Reply reply;
    EXPECT_FALSE((stub_.get()->*method)(&context, Request(), &reply).ok());
  }
  bool HasLogged(const std::string& text) {
    server_->Shutdown();  // an interceptor sees the status before the call ends
    return text_.str().find(text) != std::string::npos;
  }

 private:
  static base::Tls Certificate(const std::string& directory, const std::string& name) {
    const auto tls =
        base::ReadTls({directory + "ca.crt", directory + name + ".crt", directory + name + ".key"});
    EXPECT_TRUE(tls.ok()) << tls.status();
    return *tls;
  }

  VipuUser::Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<VipuUser::Stub> stub_;
};

TEST_F(RefusedCallsTest, AKeyThatIsWrongProvesNoName) {
  Serve(/*secure=*/true);
  Call(&VipuUser::Stub::ListPartitions, "alice", "wrong");
  EXPECT_TRUE(
      HasLogged("refused call=\"list partitions\" claimed_user=\"alice\" "
                "code=UNAUTHENTICATED reason=\"wrong key\"\n"))
      << text_.str();
}

TEST_F(RefusedCallsTest, AKeyThatIsRightDoes) {
  Serve(/*secure=*/true);
  Call(&VipuUser::Stub::ListPartitions, "alice", "right");
  EXPECT_TRUE(HasLogged("refused call=\"list partitions\" user=\"alice\" peer=\"ipv"))
      << text_.str();
}

TEST_F(RefusedCallsTest, ACallThatNeedsNoKeyProvesNoName) {
  Serve(/*secure=*/true);
  Call(&VipuUser::Stub::GetServerInfo, "alice", "wrong");
  EXPECT_TRUE(HasLogged("\" claimed_user=\"alice\" peer=\"ipv")) << text_.str();
}

TEST_F(RefusedCallsTest, WithoutKeysCallersAreWhoTheySay) {
  Serve(/*secure=*/false);
  Call(&VipuUser::Stub::ListPartitions, "bob", "");
  EXPECT_TRUE(HasLogged("refused call=\"list partitions\" user=\"bob\" peer=\"ipv")) << text_.str();
}

}  // namespace
}  // namespace vpod::rpc
