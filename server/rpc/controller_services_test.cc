// The controller's services, with a connection to them: what a message may take, and what of it is
// kept.
#include "server/rpc/controller_services.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/base/connection_failure.h"
#include "proto/vipu/v1/vipuadmin.grpc.pb.h"
#include "proto/vipu/v1/vipuagent.grpc.pb.h"
#include "proto/vipu/v1/vipuuser.grpc.pb.h"
#include "server/controller/controller_fixture.h"
#include "server/controller/show_key.h"
#include "server/rpc/callers.h"
#include "server/rpc/metadata.h"
#include "tests/support/raw_call.h"

namespace vpod::rpc {
namespace {

using google::protobuf::Message;
using google::protobuf::ServiceDescriptor;

std::vector<const ServiceDescriptor*> AllServices() {
  return {vipuuser::GetServerInfoRequest::descriptor()->file()->FindServiceByName("VipuUser"),
          vipuadmin::CreateUserRequest::descriptor()->file()->FindServiceByName("VipuAdmin"),
          vipuagent::RegisterRequest::descriptor()->file()->FindServiceByName("VipuRegistry")};
}

// A field of bytes that no message has.
void AddUnknown(Message& message, size_t bytes) {
  message.GetReflection()->MutableUnknownFields(&message)->AddLengthDelimited(
      1000, std::string(bytes, 'x'));
}

class ControllerServicesTest : public controller::ControllerTest {
 protected:
  void SetUp() override {
    CreatePod(1);
    Serve(/*secure=*/false);
  }
  void TearDown() override { server_->Shutdown(); }

  void Serve(bool secure) {
    services_ = std::make_unique<ControllerServices>(*controller_, secure, "");
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    services_->RegisterUser(builder);
    services_->RegisterAdmin(builder);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    channel_ =
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials());
    user_ = vipuuser::VipuUser::NewStub(channel_);
  }
  // The status of a call with one message of any bytes.
  grpc::Status Call(const std::string& path, const std::string& bytes) {
    return testing::CallRaw(channel_, path, bytes, {}, std::chrono::seconds(60));
  }
  grpc::Status CreatePartition(const vipuuser::CreatePartitionRequest& request) {
    grpc::ClientContext context;
    vipuuser::CreatePartitionReply reply;
    return user_->CreatePartition(&context, request, &reply);
  }
  vipuuser::ListPartitionsReply ListPartitions() {
    grpc::ClientContext context;
    vipuuser::ListPartitionsReply reply;
    const grpc::Status status = user_->ListPartitions(&context, {}, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply;
  }

  std::unique_ptr<ControllerServices> services_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<vipuuser::VipuUser::Stub> user_;
};

TEST_F(ControllerServicesTest, EveryCallIsServedAndMeasured) {
  const std::string swarm =
      testing::Repeat(std::string("\xfa\x01\x00", 3), 4000000);  // unknown fields
  for (const ServiceDescriptor* service : AllServices()) {
    for (int i = 0; i < service->method_count(); ++i) {
      const std::string path =
          absl::StrCat("/", service->full_name(), "/", service->method(i)->name());
      EXPECT_NE(Call(path, "").error_code(), grpc::StatusCode::UNIMPLEMENTED) << path;
      const grpc::Status status = Call(path, swarm);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << path;
      EXPECT_NE(status.error_message().find(absl::StrCat("The message is too large: a ",
                                                         service->method(i)->input_type()->name(),
                                                         " may take at most ")),
                std::string::npos)
          << path << ": " << status.error_message();
    }
  }
}

TEST_F(ControllerServicesTest, RegistrationsOfEmptyMachinesAreNotParsed) {
  const std::string machines = testing::Repeat(std::string("\x1a\x00", 2), 4000000);
  const grpc::Status status = Call("/vipuagent.VipuRegistry/Register", machines);
  EXPECT_EQ(status.error_message(),
            "The message is too large: a RegisterRequest may take at most 50331648 bytes of "
            "memory.");
}

TEST_F(ControllerServicesTest, AMessageThatIsNoneIsRefusedInOneLine) {
  const grpc::Status status = Call("/vipuuser.VipuUser/GetPartition", "\x0a\x7f");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "The message cannot be read: it is truncated or corrupt.");
  // A field of text that is not UTF-8.
  EXPECT_EQ(Call("/vipuuser.VipuUser/GetPartition", "\x0a\x01\xff").error_message(),
            "The message cannot be read.");
}

TEST_F(ControllerServicesTest, WhatNobodyKnowsIsNotKept) {
  vipuuser::CreatePartitionRequest request;
  request.mutable_requirements()->set_id("p1");
  request.mutable_requirements()->set_size(2);
  request.mutable_requirements()->mutable_index()->set_index(0);
  AddUnknown(request, 50000);
  AddUnknown(*request.mutable_requirements(), 50000);
  AddUnknown(*request.mutable_requirements()->mutable_index(), 50000);
  const grpc::Status created = CreatePartition(request);
  ASSERT_TRUE(created.ok()) << created.error_message();
  EXPECT_LT(ListPartitions().ByteSizeLong(), 1000u);
  EXPECT_LT(controller_->Backup("root")->first.size(), 150000u) << "nor stored";
}

class SecureServicesTest : public ControllerServicesTest {
 protected:
  static constexpr int kPartitions = 64;

  void SetUp() override {
    CreatePod(kPartitions / 4);
    vipuadmin::User alice;
    alice.set_id("alice");
    alice.mutable_allocation_ids()->add_names("c1");
    const auto key = controller_->CreateUser(alice, "root");
    ASSERT_TRUE(key.ok()) << key.status();
    key_ = *key;
    // The guard, which is not there, would have tried the key.
    ASSERT_TRUE(controller::ShowKey(controller_->users(), "alice", key_).ok());
    for (int i = 0; i < kPartitions; ++i) ASSERT_TRUE(Create(Wanted(absl::StrCat("p", i), 1)).ok());
    gateway_.ConfirmAll();
    Serve(/*secure=*/true);
  }
  grpc::Status List(vipuuser::ListPartitionsReply& reply) {
    grpc::ClientContext context;
    context.AddMetadata(kUserIdHeader, "alice");
    context.AddMetadata(kAccessKeyHeader, key_);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    vipuuser::ListPartitionsRequest request;
    request.set_with_devices(true);
    return user_->ListPartitions(&context, request, &reply);
  }

  std::string key_;
};

// Whatever changes alice's rights, she may use c1 before and after.
TEST_F(SecureServicesTest, AListIsWholeOrRefused) {
  std::atomic<bool> end = false;
  std::thread changes([&] {
    for (bool more = true; !end; more = !more) {
      vipuadmin::UpdateUserRequest request;
      request.set_id("alice");
      request.mutable_allocation_ids()->add_names("c1");
      if (more) request.mutable_allocation_ids()->add_names("c2");
      const absl::Status updated = controller_->users().Update(
          request, nullptr,
          [](const std::vector<controller::Change>&) { return absl::OkStatus(); });
      EXPECT_TRUE(updated.ok()) << updated;
    }
  });
  for (int i = 0; i < 200; ++i) {
    vipuuser::ListPartitionsReply reply;
    const grpc::Status status = List(reply);
    if (status.ok()) {
      EXPECT_EQ(reply.partitions_size(), kPartitions);
      for (const auto& partition : reply.partitions())
        EXPECT_NE(partition.gcds(0).fabric_key(), "") << partition.requirements().id();
    } else {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED) << status.error_message();
    }
  }
  end = true;
  changes.join();
  vipuuser::ListPartitionsReply reply;
  const grpc::Status status = List(reply);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(reply.partitions_size(), kPartitions);
}

// Calls that were authenticated and then waited while the user's key was replaced, or the user
// removed.
class CallersTest : public controller::ControllerTest {
 protected:
  std::string CreateUser(const std::string& id, bool admin = false) {
    vipuadmin::User user;
    user.set_id(id);
    user.set_admin(admin);
    const auto key = controller_->CreateUser(user, "root");
    EXPECT_TRUE(key.ok()) << key.status();
    return key.ok() ? *key : "";
  }
  std::string ReplaceKey(const std::string& id) {
    vipuadmin::UpdateUserRequest request;
    request.set_id(id);
    request.set_new_access_key(true);
    request.set_jobs(vipuadmin::JOBS_GO_ON);
    const auto key = controller_->UpdateUser(request, "root");
    EXPECT_TRUE(key.ok()) << key.status();
    gateway_.ConfirmAll();
    return key.ok() ? *key : "";
  }
  controller::Caller Authenticate(const std::string& id, const std::string& key) {
    const auto caller = controller::ShowKey(controller_->users(), id, key);
    EXPECT_TRUE(caller.ok()) << caller.status();
    return caller.ok() ? *caller : controller::Caller();
  }
  // A call for what has p1's fabric key.
  absl::Status GetKey(const controller::Caller& caller) {
    return controller_
        ->GetPartitionConfig("p1", 0,
                             [&](const controller::PartitionAccess& partition) {
                               return callers_.Check("vipuuser.VipuUser.GetPartitionIpuofConfig",
                                                     caller, partition);
                             })
        .status();
  }

  Callers callers_{controller_->users(), /*secure=*/true};
};

TEST_F(CallersTest, AUserHasAPartOfTheThreads) {
  const controller::Caller eve{.user_id = "eve"}, alice{.user_id = "alice"};
  std::vector<PresentCaller> calls;
  for (int i = 0; i < Callers::kMostCallsOfUser; ++i) {
    auto call = callers_.Begin(eve);
    ASSERT_TRUE(call.ok()) << call.status();
    calls.push_back(*std::move(call));
  }
  EXPECT_EQ(callers_.Begin(eve).status(), absl::ResourceExhaustedError(base::kBusy));
  EXPECT_TRUE(callers_.Begin(alice).ok());
  calls.pop_back();
  EXPECT_TRUE(callers_.Begin(eve).ok());
}

TEST_F(CallersTest, ACallByTheOldAccessKeyGetsNoNewFabricKey) {
  CreatePod(1);
  const controller::Caller before = Authenticate("alice", CreateUser("alice"));
  CreateActive(Wanted("p1", 4));  // alice's
  EXPECT_EQ(controller::Text(GetKey(before)), "OK: ");
  const std::string key = ReplaceKey("alice");
  EXPECT_EQ(controller::Text(GetKey(before)),
            "ABORTED: The access key or the rights of user alice have just changed; try again.");
  const controller::Caller after = Authenticate("alice", key);
  EXPECT_EQ(controller::Text(GetKey(after)), "OK: ");
  ASSERT_TRUE(controller_->RemoveUser("alice", "root", vipuadmin::JOBS_END).ok());
  gateway_.ConfirmAll();
  EXPECT_TRUE(absl::IsNotFound(GetKey(after)));
  CreateUser("alice");
  CreateActive(Wanted("p1", 4));  // of her namesake
  EXPECT_TRUE(absl::IsAborted(GetKey(after)));
}

TEST_F(CallersTest, AnAdministratorWhoWasRemovedChangesNoRights) {
  const controller::Caller boss = Authenticate("boss", CreateUser("boss", /*admin=*/true));
  const controller::Caller chief = Authenticate("chief", CreateUser("chief", /*admin=*/true));
  const auto create = [&](const std::string& id, const controller::Caller& by) {
    vipuadmin::User user;
    user.set_id(id);
    user.set_admin(true);
    return controller_->CreateUser(user, by.user_id, [&] { return callers_.CheckCurrent(by); })
        .status();
  };
  EXPECT_EQ(controller::Text(create("deputy", boss)), "OK: ");
  ASSERT_TRUE(controller_->RemoveUser("boss", "chief").ok());
  EXPECT_EQ(controller::Text(create("mallory", boss)),
            "UNAUTHENTICATED: Wrong user id or access key.");
  ReplaceKey("chief");
  EXPECT_TRUE(absl::IsAborted(create("mallory", chief)));
  EXPECT_TRUE(absl::IsNotFound(controller_->GetUser("mallory").status()));
}

// A registration of a POD65536 in one process, while a large message of another one is worked on,
// goes through; more than there is memory for are told to come again.
TEST(MessageMemoryTest, IsSharedByLargeMessagesOnly) {
  MessageMemory memory(3 << 20);
  MessageMemory::Share small(memory), first(memory), second(memory);
  EXPECT_TRUE(small.Resize(MessageMemory::kSmallBytes).ok());
  EXPECT_TRUE(first.Resize(3 << 20).ok());
  EXPECT_EQ(second.Resize(MessageMemory::kSmallBytes + 1).message(),
            "Other large messages leave too little of the 3145728 bytes that they share for this "
            "one; try again.");
  EXPECT_TRUE(second.Resize(MessageMemory::kSmallBytes).ok());
  EXPECT_TRUE(first.Resize(1 << 20).ok());
  EXPECT_TRUE(second.Resize(2 << 20).ok());
  EXPECT_FALSE(first.Resize(2 << 20).ok());
}

}  // namespace
}  // namespace vpod::rpc
