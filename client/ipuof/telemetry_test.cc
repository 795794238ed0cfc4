// The agents' answers put together, and what is left when some of them are missing.
#include "client/ipuof/telemetry.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "client/ipuof/attributes.h"
#include "client/ipuof/lease.h"
#include "client/vipu/fake_controller.h"
#include "client/vipu/ipuof_json.h"
#include "device/base/mutex.h"
#include "proto/telemetry/v1/telemetry.grpc.pb.h"

namespace vpod::ipuof {
namespace {

namespace fs = std::filesystem;

// An agent with IPU 0, or 1, of every partition. It answers when `together` calls have come.
class FakeAgent : public telemetry::v1::Telemetry::Service {
 public:
  explicit FakeAgent(uint32_t ipu, int together = 1) : ipu_(ipu), missing_(together) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeAgent() override { server_->Shutdown(std::chrono::system_clock::now()); }
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }
  // Sets the process that the fake reports; call before the first request.
  void SetProcess(const v1::ProcessInfo& process) { process_ = process; }

 private:
  grpc::Status GetPartitionTelemetry(grpc::ServerContext*,
                                     const telemetry::v1::GetPartitionTelemetryRequest*,
                                     telemetry::v1::GetPartitionTelemetryReply* reply) override {
    telemetry::v1::IpuTelemetry* ipu = reply->add_ipus();
    ipu->set_routing_id(ipu_);
    if (process_.pid() != 0) {
      ipu->set_attached(true);
      *ipu->mutable_process() = process_;
    }
    base::MutexLock lock(mutex_);
    --missing_;
    changed_.notify_all();
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    lock.WaitUntil(changed_, limit, [this] { return missing_ <= 0; });
    return grpc::Status::OK;
  }

  const uint32_t ipu_;
  v1::ProcessInfo process_;
  int port_ = 0;
  base::Mutex mutex_;
  std::condition_variable changed_;
  int missing_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Server> server_;
};

constexpr char kNobody[] = "127.0.0.1:1";

// An ACTIVE partition with one IPU at each agent.
vipuuser::Partition Partition(const std::string& id, const std::vector<std::string>& agents) {
  vipuuser::Partition partition;
  partition.mutable_requirements()->set_id(id);
  partition.mutable_requirements()->set_num_gcds(1);
  partition.mutable_status()->set_state(vipuuser::PS_ACTIVE);
  vipuuser::PartitionConfig* gcd = partition.add_gcds();
  (*gcd->mutable_attributes())["Partition Id"] = id;
  for (uint32_t i = 0; i < agents.size(); ++i) {
    vipuuser::IpuofDevice* device = gcd->add_devices();
    device->set_routing_id(i);
    device->set_endpoint(agents[i]);
  }
  return partition;
}

class TelemetryTest : public testing::Test {
 protected:
  TelemetryTest()
      : home_(fs::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(home_);
    fs::create_directories(home_);
    setenv("HOME", home_.c_str(), 1);
    for (const char* name :
         {"IPUOF_CONFIG_DIR", "IPUOF_CONFIG_PATH", "IPUOF_VIPU_API_HOST", "IPUOF_VIPU_API_PORT",
          "IPUOF_VIPU_API_PARTITION_ID", "IPUOF_VIPU_API_GCD_ID", "VIPU_CLI_API_HOST"})
      unsetenv(name);
  }
  ~TelemetryTest() override { fs::remove_all(home_); }

  void Show(const std::vector<vipuuser::Partition>& partitions) {
    vipuuser::ListPartitionsReply list;
    list.mutable_partitions()->Assign(partitions.begin(), partitions.end());
    controller_.Answer("ListPartitions", {&list});
  }
  // Makes it the active one, by a file that names a controller.
  void Activate(vipuuser::Partition partition, const std::string& controller) {
    vipuuser::PartitionConfig& config = *partition.mutable_gcds(0);
    (*config.mutable_attributes())["Controller"] = controller;
    const std::string path = (home_ / "active.conf").string();
    std::ofstream(path) << vipu::IpuofJson(config);
    setenv("IPUOF_CONFIG_PATH", path.c_str(), 1);
  }
  // Ids of the partitions that are seen, and the warnings.
  std::vector<std::string> Look() {
    testing::internal::CaptureStderr();
    const auto seen = LookAtPartitions(/*all=*/true);
    warnings_ = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(seen.ok()) << seen.status();
    std::vector<std::string> ids;
    if (seen.ok()) {
      for (const MonitoredPartition& partition : *seen) ids.push_back(partition.id);
    }
    return ids;
  }

  const fs::path home_;
  vipu::FakeController controller_;
  std::string warnings_;
};

using Ids = std::vector<std::string>;

TEST_F(TelemetryTest, AgentsAreAskedAllAtOnce) {
  FakeAgent first(0, /*together=*/2), second(1, /*together=*/2);
  std::vector<MonitoredPartition> partitions;
  for (const char* id : {"p1", "p2"}) {
    partitions.push_back(
        ToMonitor(vipu::Describe(Partition(id, {first.endpoint(), second.endpoint()}).gcds(0))));
  }
  const auto statuses = ReadTelemetry(partitions);
  ASSERT_EQ(statuses.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(statuses[i].ok()) << statuses[i];
    EXPECT_EQ(partitions[i].ipus.size(), 2u);
    EXPECT_TRUE(partitions[i].silent.empty());
  }
}

TEST_F(TelemetryTest, ProcessesOfOtherNamespacesAreMarked) {
  v1::ProcessInfo own = ThisProcess(), contained = own, remote = own;
  contained.set_pid_namespace("pid:[1]");
  remote.set_host("elsewhere");
  for (const auto& [process, mark] :
       {std::pair(own, ""), {contained, kOtherNamespace}, {remote, kOtherNamespace}}) {
    FakeAgent agent(0);
    agent.SetProcess(process);
    std::vector<MonitoredPartition> partitions = {
        ToMonitor(vipu::Describe(Partition("p1", {agent.endpoint()}).gcds(0)))};
    ASSERT_TRUE(ReadTelemetry(partitions)[0].ok());
    EXPECT_EQ(Attribute(partitions[0].ipus.at(0), kProcessNamespace), mark);
  }
}

TEST_F(TelemetryTest, ASilentAgentHidesOnlyItsOwnIpus) {
  FakeAgent agent(0);
  Show({Partition("p1", {agent.endpoint()}), Partition("p2", {agent.endpoint(), kNobody}),
        Partition("p3", {kNobody})});
  setenv("VIPU_CLI_API_HOST", controller_.address().c_str(), 1);
  EXPECT_EQ(Look(), Ids({"p1", "p2"}));
  for (const char* id : {"p2", "p3"}) {
    EXPECT_NE(warnings_.find("warning: partition " + std::string(id) + ": the agent at " + kNobody +
                             " does not answer: "),
              std::string::npos)
        << warnings_;
  }
  EXPECT_EQ(warnings_.find("p1"), std::string::npos) << warnings_;
}

TEST_F(TelemetryTest, OnesInErrorAreShownAsSuch) {
  FakeAgent agent(0);
  vipuuser::Partition broken = Partition("p1", {agent.endpoint()});
  broken.mutable_status()->set_state(vipuuser::PS_ERROR);
  vipuuser::Partition pending = Partition("p2", {agent.endpoint()});
  pending.mutable_status()->set_state(vipuuser::PS_PENDING);
  Show({broken, pending, Partition("p3", {agent.endpoint()})});
  setenv("VIPU_CLI_API_HOST", controller_.address().c_str(), 1);
  const auto seen = LookAtPartitions(/*all=*/true);
  ASSERT_TRUE(seen.ok()) << seen.status();
  ASSERT_EQ(seen->size(), 2u);
  EXPECT_STREQ((*seen)[0].mark(), " [error]");
  EXPECT_STREQ((*seen)[1].mark(), "");
}

TEST_F(TelemetryTest, NobodyThatAnswersIsAnError) {
  Show({Partition("p1", {kNobody})});
  setenv("VIPU_CLI_API_HOST", controller_.address().c_str(), 1);
  EXPECT_TRUE(absl::IsUnavailable(LookAtPartitions(/*all=*/true).status()));
}

TEST_F(TelemetryTest, TheControllerOfTheActivePartitionIsAsked) {
  FakeAgent agent(0);
  Show({Partition("p1", {agent.endpoint()}), Partition("p2", {agent.endpoint()})});
  Activate(Partition("p1", {agent.endpoint()}), controller_.address());
  setenv("VIPU_CLI_API_HOST", kNobody, 1);
  EXPECT_EQ(Look(), Ids({"p1", "p2"}));
  EXPECT_EQ(warnings_, "");
}

TEST_F(TelemetryTest, TheActivePartitionIsShownWithoutItsController) {
  FakeAgent agent(0);
  Activate(Partition("p1", {agent.endpoint()}), kNobody);
  EXPECT_EQ(Look(), Ids({"p1"}));
  EXPECT_EQ(warnings_,
            "warning: only the active partition is shown: Cannot connect to the V-IPU server at " +
                std::string(kNobody) + ". Nobody listens there. The address is from " +
                (home_ / "active.conf").string() + ".\n");
  EXPECT_FALSE(FindPartitions(/*all=*/true).ok());
}

// The files of another controller say nothing about the agents of this one.
TEST_F(TelemetryTest, AgentsAreReachedAsTheirControllerIs) {
  FakeAgent agent(0);
  Activate(Partition("p1", {agent.endpoint()}), controller_.address());
  std::ofstream(home_ / ".vipu.hcl") << "api-host=\"secure\"\ntls-ca=\"/no/ca\"\n"
                                        "tls-cert=\"/no/crt\"\ntls-key=\"/no/key\"\n";
  const auto seen = LookAtPartitions(/*all=*/false);
  EXPECT_TRUE(seen.ok()) << seen.status();
}

}  // namespace
}  // namespace vpod::ipuof
