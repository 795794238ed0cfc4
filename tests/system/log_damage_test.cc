// The controller is killed again and again, and its log of changes is damaged before it starts
// again: what was acknowledged is there, or the start is refused by name and nothing is changed. A
// job runs all the while.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "device/base/file.h"
#include "tests/support/fuzz.h"
#include "tests/system/fault_table.h"

namespace vpod::testing {
namespace {

namespace fs = std::filesystem;

constexpr size_t kHeaderBytes = 32, kFrameBytes = 24 + 4096;

class LogDamageTest : public FaultTable {
 protected:
  using Files = std::map<std::string, std::string>;  // bytes by suffix; those that are there

  LogDamageTest() : store_(pod_.home() + "/vipu-server.db") {
    seed_ = NumberFrom("VPOD_TEST_SEED", std::random_device{}());
    std::printf("seed %lu\n", seed_);
    random_.seed(seed_);
  }
  void SetUp() override {
    FaultTable::SetUp();
    // Everything is in the log, or what is there by now has got into the database.
    clean_ = random_() % 2 == 0;
    ASSERT_TRUE(EndProcess(pod_.ServerPid(), clean_ ? SIGTERM : SIGKILL));
    ASSERT_EQ(Serve(), "");
  }

  // Returns the controller's error if it does not start; empty once it serves.
  std::string Serve() {
    server_ = pod_.Start({"vipu-server", "--config", "/dev/null", "--storage", store_,
                          "--user-api-listen", "127.0.0.1:" + std::to_string(pod_.port())});
    if (!server_->WaitForOutput("serving users on")) {
      const Outcome refused = server_->Wait();
      EXPECT_EQ(refused.code, 1) << refused.err;
      return refused.err;
    }
    // For those who look for the POD's daemons.
    std::ofstream(pod_.home() + "/vipu-server.pid") << server_->pid() << "\n";
    // The first call may still find the connection to the one before.
    for (int i = 0; i < 2 && !client_->ServerInfo().ok(); ++i) {
    }
    return "";
  }
  Files Read() const {
    Files files;
    for (const char* suffix : {"", "-wal", ".running"}) {
      if (fs::exists(store_ + suffix)) files[suffix] = base::ReadFile(store_ + suffix);
    }
    return files;
  }
  void Write(const Files& files) const {
    for (const char* suffix : {"", "-wal", ".running"}) {
      fs::remove(store_ + suffix);
      if (const auto it = files.find(suffix); it != files.end())
        std::ofstream(store_ + suffix, std::ios::binary) << it->second;
    }
  }

  // A partition comes, or goes.
  void ChangeSomething() {
    const std::string id = "t" + std::to_string(random_() % 4);
    if (acknowledged_.erase(id) > 0) {
      const absl::Status removed = client_->RemovePartition(id);
      ASSERT_TRUE(removed.ok()) << removed;
      return;
    }
    vipuuser::CreatePartitionRequest request;
    request.mutable_requirements()->set_id(id);
    request.mutable_requirements()->set_size(1);
    const absl::Status created = client_->CreatePartition(request);
    ASSERT_TRUE(created.ok()) << created;
    acknowledged_[id] = 1;
  }
  void ExpectWhatWasAcknowledged() {
    const auto partitions = client_->ListPartitions();
    ASSERT_TRUE(partitions.ok()) << partitions.status();
    std::map<std::string, uint32_t> listed;
    for (const auto& partition : *partitions)
      listed[partition.requirements().id()] = partition.requirements().size();
    ASSERT_EQ(listed, acknowledged_);
  }

  // Damages the log of the files in a way of its kind.
  std::string Damage(Files& files) {
    std::string& log = files["-wal"];
    const size_t frames = log.size() < kHeaderBytes ? 0 : (log.size() - kHeaderBytes) / kFrameBytes;
    const auto flip = [&](size_t at) {
      if (at < log.size()) log[at] = static_cast<char>(log[at] ^ 1 << random_() % 8);
      return " at " + std::to_string(at);
    };
    const size_t frame = frames == 0 ? 0 : random_() % frames;
    const size_t begin = kHeaderBytes + frame * kFrameBytes;
    switch (random_() % 6) {
      case 0: {
        const size_t size = random_() % (log.size() + 1);
        log.resize(size);
        return "cut to " + std::to_string(size);
      }
      case 1:
        return "bit" + flip(log.empty() ? 0 : random_() % log.size());
      case 2:
        return "salts" + flip(begin + 8 + random_() % 8);
      case 3:
        return "header" + flip(random_() % kHeaderBytes);
      case 4:
        files.erase("-wal");
        return "deleted";
      default:
        log.resize(begin);  // whole frames
        return "cut before frame " + std::to_string(frame + 1);
    }
  }

  // Expects that the rest of the damaged store can be taken into use, and that losses are named.
  void Salvage() {
    const Files before = Read();
    const std::string out = pod_.directory() + "/salvaged", copy = pod_.directory() + "/copy.db";
    fs::remove(out);
    const Outcome salvaged =
        pod_.Run({"vipu-server", "--config", "/dev/null", "--storage", store_, "--salvage", out});
    EXPECT_TRUE(Read() == before) << "the files were changed";
    if (salvaged.code != 0) {
      // Everything was in the log, and nothing of it is left.
      ExpectOneLine(salvaged, {"cannot be salvaged", "restore a backup"});
      return;
    }
    ++salvaged_;
    const Outcome restored = pod_.Run({"vipu-server", "--config", "/dev/null", "--storage", copy,
                                       "--log-level", "error", "--restore", out});
    EXPECT_EQ(restored.code, 0) << restored.err;
    EXPECT_NE(restored.out.find("Restored storage: " + copy), std::string::npos) << restored.out;
    // The two that no damage of the log can reach.
    EXPECT_TRUE(!clean_ || restored.out.find(" partition") != std::string::npos) << restored.out;
    EXPECT_NE(salvaged.out.find("Damage: "), std::string::npos) << salvaged.out;
    EXPECT_NE(salvaged.out.find("Uncertain: "), std::string::npos) << salvaged.out;
  }

  const std::string store_;
  bool clean_ = false;  // whether the controller had ended by itself before the first round
  int salvaged_ = 0;
  uint64_t seed_ = 0;
  Random random_;
  std::unique_ptr<Command> server_;
};

// VPOD_TEST_ROUNDS asks for more of them.
TEST_F(LogDamageTest, WhatWasAcknowledgedIsThereOrTheStartIsRefused) {
  const uint64_t rounds = NumberFrom("VPOD_TEST_ROUNDS", 20);
  int refused = 0, started = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed_) + ", round " + std::to_string(round));
    for (uint64_t i = random_() % 8; i > 0; --i) ChangeSomething();
    ASSERT_FALSE(HasFatalFailure());
    server_->Signal(SIGKILL);
    server_->Wait();
    const Files sound = Read();
    Files damaged = sound;
    SCOPED_TRACE(Damage(damaged));
    Write(damaged);
    if (const std::string reason = Serve(); !reason.empty()) {
      ++refused;
      EXPECT_NE(reason.find("vipu-server: error: storage " + store_ + " cannot be trusted: "),
                std::string::npos)
          << reason;
      EXPECT_NE(reason.find("Nothing was changed"), std::string::npos) << reason;
      ASSERT_TRUE(Read() == damaged) << "the files were changed";
      if (round % 4 == 0) Salvage();
      Write(sound);
      ASSERT_EQ(Serve(), "");
    } else {
      ++started;
    }
    ExpectWhatWasAcknowledged();
    ASSERT_FALSE(HasFatalFailure());
  }
  std::printf(
      "%lu kills and damaged logs: %d refused, of which %d were salvaged; %d started with "
      "everything\n",
      rounds, refused, salvaged_, started);
}

}  // namespace
}  // namespace vpod::testing
