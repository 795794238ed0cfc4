// Backups while the controller works, and what a restored one knows.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "device/base/file.h"
#include "tests/system/fault_table.h"

namespace vpod::testing {
namespace {

namespace fs = std::filesystem;
using SteadyClock = std::chrono::steady_clock;

int Number(const char* environment, int otherwise) {
  const char* given = std::getenv(environment);
  return given == nullptr ? otherwise : std::atoi(given);
}

class BackupTest : public FaultTable {
 protected:
  BackupTest() : server_(&pod_, "vipu-server"), store_(pod_.home() + "/vipu-server.db") {}

  std::string File(const std::string& name) { return pod_.directory() + "/" + name; }
  Outcome BackUp(const std::string& file) { return pod_.Run({"vipu-admin", "backup", file}); }
  Outcome Restore(const std::string& file, const std::string& storage) {
    return pod_.Run({"vipu-server", "--config", "/dev/null", "--storage", storage, "--log-level",
                     "error", "--restore", file});
  }
  void Create(const std::string& id, uint32_t size = 1) {
    pod_.CreatePartition(id, static_cast<int>(size));
    acknowledged_[id] = size;
  }
  void Remove(const std::string& id) {
    const absl::Status removed = client_->RemovePartition(id);
    ASSERT_TRUE(removed.ok()) << removed;
    acknowledged_.erase(id);
  }
  // Ids of the partitions of a storage that no controller uses, as a controller reads them.
  std::vector<std::string> PartitionsOf(const std::string& storage) {
    const std::string port = std::to_string(FreePort());
    const auto server =
        pod_.Start({"vipu-server", "--config", "/dev/null", "--storage", storage,
                    "--user-api-listen", "127.0.0.1:" + port, "--log-level", "info"});
    EXPECT_TRUE(server->WaitForOutput("serving users on")) << server->Err();
    vipu::ClientConfig config = client_->config();
    config.port = static_cast<uint32_t>(std::stoi(port));
    const auto partitions = vipu::Client(config).ListPartitions();
    EXPECT_TRUE(partitions.ok()) << partitions.status();
    std::vector<std::string> ids;
    for (const auto& partition : *partitions) ids.push_back(partition.requirements().id());
    server->Signal(SIGTERM);
    server->Wait();
    return ids;
  }

  static vipuuser::CreatePartitionRequest Wanted(const std::string& id, uint32_t size) {
    vipuuser::CreatePartitionRequest request;
    request.mutable_requirements()->set_id(id);
    request.mutable_requirements()->set_size(size);
    return request;
  }
  std::string AgentWithError() {
    std::string id;
    EXPECT_TRUE(Within(kSoon, [&] {
      const auto agents = client_->ListAgents();
      for (size_t i = 0; agents.ok() && i < agents->size(); ++i) {
        if (!(*agents)[i].error().empty()) id = (*agents)[i].id();
      }
      return !id.empty();
    })) << "no agent has unclaimed IPUs";
    return id;
  }

  Daemon server_;
  const std::string store_;
};

// A client that creates and removes one partition for ever, and remembers when.
class Tenant {
 public:
  Tenant(const vipu::ClientConfig& config, std::string id)
      : client_(config), id_(std::move(id)), thread_([this] { Work(); }) {}
  ~Tenant() {
    stop_ = true;
    thread_.join();
  }
  // Whether the partition may have been there, or not have been, at some moment of the time.
  bool MayHave(bool there, SteadyClock::time_point begin, SteadyClock::time_point end) {
    base::MutexLock lock(mutex_);
    // Change n took effect between its `sent` and its `done`.
    if (!there && (changes_.empty() || changes_[0].done >= begin)) return true;
    for (size_t i = 0; i < changes_.size(); ++i) {
      const bool begun = changes_[i].sent <= end;
      const bool still = i + 1 == changes_.size() || changes_[i + 1].done >= begin;
      if (begun && still && changes_[i].there == there) return true;
    }
    return false;
  }
  size_t changes() {
    base::MutexLock lock(mutex_);
    return changes_.size();
  }
  std::chrono::milliseconds longest() {
    base::MutexLock lock(mutex_);
    return longest_;
  }
  const std::string& id() const { return id_; }

 private:
  struct Change {
    bool there = false;
    SteadyClock::time_point sent, done = SteadyClock::time_point::max();
  };

  void Work() {
    for (bool there = true; !stop_; there = !there) {
      {
        base::MutexLock lock(mutex_);
        changes_.push_back({there, SteadyClock::now()});
      }
      absl::Status status;
      if (there) {
        vipuuser::CreatePartitionRequest request;
        request.mutable_requirements()->set_id(id_);
        request.mutable_requirements()->set_size(1);
        status = client_.CreatePartition(request);
      } else {
        status = client_.RemovePartition(id_);
      }
      EXPECT_TRUE(status.ok()) << id_ << ": " << status;
      base::MutexLock lock(mutex_);
      changes_.back().done = SteadyClock::now();
      longest_ = std::max(longest_, std::chrono::duration_cast<std::chrono::milliseconds>(
                                        changes_.back().done - changes_.back().sent));
    }
  }

  vipu::Client client_;
  const std::string id_;
  std::atomic<bool> stop_ = false;
  base::Mutex mutex_;
  std::vector<Change> changes_ ABSL_GUARDED_BY(mutex_);
  std::chrono::milliseconds longest_ ABSL_GUARDED_BY(mutex_){0};
  std::thread thread_;
};

// VPOD_TEST_ROUNDS asks for more of them.
TEST_F(BackupTest, BackupsUnderLoadAreWhatWasThereAtAMoment) {
  const int rounds = Number("VPOD_TEST_ROUNDS", 5);
  const std::string copy = File("copy.db");
  std::chrono::milliseconds longest_backup(0);
  {
    // Machine 1 is free.
    std::vector<std::unique_ptr<Tenant>> tenants;
    for (int i = 0; i < 4; ++i)
      tenants.push_back(std::make_unique<Tenant>(client_->config(), "t" + std::to_string(i)));
    for (int round = 0; round < rounds; ++round) {
      SCOPED_TRACE("round " + std::to_string(round));
      const std::string file = File("b" + std::to_string(round));
      const auto begin = SteadyClock::now();
      const Outcome made = BackUp(file);
      const auto end = SteadyClock::now();
      longest_backup = std::max(longest_backup,
                                std::chrono::duration_cast<std::chrono::milliseconds>(end - begin));
      ASSERT_EQ(made.code, 0) << made.err;
      const Outcome restored = Restore(file, copy);
      ASSERT_EQ(restored.code, 0) << restored.err;
      const auto ids = PartitionsOf(copy);
      const auto has = [&](const std::string& id) {
        return std::find(ids.begin(), ids.end(), id) != ids.end();
      };
      EXPECT_TRUE(has("other") && has("mine"));
      size_t of_tenants = 0;
      for (const auto& tenant : tenants) {
        const bool there = has(tenant->id());
        of_tenants += there;
        EXPECT_TRUE(tenant->MayHave(there, begin, end)) << tenant->id() << " there: " << there;
      }
      EXPECT_EQ(ids.size(), 2 + of_tenants);
      fs::remove(file);
      // Whichever was replaced last is enough.
      for (const auto& entry : fs::directory_iterator(pod_.directory())) {
        if (entry.path().string().find(".before-restore-") != std::string::npos)
          fs::remove(entry.path());
      }
    }
    size_t changes = 0;
    std::chrono::milliseconds longest(0);
    for (const auto& tenant : tenants) {
      changes += tenant->changes();
      longest = std::max(longest, tenant->longest());
    }
    std::printf("%d backups, longest %ld ms; meanwhile %zu changes, longest %ld ms\n", rounds,
                static_cast<long>(longest_backup.count()), changes,
                static_cast<long>(longest.count()));
  }
  const auto left = client_->ListPartitions();
  ASSERT_TRUE(left.ok()) << left.status();
  for (const auto& partition : *left) {
    const std::string& id = partition.requirements().id();
    if (acknowledged_.contains(id)) continue;
    EXPECT_TRUE(client_->RemovePartition(id).ok()) << id;
  }
}

TEST_F(BackupTest, ARestoredControllerKnowsWhatTheBackupKnew) {
  const std::string file = File("monday.backup");
  Create("kept");
  Create("back");
  const Outcome made = BackUp(file);
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_NE(made.out.find("backup (" + file + "): success.\n"), std::string::npos) << made.out;
  struct stat info {};
  ASSERT_EQ(stat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  // It is not overwritten.
  ExpectOneLine(BackUp(file), {"backup (" + file + "): failed. The file exists already"});

  Remove("back");
  Create("lost");
  ExpectOneLine(Restore(file, store_), {"is in use by another vipu-server; stop it first"});
  EXPECT_EQ(pod_.Shell("ls " + store_ + ".restoring*").out, "");
  ExpectAllActive();
  server_.End(SIGTERM);
  const Outcome restored = Restore(file, store_);
  EXPECT_EQ(restored.code, 0) << restored.err;
  EXPECT_NE(restored.out.find("Not in the backup: partition lost\n"), std::string::npos)
      << restored.out;
  EXPECT_NE(restored.out.find("Restored storage: " + store_ + ", as of 20"), std::string::npos)
      << restored.out;
  EXPECT_NE(restored.out.find("(4 agents, 1 cluster, 4 partitions)"), std::string::npos)
      << restored.out;
  ASSERT_EQ(stat(store_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  server_.Start();
  acknowledged_.erase("lost");
  acknowledged_["back"] = 1;
  ExpectAllActive();
  ExpectMineWorks();
  // Generations go on beyond those that were given meanwhile.
  const auto before = client_->GetPartitionStatus("kept");
  ASSERT_TRUE(before.ok() && client_->ResetPartition("kept").ok());
  EXPECT_GT(client_->GetPartitionStatus("kept")->generation(), before->generation() + (1u << 20));
}

// Jobs on partitions that the restored store does not know go on, and nobody gets their IPUs.
TEST_F(BackupTest, JobsThatTheBackupDoesNotKnowKeepTheirIpus) {
  const std::string file = File("b");
  ASSERT_EQ(BackUp(file).code, 0);
  Create("late", 4);  // the only IPUs that are free
  const auto job = pod_.Start(
      {"env", "IPUOF_VIPU_API_HOST=127.0.0.1", "IPUOF_VIPU_API_PORT=" + std::to_string(pod_.port()),
       "IPUOF_VIPU_API_PARTITION_ID=late", "replica_job", "--runs", "1000000", "--pause-ms", "10"});
  ASSERT_TRUE(job->WaitForOutput("run 3 loss")) << job->Err();
  server_.End(SIGKILL);
  ASSERT_EQ(Restore(file, store_).code, 0);
  server_.Start();
  acknowledged_.erase("late");
  ExpectAllActive();
  const std::string agent = AgentWithError();
  const std::string error = client_->GetAgent(agent)->error();
  EXPECT_NE(error.find("UNCLAIMED: pid " + std::to_string(job->pid())), std::string::npos) << error;
  EXPECT_NE(error.find("of partition late"), std::string::npos) << error;
  EXPECT_TRUE(absl::IsResourceExhausted(client_->CreatePartition(Wanted("thief", 4))));
  ExpectOtherGoesOn();
  EXPECT_EQ(job->Err(), "");
  // With the end of the job they are free.
  job->Signal(SIGTERM);
  job->Wait();
  EXPECT_TRUE(Within(kSoon, [&] { return client_->GetAgent(agent)->error().empty(); }));
  Create("next", 4);
}

TEST_F(BackupTest, ResetAgentFreesUnclaimedIpus) {
  const std::string file = File("b");
  ASSERT_EQ(BackUp(file).code, 0);
  Create("late", 4);
  const auto job = pod_.Start(
      {"env", "IPUOF_VIPU_API_HOST=127.0.0.1", "IPUOF_VIPU_API_PORT=" + std::to_string(pod_.port()),
       "IPUOF_VIPU_API_PARTITION_ID=late", "replica_job", "--runs", "1000000", "--pause-ms", "10"});
  ASSERT_TRUE(job->WaitForOutput("run 3 loss")) << job->Err();
  server_.End(SIGKILL);
  ASSERT_EQ(Restore(file, store_).code, 0);
  server_.Start();
  acknowledged_.erase("late");
  const std::string agent = AgentWithError();
  const Outcome reset = pod_.Run({"vipu-admin", "reset", "agent", agent});
  EXPECT_EQ(reset.code, 0) << reset.err;
  EXPECT_NE(job->Wait(kSoon).code, 0);
  EXPECT_TRUE(Within(kSoon, [&] { return client_->GetAgent(agent)->error().empty(); }));
  Create("next", 4);
}

TEST_F(BackupTest, AControllerWithoutItsStoreEndsNoJob) {
  server_.End(SIGKILL);
  for (const char* suffix : {"", "-wal", ".running"})
    fs::rename(store_ + suffix, File("kept") + suffix);
  server_.Start();
  EXPECT_TRUE(Within(kSoon, [&] {
    const auto found = client_->DiscoverAgents(/*add=*/false);
    return found.ok() && found->size() == 4;
  }));
  ExpectOtherGoesOn();
  server_.End(SIGTERM);
  fs::remove(store_);
  for (const char* suffix : {"", "-wal", ".running"})
    fs::rename(File("kept") + suffix, store_ + suffix);
  server_.Start();
}

// The agents know which of two controllers came later.
TEST_F(BackupTest, AControllerOnACopyOfTheStoreIsFencedUntilItTakesOver) {
  const std::string copy = File("copy.db");
  server_.End(SIGKILL);
  for (const char* suffix : {"", "-wal", ".running"}) fs::copy(store_ + suffix, copy + suffix);
  server_.Start();
  ExpectAllActive();
  server_.End(SIGTERM);
  const auto words = [&](const std::string& storage) {
    return Words{"vipu-server",
                 "--config",
                 "/dev/null",
                 "--storage",
                 storage,
                 "--user-api-listen",
                 "127.0.0.1:" + std::to_string(pod_.port())};
  };
  const Outcome fenced = pod_.Run(words(copy));
  EXPECT_EQ(fenced.code, 1) << fenced.err;
  EXPECT_NE(fenced.err.find("vipu-server: error: another controller has taken over: one of epoch "),
            std::string::npos)
      << fenced.err;
  // It does not overtake the other by starting again and again.
  for (int i = 0; i < 3; ++i) {
    ExpectOneLine(pod_.Run(words(copy) + Words{"--log-level", "error"}),
                  {"another controller has taken over", "start with --take-over"});
  }
  ExpectOtherGoesOn();
  server_.Start();
  ExpectAllActive();
  server_.End(SIGTERM);
  // Unless it is told to.
  for (const std::string& storage : {copy, store_}) {
    const auto server = pod_.Start(words(storage) + Words{"--take-over"});
    ASSERT_TRUE(server->WaitForOutput("serving users on")) << server->Err();
    ExpectAllActive();
    server->Signal(SIGTERM);
    EXPECT_EQ(server->Wait().code, 0);
  }
  server_.Start();
}

TEST_F(BackupTest, ADamagedBackupIsRefusedAndNothingIsChanged) {
  const std::string file = File("good"), bad = File("bad");
  ASSERT_EQ(BackUp(file).code, 0);
  server_.End(SIGTERM);
  const std::string good = base::ReadFile(file), before = base::ReadFile(store_);
  std::string flipped = good;
  flipped[good.find("other")] ^= 1;
  const std::string own = before;  // a storage is not a backup
  for (const auto& [bytes, reason] : {std::pair(flipped, "is damaged"),
                                      {good.substr(0, good.size() / 2), "is damaged"},
                                      {std::string("Dear mother"), "it is not an SQLite database"},
                                      {own, "is not a backup"}}) {
    std::ofstream(bad, std::ios::binary | std::ios::trunc) << bytes;
    ExpectOneLine(Restore(bad, store_), {"vipu-server: error: ", bad, reason});
    EXPECT_TRUE(base::ReadFile(store_) == before) << reason;
  }
  ExpectOneLine(Restore(File("nowhere"), store_), {"cannot read " + File("nowhere")});
  server_.Start();
}

// Whenever a restore dies: the next start is refused and says what to do, or has the state before
// or after; repeated, it is completed.
TEST_F(BackupTest, AnInterruptedRestoreIsFinishedByTheNext) {
  const std::string file = File("b");
  ASSERT_EQ(BackUp(file).code, 0);
  Create("late");
  server_.End(SIGTERM);
  const std::string copy = File("copy.db"), late = base::ReadFile(store_);
  std::mt19937_64 random(static_cast<uint64_t>(Number("VPOD_TEST_SEED", 7)));
  int refused = 0, before = 0, after = 0;
  const int rounds = Number("VPOD_TEST_ROUNDS", 12);
  for (int round = 0; round < rounds; ++round) {
    for (const auto& entry : fs::directory_iterator(pod_.directory())) {
      if (entry.path().filename().string().starts_with("copy.db")) fs::remove(entry.path());
    }
    std::ofstream(copy, std::ios::binary) << late;
    const auto restore = pod_.Start({"vipu-server", "--config", "/dev/null", "--storage", copy,
                                     "--log-level", "error", "--restore", file});
    usleep(static_cast<useconds_t>(random() % 60000));
    restore->Signal(SIGKILL);
    restore->Wait();
    if (base::ReadFile(copy + ".running").find(" restoring ") != std::string::npos) {
      ++refused;
      ExpectOneLine(pod_.Run({"vipu-server", "--config", "/dev/null", "--storage", copy,
                              "--user-api-listen", "127.0.0.1:" + std::to_string(FreePort())}),
                    {"a restore was interrupted; run 'vipu-server --restore' again"});
    } else {
      const auto ids = PartitionsOf(copy);
      ASSERT_EQ(ids.size(), std::find(ids.begin(), ids.end(), "late") != ids.end() ? 3u : 2u);
      ++(ids.size() == 3 ? before : after);
    }
    const Outcome again = Restore(file, copy);
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(PartitionsOf(copy), (std::vector<std::string>{"mine", "other"}));
  }
  std::printf("%d kills: %d refused, %d before, %d after\n", rounds, refused, before, after);
  server_.Start();
}

}  // namespace
}  // namespace vpod::testing
