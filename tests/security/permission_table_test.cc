// Every call × every role against the real daemons. The calls come from the contracts: one that is
// new and not named here fails.
#include <google/protobuf/dynamic_message.h>
#include <gtest/gtest.h>

#include <set>

#include "device/base/grpc_connect.h"
#include "proto/vipu/v1/vipuadmin.pb.h"
#include "proto/vipu/v1/vipuuser.pb.h"
#include "tests/security/secure_pod.h"

namespace vpod::testing {
namespace {

using google::protobuf::MethodDescriptor;
using Roles = std::set<std::string>;

const Roles kNobody, kUsers = {"eve", "bob", "alice", "root"},
                     kOfTheAllocation = {"bob", "alice", "root"};

// Which users may make a call of the controller for alice's partition, from the specification.
Roles Allowed(const MethodDescriptor& method) {
  static const std::map<std::string, Roles> of_users = {
      {"ListAllocations", kUsers},
      {"ListIpuAttributes", kUsers},
      {"ListPartitions", kUsers},
      {"GetAvailableNumPartitions", kUsers},
      {"CreatePartition", kUsers},
      {"GetPartition", kOfTheAllocation},
      {"GetPartitionStatus", kOfTheAllocation},
      {"ResetPartition", kOfTheAllocation},
      {"RemovePartition", kOfTheAllocation},
      {"GetPartitionIpuofConfig", {"alice"}},
      {"UpdatePartition", {"alice", "root"}},
  };
  if (method.service()->name() == "VipuRegistry") return kNobody;
  if (method.service()->name() == "VipuAdmin") return {"root"};
  const auto it = of_users.find(method.name());
  EXPECT_NE(it, of_users.end()) << "say here who may call " << method.full_name();
  return it == of_users.end() ? kNobody : it->second;
}

// A request of the call about p1; else empty, which harms nothing.
std::string RequestFor(const MethodDescriptor& method) {
  google::protobuf::DynamicMessageFactory factory;
  const std::unique_ptr<google::protobuf::Message> message(
      factory.GetPrototype(method.input_type())->New());
  const auto* id = method.input_type()->FindFieldByName("partition_id");
  const auto* requirements = method.input_type()->FindFieldByName("requirements");
  if (id != nullptr) {
    message->GetReflection()->SetString(message.get(), id, "p1");
  } else if (requirements != nullptr) {
    auto* wanted = message->GetReflection()->MutableMessage(message.get(), requirements);
    wanted->GetReflection()->SetString(wanted, wanted->GetDescriptor()->FindFieldByName("id"),
                                       "p1");
  }
  return message->SerializeAsString();
}

class PermissionTableTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { pod_ = new SecurePod({"--log-level", "trace"}); }
  static void TearDownTestSuite() { delete pod_; }
  void SetUp() override { ASSERT_TRUE(pod_->ready()); }

  static SecurePod* pod_;
};

SecurePod* PermissionTableTest::pod_ = nullptr;

TEST_F(PermissionTableTest, EveryCallOfTheControllerByEveryRole) {
  const auto channel =
      base::Connect(pod_->server(), base::Peer::kController, pod_->Certificates("client"));
  for (const MethodDescriptor* method : ControllerMethods()) {
    const std::string request = RequestFor(*method);
    const bool open = method->name() == "GetServerInfo";
    const Roles allowed = open ? kUsers : Allowed(*method);
    const bool of_members = method->service()->name() == "VipuRegistry";
    const auto call = [&](const std::map<std::string, std::string>& metadata) {
      return CallRaw(*channel, *method, request, metadata);
    };
    for (const auto& [who, metadata] : std::map<std::string, std::map<std::string, std::string>>{
             {"nobody", {}},
             {"alice without a key", {{"vipu-user-id", "alice"}}},
             {"root with alice's key",
              {{"vipu-user-id", "root"}, {"vipu-access-key", pod_->key("alice")}}}}) {
      const grpc::Status status = call(metadata);
      if (open) {
        EXPECT_TRUE(status.ok()) << method->full_name() << " by " << who;
        continue;
      }
      EXPECT_EQ(status.error_code(), of_members ? grpc::PERMISSION_DENIED : grpc::UNAUTHENTICATED)
          << method->full_name() << " by " << who << ": " << status.error_message();
      if (!of_members) {
        EXPECT_EQ(status.error_message(), "Wrong user id or access key.");
      }
    }
    for (const std::string& user : kUsers) {
      pod_->EnsurePartition();  // the user before may have removed it
      const grpc::Status status =
          call({{"vipu-user-id", user}, {"vipu-access-key", pod_->key(user)}});
      const bool refused = status.error_code() == grpc::PERMISSION_DENIED ||
                           status.error_code() == grpc::UNAUTHENTICATED;
      EXPECT_EQ(!refused, allowed.contains(user))
          << method->full_name() << " by " << user << ": " << status.error_message();
      if (refused) {
        EXPECT_EQ(status.error_code(), grpc::PERMISSION_DENIED);
      }
    }
  }
}

TEST_F(PermissionTableTest, EveryCallOfAnAgentByEveryCertificate) {
  const auto user = base::Connect(pod_->agent(), base::Peer::kAgent, pod_->Certificates("client"));
  const auto member =
      base::Connect(pod_->agent(), base::Peer::kAgent, pod_->Certificates("server"));
  const auto plain = base::Connect(pod_->agent(), base::Peer::kAgent, std::nullopt);
  for (const MethodDescriptor* method : AgentMethods()) {
    const std::string& service = method->service()->name();
    const bool for_members = service == "VipuAgent" || service == "Fabric";
    EXPECT_TRUE(for_members || service == "Ipuof" || service == "Telemetry") << service;
    EXPECT_EQ(CallRaw(*user, *method, "").error_code() == grpc::PERMISSION_DENIED, for_members)
        << method->full_name();
    EXPECT_NE(CallRaw(*member, *method, "").error_code(), grpc::PERMISSION_DENIED)
        << method->full_name();
    EXPECT_EQ(CallRaw(*plain, *method, "").error_code(), grpc::UNAVAILABLE) << method->full_name();
  }
}

TEST_F(PermissionTableTest, AgentsAreRegisteredByMembersOnly) {
  const auto member =
      base::Connect(pod_->server(), base::Peer::kController, pod_->Certificates("server"));
  for (const MethodDescriptor* method : ControllerMethods()) {
    const grpc::Status status = CallRaw(*member, *method, RequestFor(*method));
    if (method->service()->name() == "VipuRegistry") {
      EXPECT_NE(status.error_code(), grpc::PERMISSION_DENIED) << method->full_name();
    } else if (method->name() != "GetServerInfo") {
      // A daemon's certificate is no user's key.
      EXPECT_EQ(status.error_code(), grpc::UNAUTHENTICATED) << method->full_name();
    }
  }
}

TEST_F(PermissionTableTest, ListsAndKeysAreForUsersWhoMayUseThem) {
  pod_->EnsurePartition();
  const auto seen = [&](const std::string& user) {
    vipu::Client client(pod_->ConfigOf(user), std::chrono::seconds(20));
    const auto partitions = client.ListPartitions();
    EXPECT_TRUE(partitions.ok()) << partitions.status();
    std::string text;
    for (const auto& partition : *partitions) text += partition.requirements().id();
    text += " of";
    const auto allocations = client.ListAllocations();
    EXPECT_TRUE(allocations.ok()) << allocations.status();
    for (const auto& allocation : *allocations) text += " " + allocation.id();
    return text;
  };
  EXPECT_EQ(seen("root"), "p1 of a1 a2");
  EXPECT_EQ(seen("alice"), "p1 of a1");
  EXPECT_EQ(seen("bob"), "p1 of a1");
  EXPECT_EQ(seen("eve"), " of a2");
  const auto key = [&](const std::string& user) {
    vipu::Client client(pod_->ConfigOf(user), std::chrono::seconds(20));
    const auto partition = client.GetPartition("p1");
    EXPECT_TRUE(partition.ok()) << partition.status();
    const auto listed = client.ListPartitions(/*with_devices=*/true);
    EXPECT_TRUE(listed.ok()) << listed.status();
    if (!partition.ok() || partition->gcds_size() != 1 || !listed.ok() || listed->size() != 1)
      return std::string("?");
    EXPECT_EQ(listed->front().DebugString(), partition->DebugString());
    return partition->gcds(0).fabric_key();
  };
  EXPECT_NE(key("alice"), "");
  EXPECT_EQ(key("bob"), "");
  EXPECT_EQ(key("root"), "");
}

TEST_F(PermissionTableTest, UsersOfOneAllocationTakeNoIpusOfAnother) {
  pod_->EnsurePartition();
  const auto create = [&](const std::string& user, const auto& set_place) {
    vipu::Client client(pod_->ConfigOf(user), std::chrono::seconds(20));
    vipuuser::CreatePartitionRequest request;
    request.mutable_requirements()->set_id("p3");
    request.mutable_requirements()->set_size(1);
    set_place(*request.mutable_requirements());
    return std::string(client.CreatePartition(request).message());
  };
  // Both clusters have one allocation, of their own name.
  const auto in_a1 = [](auto& wanted) { wanted.set_allocation_id("a1"); };
  const auto in_a2 = [](auto& wanted) { wanted.set_allocation_id("a2"); };
  const auto in_cluster_a2 = [](auto& wanted) { wanted.set_cluster_id("a2"); };
  EXPECT_EQ(create("alice", in_a2), "User alice may not use allocation a2.");
  EXPECT_EQ(create("bob", in_cluster_a2), "User bob has no allocation to use in cluster a2.");
  EXPECT_EQ(create("eve", in_a1), "User eve may not use allocation a1.");
  vipu::Client alice(pod_->ConfigOf("alice"), std::chrono::seconds(20));
  vipuuser::UpdatePartitionRequest moved;
  moved.mutable_requirements()->set_id("p1");
  moved.mutable_requirements()->set_allocation_id("a2");
  EXPECT_EQ(alice.UpdatePartition(moved).message(), "User alice may not use allocation a2.");
  vipu::Client root(pod_->ConfigOf("root"), std::chrono::seconds(20));
  const auto partitions = root.ListPartitions();
  ASSERT_TRUE(partitions.ok()) << partitions.status();
  ASSERT_EQ(partitions->size(), 1u);
  EXPECT_EQ(partitions->front().requirements().allocation_id(), "a1");
  EXPECT_EQ(create("eve", in_a2), "");  // it is not the request that is wrong
  EXPECT_TRUE(root.RemovePartition("p3").ok());
}

TEST_F(PermissionTableTest, UsersWorkWithTheToolsAndOthersAreRefused) {
  pod_->EnsurePartition();
  const Outcome info = pod_->RunAs("alice", {"vipu", "get", "partition", "p1"});
  EXPECT_EQ(info.code, 0) << info.err;
  const Outcome refused = pod_->RunAs("eve", {"vipu", "reset", "partition", "p1"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_EQ(refused.err, "reset partition (p1): failed. User eve may not reset partition p1.\n");
  const Outcome created =
      pod_->RunAs("alice", {"vipu", "create", "partition", "p2", "--size", "1"});
  EXPECT_EQ(created.code, 0) << created.err;
  // Over TLS to controller and agent, with the partition's key.
  const Outcome monitored = pod_->RunAs("alice", {"gc-monitor"});
  EXPECT_EQ(monitored.code, 0) << monitored.err;
  const Outcome reset = pod_->RunAs("alice", {"gc-reset", "-d", "0"});
  EXPECT_EQ(reset.code, 0) << reset.err;
  EXPECT_EQ(pod_->RunAs("alice", {"vipu", "remove", "partition", "p2"}).code, 0);
  // The status of a removed partition is hidden from others, too.
  const auto status_for = [&](const std::string& user) {
    return vipu::Client(pod_->ConfigOf(user), std::chrono::seconds(20)).GetPartitionStatus("p2");
  };
  EXPECT_EQ(status_for("eve").status().message(), "User eve may not get partition p2.");
  EXPECT_EQ(status_for("alice")->state(), vipuuser::PS_REMOVED);
}

TEST_F(PermissionTableTest, JobsRunOverTls) {
  ASSERT_EQ(
      pod_->RunAs("alice", {"vipu", "create", "partition", "p4", "--size", "2", "--reconfigurable"})
          .code,
      0);
  const auto job = [&](const std::string& user) {
    return pod_->RunAs(user, {"poprun", "--vipu-partition", "p4", "--num-instances", "2",
                              "--num-replicas", "2", "replica_job", "--runs", "2"});
  };
  const Outcome ran = job("alice");
  EXPECT_EQ(ran.code, 0) << ran.err;
  const Outcome refused = job("bob");  // of the allocation, but the devices are not shared
  EXPECT_NE(refused.code, 0);
  EXPECT_NE(refused.err.find("User bob may not use the devices of partition p4."),
            std::string::npos)
      << refused.err;
  EXPECT_EQ(pod_->RunAs("alice", {"vipu", "remove", "partition", "p4"}).code, 0);
}

TEST_F(PermissionTableTest, ToolsWithoutTheRightCertificatesSayWhy) {
  const Outcome plain =
      pod_->RunAs("alice", {"env", "-u", "VIPU_CLI_TLS_CA", "-u", "VIPU_CLI_TLS_CERT", "-u",
                            "VIPU_CLI_TLS_KEY", "vipu", "list", "partitions"});
  EXPECT_EQ(plain.code, 1);
  EXPECT_EQ(plain.err, "vipu: error: Cannot connect to the V-IPU server at " + pod_->server() +
                           ". It closed the connection: it may expect TLS (--tls-ca, --tls-cert, "
                           "--tls-key). The address is from VIPU_CLI_API_HOST.\n");
  const Outcome half =
      pod_->RunAs("alice", {"env", "-u", "VIPU_CLI_TLS_KEY", "vipu", "list", "partitions"});
  EXPECT_EQ(half.code, 2);
  EXPECT_NE(half.err.find("--tls-key is missing"), std::string::npos) << half.err;
}

TEST_F(PermissionTableTest, SecretsAreInNoLog) {
  pod_->EnsurePartition();
  vipu::Client alice(pod_->ConfigOf("alice"), std::chrono::seconds(20));
  std::set<std::string> secrets;
  for (const auto& [user, key] : pod_->keys()) secrets.insert(key);
  const auto config = alice.GetPartitionConfig("p1", 0);
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_FALSE(config->fabric_key().empty());
  secrets.insert(config->fabric_key());
  vipu::Client root(pod_->ConfigOf("root"), std::chrono::seconds(20));
  vipuadmin::UpdateUserRequest renewed;
  renewed.set_id("bob");
  renewed.set_new_access_key(true);
  const auto key = root.UpdateUser(renewed);
  ASSERT_TRUE(key.ok()) << key.status();
  secrets.insert(*key);
  const auto listed = root.ListEvents({});
  ASSERT_TRUE(listed.ok()) << listed.status();
  ASSERT_FALSE(listed->empty());
  std::string events;
  for (const auto& event : *listed) events += event.ShortDebugString() + "\n";
  const std::string server = pod_->Log("server"), agent = pod_->Log("agent0");
  EXPECT_FALSE(server.empty() || agent.empty());
  for (const std::string& secret : secrets) {
    EXPECT_EQ(server.find(secret), std::string::npos);
    EXPECT_EQ(agent.find(secret), std::string::npos);
    EXPECT_EQ(events.find(secret), std::string::npos);
  }
}

}  // namespace
}  // namespace vpod::testing
