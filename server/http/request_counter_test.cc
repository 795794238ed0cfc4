#include "server/http/request_counter.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "proto/vipu/v1/vipuadmin.grpc.pb.h"
#include "proto/vipu/v1/vipuuser.grpc.pb.h"

namespace vpod::http {
namespace {

class UserService : public vipuuser::VipuUser::Service {
  grpc::Status GetServerInfo(grpc::ServerContext*, const vipuuser::GetServerInfoRequest*,
                             vipuuser::GetServerInfoReply*) override {
    return grpc::Status::OK;
  }
  grpc::Status GetPartition(grpc::ServerContext*, const vipuuser::GetPartitionRequest*,
                            vipuuser::GetPartitionReply*) override {
    return {grpc::StatusCode::NOT_FOUND, "Partition p1 does not exist."};
  }
};

class RequestCounterTest : public testing::Test {
 protected:
  RequestCounterTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> watchers;
    watchers.push_back(counter_.Watch());
    builder.experimental().SetInterceptorCreators(std::move(watchers));
    server_ = builder.BuildAndStart();
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                   grpc::InsecureChannelCredentials());
  }

  uint64_t Count(const std::string& method, grpc::StatusCode code) const {
    const auto calls = counter_.Calls();
    const auto it = calls.find({"vipuuser.VipuUser", method, code});
    return it == calls.end() ? 0 : it->second.count();
  }

  RequestCounter counter_;
  UserService service_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(RequestCounterTest, CountsByMethodAndCodeBeforeTheClientKnows) {
  const auto stub = vipuuser::VipuUser::NewStub(channel_);
  for (uint64_t i = 1; i <= 3; ++i) {
    grpc::ClientContext info_context, partition_context;
    vipuuser::GetServerInfoReply info;
    ASSERT_TRUE(stub->GetServerInfo(&info_context, {}, &info).ok());
    EXPECT_EQ(Count("GetServerInfo", grpc::StatusCode::OK), i);
    vipuuser::GetPartitionReply partition;
    ASSERT_FALSE(stub->GetPartition(&partition_context, {}, &partition).ok());
    EXPECT_EQ(Count("GetPartition", grpc::StatusCode::NOT_FOUND), i);
  }
  // In the service, but not implemented here.
  grpc::ClientContext context;
  vipuuser::ListPartitionsReply list;
  ASSERT_FALSE(stub->ListPartitions(&context, {}, &list).ok());
  EXPECT_EQ(Count("ListPartitions", grpc::StatusCode::UNIMPLEMENTED), 1u);
}

TEST_F(RequestCounterTest, ClientsCannotMakeUpMethods) {
  grpc::ClientContext context;
  vipuadmin::ListAgentsReply reply;
  const grpc::Status status =
      vipuadmin::VipuAdmin::NewStub(channel_)->ListAgents(&context, {}, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_TRUE(counter_.Calls().empty());
}

}  // namespace
}  // namespace vpod::http
