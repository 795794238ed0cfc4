// Fault table: the controller is killed during each kind of command. The command is there wholly or
// not at all, and asking again leads where it would have led.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <future>
#include <random>

#include "tests/system/fault_table.h"

namespace vpod::testing {
namespace {

constexpr int kKills = 4;

using vipu::Client;

struct Row {
  const char* name;
  std::function<absl::Status(Client&)> issue;
  std::function<absl::Status(Client&)> undo;
  bool raises_generation = false;  // of partition "subject"
};

vipuuser::PartitionRequirements Requirements(const std::string& id, uint32_t size) {
  vipuuser::PartitionRequirements requirements;
  requirements.set_id(id);
  requirements.set_size(size);
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

absl::Status CreateCluster(Client& client, const std::string& id, const std::string& agent) {
  vipuadmin::Cluster cluster;
  cluster.set_id(id);
  cluster.add_agent_ids(agent);
  cluster.set_num_ipulinkdomains(1);
  return client.CreateCluster(cluster);
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
       [](Client& c) { return Resize(c, 1); }, true},
      {"ResetPartition", [](Client& c) { return c.ResetPartition("subject"); },
       [](Client&) { return absl::OkStatus(); }, true},
      {"RemovePartition", [](Client& c) { return c.RemovePartition("subject"); },
       [](Client& c) { return CreatePartition(c, "subject"); }},
      {"CreateAgent", [](Client& c) { return c.CreateAgent("new", "127.99.0.1", 9999); },
       [](Client& c) { return c.RemoveAgent("new"); }},
      {"RemoveAgent", [](Client& c) { return c.RemoveAgent("subject"); },
       [](Client& c) { return c.CreateAgent("subject", "127.99.0.2", 9999); }},
      {"CreateCluster", [](Client& c) { return CreateCluster(c, "new", "subject"); },
       [](Client& c) { return c.RemoveCluster("new"); }},
      {"RemoveCluster", [](Client& c) { return c.RemoveCluster("subject"); },
       [](Client& c) { return CreateCluster(c, "subject", "clustered"); }},
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
    const char* given = std::getenv("VPOD_TEST_SEED");
    const uint64_t seed =
        given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    std::printf("seed %lu\n", seed);
    random_.seed(seed);
  }
  // One of everything, to be changed.
  void SetUp() override {
    FaultTable::SetUp();
    ASSERT_TRUE(CreatePartition(*client_, "subject").ok());
    acknowledged_["subject"] = 1;
    ASSERT_TRUE(client_->CreateAgent("subject", "127.99.0.2", 9999).ok());
    ASSERT_TRUE(client_->CreateAgent("clustered", "127.99.0.3", 9999).ok());
    const absl::Status cluster = CreateCluster(*client_, "subject", "clustered");
    ASSERT_TRUE(cluster.ok()) << cluster;
    ASSERT_TRUE(CreateUser(*client_, "subject").ok());
    const absl::Status allocations = SetAllAllocations(*client_, false);
    ASSERT_TRUE(allocations.ok()) << allocations;
  }

  // Everything that commands change, as text.
  std::string State() {
    std::string text;
    const auto agents = client_->ListAgents();
    const auto clusters = client_->ListClusters();
    const auto partitions = client_->ListPartitions();
    const auto users = client_->ListUsers();
    EXPECT_TRUE(agents.ok() && clusters.ok() && partitions.ok() && users.ok()) << agents.status();
    if (!agents.ok() || !clusters.ok() || !partitions.ok() || !users.ok()) return text;
    for (const auto& agent : *agents) {
      text += "agent " + agent.id() + " " + agent.host() + ":" + std::to_string(agent.port()) +
              " in " + agent.cluster_id() + "\n";
    }
    for (const auto& cluster : *clusters) text += "cluster " + cluster.ShortDebugString() + "\n";
    for (const auto& partition : *partitions)
      text += "partition " + partition.requirements().ShortDebugString() + "\n";
    for (vipuadmin::User user : *users) {
      user.clear_created_at();
      text += "user " + user.ShortDebugString() + "\n";
    }
    return text;
  }

  uint64_t Generation() {
    const auto status = client_->GetPartitionStatus("subject");
    EXPECT_TRUE(status.ok()) << status.status();
    return status.ok() ? status->generation() : 0;
  }

  absl::Status IssueAndKill() {
    auto answer = std::async(std::launch::async, [&] { return GetParam().issue(*client_); });
    usleep(static_cast<useconds_t>(random_() % 3000));
    server_.End(SIGKILL);
    const absl::Status status = answer.get();
    server_.Start();
    // The first call may still find the connection to the dead one.
    EXPECT_TRUE(Within(std::chrono::seconds(30), [&] { return client_->ServerInfo().ok(); }));
    return status;
  }

  Daemon server_;
  std::mt19937_64 random_;
};

TEST_P(FaultCommandsTest, IsThereWhollyOrNotAtAllAndARetryDoesNoHarm) {
  const Row& row = GetParam();
  const std::string before = State();
  absl::Status status = row.issue(*client_);
  ASSERT_TRUE(status.ok()) << status;
  const std::string after = State();
  EXPECT_TRUE(row.raises_generation || before != after) << "nothing to see of the command";
  int kept = 0;
  for (int round = 0; round < kKills; ++round) {
    SCOPED_TRACE("kill " + std::to_string(round));
    status = row.undo(*client_);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(State(), before);
    const uint64_t generation = row.raises_generation ? Generation() : 0;
    status = IssueAndKill();
    const std::string found = State();
    ASSERT_TRUE(found == before || found == after) << found;
    const uint64_t now = row.raises_generation ? Generation() : 0;
    const bool took_effect = row.raises_generation ? now > generation : found == after;
    EXPECT_GE(now, generation);
    kept += took_effect;
    if (status.ok()) {
      EXPECT_TRUE(took_effect) << "acknowledged without effect";
    } else {
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      const absl::Status retry = row.issue(*client_);
      // What took effect may be there, or gone, already.
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
