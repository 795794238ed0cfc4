#include "tests/system/fault_table.h"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

namespace vpod::testing {
namespace {

size_t CountOf(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

}  // namespace

Daemon::Daemon(TestPod* pod, std::string name) : pod_(pod), name_(std::move(name)) {
  std::ifstream file("/proc/" + std::to_string(pid()) + "/cmdline");
  for (std::string word; std::getline(file, word, '\0');) words_.push_back(word);
  // It is to log to stderr, where its start is awaited.
  const auto log_file = std::find(words_.begin(), words_.end(), "--log-file");
  if (log_file != words_.end()) words_.erase(log_file, log_file + 2);
}

std::string Daemon::PidFile() const { return pod_->home() + "/" + name_ + ".pid"; }

int Daemon::pid() const {
  int pid = 0;
  std::ifstream(PidFile()) >> pid;
  return pid;
}

void Daemon::Signal(int number) const { kill(pid(), number); }

void Daemon::End(int number) {
  ASSERT_TRUE(EndProcess(pid(), number))
      << name_ << " does not run, or does not end on signal " << number;
  command_.reset();
}

void Daemon::Start() {
  command_ = pod_->Start(words_);
  std::ofstream(PidFile()) << command_->pid() << "\n";
  const bool server = name_ == "vipu-server";
  ASSERT_TRUE(command_->WaitForOutput(server ? "serving users on" : "machines of type"))
      << command_->Err();
}

void ExpectOneLine(const Outcome& outcome, const std::vector<std::string>& texts) {
  EXPECT_EQ(outcome.code, 1) << outcome.out << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  for (const std::string& text : texts)
    EXPECT_NE(outcome.err.find(text), std::string::npos) << text << "\n" << outcome.err;
}

FaultTable::FaultTable(const std::vector<std::string>& options) : pod_(16, options) {
  vipu::ClientConfig config;
  config.host = "127.0.0.1";
  config.port = static_cast<uint32_t>(pod_.port());
  config.user_id = "tester";
  client_ = std::make_unique<vipu::Client>(config, std::chrono::seconds(10));
}

void FaultTable::SetUp() {
  pod_.CreatePartition("other", 4);
  pod_.CreatePartition("mine", 8);
  ASSERT_FALSE(HasFatalFailure());
  other_ = pod_.Start({"env", "IPUOF_VIPU_API_HOST=127.0.0.1",
                       "IPUOF_VIPU_API_PORT=" + std::to_string(pod_.port()),
                       "IPUOF_VIPU_API_PARTITION_ID=other", "replica_job", "--runs", "1000000",
                       "--pause-ms", "10"});
  ASSERT_TRUE(other_->WaitForOutput("run 3 loss")) << other_->Err();
}

void FaultTable::TearDown() {
  if (other_ == nullptr) return;
  ExpectAllActive();
  ExpectNoIpuTwice();
  ExpectOtherGoesOn();
  other_->Signal(SIGTERM);
  other_->Wait();
  EXPECT_TRUE(Within(kSoon, [&] { return AttachedIpus() == 0; }))
      << pod_.Run({"gc-monitor", "--all-partitions"}).out;
}

std::unique_ptr<Command> FaultTable::JobOnMine() {
  auto job =
      pod_.Start({"poprun", "--vipu-partition", "mine", "--num-instances", "2", "--num-replicas",
                  "8", "replica_job", "--runs", "1000000", "--pause-ms", "10"});
  EXPECT_TRUE(job->WaitForOutput("run 3 loss")) << job->Err();
  return job;
}

void FaultTable::ExpectMineWorks() {
  const Outcome job =
      pod_.Run({"poprun", "--vipu-partition", "mine", "--vipu-partition-attempts", "50",
                "--num-instances", "2", "--num-replicas", "8", "replica_job", "--runs", "3"});
  EXPECT_EQ(job.code, 0) << job.err;
}

void FaultTable::ExpectAllActive() {
  std::string seen;
  const bool good = Within(kSoon, [&] {
    const auto partitions = client_->ListPartitions();
    if (!partitions.ok()) {
      seen = partitions.status().ToString();
      return false;
    }
    seen.clear();
    std::map<std::string, uint32_t> active;
    for (const vipuuser::Partition& partition : *partitions) {
      seen += partition.ShortDebugString() + "\n";
      if (partition.status().state() == vipuuser::PS_ACTIVE)
        active[partition.requirements().id()] = partition.requirements().size();
    }
    return active == acknowledged_ && partitions->size() == active.size();
  });
  EXPECT_TRUE(good) << seen;
}

void FaultTable::ExpectNoIpuTwice() {
  std::map<std::pair<std::string, uint32_t>, std::string> owner;
  for (const auto& [id, size] : acknowledged_) {
    const auto partition = client_->GetPartition(id);
    ASSERT_TRUE(partition.ok()) << partition.status();
    uint32_t ipus = 0;
    for (const auto& gcd : partition->gcds()) {
      for (const auto& device : gcd.devices()) {
        ++ipus;
        const auto [place, is_new] =
            owner.emplace(std::make_pair(device.agent_id(), device.pcie_id()), id);
        EXPECT_TRUE(is_new) << "IPU " << device.pcie_id() << " of " << device.agent_id()
                            << " is in " << place->second << " and in " << id;
      }
    }
    EXPECT_EQ(ipus, size) << id << " is there in part only";
  }
}

void FaultTable::ExpectOtherGoesOn() {
  const size_t runs = CountOf(other_->Out(), "\nrun ");
  EXPECT_TRUE(Within(kSoon, [&] { return CountOf(other_->Out(), "\nrun ") > runs + 5; }))
      << "the job on another partition makes no progress";
  EXPECT_EQ(other_->Err(), "");
}

int FaultTable::AttachedIpus() {
  const Outcome outcome = pod_.Run({"gc-monitor", "--all-partitions", "-j"});
  const auto json = nlohmann::json::parse(outcome.out, nullptr, false);
  if (!json.is_object()) return -1;
  int attached = 0;
  for (const auto& card : json["cards"]) {
    for (const auto& ipu : card["ipus"]) attached += ipu.contains("PID");
  }
  return attached;
}

bool FaultTable::Becomes(const std::string& id, vipuuser::PartitionState state,
                         const std::string& error) {
  return Within(kSoon, [&] {
    const auto status = client_->GetPartitionStatus(id);
    return status.ok() && status->state() == state &&
           status->message().find(error) != std::string::npos;
  });
}

std::string FaultTable::AgentStatus(const std::string& id) {
  const auto agent = client_->GetAgent(id);
  return agent.ok() ? agent->status() : agent.status().ToString();
}

}  // namespace vpod::testing
