// A controller on a temporary store, with agents that answer when the test says so.
#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/controller/held_agents.h"

namespace vpod::controller {

// With machines that can be described.
class FakeGateway : public HeldAgents {
 public:
  absl::StatusOr<vipuagent::DescribeMachineReply> DescribeMachine(
      const std::string& endpoint, const std::string& host) override {
    described.push_back(host);
    if (endpoint == silent) return absl::DeadlineExceededError("silence");
    vipuagent::DescribeMachineReply reply;
    (*reply.mutable_facts())["Platform"] = "ipum-p2";
    (*reply.mutable_facts())["Host"] = host;
    for (uint32_t number = 0; number < 4; ++number) {
      vipuagent::MachineIpu* ipu = reply.add_ipus();
      ipu->set_pcie_id(number);
      ipu->set_architecture("GC200");
      ipu->set_num_tiles(1472);
      ipu->set_clock("1330MHz");
    }
    return reply;
  }
  void Forget(const std::string& endpoint) override { forgotten.push_back(endpoint); }
  absl::Status ResetMachine(const std::string& endpoint, const std::string& host) override {
    resets.push_back(absl::StrCat(endpoint, " ", host));
    return reset_status;
  }
  // Answers the oldest call and returns it.
  Call Answer(absl::Status status = absl::OkStatus(), const vipuagent::ConfigureReply& reply = {}) {
    if (calls.empty()) {
      ADD_FAILURE() << "no call to answer";
      return {};
    }
    Call call = TakeCall();
    call.Answer(status, reply);
    return call;
  }
  void ConfirmAll() {
    while (!calls.empty()) Answer();
  }

  std::string silent;                  // end-point that does not say what its machines are
  std::vector<std::string> described;  // hosts that were asked for
  std::vector<std::string> resets;     // "endpoint host"
  std::vector<std::string> forgotten;
  absl::Status reset_status;
};

// A user who may do everything.
inline Caller Anyone(const std::string& user = "alice") {
  return {.user_id = user, .admin = true, .allocation_ids = std::nullopt};
}

class ControllerTest : public testing::Test {
 protected:
  ControllerTest()
      : directory_(std::filesystem::path(testing::TempDir()) /
                   testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    Start();
  }
  ~ControllerTest() override {
    controller_.reset();
    std::filesystem::remove_all(directory_);
  }

  // Starts the controller, or restarts it on the same store; calls under way are lost.
  void Start() {
    controller_.reset();
    gateway_.calls.clear();
    store_.reset();
    auto store =
        Store::Open((directory_ / "vipu-server.db").string(), Store::OpenMode::kOpenOrCreate);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    options_.now = [this] { return now_; };
    auto controller = Controller::Create(store_.get(), &gateway_, options_);
    ASSERT_TRUE(controller.ok()) << controller.status();
    controller_ = *std::move(controller);
  }

  // Restarts it after running SQL on its database.
  void StartAfter(const char* sql) {
    controller_.reset();
    store_.reset();
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open((directory_ / "vipu-server.db").c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, sql, nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(database);
    sqlite3_close(database);
    Start();
  }

  static std::string Host(int machine) { return absl::StrCat("10.1.2.", machine + 1); }

  static vipuagent::RegisterRequest Registration(int first = 0, int count = 1,
                                                 const std::string& endpoint = "process-1",
                                                 const std::string& boot_id = "boot-1") {
    vipuagent::RegisterRequest request;
    request.set_endpoint(endpoint);
    request.set_boot_id(boot_id);
    request.set_version(kVersion);
    request.set_metrics_endpoint(endpoint + ":2112");
    for (int i = first; i < first + count; ++i) {
      vipuagent::Machine* machine = request.add_machines();
      machine->set_host(Host(i));
      machine->set_port(8080);
      machine->set_data_ip(absl::StrCat("10.1.5.", i + 1));
      machine->set_board_type("M2000");
      machine->set_clock("1330MHz");
    }
    return request;
  }
  // The process at `endpoint` registers the machines first … first+count-1, or lives on.
  void Register(int first, int count, const std::string& endpoint = "process-1",
                const std::string& boot_id = "boot-1", const std::string& heard_on = "eth0") {
    const absl::Status status =
        controller_->Register(Registration(first, count, endpoint, boot_id), heard_on);
    ASSERT_TRUE(status.ok()) << status;
  }

  absl::Status CreateAgent(const std::string& id, const std::string& host, uint32_t port = 8080) {
    vipuadmin::CreateAgentRequest request;
    request.set_id(id);
    request.set_host(host);
    request.set_port(port);
    return controller_->CreateAgent(request, "root");
  }
  // Agents ag<first> … of the machines with those numbers.
  void CreateAgents(int first, int count) {
    for (int i = first; i < first + count; ++i)
      ASSERT_TRUE(CreateAgent(absl::StrCat("ag", i), Host(i)).ok());
  }
  static vipuadmin::Cluster ClusterOf(const std::string& id, int first, int count,
                                      uint32_t ilds = 1, const std::string& topology = "",
                                      const std::string& cluster_topology = "") {
    vipuadmin::Cluster cluster;
    cluster.set_id(id);
    for (int i = first; i < first + count; ++i) cluster.add_agent_ids(absl::StrCat("ag", i));
    cluster.set_num_ipulinkdomains(ilds);
    cluster.set_topology(topology);
    cluster.set_cluster_topology(cluster_topology);
    return cluster;
  }
  absl::Status CreateCluster(const vipuadmin::Cluster& cluster) {
    return controller_->CreateCluster(cluster, "root");
  }
  // Machines, agents and a cluster of all of them, registered by one process.
  void CreatePod(int machines, uint32_t ilds = 1, const std::string& topology = "",
                 const std::string& cluster_topology = "") {
    Register(0, machines);
    CreateAgents(0, machines);
    ASSERT_TRUE(CreateCluster(ClusterOf("c1", 0, machines, ilds, topology, cluster_topology)).ok());
    gateway_.ConfirmAll();
  }

  // A cluster of two machines, each registered by a process of its own.
  void CreatePodOfTwoProcesses() {
    Register(0, 1, "process-1");
    Register(1, 1, "process-2");
    CreateAgents(0, 2);
    ASSERT_TRUE(CreateCluster(ClusterOf("c1", 0, 2)).ok());
    gateway_.ConfirmAll();
  }

  static vipuuser::PartitionRequirements Wanted(const std::string& id, uint32_t size) {
    vipuuser::PartitionRequirements wanted;
    wanted.set_id(id);
    wanted.set_size(size);
    return wanted;
  }
  absl::Status Create(const vipuuser::PartitionRequirements& wanted,
                      const std::string& request_id = "") {
    vipuuser::CreatePartitionRequest request;
    *request.mutable_requirements() = wanted;
    request.set_request_id(request_id);
    return controller_->CreatePartition(request, Anyone()).status();
  }
  absl::Status Update(const vipuuser::PartitionRequirements& wanted) {
    vipuuser::UpdatePartitionRequest request;
    *request.mutable_requirements() = wanted;
    return controller_->UpdatePartition(request, Anyone());
  }
  absl::Status Remove(const std::string& id) { return controller_->RemovePartition(id, "alice"); }
  absl::Status Reset(const std::string& id) { return controller_->ResetPartition(id, "alice"); }
  absl::Status Create(const std::string& id, uint32_t size) { return Create(Wanted(id, size)); }
  void CreateActive(const vipuuser::PartitionRequirements& wanted) {
    const absl::Status status = Create(wanted);
    ASSERT_TRUE(status.ok()) << status;
    gateway_.ConfirmAll();
    ASSERT_EQ(StateOf(wanted.id()), vipuuser::PS_ACTIVE);
  }

  vipuuser::PartitionStatus StatusOf(const std::string& id) {
    const auto status = controller_->GetPartitionStatus(id);
    EXPECT_TRUE(status.ok()) << status.status();
    return status.ok() ? *status : vipuuser::PartitionStatus();
  }
  vipuuser::PartitionState StateOf(const std::string& id) { return StatusOf(id).state(); }
  vipuuser::Partition Get(const std::string& id) {
    const auto partition = controller_->GetPartition(id);
    EXPECT_TRUE(partition.ok()) << partition.status();
    return partition.ok() ? *partition : vipuuser::Partition();
  }
  // Texts of the events of an object, oldest first.
  std::vector<std::string> EventsOf(const std::string& object) {
    vipuadmin::ListEventsRequest request;
    request.set_object(object);
    const auto events = controller_->ListEvents(request);
    EXPECT_TRUE(events.ok()) << events.status();
    std::vector<std::string> texts;
    if (!events.ok()) return texts;
    for (const StoredEvent& event : *events) texts.push_back(event.text);
    return texts;
  }
  void Advance(std::chrono::milliseconds time) {
    constexpr std::chrono::milliseconds kTick(250);
    for (; time > kTick; time -= kTick) {
      now_ += kTick;
      controller_->Tick();
    }
    now_ += time;
    controller_->Tick();
  }

  std::filesystem::path directory_;
  Controller::Clock::time_point now_ = Controller::Clock::now();
  ControllerOptions options_;  // of the next Start
  FakeGateway gateway_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Controller> controller_;
};

// "INVALID_ARGUMENT: text" without payloads.
inline std::string Text(const absl::Status& status) {
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message());
}

}  // namespace vpod::controller
