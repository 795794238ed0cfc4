// Controller's gateway and agent's services, with a connection between them.
#include "server/rpc/agent_gateway.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "device/base/mutex.h"
#include "proto/vipu/v1/vipuagent.grpc.pb.h"
#include "server/rpc/agent_services.h"
#include "server/rpc/portions.h"

namespace vpod::rpc {
namespace {

// Partitions on another agent's machine, with names of so many bytes.
vipuagent::ConfigureRequest Configuration(int partitions, size_t owner_bytes) {
  vipuagent::ConfigureRequest request;
  request.set_complete(true);
  request.set_sequence(7);
  request.set_controller_boot_id("boot");
  for (int i = 0; i < partitions; ++i) {
    vipuagent::AgentPartition* partition = request.add_partitions();
    partition->set_id(absl::StrCat("p", i));
    partition->set_owner(std::string(owner_bytes, 'x'));
    vipuagent::Slice* slice = partition->add_gcds()->add_slices();
    slice->set_machine_host("elsewhere");
    slice->set_endpoint("elsewhere:1");
    slice->set_num_ipus(1);
  }
  return request;
}

TEST(SplitInPortionsTest, SaysTheSameInMessagesOfTheSize) {
  vipuagent::ConfigureRequest whole = Configuration(9, 300);
  whole.mutable_partitions(4)->set_owner(std::string(5000, 'x'));  // larger than a portion
  whole.add_removed()->set_id("gone");
  whole.add_kept()->set_id("later");
  whole.set_agent_boot_id("agent");
  whole.set_controller_epoch(3);
  whole.set_controller_store("store");
  whole.set_controller_proof("proof");
  whole.set_base_sequence(6);
  const auto portions = SplitInPortions(whole, 1000);
  EXPECT_EQ(portions.size(), 6u);
  EXPECT_EQ(portions[0].agent_boot_id(), "agent");
  EXPECT_EQ(portions[0].partitions_size() + portions[0].removed_size() + portions[0].kept_size(),
            0);
  vipuagent::ConfigureRequest joined;
  for (const auto& portion : portions) {
    EXPECT_EQ(portion.more_follow(), &portion != &portions.back());
    EXPECT_TRUE(portion.partitions_size() == 1 || portion.ByteSizeLong() < 1100);
    joined.MergeFrom(portion);
  }
  joined.clear_more_follow();
  EXPECT_EQ(joined.SerializeAsString(), whole.SerializeAsString());
}

TEST(SplitInPortionsTest, ASmallConfigurationIsASingleMessage) {
  for (const auto& whole : {vipuagent::ConfigureRequest(), Configuration(1, 100)}) {
    const auto portions = SplitInPortions(whole);
    ASSERT_EQ(portions.size(), 1u);
    EXPECT_EQ(portions[0].SerializeAsString(), whole.SerializeAsString());
  }
}

class AgentGatewayTest : public testing::Test {
 protected:
  AgentGatewayTest() : agent_(*agent::Agent::Create({.num_machines = 1})), services_(*agent_) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    services_.RegisterOn(builder);
    server_ = builder.BuildAndStart();
    endpoint_ = absl::StrCat("127.0.0.1:", port);
  }
  ~AgentGatewayTest() override {
    gateway_.Stop();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  // For the agent's process.
  vipuagent::ConfigureRequest ForAgent(vipuagent::ConfigureRequest request) {
    request.set_agent_boot_id(agent_->boot_id());
    return request;
  }
  absl::Status Configure(const std::string& endpoint, const vipuagent::ConfigureRequest& request) {
    base::Mutex mutex;
    std::condition_variable changed;
    std::optional<absl::Status> result;
    gateway_.Configure(endpoint, request,
                       [&](const absl::StatusOr<vipuagent::ConfigureReply>& reply) {
                         base::MutexLock lock(mutex);
                         result = reply.status();
                         changed.notify_all();
                       });
    base::MutexLock lock(mutex);
    lock.Wait(changed, [&] { return result.has_value(); });
    return *result;
  }
  bool Has(const std::string& partition) { return agent_->GetTelemetry(partition).ok(); }

  std::unique_ptr<agent::Agent> agent_;
  AgentServices services_;
  std::unique_ptr<grpc::Server> server_;
  GrpcAgentGateway gateway_{std::nullopt};
  std::string endpoint_;
};

TEST_F(AgentGatewayTest, ConfigurationLargerThanAMessageArrives) {
  const auto large = ForAgent(Configuration(300, 100'000));  // 30 MB
  const absl::Status status = Configure(endpoint_, large);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(Has("p0"));
  EXPECT_TRUE(Has("p299"));
  EXPECT_TRUE(Configure(endpoint_, ForAgent(Configuration(1, 1))).ok());
  EXPECT_FALSE(Has("p299"));
}

TEST_F(AgentGatewayTest, WhatTheAgentSaysIsHandedOn) {
  vipuagent::ConfigureRequest changes = ForAgent(Configuration(1, 1));
  changes.set_complete(false);
  EXPECT_EQ(Configure(endpoint_, changes),
            absl::FailedPreconditionError(
                "the change refers to a configuration that this agent does not have"));
  EXPECT_TRUE(absl::IsUnavailable(Configure("127.0.0.1:1", changes)));
}

TEST_F(AgentGatewayTest, ConfigurationThatBreaksOffChangesNothing) {
  ASSERT_TRUE(Configure(endpoint_, ForAgent(Configuration(2, 1))).ok());
  const auto stub = vipuagent::VipuAgent::NewStub(
      grpc::CreateChannel(endpoint_, grpc::InsecureChannelCredentials()));
  for (const size_t sent : {0, 1, 2}) {
    grpc::ClientContext context;
    vipuagent::ConfigureReply reply;
    const auto writer = stub->Configure(&context, &reply);
    const auto portions = SplitInPortions(ForAgent(Configuration(3, 1)), 1);
    for (size_t i = 0; i < sent; ++i) writer->Write(portions[i]);
    writer->WritesDone();
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::ABORTED) << sent;
    EXPECT_TRUE(Has("p1"));
    EXPECT_FALSE(Has("p2"));
  }
}

// Somebody who knows the store's id could otherwise claim an epoch that no controller reaches.
TEST_F(AgentGatewayTest, OnlyWhoKnowsTheProcessConfiguresIt) {
  vipuagent::ConfigureRequest real = ForAgent(Configuration(1, 1));
  real.set_controller_store("store");
  real.set_controller_epoch(3);
  ASSERT_TRUE(Configure(endpoint_, real).ok());
  vipuagent::ConfigureRequest forged = Configuration(0, 0);
  forged.set_controller_boot_id("stranger");
  forged.set_controller_store("store");
  forged.set_controller_epoch(UINT64_MAX);
  for (const std::string& shown :
       {std::string(), std::string("guess"), std::string(agent_->boot_id().size(), '0')}) {
    forged.set_agent_boot_id(shown);
    EXPECT_EQ(Configure(endpoint_, forged),
              absl::FailedPreconditionError(
                  "the configuration does not name the boot id of this process"))
        << shown;
  }
  EXPECT_TRUE(Has("p0"));
  real.set_controller_boot_id("next");
  real.set_controller_epoch(4);
  EXPECT_TRUE(Configure(endpoint_, real).ok());
}

// A stream that always says that more follows ends by the agent, without a word from the sender.
TEST_F(AgentGatewayTest, AConfigurationWithoutAnEndIsRefused) {
  const auto stub = vipuagent::VipuAgent::NewStub(
      grpc::CreateChannel(endpoint_, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  vipuagent::ConfigureReply reply;
  const auto writer = stub->Configure(&context, &reply);
  vipuagent::ConfigureRequest portion = ForAgent(Configuration(0, 0));
  portion.set_more_follow(true);
  ASSERT_TRUE(writer->Write(portion));
  portion = Configuration(1, 1 << 20);
  portion.set_more_follow(true);
  constexpr int kFarTooMany = 1000;
  int sent = 0;
  while (sent < kFarTooMany && writer->Write(portion)) ++sent;
  EXPECT_LT(sent, kFarTooMany);
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_FALSE(Has("p0"));
  EXPECT_TRUE(Configure(endpoint_, ForAgent(Configuration(1, 1))).ok());
}

}  // namespace
}  // namespace vpod::rpc
