// Fault table: agents that die, stop, come back, or are not who they should be; both daemons
// restarted in every order; clients that die.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "proto/vipu/v1/vipuagent.grpc.pb.h"
#include "tests/system/fault_table.h"

namespace vpod::testing {
namespace {

using vipuuser::PS_ACTIVE;
using vipuuser::PS_ERROR;

class FaultAgentsTest : public FaultTable {
 protected:
  FaultAgentsTest() : FaultTable({"--agents", "processes"}), server_(&pod_, "vipu-server") {
    for (const char* name : {"vipu-agent", "vipu-agent.1", "vipu-agent.2", "vipu-agent.3"})
      agents_.push_back(std::make_unique<Daemon>(&pod_, name));
  }
  void SetUp() override {
    FaultTable::SetUp();
    const auto agents = client_->ListAgents();
    ASSERT_TRUE(agents.ok()) << agents.status();
    for (const auto& agent : *agents) ids_.push_back(agent.id());
    ASSERT_EQ(ids_.size(), 4u);
  }
  // Machine `number` is lost: its agent is Down, "mine" names it, and the tools answer.
  void ExpectLost(size_t number) {
    EXPECT_TRUE(Within(kSoon, [&] { return AgentStatus(ids_[number]) == "Down"; }))
        << AgentStatus(ids_[number]);
    EXPECT_TRUE(Becomes("mine", PS_ERROR, ids_[number]));
    const Outcome shown = pod_.Run({"vipu", "get", "partition", "mine"}, kSoon);
    EXPECT_EQ(shown.code, 0) << shown.err;
    EXPECT_NE(shown.out.find(ids_[number]), std::string::npos) << shown.out;
    EXPECT_EQ(pod_.Run({"gc-monitor", "--all-partitions"}, kSoon).code, 0);
    ExpectOtherGoesOn();
  }
  // A job that waits for an IPU of the lost machine ends, and says so.
  void ExpectNamed(Command& job) {
    const Outcome outcome = job.Wait(kSoon);
    EXPECT_GT(outcome.code, 0) << "the job did not end";
    EXPECT_NE(outcome.err.find("agent"), std::string::npos) << outcome.err;
  }

  // Ends a job that is well.
  static void Interrupt(Command& job) {
    job.Signal(SIGINT);
    EXPECT_GT(job.Wait(kSoon).code, 0);
  }

  Daemon server_;
  std::vector<std::unique_ptr<Daemon>> agents_;
  std::vector<std::string> ids_;  // of the agents, by machine
};

TEST_F(FaultAgentsTest, AKilledAgentIsNamedAndItsPartitionComesBackWithIt) {
  const auto job = JobOnMine();
  agents_[3]->End(SIGKILL);
  ExpectNamed(*job);
  ExpectLost(3);
  // Attaching is refused at once, with the reason.
  const Outcome refused =
      pod_.Run({"poprun", "--vipu-partition", "mine", "--num-replicas", "8", "replica_job"}, kSoon);
  EXPECT_GT(refused.code, 0);
  EXPECT_NE(refused.err.find("mine"), std::string::npos) << refused.err;
  ExpectOneLine(pod_.Run({"vipu-admin", "reset", "agent", ids_[3]}),
                {"Agent " + ids_[3] + " does not answer."});
  agents_[3]->Start();
  EXPECT_TRUE(Becomes("mine", PS_ACTIVE));
  ExpectMineWorks();
}

TEST_F(FaultAgentsTest, AnEndedAgentTellsItsJobs) {
  const auto job = JobOnMine();
  agents_[2]->End(SIGTERM);
  ExpectNamed(*job);
  ExpectLost(2);
  agents_[2]->Start();
  EXPECT_TRUE(Becomes("mine", PS_ACTIVE));
  ExpectMineWorks();
}

TEST_F(FaultAgentsTest, AStoppedAgentIsNamedAndWelcomeBack) {
  agents_[3]->Signal(SIGSTOP);
  ExpectLost(3);
  agents_[3]->Signal(SIGCONT);
  EXPECT_TRUE(Becomes("mine", PS_ACTIVE));
  EXPECT_EQ(AgentStatus(ids_[3]), "Up");
  ExpectMineWorks();
}

// An agent without heartbeats is as good as lost to its jobs: a host that is cut off looks
// the same.
TEST_F(FaultAgentsTest, AStoppedAgentEndsItsJobsByName) {
  const auto machine = client_->GetAgent(ids_[3]);
  ASSERT_TRUE(machine.ok()) << machine.status();
  const auto job = JobOnMine();
  agents_[3]->Signal(SIGSTOP);
  // Its own instance may notice first, or the agent that keeps the job's record.
  EXPECT_TRUE(job->WaitForOutput("agent " + ids_[3] + " at " + machine->host() + ":", kSoon))
      << job->Err();
  const Outcome outcome = job->Wait(kSoon);
  EXPECT_GT(outcome.code, 0);
  // An instance that ends because of it may be named with its exit code, but nobody was lost.
  for (const char* wrong : {") was lost", ") was killed by signal"})
    EXPECT_EQ(outcome.err.find(wrong), std::string::npos) << outcome.err;
  ExpectOtherGoesOn();
  agents_[3]->Signal(SIGCONT);
  EXPECT_TRUE(Becomes("mine", PS_ACTIVE));
  ExpectMineWorks();
}

TEST_F(FaultAgentsTest, AllAgentsOfAPartitionKilledAtOnce) {
  agents_[2]->End(SIGKILL);
  agents_[3]->End(SIGKILL);
  EXPECT_TRUE(Becomes("mine", PS_ERROR));
  agents_[3]->Start();
  agents_[2]->Start();
  EXPECT_TRUE(Becomes("mine", PS_ACTIVE));
  ExpectMineWorks();
}

TEST_F(FaultAgentsTest, AnAgentRestartedFasterThanItIsMissed) {
  const auto job = JobOnMine();
  agents_[3]->End(SIGKILL);
  agents_[3]->Start();
  ExpectNamed(*job);
  EXPECT_TRUE(Becomes("mine", PS_ACTIVE));
  ExpectMineWorks();
}

TEST_F(FaultAgentsTest, APartitionRemovedWhileItsAgentIsAwayStaysRemoved) {
  agents_[3]->End(SIGKILL);
  ExpectLost(3);
  const Outcome removed = pod_.Run({"vipu-admin", "remove", "partition", "mine"}, kSoon);
  EXPECT_EQ(removed.code, 0) << removed.err;
  acknowledged_.erase("mine");
  agents_[3]->Start();
  EXPECT_TRUE(Within(kSoon, [&] { return AgentStatus(ids_[3]) == "Up"; }));
  ExpectAllActive();
  pod_.CreatePartition("mine", 8);
  acknowledged_["mine"] = 8;
  ExpectMineWorks();
}

TEST_F(FaultAgentsTest, ControllerRestartedBeforeTheAgents) {
  server_.End(SIGKILL);
  agents_[2]->End(SIGKILL);
  agents_[3]->End(SIGKILL);
  server_.Start();
  ExpectOtherGoesOn();
  agents_[2]->Start();
  agents_[3]->Start();
  EXPECT_TRUE(Becomes("mine", PS_ACTIVE));
  ExpectMineWorks();
}

TEST_F(FaultAgentsTest, AgentsRestartedBeforeTheController) {
  server_.End(SIGKILL);
  agents_[2]->End(SIGKILL);
  agents_[3]->End(SIGKILL);
  agents_[2]->Start();
  agents_[3]->Start();
  ExpectOtherGoesOn();
  server_.Start();
  EXPECT_TRUE(Becomes("mine", PS_ACTIVE));
  ExpectMineWorks();
}

TEST_F(FaultAgentsTest, JobsOutliveTheController) {
  const auto job = JobOnMine();
  server_.End(SIGKILL);
  const Outcome list = pod_.Run({"vipu", "--timeout", "5", "list", "partitions"}, kSoon);
  ExpectOneLine(list, {"127.0.0.1:" + std::to_string(pod_.port())});
  ExpectOtherGoesOn();
  server_.Start();
  EXPECT_TRUE(Becomes("mine", PS_ACTIVE));
  EXPECT_TRUE(job->WaitForOutput("run 50 loss", kSoon)) << job->Err();
  EXPECT_EQ(job->Err(), "");
  Interrupt(*job);
}

TEST_F(FaultAgentsTest, AStoppedControllerIsNamedAndJobsGoOn) {
  const auto job = JobOnMine();
  server_.Signal(SIGSTOP);
  const Outcome list = pod_.Run({"vipu", "--timeout", "2", "list", "partitions"}, kSoon);
  ExpectOneLine(list, {"127.0.0.1:" + std::to_string(pod_.port())});
  ExpectOtherGoesOn();
  server_.Signal(SIGCONT);
  ExpectAllActive();
  EXPECT_TRUE(job->WaitForOutput("run 50 loss", kSoon)) << job->Err();
  EXPECT_EQ(job->Err(), "");
  Interrupt(*job);
}

TEST_F(FaultAgentsTest, AClientKilledInTheMiddleOfACommandLeavesNothingHalf) {
  for (int round = 0; round < 5; ++round) {
    const auto create =
        pod_.Start({"vipu-admin", "create", "partition", "p1", "--size", "1", "--reconfigurable"});
    std::this_thread::sleep_for(std::chrono::milliseconds(20 * round));
    create->Signal(SIGKILL);
    create->Wait();
    // There or not; if there, whole, and removed like any other.
    const auto status = client_->GetPartitionStatus("p1");
    if (status.ok() && status->state() != vipuuser::PS_REMOVED) {
      acknowledged_["p1"] = 1;
      ExpectAllActive();
      EXPECT_EQ(pod_.Run({"vipu-admin", "remove", "partition", "p1"}).code, 0);
      acknowledged_.erase("p1");
    }
    ExpectAllActive();
  }
}

TEST_F(FaultAgentsTest, DuplicateIdsAndAddressesOfAgentsAreRefused) {
  const std::string before = pod_.Shell("vipu-admin list agents | cut -d '|' -f 1-4").out;
  const auto agents = client_->ListAgents();
  ASSERT_TRUE(agents.ok());
  const std::string host = agents->front().host(), port = std::to_string(agents->front().port());
  ExpectOneLine(pod_.Run({"vipu-admin", "create", "agent", ids_[0], "--host", "127.99.0.1"}),
                {ids_[0], "exists"});
  ExpectOneLine(
      pod_.Run({"vipu-admin", "create", "agent", "another", "--host", host, "--port", port}),
      {"another", host});
  EXPECT_EQ(pod_.Shell("vipu-admin list agents | cut -d '|' -f 1-4").out, before);
}

TEST_F(FaultAgentsTest, ASecondAgentAtAnAddressIsRefused) {
  const auto agents = client_->ListAgents();
  ASSERT_TRUE(agents.ok());
  const std::string address = agents->front().host() + ":" + std::to_string(agents->front().port());
  ExpectOneLine(pod_.Run({"vipu-agent", "--host", agents->front().host(), "--listen-on-machine",
                          "--controller", "127.0.0.1:" + std::to_string(pod_.port())},
                         kSoon),
                {"vipu-agent: error: ", address});
  EXPECT_EQ(AgentStatus(ids_[0]), "Up");
  ExpectMineWorks();
}

TEST_F(FaultAgentsTest, ASecondProcessThatClaimsAMachineIsRefused) {
  const auto agents = client_->ListAgents();
  ASSERT_TRUE(agents.ok());
  const auto second =
      pod_.Start({"vipu-agent", "--host", agents->front().host(), "--listen", "127.0.0.1:0",
                  "--controller", "127.0.0.1:" + std::to_string(pod_.port())});
  const std::string address = agents->front().host() + ":" + std::to_string(agents->front().port());
  EXPECT_TRUE(Within(kSoon, [&] {
    return second->Err().find("refused by the controller: Machine " + address +
                              " is held by the living process at ") != std::string::npos;
  })) << second->Err();
  const auto told = client_->GetAgent(ids_[0]);
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_NE(told->error().find(address), std::string::npos) << told->error();
  EXPECT_EQ(AgentStatus(ids_[0]), "Up");
  ExpectMineWorks();
  second->Signal(SIGTERM);
  EXPECT_EQ(second->Wait(kSoon).code, 0);
}

TEST_F(FaultAgentsTest, AnAgentOfAnotherVersionIsRefused) {
  const auto registry = vipuagent::VipuRegistry::NewStub(grpc::CreateChannel(
      "127.0.0.1:" + std::to_string(pod_.port()), grpc::InsecureChannelCredentials()));
  vipuagent::RegisterRequest request;
  request.set_endpoint("127.0.0.1:" + std::to_string(FreePort()));
  request.set_boot_id("another");
  request.set_version("0.7.0");
  vipuagent::Machine* machine = request.add_machines();
  machine->set_host("127.99.0.1");
  machine->set_port(8080);
  machine->set_data_ip("127.99.0.1");
  grpc::ClientContext context;
  vipuagent::RegisterReply reply;
  const grpc::Status refused = registry->Register(&context, request, &reply);
  EXPECT_EQ(refused.error_code(), grpc::FAILED_PRECONDITION) << refused.error_message();
  EXPECT_NE(refused.error_message().find("0.7.0"), std::string::npos) << refused.error_message();
  EXPECT_EQ(pod_.Shell("vipu-admin discover agents | grep -c 127.99.0.1").out, "0\n");
}

}  // namespace
}  // namespace vpod::testing
