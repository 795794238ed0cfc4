// Frame of the rows of the fault table (FAULTS.md): a POD of which a part suffers while another
// part works, and the check that nothing was lost and nobody else was disturbed.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/vipu/client.h"
#include "tests/support/pod.h"

namespace vpod::testing {

// A running process of the POD that can be killed, and started again with the words it was started
// with. Its pid file follows, so that `vpod down` and TestPod know the new one.
class Daemon {
 public:
  Daemon(TestPod* pod, std::string name);  // vipu-server, vipu-agent, vipu-agent.1, …

  int pid() const;
  void Signal(int number) const;
  // Sends a signal that ends it and waits until it is gone.
  void End(int number);
  // Starts it again; returns once it serves.
  void Start();
  // The process, with its output since Start().
  Command& command() { return *command_; }

 private:
  std::string PidFile() const;

  TestPod* pod_;
  const std::string name_;
  std::vector<std::string> words_;
  std::unique_ptr<Command> command_;
};

// One line of error that contains all `texts`, exit code 1.
void ExpectOneLine(const Outcome& outcome, const std::vector<std::string>& texts);

// Partition "other" has the 4 IPUs of machine 0, on which a job runs from beginning to end; "mine"
// the 8 of machines 2 and 3; machine 1 is free. Agent 0 stays alive: it holds the claim to the
// machines' addresses.
class FaultTable : public ::testing::Test {
 protected:
  explicit FaultTable(const std::vector<std::string>& options = {});
  void SetUp() override;
  // The common check.
  void TearDown() override;

  // A job on "mine": 2 instances, 8 replicas, longer than any test. Returns when it runs.
  std::unique_ptr<Command> JobOnMine();
  // A short job on "mine" succeeds.
  void ExpectMineWorks();
  // Every acknowledged partition becomes ACTIVE again, by itself, and there is no other.
  void ExpectAllActive();
  // The partition gets into a state, with a last error that contains `error`.
  bool Becomes(const std::string& id, vipuuser::PartitionState state,
               const std::string& error = "");
  // Status of an agent as `vipu-admin list agents` shows it.
  std::string AgentStatus(const std::string& id);
  // The job on "other" goes on from here.
  void ExpectOtherGoesOn();

  TestPod pod_;
  std::unique_ptr<vipu::Client> client_;
  // Acknowledged partitions and their sizes; rows that create or remove keep it.
  std::map<std::string, uint32_t> acknowledged_ = {{"mine", 8}, {"other", 4}};

 private:
  void ExpectNoIpuTwice();
  int AttachedIpus();

  std::unique_ptr<Command> other_;
};

}  // namespace vpod::testing
