// An agent that coordinates jobs on machines of several processes.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "server/agent/agent.h"
#include "server/agent/agent_test_util.h"
#include "server/agent/peers.h"

namespace vpod::agent {
namespace {

// Stands for the processes of other machines; nobody calls it at a job's coordinator.
class NoPeers : public PeerGateway {
 public:
  std::shared_ptr<CoordinatorStream> JoinJob(const std::string&, CoordinatorStreamEvents) override {
    return nullptr;
  }
};

// An agent that is the coordinator of partition "p", whose second machine is another process's.
class CoordinatorTest : public AgentTest {
 protected:
  CoordinatorTest() {
    agent_->SetEndpoint("coordinator:1");
    agent_->SetPeers(&peers_, nullptr);
    vipuagent::ConfigureRequest request;
    request.set_complete(true);
    vipuagent::AgentPartition* partition = request.add_partitions();
    partition->set_id("p");
    partition->set_generation(1);
    partition->set_fabric_key(kKey);
    for (const char* endpoint : {"coordinator:1", "away:1"})
      partition->add_peers()->set_endpoint(endpoint);
    partition->mutable_peers(1)->set_boot_id(kBootId);
    vipuagent::Gcd* gcd = partition->add_gcds();
    *gcd->add_slices() = WholeMachine("127.10.0.1");
    *gcd->add_slices() = WholeMachine("10.0.0.1");
    gcd->mutable_slices(1)->set_endpoint("away:1");
    EXPECT_TRUE(agent_->Configure(request).ok());
  }

  NoPeers peers_;
};

// The others would go on in the memory of what was loaded before.
TEST_F(CoordinatorTest, AJobThatSpansProcessesIsLoadedOnce) {
  ipuof::v1::AttachOpen open = Open(14, 0, 1, 8);  // both machines
  open.set_num_parts(2);
  const std::string lease = MustAttach(open);
  EXPECT_FALSE(agent_->Load(lease, "garbage").ok());
  ASSERT_TRUE(agent_->Load(lease, SumExecutable()).ok());
  const absl::Status again = agent_->Load(lease, SumExecutable()).status();
  EXPECT_EQ(again.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(again.message(), "attach again")) << again;
  agent_->Release(lease, false);
  const std::string alone = MustAttach(Open(0));
  for (int load = 0; load < 2; ++load) EXPECT_TRUE(agent_->Load(alone, SumExecutable()).ok());
}

// A refused part leaves no record behind that those who come later would run into.
TEST_F(CoordinatorTest, AJobThatNobodyCouldJoinIsForgotten) {
  fabric::v1::JobJoin join;
  join.set_partition_id("p");
  join.set_generation(1);
  join.set_boot_id(kBootId);
  join.set_endpoint("away:1");
  *join.mutable_member() = Open(14, 0, 1, 8).job();
  join.mutable_member()->set_total_replicas(4);
  join.add_units(4);
  const auto send = [](const fabric::v1::JobEvent&) {};
  EXPECT_EQ(agent_->JoinRemote(join, send).status().message(),
            "instance 0 covers replicas 0 to 7, but the job has 4");
  join.mutable_member()->set_total_replicas(8);
  const auto joined = agent_->JoinRemote(join, send);
  EXPECT_TRUE(joined.ok()) << joined.status();
}

// Clients of the partition have its fabric key, and know its end-points.
TEST_F(CoordinatorTest, AgentsAloneJoin) {
  fabric::v1::JobJoin join;
  join.set_partition_id("p");
  join.set_generation(1);
  join.set_endpoint("away:1");
  *join.mutable_member() = Open(14, 0, 1, 8).job();
  join.add_units(4);
  // Shared, because the agent tells the part of the job's end when it goes itself.
  const auto events = std::make_shared<std::vector<fabric::v1::JobEvent>>();
  const auto send = [events](const fabric::v1::JobEvent& event) { events->push_back(event); };
  for (const char* key : {"", kKey, "9ee4", "9ee55"}) {
    join.set_boot_id(key);
    EXPECT_EQ(agent_->JoinRemote(join, send).status().code(), absl::StatusCode::kUnauthenticated)
        << key;
  }
  EXPECT_TRUE(events->empty());
  join.set_boot_id(kBootId);
  ASSERT_TRUE(agent_->JoinRemote(join, send).ok());
  ASSERT_EQ(events->size(), 1u);
  const fabric::v1::JobJoined& told = events->front().joined();
  const std::string token = told.token(), key = told.arena_key();
  EXPECT_EQ(token.size(), 32u);
  EXPECT_EQ(key.size(), 32u);
  EXPECT_NE(token, key);
}

}  // namespace
}  // namespace vpod::agent
