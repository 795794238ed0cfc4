// A process that hangs answers nothing, whatever the service, and goes on as if nothing had been.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proto/ipuof/v1/ipuof.grpc.pb.h"
#include "proto/telemetry/v1/telemetry.grpc.pb.h"
#include "proto/vipu/v1/vipuagent.grpc.pb.h"
#include "server/rpc/agent_services.h"

namespace vpod::rpc {
namespace {

using grpc::StatusCode;

class HangTest : public testing::Test {
 protected:
  HangTest() : agent_(*agent::Agent::Create({.num_machines = 1})), services_(*agent_) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    services_.RegisterOn(builder);
    server_ = builder.BuildAndStart();
    channel_ =
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials());
    management_ = vipuagent::VipuAgent::NewStub(channel_);
    telemetry_ = telemetry::v1::Telemetry::NewStub(channel_);
    ipuof_ = ipuof::v1::Ipuof::NewStub(channel_);
  }
  ~HangTest() override {
    agent_->gate().OpenForEver();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  // One call of each kind; `wait` is how long it may take.
  StatusCode Describe(std::chrono::milliseconds wait) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + wait);
    vipuagent::DescribeMachineRequest request;
    request.set_host("127.10.0.1");
    vipuagent::DescribeMachineReply reply;
    return management_->DescribeMachine(&context, request, &reply).error_code();
  }
  StatusCode Links(std::chrono::milliseconds wait) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + wait);
    telemetry::v1::GetPartitionLinksReply reply;
    return telemetry_->GetPartitionLinks(&context, {}, &reply).error_code();
  }
  StatusCode Run(std::chrono::milliseconds wait) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + wait);
    ipuof::v1::RunReply reply;
    return ipuof_->Run(&context, {}, &reply).error_code();
  }
  // Opens an attach that is refused.
  StatusCode Attach(std::chrono::milliseconds wait) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + wait);
    auto stream = ipuof_->Attach(&context);
    ipuof::v1::AttachRequest request;
    request.mutable_open()->set_partition_id("p");
    stream->Write(request);
    ipuof::v1::AttachEvent event;
    stream->Read(&event);
    return stream->Finish().error_code();
  }

  std::unique_ptr<agent::Agent> agent_;
  AgentServices services_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<vipuagent::VipuAgent::Stub> management_;
  std::unique_ptr<telemetry::v1::Telemetry::Stub> telemetry_;
  std::unique_ptr<ipuof::v1::Ipuof::Stub> ipuof_;
};

TEST_F(HangTest, NothingIsAnsweredUntilTheHangEnds) {
  constexpr std::chrono::milliseconds kShort(200), kLong(60'000);
  EXPECT_EQ(Describe(kLong), StatusCode::OK);
  EXPECT_EQ(Links(kLong), StatusCode::NOT_FOUND);
  EXPECT_EQ(Run(kLong), StatusCode::NOT_FOUND);
  EXPECT_EQ(Attach(kLong), StatusCode::NOT_FOUND);

  vipuagent::InjectRequest hang;
  hang.set_host("127.10.0.1");
  hang.set_fault(vipuagent::AGENT_HANG);
  hang.set_seconds(3600);
  {
    grpc::ClientContext context;
    vipuagent::InjectReply reply;
    ASSERT_TRUE(management_->Inject(&context, hang, &reply).ok());
  }
  EXPECT_EQ(Describe(kShort), StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(Links(kShort), StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(Run(kShort), StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(Attach(kShort), StatusCode::DEADLINE_EXCEEDED);

  // One that waits when it ends is answered.
  agent_->executors().PostControl([this] { agent_->gate().OpenForEver(); });
  EXPECT_EQ(Describe(kLong), StatusCode::OK);
  EXPECT_EQ(Links(kLong), StatusCode::NOT_FOUND);
  EXPECT_EQ(Run(kLong), StatusCode::NOT_FOUND);
  EXPECT_EQ(Attach(kLong), StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace vpod::rpc
