// Fault table: the controller is killed during each kind of command. The command is there wholly or
// not at all, and asking again leads where it would have led.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <future>
#include <random>

#include "tests/support/fuzz.h"
#include "tests/system/fault_table.h"

namespace vpod::testing {
namespace {

constexpr int kKills = 4;

using vipu::Client;

struct Row {
  const char* name;
  std::function<absl::Status(Client&)> issue;
  std::function<absl::Status(Client&)> undo;
  // Rises with each command that took effect, where nothing else tells.
  std::function<uint64_t(Client&)> count = nullptr;
};

vipuuser::PartitionRequirements Requirements(const std::string& id, uint32_t size) {
  vipuuser::PartitionRequirements requirements;
  requirements.set_id(id);
  requirements.set_size(size);
  requirements.set_allocation_id("c16");
  requirements.set_reconfigurable(true);
  return requirements;
}

absl::Status CreatePartition(Client& client, const std::string& id) {
  vipuuser::CreatePartitionRequest request;
  *request.mutable_requirements() = Requirements(id, 1);
  return client.CreatePartition(request);
}

absl::Status Resize(Client& client, uint32_t size) {
  vipuuser::UpdatePartitionRequest request;
  *request.mutable_requirements() = Requirements("subject", size);
  return client.UpdatePartition(request);
}

absl::Status CreateCluster(Client& client, const std::string& id,
                           const std::vector<std::string>& agents) {
  vipuadmin::Cluster cluster;
  cluster.set_id(id);
  for (const std::string& agent : agents) cluster.add_agent_ids(agent);
  cluster.set_num_ipulinkdomains(1);
  return client.CreateCluster(cluster);
}

absl::Status SetClusterAgents(Client& client, const std::vector<std::string>& agents) {
  vipuadmin::UpdateClusterRequest request;
  request.set_id("subject");
  for (const std::string& agent : agents) request.add_agent_ids(agent);
  return client.UpdateCluster(request);
}

absl::Status MoveAgent(Client& client, const std::string& host) {
  vipuadmin::UpdateAgentRequest request;
  request.set_id("subject");
  request.set_host(host);
  return client.UpdateAgent(request);
}

absl::Status CreateAllocation(Client& client, const std::string& id, const std::string& agent) {
  vipuadmin::Allocation allocation;
  allocation.set_id(id);
  allocation.set_cluster_id("allotted");
  allocation.add_agent_ids(agent);
  return client.CreateAllocation(allocation);
}

absl::Status SetAllocationAgents(Client& client, const std::vector<std::string>& agents) {
  vipuadmin::UpdateAllocationRequest request;
  request.set_id("part");
  for (const std::string& agent : agents) request.mutable_agent_ids()->add_names(agent);
  return client.UpdateAllocation(request);
}

// Agents that were discovered have a machine and are in no cluster.
absl::Status RemoveDiscovered(Client& client) {
  const auto agents = client.ListAgents();
  if (!agents.ok()) return agents.status();
  for (const auto& agent : *agents) {
    if (agent.status() == "Unknown" || !agent.cluster_id().empty()) continue;
    const absl::Status removed = client.RemoveAgent(agent.id());
    if (!removed.ok()) return removed;
  }
  return absl::OkStatus();
}

// The machines register again within seconds of the controller's restart.
absl::Status AwaitMachines(Client& client) {
  const bool there = Within(kSoon, [&] {
    const auto agent = client.GetAgent("clustered");
    return agent.ok() && agent->status() == "Up";
  });
  return there ? absl::OkStatus() : absl::UnavailableError("agent clustered does not come back");
}

uint64_t Generation(Client& client) {
  const auto status = client.GetPartitionStatus("subject");
  EXPECT_TRUE(status.ok()) << status.status();
  return status.ok() ? status->generation() : 0;
}

uint64_t Resets(Client& client, const std::string& object) {
  vipuadmin::ListEventsRequest request;
  request.set_object(object);
  const auto events = client.ListEvents(request);
  EXPECT_TRUE(events.ok()) << events.status();
  if (!events.ok()) return 0;
  return static_cast<uint64_t>(std::count_if(events->begin(), events->end(), [](const auto& event) {
    return event.text().rfind("reset", 0) == 0;
  }));
}

// All six machines have registered: the number of an agent depends on those that have.
absl::Status DiscoverAgents(Client& client) {
  Within(kSoon, [&] {
    const auto found = client.DiscoverAgents(/*add=*/false);
    return !found.ok() || found->size() == 6;
  });
  return client.DiscoverAgents(/*add=*/true).status();
}

absl::Status CreateUser(Client& client, const std::string& id) {
  vipuadmin::User user;
  user.set_id(id);
  return client.CreateUser(user).status();
}

absl::Status SetAllAllocations(Client& client, bool lifted) {
  vipuadmin::UpdateUserRequest request;
  request.set_id("subject");
  if (lifted) {
    request.set_all_allocations(true);
  } else {
    request.mutable_allocation_ids()->add_names("c16");
  }
  return client.UpdateUser(request).status();
}

std::vector<Row> Rows() {
  return {
      {"CreatePartition", [](Client& c) { return CreatePartition(c, "new"); },
       [](Client& c) { return c.RemovePartition("new"); }},
      {"UpdatePartition", [](Client& c) { return Resize(c, 2); },
       [](Client& c) { return Resize(c, 1); }, Generation},
      {"ResetPartition", [](Client& c) { return c.ResetPartition("subject"); },
       [](Client&) { return absl::OkStatus(); }, Generation},
      {"RemovePartition", [](Client& c) { return c.RemovePartition("subject"); },
       [](Client& c) { return CreatePartition(c, "subject"); }},
      {"CreateAgent", [](Client& c) { return c.CreateAgent("new", "127.99.0.1", 9999); },
       [](Client& c) { return c.RemoveAgent("new"); }},
      {"RemoveAgent", [](Client& c) { return c.RemoveAgent("subject"); },
       [](Client& c) { return c.CreateAgent("subject", "127.99.0.2", 9999); }},
      {"UpdateAgent", [](Client& c) { return MoveAgent(c, "127.99.0.9"); },
       [](Client& c) { return MoveAgent(c, "127.99.0.2"); }},
      {"ResetAgent", [](Client& c) { return c.ResetAgent("clustered"); }, AwaitMachines,
       [](Client& c) { return Resets(c, "agent clustered"); }},
      {"DiscoverAgents", DiscoverAgents,
       [](Client& c) {
         const absl::Status there = AwaitMachines(c);
         return there.ok() ? RemoveDiscovered(c) : there;
       }},
      {"CreateCluster", [](Client& c) { return CreateCluster(c, "new", {"subject"}); },
       [](Client& c) { return c.RemoveCluster("new"); }},
      {"RemoveCluster", [](Client& c) { return c.RemoveCluster("subject"); },
       [](Client& c) { return CreateCluster(c, "subject", {"clustered"}); }},
      {"UpdateCluster",
       [](Client& c) {
         return SetClusterAgents(c, {"clustered", "subject"});
       },
       [](Client& c) { return SetClusterAgents(c, {"clustered"}); }},
      {"ResetCluster", [](Client& c) { return c.ResetCluster("subject"); }, AwaitMachines,
       [](Client& c) { return Resets(c, "cluster subject"); }},
      {"CreateAllocation", [](Client& c) { return CreateAllocation(c, "new", "allotted1"); },
       [](Client& c) { return c.RemoveAllocation("new"); }},
      {"UpdateAllocation",
       [](Client& c) {
         return SetAllocationAgents(c, {"allotted1", "allotted2"});
       },
       [](Client& c) { return SetAllocationAgents(c, {"allotted2"}); }},
      {"RemoveAllocation", [](Client& c) { return c.RemoveAllocation("part"); },
       [](Client& c) { return CreateAllocation(c, "part", "allotted2"); }},
      {"CreateUser", [](Client& c) { return CreateUser(c, "new"); },
       [](Client& c) { return c.RemoveUser("new"); }},
      {"UpdateUser", [](Client& c) { return SetAllAllocations(c, true); },
       [](Client& c) { return SetAllAllocations(c, false); }},
      {"RemoveUser", [](Client& c) { return c.RemoveUser("subject"); },
       [](Client& c) {
         const absl::Status created = CreateUser(c, "subject");
         return created.ok() ? SetAllAllocations(c, false) : created;
       }},
  };
}

class FaultCommandsTest : public FaultTable, public ::testing::WithParamInterface<Row> {
 protected:
  FaultCommandsTest() : server_(&pod_, "vipu-server") {
    // VPOD_TEST_SEED repeats a run.
    const uint64_t seed = NumberFrom("VPOD_TEST_SEED", std::random_device{}());
    std::printf("seed %lu\n", seed);
    random_.seed(seed);
  }
  // One of everything, to be changed.
  void SetUp() override {
    FaultTable::SetUp();
    ASSERT_TRUE(CreatePartition(*client_, "subject").ok());
    acknowledged_["subject"] = 1;
    ASSERT_TRUE(client_->CreateAgent("subject", "127.99.0.2", 9999).ok());
    StartMachines();
    ASSERT_FALSE(HasFatalFailure());
    ASSERT_TRUE(client_->CreateAgent("allotted1", "127.99.0.3", 9999).ok());
    ASSERT_TRUE(client_->CreateAgent("allotted2", "127.99.0.4", 9999).ok());
    absl::Status status = CreateCluster(*client_, "subject", {"clustered"});
    ASSERT_TRUE(status.ok()) << status;
    status = CreateCluster(*client_, "allotted", {"allotted1", "allotted2"});
    ASSERT_TRUE(status.ok()) << status;
    status = CreateAllocation(*client_, "part", "allotted2");
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(CreateUser(*client_, "subject").ok());
    status = SetAllAllocations(*client_, false);
    ASSERT_TRUE(status.ok()) << status;
  }

  // Two machines beside the POD's: agent "clustered", and one that waits to be discovered.
  void StartMachines() {
    machines_ = pod_.Start({"vipu-agent", "--machines", "2", "--controller",
                            "127.0.0.1:" + std::to_string(pod_.port())});
    std::string host;
    Within(kSoon, [&] {
      const auto machines = client_->DiscoverAgents(/*add=*/false);
      if (!machines.ok()) return false;
      for (const auto& machine : *machines) {
        if (!machine.added() && host.empty()) host = machine.host();
      }
      return !host.empty();
    });
    ASSERT_FALSE(host.empty()) << machines_->Err();
    ASSERT_TRUE(client_->CreateAgent("clustered", host, 8080).ok());
  }

  // Everything that commands change, as text.
  std::string State() {
    std::string text;
    const auto agents = client_->ListAgents();
    const auto clusters = client_->ListClusters();
    const auto partitions = client_->ListPartitions();
    const auto allocations = client_->ListAllAllocations();
    const auto users = client_->ListUsers();
    const bool all = agents.ok() && clusters.ok() && allocations.ok() && partitions.ok();
    EXPECT_TRUE(all && users.ok()) << agents.status();
    if (!all || !users.ok()) return text;
    for (const auto& agent : *agents) {
      text += "agent " + agent.id() + " " + agent.host() + ":" + std::to_string(agent.port()) +
              " in " + agent.cluster_id() + "\n";
    }
    for (const auto& cluster : *clusters) text += "cluster " + cluster.ShortDebugString() + "\n";
    for (const auto& allocation : *allocations)
      text += "allocation " + allocation.ShortDebugString() + "\n";
    for (const auto& partition : *partitions)
      text += "partition " + partition.requirements().ShortDebugString() + "\n";
    for (vipuadmin::User user : *users) {
      user.clear_created_at();
      text += "user " + user.ShortDebugString() + "\n";
    }
    return text;
  }

  uint64_t Count() { return GetParam().count ? GetParam().count(*client_) : 0; }

  absl::Status IssueAndKill() {
    auto answer = std::async(std::launch::async, [&] { return GetParam().issue(*client_); });
    usleep(static_cast<useconds_t>(random_() % 3000));
    server_.End(SIGKILL);
    server_.Start();
    const absl::Status status = answer.get();  // CreatePartition asks the next one itself
    // The first call may still find the connection to the dead one.
    EXPECT_TRUE(Within(kSoon, [&] { return client_->ServerInfo().ok(); }));
    return status;
  }

  Daemon server_;
  std::unique_ptr<Command> machines_;
  std::mt19937_64 random_;
};

TEST_P(FaultCommandsTest, IsThereWhollyOrNotAtAllAndARetryDoesNoHarm) {
  const Row& row = GetParam();
  const std::string before = State();
  absl::Status status = row.issue(*client_);
  ASSERT_TRUE(status.ok()) << status;
  const std::string after = State();
  EXPECT_TRUE(row.count || before != after) << "nothing to see of the command";
  int kept = 0;
  for (int round = 0; round < kKills; ++round) {
    SCOPED_TRACE("kill " + std::to_string(round));
    status = row.undo(*client_);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(State(), before);
    const uint64_t count = Count();
    status = IssueAndKill();
    const std::string found = State();
    ASSERT_TRUE(found == before || found == after) << found;
    const uint64_t now = Count();
    const bool took_effect = row.count ? now > count : found == after;
    EXPECT_GE(now, count);
    kept += took_effect;
    if (status.ok()) {
      EXPECT_TRUE(took_effect) << "acknowledged without effect";
    } else {
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      // Machines may not have registered again yet.
      absl::Status retry;
      Within(kSoon, [&] {
        retry = row.issue(*client_);
        const bool silent = retry.message().find("does not answer") != std::string::npos;
        return !absl::IsUnavailable(retry) && !silent && State() == after;
      });
      // After a command that took effect, the object may be there, or gone, already.
      EXPECT_TRUE(retry.ok() ||
                  (took_effect && (absl::IsAlreadyExists(retry) || absl::IsNotFound(retry))))
          << retry;
    }
    EXPECT_EQ(State(), after);
  }
  std::printf("%d of %d commands took effect\n", kept, kKills);
  status = row.undo(*client_);
  EXPECT_TRUE(status.ok()) << status;
}

INSTANTIATE_TEST_SUITE_P(Commands, FaultCommandsTest, ::testing::ValuesIn(Rows()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace vpod::testing
