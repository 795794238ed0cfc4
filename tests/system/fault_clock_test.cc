// Fault table: the clock of the controller or of an agent jumps, as when a host is set right. Time
// stamps follow it; what waits or measures does not.
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <fstream>
#include <thread>

#include "tests/system/fault_table.h"

namespace vpod::testing {
namespace {

constexpr char kFakeTime[] = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
constexpr int kDays = 2;

std::string Day(int days_from_now) {
  const std::time_t time = std::time(nullptr) + days_from_now * 86400;
  char text[16];
  std::strftime(text, sizeof(text), "%Y-%m-%d", std::gmtime(&time));
  return text;
}

class FaultClockTest : public FaultTable {
 protected:
  FaultClockTest() : FaultTable({"--agents", "processes"}), clock_(pod_.directory() + "/clock") {}
  void SetUp() override {
    if (access(kFakeTime, R_OK) != 0) {
      GTEST_SKIP() << kFakeTime << " is missing (package faketime)";
    }
    FaultTable::SetUp();
  }

  // Restarts a daemon with a clock that SetClock moves.
  void GiveClock(const std::string& daemon) {
    daemon_ = std::make_unique<Daemon>(&pod_, daemon);
    daemon_->End(SIGTERM);
    SetClock(0);
    auto& environment = pod_.environment();
    environment["FAKETIME_TIMESTAMP_FILE"] = clock_;
    environment["FAKETIME_NO_CACHE"] = "1";
    environment["FAKETIME_DONT_FAKE_MONOTONIC"] = "1";
    environment["LD_PRELOAD"] = kFakeTime;
    daemon_->Start();
    environment["LD_PRELOAD"] = "";
    ExpectAllActive();
  }
  void SetClock(int days) {
    const std::string next = clock_ + ".next";
    std::ofstream(next) << (days < 0 ? "" : "+") << days << "d\n";
    rename(next.c_str(), clock_.c_str());
  }

  // For longer than silence is forgiven, nobody is taken for lost.
  void ExpectNobodyLost() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(6);
    while (std::chrono::steady_clock::now() < end) {
      const auto agents = client_->ListAgents();
      ASSERT_TRUE(agents.ok()) << agents.status();
      for (const auto& agent : *agents) {
        EXPECT_EQ(agent.status(), "Up") << agent.id();
        EXPECT_GE(agent.last_seen_ms(), 0) << agent.id();
        EXPECT_LT(agent.last_seen_ms(), 60000) << agent.id();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    const auto events = client_->ListEvents({});
    ASSERT_TRUE(events.ok()) << events.status();
    for (const auto& event : *events) {
      if (event.number() <= last_event_) continue;
      EXPECT_EQ(event.severity(), "INFO") << event.text();
    }
  }
  // Remembers what has happened so far.
  void Begin() {
    const auto events = client_->ListEvents({});
    ASSERT_TRUE(events.ok() && !events->empty()) << events.status();
    last_event_ = events->back().number();
    job_ = JobOnMine();
  }
  void End() {
    EXPECT_EQ(job_->Err(), "");
    job_->Signal(SIGINT);
    EXPECT_GT(job_->Wait(std::chrono::seconds(60)).code, 0);
    ExpectMineWorks();
  }

  const std::string clock_;
  std::unique_ptr<Daemon> daemon_;
  uint64_t last_event_ = 0;
  std::unique_ptr<Command> job_;
};

TEST_F(FaultClockTest, TheControllersClockJumps) {
  GiveClock("vipu-server");
  Begin();
  for (const int days : {kDays, -kDays}) {
    SetClock(days);
    ExpectNobodyLost();
    const std::string id = days > 0 ? "later" : "earlier";
    const std::string before = Day(days);
    pod_.CreatePartition(id, 1);
    acknowledged_[id] = 1;
    const std::string shown = pod_.Run({"vipu", "get", "partition", id}).out +
                              pod_.Run({"vipu-admin", "list", "events"}).out;
    EXPECT_TRUE(shown.find(before) != std::string::npos ||
                shown.find(Day(days)) != std::string::npos)
        << shown;
  }
  End();
}

TEST_F(FaultClockTest, AnAgentsClockJumps) {
  GiveClock("vipu-agent.3");
  Begin();
  for (const int days : {kDays, -kDays}) {
    SetClock(days);
    ExpectNobodyLost();
    EXPECT_EQ(pod_.Run({"gc-monitor", "--all-partitions"}).code, 0);
  }
  EXPECT_TRUE(job_->WaitForOutput("run 50 loss", kSoon)) << job_->Err();
  End();
}

}  // namespace
}  // namespace vpod::testing
