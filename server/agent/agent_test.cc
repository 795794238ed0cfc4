#include "server/agent/agent.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <future>
#include <optional>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/program/executable.h"
#include "server/agent/local_listener.h"

namespace vpod::agent {
namespace {

using program::v1::FLOAT32;

constexpr char kKey[] = "5e1a";  // of the partition

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
std::string SumExecutable() {
  program::v1::Executable executable;
  executable.set_ipus_per_replica(1);
  program::v1::Ipu* ipu = executable.add_ipus();
  ipu->set_arena_bytes(1 << 20);
  program::v1::Tensor* tensor = ipu->add_tensors();
  tensor->set_type(FLOAT32);
  tensor->add_dims(4);
  program::v1::Tensor* large = ipu->add_tensors();
  large->set_type(FLOAT32);
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

// Its only program is one kernel: a million windows of `side` × `side` elements.
std::string KernelExecutable(uint64_t side) {
  program::v1::Executable executable;
  executable.set_ipus_per_replica(1);
  program::v1::Ipu* ipu = executable.add_ipus();
  for (const uint64_t pixels : {1024 + side - 1, uint64_t{1024}}) {
    program::v1::Tensor* tensor = ipu->add_tensors();
    tensor->set_type(FLOAT32);
    for (const uint64_t dim : {uint64_t{1}, uint64_t{1}, pixels, pixels})
      tensor->add_dims(static_cast<int64_t>(dim));
    tensor->set_offset(ipu->arena_bytes());
    ipu->set_arena_bytes((ipu->arena_bytes() + pixels * pixels * 4 + 63) / 64 * 64);
  }
  program::v1::Program* program = executable.add_programs();
  program->set_name("kernel");
  program->add_functions(0);
  program::v1::Instruction* step = ipu->add_functions()->add_instructions();
  step->add_inputs(0);
  step->add_outputs(1);
  auto* window = step->mutable_average_pool()->mutable_window();
  for (int i = 0; i < 2; ++i) {
    window->add_kernel(static_cast<uint32_t>(side));
    window->add_stride(1);
    window->add_dilation(1);
    window->add_pad_before(0);
    window->add_pad_after(0);
  }
  return program::Serialize(executable);
}

// Occupies all compute threads: a run that has begun cannot end meanwhile.
class HeldThreads {
 public:
  explicit HeldThreads(engine::Executors& executors) {
    const std::shared_future<void> gone = let_go_.get_future().share();
    begun_.resize(static_cast<size_t>(executors.compute_threads()));
    for (std::promise<void>& each : begun_) {
      executors.PostCompute([&each, gone] {
        each.set_value();
        gone.wait();
      });
    }
    for (std::promise<void>& each : begun_) each.get_future().wait();
  }
  void LetGo() { let_go_.set_value(); }

 private:
  std::promise<void> let_go_;
  std::vector<std::promise<void>> begun_;
};

// A variable "v" and a stream of so many bytes.
std::string LargeExecutable(uint64_t bytes) {
  program::v1::Executable executable;
  executable.set_ipus_per_replica(1);
  program::v1::Ipu* ipu = executable.add_ipus();
  ipu->set_arena_bytes((bytes + 63) / 64 * 64);
  program::v1::Tensor* tensor = ipu->add_tensors();
  tensor->set_type(FLOAT32);
  tensor->add_dims(static_cast<int64_t>(bytes) / 4);
  executable.add_variables()->set_name("v");
  program::v1::Stream* stream = executable.add_streams();
  stream->set_name("s");
  stream->set_type(FLOAT32);
  stream->add_dims(static_cast<int64_t>(bytes) / 4);
  stream->set_transfers_per_run(1);
  program::v1::Program* program = executable.add_programs();
  program->set_name("rest");
  program->add_functions(0);
  executable.mutable_ipus(0)->add_functions();
  return program::Serialize(executable);
}

vipuagent::Slice WholeMachine(const std::string& host) {
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

TEST_F(AgentTest, NoIpuIsHeldTwice) {
  const std::string lease = MustAttach(Open(24));  // IPUs 0-3
  for (uint32_t device : {0u, 3u, 16u, 24u, 28u, 30u}) {
    EXPECT_EQ(Attach(Open(device)).status().message(),
              absl::StrCat("device ", device, " is in use by process 4711 (train) on host"));
  }
  EXPECT_EQ(Attached(), 4);
  MustAttach(Open(25));
  agent_->Release(lease, false);
  MustAttach(Open(0));
}

TEST_F(AgentTest, RefusesStaleGenerationsUnknownPartitionsAndDevices) {
  ipuof::v1::AttachOpen open = Open(0);
  open.set_generation(7);
  EXPECT_EQ(Attach(open).status().code(), absl::StatusCode::kFailedPrecondition);
  open = Open(31);
  EXPECT_EQ(Attach(open).status().code(), absl::StatusCode::kOutOfRange);
  open = Open(0);
  open.set_gcd_id(1);
  EXPECT_EQ(Attach(open).status().message(), "Partition has 1 GCDs; GCD 1 does not exist.");
  open.set_partition_id("q");
  EXPECT_EQ(Attach(open).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Attach(Open(0, 0, 1, 2)).status().message(),
            "device 0 has 1 IPUs; 2 replicas of 1 IPUs were asked for");
}

TEST_F(AgentTest, ReservationKeepsOthersOutAndLetsItsJobIn) {
  ipuof::v1::AttachOpen parent = Open(30);
  parent.set_reserve_only(true);
  parent.mutable_job()->set_job_id("job");
  const std::string reservation = MustAttach(parent);
  EXPECT_EQ(Attached(), 0);  // monitors show programs, not reservations
  EXPECT_EQ(Attach(Open(0)).status().code(), absl::StatusCode::kResourceExhausted);
  ipuof::v1::AttachOpen child = Open(24, 0, 4, 4);
  child.mutable_job()->set_job_id("job#0");
  MustAttach(child);
  EXPECT_EQ(Attached(), 4);
  EXPECT_EQ(agent_->Load(reservation, SumExecutable()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  agent_->Release(reservation, false);
  MustAttach(Open(8));
}

TEST_F(AgentTest, AJobOfPoprunHasIpusOnlyWhileItsReservationLives) {
  ipuof::v1::AttachOpen child = Open(24, 0, 4, 4);
  child.mutable_job()->set_reserved(true);
  child.mutable_job()->set_job_id("job#0");
  const absl::Status refused = Attach(child).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(refused.message(), "poprun that started this job has ended"))
      << refused;
  ipuof::v1::AttachOpen parent = Open(30);
  parent.set_reserve_only(true);
  parent.mutable_job()->set_job_id("job");
  const std::string reservation = MustAttach(parent);
  Awaited<int> revoked;
  LeaseEvents events;
  events.on_revoked = [&](const absl::Status& cause) { revoked.Callback()(cause); };
  MustAttach(child, events);
  EXPECT_EQ(Attached(), 4);
  agent_->Release(reservation, true);
  EXPECT_TRUE(absl::StrContains(revoked.Get().status().message(), "poprun")) << "not revoked";
  EXPECT_EQ(Attached(), 0);
  EXPECT_EQ(Attach(child).status().code(), absl::StatusCode::kFailedPrecondition);
  MustAttach(Open(30));
}

TEST_F(AgentTest, AReservationIsOverWhenItsProcessIsNotWhenThatIsHeard) {
  ipuof::v1::AttachOpen parent = Open(30);
  parent.set_reserve_only(true);
  parent.mutable_job()->set_job_id("job");
  const std::string reservation = MustAttach(parent);
  const pid_t pid = fork();
  if (pid == 0) {
    while (true) pause();
  }
  base::UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  const base::UniqueFd watched(dup(pidfd.get()));
  base::UniqueFd kept;  // as the local listener does
  agent_->watch_process = [&](base::UniqueFd fd, std::string) { kept = std::move(fd); };
  ASSERT_TRUE(agent_->BindProcess(reservation, pid, std::move(pidfd)).ok());
  ipuof::v1::AttachOpen first = Open(24, 0, 4, 4), second = Open(25, 1, 4, 4);
  for (auto* child : {&first, &second}) {
    child->mutable_job()->set_reserved(true);
    child->mutable_job()->set_job_id("job#0");
  }
  MustAttach(first);
  kill(pid, SIGKILL);
  pollfd ended{watched.get(), POLLIN, 0};
  ASSERT_EQ(poll(&ended, 1, -1), 1);
  EXPECT_EQ(Attach(second).status().code(), absl::StatusCode::kFailedPrecondition);
  // Others are not refused because of what it leaves: they wait for it.
  Awaited<ipuof::v1::Attached> next;
  agent_->Attach(Open(30), {}, next.Callback());
  EXPECT_FALSE(next.Done());
  agent_->Release(reservation, true);
  EXPECT_TRUE(next.Get().ok()) << next.Get().status();
  waitpid(pid, nullptr, 0);
}

TEST_F(AgentTest, OthersWaitForALeaseThatIsNotBoundYet) {
  ipuof::v1::AttachOpen open = Open(30);
  open.set_will_bind(true);
  const std::string died = MustAttach(open);
  Awaited<ipuof::v1::Attached> next, third;
  agent_->Attach(open, {}, next.Callback());
  EXPECT_FALSE(next.Done());
  agent_->Release(died, true);
  ASSERT_TRUE(next.Get().ok()) << next.Get().status();
  agent_->Attach(Open(0), {}, third.Callback());
  EXPECT_FALSE(third.Done());
  ASSERT_TRUE(agent_->BindProcess(next.Get()->lease_id(), getpid(), base::UniqueFd()).ok());
  EXPECT_EQ(third.Get().status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(AgentTest, NobodyWaitsForEverForALeaseThatIsNeverBound) {
  AgentOptions options;
  options.num_machines = 4;
  options.bind_patience = std::chrono::milliseconds(100);
  agent_ = *Agent::Create(options);
  Configure(1);
  ipuof::v1::AttachOpen open = Open(30);
  open.set_will_bind(true);
  MustAttach(open);
  EXPECT_EQ(Attach(Open(0)).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(AgentTest, ReserverHearsThatAnInstanceIsStopped) {
  AgentOptions options;
  options.num_machines = 4;
  options.wait_patience = std::chrono::milliseconds(100);
  agent_ = *Agent::Create(options);
  agent_->watch_process = [](base::UniqueFd, std::string) {};
  Configure(1);
  base::Mutex mutex;
  std::condition_variable changed;
  std::vector<ipuof::v1::InstanceStopped> heard;
  LeaseEvents events;
  events.on_event = [&](const ipuof::v1::AttachEvent& event) {
    base::MutexLock lock(mutex);
    if (event.has_instance_stopped()) heard.push_back(event.instance_stopped());
    changed.notify_all();
  };
  ipuof::v1::AttachOpen parent = Open(30);
  parent.set_reserve_only(true);
  parent.mutable_job()->set_job_id("job");
  Awaited<ipuof::v1::Attached> reserved;
  agent_->Attach(parent, events, reserved.Callback());
  ASSERT_TRUE(reserved.Get().ok());
  const pid_t pid = fork();
  if (pid == 0) {
    while (true) pause();
  }
  ipuof::v1::AttachOpen child = Open(25, 1, 4, 4);
  child.mutable_job()->set_job_id("job#0");
  ASSERT_TRUE(agent_->BindProcess(MustAttach(child), pid, base::UniqueFd()).ok());
  const auto await = [&](size_t number) {
    base::MutexLock lock(mutex);
    lock.Wait(changed, [&] { return heard.size() >= number; });
    EXPECT_EQ(heard.back().instance_index(), 1);
    return heard.back().goes_on();
  };
  kill(pid, SIGSTOP);
  EXPECT_FALSE(await(1));
  kill(pid, SIGCONT);
  EXPECT_TRUE(await(2));
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  agent_->Stop();
}

TEST_F(AgentTest, InstancesReduceTogether) {
  std::vector<std::string> leases;
  for (uint32_t i = 0; i < 4; ++i) {
    leases.push_back(MustAttach(Open(24 + i, i, 4, 4)));
    ASSERT_TRUE(agent_->Load(leases[i], SumExecutable()).ok());
    const float values[4] = {1.0f * static_cast<float>(i), 2, 3, 4};
    ASSERT_TRUE(agent_
                    ->WriteVariable(
                        leases[i], "v", true, 0, 0,
                        absl::string_view(reinterpret_cast<const char*>(values), sizeof(values)))
                    .ok());
  }
  std::vector<std::unique_ptr<Awaited<base::Cycles>>> runs;
  for (const std::string& lease : leases) {
    runs.push_back(std::make_unique<Awaited<base::Cycles>>());
    agent_->Run(lease, 0, 0, runs.back()->Callback());
  }
  for (auto& run : runs) EXPECT_TRUE(run->Get().ok());
  for (const std::string& lease : leases) {
    const std::string bytes = *agent_->ReadVariable(lease, "v", 3);
    float first;
    memcpy(&first, bytes.data(), sizeof(first));
    EXPECT_EQ(first, 24.0f);  // four replicas each of 0, 1, 2, 3
  }
}

TEST_F(AgentTest, LostInstanceFailsTheOthersAndFreesEverything) {
  std::vector<std::string> leases, told;
  base::Mutex mutex;
  for (uint32_t i = 0; i < 4; ++i) {
    LeaseEvents events;
    events.on_event = [&](const ipuof::v1::AttachEvent& event) {
      base::MutexLock lock(mutex);
      if (event.has_job_failed()) told.push_back(event.job_failed().cause());
    };
    leases.push_back(MustAttach(Open(24 + i, i, 4, 4), events));
    ASSERT_TRUE(agent_->Load(leases[i], SumExecutable()).ok());
  }
  Awaited<base::Cycles> first, second;
  agent_->Run(leases[0], 0, 0, first.Callback());
  agent_->Run(leases[1], 0, 0, second.Callback());
  agent_->Release(leases[2], /*lost=*/true);
  EXPECT_EQ(first.Get().status().message(), "instance 2 (pid 4713 on host) was lost");
  EXPECT_EQ(second.Get().status().message(), "instance 2 (pid 4713 on host) was lost");
  EXPECT_EQ(Run(leases[3], 0).message(), "instance 2 (pid 4713 on host) was lost");
  for (uint32_t i : {0, 1, 3}) agent_->Release(leases[i], false);
  EXPECT_EQ(Attached(), 0);
  base::MutexLock lock(mutex);
  EXPECT_EQ(told.size(), 3u);
}

TEST_F(AgentTest, ReleasedDuringARunIsFreeWhenTheKernelHasEnded) {
  const std::string lease = MustAttach(Open(0));
  ASSERT_TRUE(agent_->Load(lease, SumExecutable()).ok());
  Awaited<base::Cycles> run;
  agent_->Run(lease, 2, 0, run.Callback());
  HeldThreads threads(agent_->executors());
  agent_->Release(lease, true);
  // A client that went away while it waited does not get it.
  Awaited<ipuof::v1::Attached> gone;
  agent_->GiveUp(agent_->Attach(Open(0), {}, gone.Callback()));
  threads.LetGo();
  // Waits for the release instead of being refused.
  MustAttach(Open(0));
  EXPECT_EQ(run.Get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(gone.Done());
}

// A client that ends when it hears of the removal is not the reason of its own end.
TEST_F(AgentTest, TheReasonOfAnEndIsTheFirst) {
  Awaited<base::Cycles> run;
  std::string lease;
  LeaseEvents events;
  events.on_revoked = [&](const absl::Status&) { agent_->Release(lease, /*lost=*/true); };
  lease = MustAttach(Open(0), events);
  ASSERT_TRUE(agent_->Load(lease, SumExecutable()).ok());
  agent_->Run(lease, 2, 0, run.Callback());
  Configure(2, /*present=*/false);
  EXPECT_EQ(run.Get().status().ToString(), "ABORTED: partition p was removed");
}

// What a kernel that does not end does to others is said to all of them.
TEST_F(AgentTest, AKernelThatOutlivesItsOwnerIsNamed) {
  constexpr char kWhy[] = "a kernel of process 4711 (train) on node7, which left ";
  AgentOptions options;
  options.num_machines = 4;
  options.compute_threads = 2;
  options.attach_patience = std::chrono::milliseconds(500);
  options.reset_patience = std::chrono::milliseconds(200);
  agent_ = *Agent::Create(options);
  agent_->watch_process = [](base::UniqueFd, std::string) {};
  Configure(1);
  ipuof::v1::AttachOpen open = Open(0);
  open.mutable_process()->set_pid(4711);
  open.mutable_process()->set_executable("train");
  open.mutable_process()->set_host("node7");
  const std::string lease = MustAttach(open);
  ASSERT_TRUE(agent_->Load(lease, KernelExecutable(1000)).ok());
  Awaited<base::Cycles> run;
  agent_->Run(lease, 0, 0, run.Callback());
  HeldThreads threads(agent_->executors());
  agent_->Release(lease, true);
  EXPECT_EQ(Attached(), 0);
  const auto telemetry = agent_->GetTelemetry("p");
  ASSERT_TRUE(telemetry.ok()) << telemetry.status();
  EXPECT_TRUE(absl::StartsWith(telemetry->ipus(0).releasing(), kWhy))
      << telemetry->ipus(0).releasing();
  EXPECT_EQ(telemetry->ipus(0).process().pid(), 4711u);
  EXPECT_EQ(telemetry->ipus(1).releasing(), "");
  ASSERT_EQ(agent_->Releasing().size(), 1u);
  EXPECT_EQ(agent_->Releasing()[0].host(), "127.10.0.1");
  EXPECT_EQ(agent_->Releasing()[0].pcie_id(), 3u);
  const absl::Status reset = agent_->ResetMachine("127.10.0.1");
  EXPECT_EQ(reset.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(reset.message(), absl::StrCat("IPU 3 is RELEASING: ", kWhy)));
  // Others wait for a while.
  const auto refused = Attach(Open(0));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted) << refused.status();
  EXPECT_TRUE(
      absl::StrContains(refused.status().message(), absl::StrCat("device 0 is RELEASING: ", kWhy)))
      << refused.status();
  // Longer than they would: at once.
  EXPECT_FALSE(Attach(Open(0)).ok());
  MustAttach(Open(1));
  threads.LetGo();
  run.Get().status().IgnoreError();
  while (!agent_->Releasing().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  MustAttach(Open(0));
}

TEST_F(AgentTest, ALeaseLoadsOneExecutableAtATime) {
  const std::string lease = MustAttach(Open(0));
  auto first = agent_->BeginLoad(lease, 1);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(agent_->BeginLoad(lease, 1).status().message(),
            "another executable is being loaded on this lease");
  first->reset();
  EXPECT_TRUE(agent_->BeginLoad(lease, 1).ok());
}

TEST_F(AgentTest, RemovedAndResetPartitionsEndTheirLeases) {
  for (const bool present : {true, false}) {
    Configure(1);
    Awaited<int> revoked;
    LeaseEvents events;
    events.on_revoked = [&](const absl::Status& cause) { revoked.Callback()(cause); };
    const std::string lease = MustAttach(Open(0), events);
    Configure(2, present);
    EXPECT_EQ(revoked.Get().status().message(),
              present ? "partition p was reset or changed" : "partition p was removed");
    EXPECT_EQ(agent_->Load(lease, SumExecutable()).status().code(), absl::StatusCode::kNotFound);
  }
}

// The controller has lost its store: jobs go on, and nobody else gets their IPUs.
TEST_F(AgentTest, JobsOfPartitionsThatTheControllerDoesNotKnowGoOn) {
  const std::string lease = MustAttach(Open(0));
  ASSERT_TRUE(agent_->Load(lease, SumExecutable()).ok());
  ASSERT_TRUE(agent_->Configure(FromAnotherController(/*with_q=*/true)).ok());
  EXPECT_TRUE(Run(lease, 0).ok());
  const auto unwell = agent_->Unwell();
  ASSERT_EQ(unwell.size(), 1u);
  EXPECT_EQ(unwell[0].host(), "127.10.0.1");
  ASSERT_EQ(unwell[0].unclaimed_size(), 1);
  EXPECT_EQ(unwell[0].unclaimed(0).partition_id(), "p");
  EXPECT_EQ(unwell[0].unclaimed(0).config_generation(), 1u);
  EXPECT_EQ(unwell[0].unclaimed(0).holder(), "pid 4711 on host (train of )");
  EXPECT_EQ(unwell[0].failed_ipus_size(), 0);
  ipuof::v1::AttachOpen open = Open(0);
  open.set_partition_id("q");
  open.set_generation(100);
  Awaited<ipuof::v1::Attached> other;
  agent_->Attach(open, {}, other.Callback());
  EXPECT_EQ(other.Get().status().code(), absl::StatusCode::kResourceExhausted);
  agent_->Release(lease, false);
  EXPECT_TRUE(agent_->Unwell().empty());
  Awaited<ipuof::v1::Attached> now;
  agent_->Attach(open, {}, now.Callback());
  EXPECT_TRUE(now.Get().ok()) << now.Get().status();
}

TEST_F(AgentTest, UnclaimedIpusBecomeFreeWithARemovalAResetOrTheirPartition) {
  vipuagent::ResetMachineReply reply;
  for (const char* how : {"removed", "machine", "known again"}) {
    Configure(1);
    const std::string lease = MustAttach(Open(0));
    ASSERT_TRUE(agent_->Configure(FromAnotherController()).ok());
    ASSERT_EQ(agent_->Unwell().size(), 1u);
    if (how[0] == 'r') {
      Configure(1, /*present=*/false);
    } else if (how[0] == 'm') {
      ASSERT_TRUE(agent_->ResetMachine("127.10.0.1").ok());
    } else {
      Configure(1);
    }
    EXPECT_TRUE(agent_->Unwell().empty()) << how;
    EXPECT_EQ(agent_->HasLease(lease), how[0] == 'k') << how;
    agent_->Release(lease, false);
  }
}

// Another process has taken its machines over.
TEST_F(AgentTest, AnAgentWithoutItsMachinesEndsNoJob) {
  const std::string lease = MustAttach(Open(0));
  ASSERT_TRUE(agent_->Load(lease, SumExecutable()).ok());
  agent_->Disown();
  EXPECT_TRUE(Run(lease, 0).ok());
  const auto unwell = agent_->Unwell();
  ASSERT_EQ(unwell.size(), 1u);
  EXPECT_EQ(unwell[0].unclaimed_size(), 1);
  EXPECT_EQ(Attach(Open(1)).status().code(), absl::StatusCode::kNotFound);
  // They are its own again.
  Configure(1);
  EXPECT_TRUE(agent_->Unwell().empty());
  EXPECT_TRUE(Run(lease, 0).ok());
}

// A store of yesterday has the partition as it was before a reset.
TEST_F(AgentTest, AnOlderGenerationEndsNoJob) {
  Configure(5);
  ipuof::v1::AttachOpen open = Open(0);
  open.set_generation(5);
  const std::string lease = MustAttach(open);
  Configure(3);
  EXPECT_TRUE(agent_->HasLease(lease));
  EXPECT_EQ(agent_->Unwell().size(), 1u);
  Configure(3, /*present=*/false);
  EXPECT_TRUE(agent_->HasLease(lease)) << "that is another one's removal";
  Configure(6);
  EXPECT_FALSE(agent_->HasLease(lease)) << "a reset";
}

TEST_F(AgentTest, AControllerOfALowerEpochIsRefused) {
  vipuagent::ConfigureRequest request = FromAnotherController();
  request.set_controller_epoch(7);
  request.set_controller_store("store");
  ASSERT_TRUE(agent_->Configure(request).ok());
  request.set_controller_boot_id("a copy of its store");
  EXPECT_EQ(agent_->Configure(request).code(), absl::StatusCode::kAlreadyExists);
  request.set_controller_epoch(6);
  EXPECT_EQ(agent_->Configure(request).message(),
            "a controller of epoch 7 has configured the agent at ; this one has epoch 6");
  request.set_controller_epoch(8);
  EXPECT_TRUE(agent_->Configure(request).ok());
  vipuagent::RegisterRequest state;
  agent_->DescribeState(state);
  EXPECT_EQ(state.controller_epoch(), 8u);
  EXPECT_EQ(state.controller_boot_id(), "a copy of its store");
  EXPECT_EQ(state.controller_store(), "store");
  // Epochs of different stores say nothing about each other.
  request.set_controller_boot_id("that of a new store");
  request.set_controller_store("new");
  request.set_controller_epoch(1);
  EXPECT_TRUE(agent_->Configure(request).ok());
}

TEST_F(AgentTest, APartitionIsTidiedUpWhenItsLastClientHasGone) {
  using Detached = std::vector<std::pair<std::string, uint64_t>>;
  Configure(2, true, 1);  // clients hold configurations of generation 1
  const std::string first = MustAttach(Open(0)), second = MustAttach(Open(1));
  agent_->Release(first, false);
  EXPECT_EQ(agent_->Detached(), Detached());
  agent_->Release(second, false);
  EXPECT_EQ(agent_->Detached(), (Detached{{"p", 2}}));
  EXPECT_EQ(agent_->Detached(), (Detached{{"p", 2}}));  // until something is done about it
  vipuagent::InjectRequest fault;
  fault.set_host("127.10.0.1");
  fault.set_fault(vipuagent::IPU_ERROR);
  fault.set_error("IPUSOFTERR");
  ASSERT_TRUE(agent_->Inject(fault).ok());
  // A client that came before the reset keeps its lease, and the IPUs are left alone.
  const std::string early = MustAttach(Open(8));
  EXPECT_EQ(agent_->Detached(), Detached());
  Configure(3, true, 1);
  EXPECT_EQ(agent_->Unwell().size(), 1u);
  agent_->Release(early, false);
  EXPECT_EQ(agent_->Detached(), (Detached{{"p", 3}}));
  Configure(4, true, 1);
  EXPECT_TRUE(agent_->Unwell().empty());
  EXPECT_EQ(agent_->Detached(), Detached());
}

TEST_F(AgentTest, SameGenerationLeavesLeasesAlone) {
  const std::string lease = MustAttach(Open(0));
  Configure(1);
  EXPECT_TRUE(agent_->Load(lease, SumExecutable()).ok());
}

TEST_F(AgentTest, HostMemoryRunsOutForTheJobOnly) {
  AgentOptions options;
  options.memory_limit_bytes = (1 << 20) + (64 << 10);  // one executable, not two
  options.compute_threads = 1;
  agent_ = *Agent::Create(options);
  agent_->watch_process = [](base::UniqueFd, std::string) {};
  vipuagent::ConfigureRequest request;
  vipuagent::AgentPartition* partition = request.add_partitions();
  partition->set_id("p");
  partition->set_generation(1);
  partition->set_fabric_key(kKey);
  *partition->add_gcds()->add_slices() = WholeMachine("127.10.0.1");
  request.set_complete(true);
  ASSERT_TRUE(agent_->Configure(request).ok());
  const std::string lease = MustAttach(Open(0));
  EXPECT_TRUE(agent_->Load(lease, SumExecutable()).ok());
  const absl::Status again = agent_->Load(lease, SumExecutable()).status();
  EXPECT_EQ(again.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(again.message()).find("--memory-limit"), std::string::npos);
}

TEST_F(AgentTest, ExecutablesOnTheirWayCountAsHostMemory) {
  const std::string first = MustAttach(Open(0)), second = MustAttach(Open(1));
  {
    const auto reserved = agent_->BeginLoad(first, 40 << 20);
    EXPECT_TRUE(reserved.ok()) << reserved.status();
    EXPECT_TRUE(absl::IsResourceExhausted(agent_->BeginLoad(second, 40 << 20).status()));
  }
  EXPECT_TRUE(agent_->BeginLoad(second, 40 << 20).ok());
  EXPECT_TRUE(absl::IsNotFound(agent_->BeginLoad("nobody", 1).status()));
}

TEST_F(AgentTest, ReadersGetPortions) {
  constexpr uint64_t kPortion = Agent::kReadPortion, kRest = 12;
  const std::string lease = MustAttach(Open(0));
  ASSERT_TRUE(agent_->Load(lease, LargeExecutable(kPortion + kRest)).ok());
  std::string value(kPortion + kRest, 'a');
  value.replace(kPortion, kRest, kRest, 'b');
  ASSERT_TRUE(agent_->WriteVariable(lease, "v", true, 0, 0, value).ok());
  EXPECT_EQ(*agent_->ReadVariable(lease, "v", 0), value.substr(0, kPortion));
  EXPECT_EQ(*agent_->ReadVariable(lease, "v", 0, kPortion), value.substr(kPortion));
  EXPECT_EQ(*agent_->ReadVariable(lease, "v", 0, kPortion + kRest), "");
  EXPECT_EQ(agent_->ReadVariable(lease, "v", 0, kPortion + kRest + 1).status().code(),
            absl::StatusCode::kOutOfRange);
  ASSERT_TRUE(agent_->WriteStream(lease, 1, 0, value).ok());
  EXPECT_EQ(*agent_->ReadStream(lease, 1, 0, kPortion + kRest), value.substr(0, kPortion));
  EXPECT_EQ(*agent_->ReadStream(lease, 1, kPortion, kRest), value.substr(kPortion));
  EXPECT_FALSE(agent_->ReadStream(lease, 1, 0, UINT64_MAX).ok());
}

TEST_F(AgentTest, CallsWithoutALeaseAreRefused) {
  EXPECT_EQ(Run("nobody", 0).code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(agent_->Load("nobody", "x").ok());
  EXPECT_FALSE(agent_->ReadStream("nobody", 0, 0, 1).ok());
  const std::string lease = MustAttach(Open(0));
  EXPECT_EQ(Run(lease, 0).message(), "no executable is loaded");
  EXPECT_EQ(agent_->Load(lease, "garbage").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(agent_->Load(lease, SumExecutable(), "\x0a\xff").status().message(),
            "the table of origins is truncated or corrupt");
  ASSERT_TRUE(agent_->Load(lease, SumExecutable()).ok());
  EXPECT_EQ(Run(lease, 9).message(), "program 9 does not exist; there are 3");
  EXPECT_EQ(agent_->WriteStream(lease, 0, 0, "x").code(), absl::StatusCode::kOutOfRange);
  EXPECT_FALSE(agent_->ReadVariable(lease, "w", 0).ok());
  EXPECT_EQ(agent_->WriteVariable(lease, "v", false, 0, 12, "12345").code(),
            absl::StatusCode::kOutOfRange);
}

TEST_F(AgentTest, ResetNeedsAFreeDevice) {
  const std::string lease = MustAttach(Open(0));
  EXPECT_EQ(agent_->ResetDevice("p", kKey, 0, 30, false).message(),
            "device 30 is in use by process 4711 on host");
  EXPECT_TRUE(agent_->ResetDevice("p", kKey, 0, 25, false).ok());
  agent_->Release(lease, false);
  EXPECT_TRUE(agent_->ResetDevice("p", kKey, 0, 30, false).ok());
}

TEST_F(AgentTest, ConfigurationNamingForeignMachinesIsRefusedAndChangesNothing) {
  vipuagent::ConfigureRequest request;
  request.set_controller_boot_id("boot");
  request.set_sequence(++sequence_);
  vipuagent::AgentPartition* partition = request.add_partitions();
  partition->set_id("q");
  *partition->add_gcds()->add_slices() = WholeMachine("10.0.0.1");
  EXPECT_EQ(agent_->Configure(request).code(), absl::StatusCode::kInvalidArgument);
  MustAttach(Open(0));
  request.clear_partitions();
  request.set_sequence(0);
  EXPECT_EQ(agent_->Configure(request).code(), absl::StatusCode::kAborted);
}

TEST_F(AgentTest, AConfigurationForAnotherProcessIsRefused) {
  const std::string lease = MustAttach(Open(0));
  vipuagent::ConfigureRequest request;
  request.set_controller_boot_id("another");
  request.set_complete(true);
  request.set_agent_boot_id("former");
  EXPECT_TRUE(absl::IsFailedPrecondition(agent_->Configure(request)));
  EXPECT_EQ(Attached(), 1);
  request.set_agent_boot_id(agent_->boot_id());
  EXPECT_TRUE(agent_->Configure(request).ok());
}

TEST_F(AgentTest, CompleteConfigurationKeepsWhatItLeavesToALaterOne) {
  const std::string lease = MustAttach(Open(0));
  vipuagent::ConfigureRequest request;
  request.set_controller_boot_id("another");
  request.set_complete(true);
  vipuagent::KeptPartition* kept = request.add_kept();
  kept->set_id("p");
  kept->set_config_generation(1);
  ASSERT_TRUE(agent_->Configure(request).ok());
  EXPECT_EQ(Attached(), 1);
  kept->set_config_generation(2);  // the agent has another
  ASSERT_TRUE(agent_->Configure(request).ok());
  EXPECT_TRUE(absl::IsNotFound(Attach(Open(0)).status()));
}

TEST_F(AgentTest, AnIpuIsInOnePartitionOnly) {
  vipuagent::ConfigureRequest request;
  request.set_complete(true);
  for (const char* id : {"q", "r"}) {
    vipuagent::AgentPartition* partition = request.add_partitions();
    partition->set_id(id);
    *partition->add_gcds()->add_slices() = WholeMachine("127.10.0.1");
  }
  EXPECT_EQ(agent_->Configure(request).message(),
            "partition r: IPU 3 of machine 127.10.0.1 is in two partitions");
}

TEST_F(AgentTest, NewPartitionWaitsForKernelsOfTheOldOne) {
  const std::string lease = MustAttach(Open(0));
  ASSERT_TRUE(agent_->Load(lease, SumExecutable()).ok());
  Awaited<base::Cycles> run;
  agent_->Run(lease, 2, 0, run.Callback());
  Configure(2);  // revokes the lease while its run is active
  ipuof::v1::AttachOpen open = Open(0);
  open.set_generation(2);
  MustAttach(open);
  EXPECT_FALSE(run.Get().ok());
  EXPECT_EQ(Attached(), 1);
}

TEST_F(AgentTest, TheLocalListenerWaitsForNoDescriptorForEver) {
  const auto listener = LocalListener::Open(*agent_);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto attached = Attach(Open(0));
  ASSERT_TRUE(attached.ok()) << attached.status();
  const base::UniqueFd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& name = attached->local_socket();
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const timeval patience{60, 0};
  setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  const std::string request = "U" + attached->lease_id();
  ASSERT_EQ(send(client.get(), request.data(), request.size(), 0), ssize_t(request.size()));
  char answer;
  EXPECT_EQ(recv(client.get(), &answer, 1, 0), 0) << "the listener is still open";
  agent_->Release(attached->lease_id(), false);
}

TEST_F(AgentTest, AbsurdJobsAreRefused) {
  ipuof::v1::AttachOpen open = Open(0);
  open.mutable_job()->set_num_instances(4294967295u);
  EXPECT_EQ(Attach(open).status().message(),
            "instance 0 says 4294967295 instances and 1 replicas; a job has 1 to 65536 replicas "
            "and no more "
            "instances than replicas");
  EXPECT_EQ(Attached(), 0);
}

// Stands for the processes of other machines; nobody calls it at a job's coordinator.
class NoPeers : public PeerGateway {
 public:
  std::shared_ptr<CoordinatorStream> JoinJob(const std::string&, CoordinatorStreamEvents) override {
    return nullptr;
  }
};

// A new key with the configuration's old generation: leases go on, and the old key opens nothing.
TEST_F(AgentTest, ANewKeyEndsNoLease) {
  Configure(1, true, 1);
  const std::string held = MustAttach(Open(0));
  Configure(2, true, 1, "6b2f");
  EXPECT_TRUE(agent_->HasLease(held));
  EXPECT_TRUE(
      absl::StartsWith(Attach(Open(1)).status().message(), "wrong fabric key for partition p"));
  ipuof::v1::AttachOpen fresh = Open(1);
  fresh.set_fabric_key("6b2f");
  MustAttach(fresh);
}

// It is not the reset after the last client: errors of idle IPUs stay.
TEST_F(AgentTest, ANewKeyClearsNoErrors) {
  Configure(1, true, 1);
  vipuagent::InjectRequest fault;
  fault.set_host("127.10.0.1");
  fault.set_fault(vipuagent::IPU_ERROR);
  fault.set_pcie_id(3);
  fault.set_error("IPUSOFTERR");
  ASSERT_TRUE(agent_->Inject(fault).ok());
  ASSERT_EQ(agent_->Unwell().size(), 1u);
  Configure(2, true, 1, "6b2f");
  EXPECT_EQ(agent_->Unwell().size(), 1u);
  Configure(3, true, 1, "6b2f");  // as after the last client
  EXPECT_TRUE(agent_->Unwell().empty());
}

// Text that a process declares is kept short and in one line, wherever it is shown.
TEST_F(AgentTest, DeclaredTextIsKeptShortAndInOneLine) {
  ipuof::v1::AttachOpen open = Open(0);
  open.mutable_process()->set_host("a\x1b[2Jb\nc");
  open.mutable_process()->set_user(std::string(1 << 20, 'u'));
  open.mutable_process()->set_executable("\u202Egpj");
  MustAttach(open);
  const auto telemetry = agent_->GetTelemetry("p");
  ASSERT_TRUE(telemetry.ok()) << telemetry.status();
  const ipuof::v1::ProcessInfo& shown = telemetry->ipus(0).process();
  EXPECT_EQ(shown.host(), "a\uFFFD[2Jb\uFFFDc");
  EXPECT_LE(shown.user().size(), 260u);
  EXPECT_EQ(shown.executable(), "\uFFFDgpj");
  EXPECT_EQ(Attach(Open(0)).status().message(),
            "device 0 is in use by process 4711 (\uFFFDgpj) on a\uFFFD[2Jb\uFFFDc");
  // Names that are compared, not shown, are refused when they are long.
  open = Open(1);
  open.mutable_job()->set_job_id(std::string(257, 'j'));
  EXPECT_EQ(Attach(open).status(), absl::InvalidArgumentError("job_id has 257 bytes, at most 256"));
}

// An agent that is the coordinator of partition "p", whose second machine is another process's.
class CoordinatorTest : public AgentTest {
 protected:
  CoordinatorTest() {
    agent_->SetEndpoint("coordinator:1");
    agent_->SetPeers(&peers_, nullptr);
    vipuagent::ConfigureRequest request;
    request.set_complete(true);
    vipuagent::AgentPartition* partition = request.add_partitions();
    partition->set_id("p");
    partition->set_generation(1);
    partition->set_fabric_key(kKey);
    for (const char* endpoint : {"coordinator:1", "away:1"})
      partition->add_peers()->set_endpoint(endpoint);
    vipuagent::Gcd* gcd = partition->add_gcds();
    *gcd->add_slices() = WholeMachine("127.10.0.1");
    *gcd->add_slices() = WholeMachine("10.0.0.1");
    gcd->mutable_slices(1)->set_endpoint("away:1");
    EXPECT_TRUE(agent_->Configure(request).ok());
  }

  NoPeers peers_;
};

// The others would go on in the memory of what was loaded before.
TEST_F(CoordinatorTest, AJobThatSpansProcessesIsLoadedOnce) {
  ipuof::v1::AttachOpen open = Open(14, 0, 1, 8);  // both machines
  open.set_num_parts(2);
  const std::string lease = MustAttach(open);
  EXPECT_FALSE(agent_->Load(lease, "garbage").ok());
  ASSERT_TRUE(agent_->Load(lease, SumExecutable()).ok());
  const absl::Status again = agent_->Load(lease, SumExecutable()).status();
  EXPECT_EQ(again.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(again.message(), "attach again")) << again;
  agent_->Release(lease, false);
  const std::string alone = MustAttach(Open(0));
  for (int load = 0; load < 2; ++load) EXPECT_TRUE(agent_->Load(alone, SumExecutable()).ok());
}

// A refused part leaves no record behind that those who come later would run into.
TEST_F(CoordinatorTest, AJobThatNobodyCouldJoinIsForgotten) {
  fabric::v1::JobJoin join;
  join.set_partition_id("p");
  join.set_generation(1);
  join.set_fabric_key(kKey);
  join.set_endpoint("away:1");
  *join.mutable_member() = Open(14, 0, 1, 8).job();
  join.mutable_member()->set_total_replicas(4);
  join.add_units(4);
  const auto send = [](const fabric::v1::JobEvent&) {};
  EXPECT_EQ(agent_->JoinRemote(join, send).status().message(),
            "instance 0 covers replicas 0 to 7, but the job has 4");
  join.mutable_member()->set_total_replicas(8);
  const auto joined = agent_->JoinRemote(join, send);
  EXPECT_TRUE(joined.ok()) << joined.status();
}

// As by vipu-agent@ADDRESS on hosts of one POD.
TEST(IdentityTest, MachinesOfTwoHostsDiffer) {
  std::set<std::string> serials, domains;
  const std::vector<std::string> hosts = {"10.1.2.1", "10.1.2.2", "10.1.3.1", "rack1-m1"};
  for (const std::string& host : hosts) {
    AgentOptions options;
    options.management_ip = options.data_ip = host;
    const auto agent = *Agent::Create(options);
    const auto described = agent->DescribeMachine(host);
    ASSERT_TRUE(described.ok()) << described.status();
    const auto& attributes = described->ipus(0).attributes();
    EXPECT_EQ(attributes.at("board serial number").size(), 17u);
    serials.insert(attributes.at("board serial number"));
    domains.insert(attributes.at("config domain"));
  }
  EXPECT_EQ(serials.size(), hosts.size());
  EXPECT_EQ(domains.size(), hosts.size());
}

TEST(IdentityTest, NumberInThePodHasTheLastWord) {
  AgentOptions options;
  options.management_ip = "10.1.2.1";
  options.first_machine = 3;
  const auto agent = *Agent::Create(options);
  EXPECT_EQ(agent->DescribeMachine("10.1.2.1")->ipus(0).attributes().at("board serial number"),
            arch::BoardSerial(3, 0));
}

}  // namespace
}  // namespace vpod::agent
