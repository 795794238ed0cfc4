// Frame of the tests of agents: an agent of four machines in one process, which knows partition "p"
// of all of them, and calls that wait for their end.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/mutex.h"
#include "device/program/executable.h"
#include "server/agent/agent.h"

namespace vpod::agent {

inline constexpr char kKey[] = "5e1a";     // of the partition
inline constexpr char kBootId[] = "9ee5";  // of the process that has the rest of it

// Runs an asynchronous call to its end.
template <class T>
class Awaited {
 public:
  std::function<void(absl::StatusOr<T>)> Callback() {
    return [this](absl::StatusOr<T> result) {
      base::MutexLock lock(mutex_);
      result_ = std::move(result);
      changed_.notify_all();
    };
  }
  absl::StatusOr<T> Get() {
    base::MutexLock lock(mutex_);
    lock.Wait(changed_, [&] { return result_.has_value(); });
    return *result_;
  }
  bool Done() {
    base::MutexLock lock(mutex_);
    return result_.has_value();
  }

 private:
  base::Mutex mutex_;
  std::condition_variable changed_;
  std::optional<absl::StatusOr<T>> result_;
};

// One variable; program "sum" all-reduces it in place, "rest" does nothing, "long" repeats for a
// while.
inline std::string SumExecutable() {
  program::v1::Executable executable;
  executable.set_ipus_per_replica(1);
  program::v1::Ipu* ipu = executable.add_ipus();
  ipu->set_arena_bytes(1 << 20);
  program::v1::Tensor* tensor = ipu->add_tensors();
  tensor->set_type(program::v1::FLOAT32);
  tensor->add_dims(4);
  program::v1::Tensor* large = ipu->add_tensors();
  large->set_type(program::v1::FLOAT32);
  large->add_dims(200000);
  large->set_offset(64);
  program::v1::Variable* variable = executable.add_variables();
  variable->set_name("v");
  program::v1::Program* sum = executable.add_programs();
  sum->set_name("sum");
  sum->add_functions(0);
  program::v1::Instruction* op = ipu->add_functions()->add_instructions();
  op->mutable_all_reduce()->set_operator_(program::v1::SUM);
  op->add_inputs(0);
  op->add_outputs(0);
  program::v1::Program* rest = executable.add_programs();
  rest->set_name("rest");
  rest->add_functions(1);
  ipu->add_functions();
  program::v1::Program* forever = executable.add_programs();
  forever->set_name("long");
  forever->add_functions(3);
  program::v1::Instruction* fill = ipu->add_functions()->add_instructions();
  fill->mutable_fill();
  fill->add_outputs(1);
  program::v1::Repeat* repeat = ipu->add_functions()->add_instructions()->mutable_repeat();
  repeat->set_function(2);
  repeat->set_count(1'000'000);
  return program::Serialize(executable);
}

inline vipuagent::Slice WholeMachine(const std::string& host) {
  vipuagent::Slice slice;
  slice.set_machine_host(host);
  slice.set_first_pcie_id(3);
  slice.set_num_ipus(4);
  return slice;
}

class AgentTest : public testing::Test {
 protected:
  AgentTest() {
    AgentOptions options;
    options.num_machines = 4;
    options.compute_threads = 2;
    options.memory_limit_bytes = 64 << 20;
    agent_ = *Agent::Create(options);
    agent_->watch_process = [](base::UniqueFd, std::string) {};
    Configure(1);
  }

  void Configure(uint64_t generation, bool present = true, uint64_t config_generation = 0,
                 const std::string& key = kKey) {
    vipuagent::ConfigureRequest request;
    request.set_controller_boot_id("boot");
    request.set_sequence(++sequence_);
    request.set_complete(true);
    if (present) {
      vipuagent::AgentPartition* partition = request.add_partitions();
      partition->set_id("p");
      partition->set_generation(generation);
      partition->set_config_generation(config_generation);
      partition->set_fabric_key(key);
      partition->set_reconfigurable(config_generation == 0);
      vipuagent::Gcd* gcd = partition->add_gcds();
      for (uint32_t machine = 0; machine < 4; ++machine)
        *gcd->add_slices() = WholeMachine(absl::StrCat("127.10.0.", 1 + machine));
    } else {
      vipuagent::RemovedPartition* removed = request.add_removed();
      removed->set_id("p");
      removed->set_generation(generation);
    }
    ASSERT_TRUE(agent_->Configure(request).ok());
  }

  // A controller that knows no partition, or one called "q" with all IPUs.
  vipuagent::ConfigureRequest FromAnotherController(bool with_q = false) {
    vipuagent::ConfigureRequest request;
    request.set_controller_boot_id("another");
    request.set_sequence(1);
    request.set_complete(true);
    if (!with_q) return request;
    vipuagent::AgentPartition* partition = request.add_partitions();
    partition->set_id("q");
    partition->set_generation(100);
    partition->set_fabric_key(kKey);
    partition->set_reconfigurable(true);
    vipuagent::Gcd* gcd = partition->add_gcds();
    for (uint32_t machine = 0; machine < 4; ++machine)
      *gcd->add_slices() = WholeMachine(absl::StrCat("127.10.0.", 1 + machine));
    return request;
  }

  static ipuof::v1::AttachOpen Open(uint32_t device, uint32_t instance = 0, uint32_t instances = 1,
                                    uint32_t local = 1) {
    ipuof::v1::AttachOpen open;
    open.set_partition_id("p");
    open.set_fabric_key(kKey);
    open.set_generation(1);
    open.set_device_id(device);
    open.mutable_process()->set_pid(4711 + instance);
    open.mutable_process()->set_host("host");
    open.mutable_process()->set_executable("train");
    ipuof::v1::JobMember* job = open.mutable_job();
    job->set_job_id(instances == 1 ? absl::StrCat("solo", device) : "job");
    job->set_instance_index(instance);
    job->set_num_instances(instances);
    job->set_local_replicas(local);
    job->set_total_replicas(local * instances);
    job->set_replica_offset(local * instance);
    job->set_ipus_per_replica(1);
    return open;
  }

  absl::StatusOr<ipuof::v1::Attached> Attach(const ipuof::v1::AttachOpen& open,
                                             LeaseEvents events = {}) {
    Awaited<ipuof::v1::Attached> awaited;
    agent_->Attach(open, std::move(events), awaited.Callback());
    return awaited.Get();
  }
  std::string MustAttach(const ipuof::v1::AttachOpen& open, LeaseEvents events = {}) {
    auto attached = Attach(open, std::move(events));
    EXPECT_TRUE(attached.ok()) << attached.status();
    return attached.ok() ? attached->lease_id() : "";
  }
  absl::Status Run(const std::string& lease, uint32_t program) {
    Awaited<base::Cycles> awaited;
    agent_->Run(lease, program, 0, awaited.Callback());
    return awaited.Get().status();
  }
  int Attached() {
    int attached = 0;
    const auto telemetry = agent_->GetTelemetry("p");
    for (const auto& ipu : telemetry->ipus()) attached += ipu.attached();
    return attached;
  }

  std::unique_ptr<Agent> agent_;
  uint64_t sequence_ = 0;
};

}  // namespace vpod::agent
