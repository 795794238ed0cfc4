// The controller is killed again and again while its users create and remove partitions: what was
// acknowledged is there, the command in flight is there wholly or not at all, no IPU is in two
// partitions, and a job that runs meanwhile does not notice.
#include <gtest/gtest.h>

#include <csignal>
#include <future>
#include <iterator>
#include <map>
#include <random>
#include <set>

#include "client/vipu/client.h"
#include "device/base/file.h"
#include "tests/support/fuzz.h"
#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

constexpr int kCommands = 200;
constexpr int kKills = 20;

// A command as its user remembers it.
struct Change {
  bool create = false;
  std::string id;
  uint32_t size = 0;
  std::string request_id;
};

class ControllerKillTest : public ::testing::Test {
 protected:
  ControllerKillTest() : pod_(16) {
    // VPOD_TEST_SEED repeats a run.
    seed_ = NumberFrom("VPOD_TEST_SEED", std::random_device{}());
    std::printf("seed %lu\n", seed_);
    random_.seed(seed_);
    vipu::ClientConfig config;
    config.host = "127.0.0.1";
    config.port = static_cast<uint32_t>(pod_.port());
    config.user_id = "tester";
    client_ = std::make_unique<vipu::Client>(config, std::chrono::seconds(10));
    server_pid_ = pod_.ServerPid();
  }
  // Ends the controller without a word, and waits until it is gone.
  void Kill() {
    if (server_ != nullptr) {
      server_->Signal(SIGKILL);
      server_->Wait();
      server_.reset();
      return;
    }
    ASSERT_TRUE(EndProcess(server_pid_, SIGKILL));
  }

  // Starts it again as it was, without the agent, and waits until it answers.
  void Restart() {
    server_ = pod_.Start({"vipu-server", "--storage", pod_.home() + "/vipu-server.db",
                          "--user-api-listen", "127.0.0.1:" + std::to_string(pod_.port())});
    ASSERT_TRUE(server_->WaitForOutput("serving users on")) << server_->Err();
    // The first call may still find the connection to the dead one.
    if (client_->ServerInfo().ok()) return;
    const auto info = client_->ServerInfo();
    ASSERT_TRUE(info.ok()) << info.status();
  }

  // Lists the partitions and checks what holds at any time.
  std::map<std::string, vipuuser::Partition> List() {
    std::map<std::string, vipuuser::Partition> result;
    const auto partitions = client_->ListPartitions();
    EXPECT_TRUE(partitions.ok()) << partitions.status();
    if (!partitions.ok()) return result;
    std::map<std::pair<std::string, uint32_t>, std::string> owner;
    for (const vipuuser::Partition& partition : *partitions) {
      const std::string& id = partition.requirements().id();
      // Lists leave the devices out.
      const auto whole = client_->GetPartition(id);
      EXPECT_TRUE(whole.ok()) << whole.status();
      if (!whole.ok()) continue;
      uint32_t ipus = 0;
      for (const auto& gcd : whole->gcds()) {
        for (const auto& device : gcd.devices()) {
          ++ipus;
          const auto [place, is_new] =
              owner.emplace(std::make_pair(device.agent_id(), device.pcie_id()), id);
          EXPECT_TRUE(is_new) << "IPU " << device.pcie_id() << " of " << device.agent_id()
                              << " is in " << place->second << " and in " << id;
        }
      }
      EXPECT_EQ(ipus, partition.requirements().size()) << id << " is there in part only";
      EXPECT_TRUE(result.emplace(id, partition).second) << id << " is listed twice";
    }
    return result;
  }

  Change Choose(int command) {
    Change change;
    uint32_t used = 4;  // the job's
    for (const auto& [id, size] : acknowledged_) used += size;
    change.create = acknowledged_.empty() || (used < 16 && random_() % 2 == 0);
    if (change.create) {
      do {
        change.id = "p" + std::to_string(random_() % 24);
      } while (acknowledged_.contains(change.id));
      change.size = 1u << random_() % 3;
      change.request_id = std::to_string(seed_) + "-" + std::to_string(command);
    } else {
      auto chosen = acknowledged_.begin();
      std::advance(chosen, random_() % acknowledged_.size());
      change.id = chosen->first;
    }
    return change;
  }

  absl::Status Issue(const Change& change) {
    if (!change.create) return client_->RemovePartition(change.id);
    vipuuser::CreatePartitionRequest request;
    request.mutable_requirements()->set_id(change.id);
    request.mutable_requirements()->set_size(change.size);
    request.mutable_requirements()->set_reconfigurable(true);
    request.set_request_id(change.request_id);
    return client_->CreatePartition(request);
  }

  // Kills the controller while the command is on its way, and checks what the next one knows. Then
  // does as a user would: asks again when there was no answer.
  absl::Status IssueAndKill(const Change& change) {
    const auto delay = static_cast<useconds_t>(random_() % 1000);
    auto answer = std::async(std::launch::async, [&] { return Issue(change); });
    usleep(delay);
    Kill();
    Restart();
    absl::Status status = answer.get();  // CreatePartition asks the next one itself
    const auto listed = List();
    EXPECT_TRUE(listed.contains("job"));
    for (const auto& [id, size] : acknowledged_) {
      if (id == change.id) continue;
      EXPECT_TRUE(listed.contains(id)) << id << " was acknowledged and is gone";
    }
    for (const auto& [id, partition] : listed) {
      EXPECT_TRUE(id == "job" || id == change.id || acknowledged_.contains(id))
          << id << " is there; its removal was acknowledged, or nobody asked for it";
    }
    const bool took_effect = listed.contains(change.id) == change.create;
    if (status.ok()) {
      EXPECT_TRUE(took_effect) << change.id << ": acknowledged without effect";
    } else if (absl::IsUnavailable(status)) {
      (took_effect ? in_flight_kept_ : in_flight_lost_)++;
      status = Issue(change);
      // A removal that had taken effect.
      if (!change.create && took_effect && absl::IsNotFound(status)) status = absl::OkStatus();
    } else {
      EXPECT_FALSE(took_effect) << change.id << ": " << status;
    }
    return status;
  }

  // Expects the acknowledged partitions in their sizes, and beside them only the job's.
  void ExpectExactly() {
    const auto listed = List();
    EXPECT_EQ(listed.size(), acknowledged_.size() + 1);
    for (const auto& [id, size] : acknowledged_) {
      ASSERT_TRUE(listed.contains(id)) << id;
      EXPECT_EQ(listed.at(id).requirements().size(), size) << id;
    }
  }

  TestPod pod_;
  std::map<std::string, uint32_t> acknowledged_;  // sizes by id, without the job's partition
  int in_flight_kept_ = 0, in_flight_lost_ = 0;
  uint64_t seed_ = 0;
  std::mt19937_64 random_;
  std::unique_ptr<vipu::Client> client_;
  std::unique_ptr<Command> server_;  // the controller, once it was restarted
  int server_pid_ = 0;
};

TEST_F(ControllerKillTest, AcknowledgedPartitionsSurviveAndJobsGoOn) {
  pod_.CreatePartition("job", 4);
  const auto job_writing = [&](const std::string& losses) {
    return std::vector<std::string>{
        "poprun",      "--vipu-partition", "job",  "--num-instances", "2",   "--num-replicas", "4",
        "replica_job", "--runs",           "2000", "--losses",        losses};
  };
  const std::string expected = pod_.directory() + "/undisturbed",
                    seen = pod_.directory() + "/disturbed";
  const Outcome undisturbed = pod_.Run(job_writing(expected));
  ASSERT_EQ(undisturbed.code, 0) << undisturbed.err;
  std::vector<std::string> words = job_writing(seen);
  words.insert(words.end(), {"--pause-ms", "10"});
  const auto job = pod_.Start(words);
  ASSERT_TRUE(job->WaitForOutput("run 10 loss")) << job->Err();
  const int agent_pid = pod_.AgentPid();

  // The commands during which the controller dies.
  std::set<int> deaths;
  while (deaths.size() < kKills) deaths.insert(static_cast<int>(random_() % kCommands));
  for (int command = 0; command < kCommands; ++command) {
    SCOPED_TRACE("seed " + std::to_string(seed_) + ", command " + std::to_string(command));
    const Change change = Choose(command);
    absl::Status status = deaths.contains(command) ? IssueAndKill(change) : Issue(change);
    ASSERT_FALSE(HasFatalFailure());
    if (change.create && absl::IsResourceExhausted(status)) {
      EXPECT_FALSE(List().contains(change.id));
      continue;  // no aligned block of that size is free
    }
    ASSERT_TRUE(status.ok()) << (change.create ? "create " : "remove ") << change.id << ": "
                             << status;
    if (change.create) {
      acknowledged_[change.id] = change.size;
    } else {
      acknowledged_.erase(change.id);
    }
    if (command % 10 == 0 || command + 1 == kCommands) ExpectExactly();
  }
  std::printf("%d kills; of the commands in flight %d took effect, %d did not\n", kKills,
              in_flight_kept_, in_flight_lost_);

  // Everything becomes usable again.
  for (const auto& [id, size] : acknowledged_) {
    const absl::Status active = client_->WaitUntilActive(id);
    EXPECT_TRUE(active.ok()) << id << ": " << active;
  }
  EXPECT_TRUE(client_->WaitUntilActive("job").ok());
  EXPECT_EQ(pod_.AgentPid(), agent_pid);
  EXPECT_EQ(kill(agent_pid, 0), 0);

  const Outcome disturbed = job->Wait();
  EXPECT_EQ(disturbed.code, 0);
  EXPECT_EQ(disturbed.err, "");
  EXPECT_EQ(base::ReadFile(seen), base::ReadFile(expected));
  EXPECT_NE(base::ReadFile(seen).find("\n1999 "), std::string::npos);
}

}  // namespace
}  // namespace vpod::testing
