// Leases, reservations and jobs: how IPUs are held, and when they are free.
#include "server/agent/agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/program/executable.h"
#include "server/agent/agent_test_util.h"

namespace vpod::agent {
namespace {

using program::v1::FLOAT32;

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

// As in a container: the id is of no use to others.
TEST_F(AgentTest, IdsOfAnotherPidNamespaceAreMarked) {
  ipuof::v1::AttachOpen open = Open(0);
  open.mutable_process()->set_pid_namespace("pid:[1]");
  const std::string lease = MustAttach(open);
  EXPECT_THAT(std::string(Attach(open).status().message()),
              testing::HasSubstr("in use by process 4711 (train) on host, "));
  open.mutable_process()->set_pid_namespace("pid:[2]");
  EXPECT_THAT(std::string(Attach(open).status().message()),
              testing::HasSubstr("process 4711 of another PID namespace (train) on host, "));
  // The agent's own is another one, too.
  EXPECT_THAT(std::string(agent_->ResetDevice("p", kKey, 0, 0, false).message()),
              testing::HasSubstr("process 4711 of another PID namespace (train) on host, "));
}

TEST_F(AgentTest, NoIpuIsHeldTwice) {
  const std::string lease = MustAttach(Open(24));  // IPUs 0-3
  for (uint32_t device : {0u, 3u, 16u, 24u, 28u, 30u}) {
    const std::string message(Attach(Open(device)).status().message());
    EXPECT_THAT(message,
                testing::StartsWith(absl::StrCat("device ", device,
                                                 " is in use by process 4711 (train) on host, "
                                                 "attached ")));
    EXPECT_THAT(message, testing::HasSubstr("; 12 of 16 IPUs of partition p are free. "));
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
  EXPECT_EQ(Attach(open).status().message(), "Partition has 1 GCD; GCD 1 does not exist.");
  open.set_partition_id("q");
  EXPECT_EQ(Attach(open).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Attach(Open(0, 0, 1, 2)).status().message(),
            "device 0 has 1 IPU; 2 replicas of 1 IPU asked for");
}

TEST_F(AgentTest, ACancelledRunLeavesTheLeaseAndItsVariables) {
  const std::string lease = MustAttach(Open(0));
  ASSERT_TRUE(agent_->Load(lease, SumExecutable()).ok());
  const std::string value(16, '\1');
  ASSERT_TRUE(agent_->WriteVariable(lease, "v", /*all_replicas=*/true, 0, 0, value).ok());
  Awaited<base::Cycles> run;
  agent_->Run(lease, /*program=*/2, 0, run.Callback());
  agent_->CancelRuns(lease);
  EXPECT_EQ(run.Get().status(), absl::CancelledError("the run was cancelled"));
  EXPECT_EQ(Run(lease, 1), absl::CancelledError("the run was cancelled"));
  const auto kept = agent_->ReadVariable(lease, "v", 0, 0);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(*kept, value);
  EXPECT_EQ(Attached(), 1);
  agent_->Release(lease, false);
  agent_->CancelRuns(lease);
  MustAttach(Open(0));
}

TEST_F(AgentTest, ACancelledRunIsNamedToTheOtherInstances) {
  const std::string first = MustAttach(Open(0, 0, 2)), second = MustAttach(Open(1, 1, 2));
  for (const std::string& lease : {first, second})
    ASSERT_TRUE(agent_->Load(lease, SumExecutable()).ok());
  Awaited<base::Cycles> run;
  agent_->Run(second, /*program=*/0, 0, run.Callback());  // waits for the other
  agent_->CancelRuns(first);
  EXPECT_EQ(run.Get().status().message(), "instance 0 (pid 4711 on host) cancelled its run");
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

// The others would wait for it for two minutes.
TEST_F(AgentTest, AnInstanceThatEndsBeforeItAttachesIsNamedToTheOthers) {
  ipuof::v1::AttachOpen parent = Open(30, 0, 2);
  parent.set_reserve_only(true);
  const std::string reservation = MustAttach(parent);
  ipuof::v1::AttachInstanceEnded ended;
  ended.set_instance_index(1);
  ended.mutable_process()->set_pid(4712);
  ended.mutable_process()->set_host("node\n7");
  ipuof::v1::AttachOpen child = Open(24, 0, 2, 4);
  for (const bool ends_first : {false, true}) {
    child.mutable_job()->set_job_id(ends_first ? "job#1" : "job#0");
    const std::string lease = MustAttach(child);
    ASSERT_TRUE(agent_->Load(lease, SumExecutable()).ok());
    Awaited<base::Cycles> run;
    agent_->Run(lease, /*program=*/0, 0, run.Callback());
    agent_->InstanceEnded(lease, ended);  // only the reservation's holder may say so
    if (!ends_first) agent_->InstanceEnded(reservation, ended);
    const absl::Status status = run.Get().status();
    EXPECT_TRUE(absl::StartsWith(status.message(), "instance 1 (pid 4712 on node")) << status;
    EXPECT_TRUE(absl::EndsWith(status.message(), "7) ended before it joined the job")) << status;
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
    agent_->Release(lease, false);
  }
}

// Their names are kept as long as the reservation is, so a client must not make up many.
TEST_F(AgentTest, InstancesThatAPartitionHasNoIpusForAreNotRemembered) {
  constexpr uint32_t kInstances = 17;  // the partition has 16 IPUs
  ipuof::v1::AttachOpen parent = Open(30, 0, kInstances);
  parent.set_reserve_only(true);
  const std::string reservation = MustAttach(parent);
  ipuof::v1::AttachInstanceEnded ended;
  ended.set_instance_index(kInstances - 1);
  agent_->InstanceEnded(reservation, ended);
  ipuof::v1::AttachOpen child = Open(0, 0, kInstances);
  child.mutable_job()->set_join_timeout_seconds(1);
  const std::string lease = MustAttach(child);
  ASSERT_TRUE(agent_->Load(lease, SumExecutable()).ok());
  EXPECT_THAT(std::string(Run(lease, /*program=*/0).message()),
              testing::HasSubstr("did not join within 1 s"));
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

// A client can bind a lease and end it at once: the listener would keep the descriptor for ever.
TEST_F(AgentTest, ALeaseThatEndsWhileItIsBoundIsNotWatched) {
  const std::string lease = MustAttach(Open(0));
  std::set<std::string> watched;  // as the local listener has it
  agent_->watch_process = [&](base::UniqueFd, std::string id) {
    agent_->Release(id, /*lost=*/true);
    watched.insert(id);
  };
  agent_->unwatch_process = [&](const std::string& id) { watched.erase(id); };
  ASSERT_TRUE(agent_->BindProcess(lease, getpid(), base::UniqueFd()).ok());
  EXPECT_FALSE(agent_->HasLease(lease));
  EXPECT_TRUE(watched.empty());
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

// As a session does, for clients that do not ask.
TEST_F(AgentTest, AnExecutableForAnotherNumberOfReplicasIsRefused) {
  program::v1::Executable executable = (*program::Executable::Parse(SumExecutable()))->proto();
  executable.set_total_replicas(4);
  const std::string lease = MustAttach(Open(0)), job = MustAttach(Open(27, 0, 1, 4));
  EXPECT_EQ(agent_->Load(lease, program::Serialize(executable)).status().message(),
            "the executable is for 4 replicas, and the job has 1: compile it with "
            "total_replicas=1");
  EXPECT_TRUE(agent_->Load(lease, SumExecutable()).ok());
  EXPECT_TRUE(agent_->Load(job, program::Serialize(executable)).ok());
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

TEST_F(AgentTest, AnInstanceThatDetachesEarlyIsNamedAtOnce) {
  std::vector<std::string> leases;
  for (uint32_t i = 0; i < 4; ++i) {
    leases.push_back(MustAttach(Open(24 + i, i, 4, 4)));
    ASSERT_TRUE(agent_->Load(leases[i], SumExecutable()).ok());
  }
  Awaited<base::Cycles> completed[4], waiting;
  for (uint32_t i = 0; i < 4; ++i) agent_->Run(leases[i], 0, 0, completed[i].Callback());
  for (Awaited<base::Cycles>& run : completed) EXPECT_TRUE(run.Get().ok());
  agent_->Run(leases[0], 0, 0, waiting.Callback());
  agent_->Release(leases[2], /*lost=*/false);
  // It may have come to the run before or after.
  const char kLeft[] = "instance 2 (pid 4713 on host) left the job";
  EXPECT_TRUE(absl::StartsWith(waiting.Get().status().message(), kLeft)) << waiting.Get().status();
  EXPECT_TRUE(absl::StartsWith(Run(leases[1], 0).message(), kLeft));
  for (uint32_t i : {0, 1, 3}) agent_->Release(leases[i], false);
  EXPECT_EQ(Attached(), 0);
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

// Others are told of a kernel that does not end.
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
  EXPECT_THAT(std::string(agent_->ResetDevice("p", kKey, 0, 30, false).message()),
              testing::StartsWith("device 30 is in use by process 4711 (train) on host, attached"));
  EXPECT_TRUE(agent_->ResetDevice("p", kKey, 0, 25, false).ok());
  agent_->Release(lease, false);
  EXPECT_TRUE(agent_->ResetDevice("p", kKey, 0, 30, false).ok());
}

}  // namespace
}  // namespace vpod::agent
