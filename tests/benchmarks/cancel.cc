// Measures what a job notices of another one that computes a convolution of 10^13 operations, and
// that dies, on the POD whose environment is set (eval "$(vpod env)"), which needs a partition of
// four IPUs or more: how much longer its runs take, how late the agent's control thread is, which
// runs timers and leases, and when the dead owner's IPU can be had again. `cancel owner` is that
// owner.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/ipuof/lease.h"
#include "client/popdist/job.h"
#include "client/vipu/ipuof_config.h"
#include "device/program/executable.h"
#include "tests/support/command.h"

namespace vpod {
namespace {

namespace v1 = program::v1;
using Clock = std::chrono::steady_clock;

// Devices of the partition.
constexpr uint32_t kOwner = 0, kOther = 1, kTimer = 2;

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "cancel benchmark: error: %s\n", status.ToString().c_str());
  std::exit(1);
}
template <class T>
T OrDie(absl::StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

double Since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

uint32_t Add(v1::Ipu* ipu, std::vector<int64_t> dims, bool image) {
  v1::Tensor* tensor = ipu->add_tensors();
  tensor->set_type(v1::FLOAT32);
  tensor->mutable_dims()->Add(dims.begin(), dims.end());
  if (image) {
    const program::Dims strides = program::ChannelsLastStrides(dims);
    tensor->mutable_strides()->Add(strides.begin(), strides.end());
  }
  tensor->set_offset(ipu->arena_bytes());
  ipu->set_arena_bytes((ipu->arena_bytes() + program::ArenaBytes(*tensor) + 63) / 64 * 64);
  return static_cast<uint32_t>(ipu->tensors_size() - 1);
}

// A program of one instruction.
std::string Program(v1::Ipu ipu, const v1::Instruction& instruction) {
  v1::Executable executable;
  executable.set_ipus_per_replica(1);
  *ipu.add_functions()->add_instructions() = instruction;
  *executable.add_ipus() = ipu;
  executable.add_programs()->set_name("run");
  executable.mutable_programs(0)->add_functions(0);
  return program::Serialize(executable);
}

// 784 × 784 results of 64 outputs, each the sum of 64 × 63 × 63 products: 10^13 in all.
std::string Convolution() {
  constexpr uint32_t kKernel = 63, kResult = 784, kChannels = 64;
  constexpr int64_t kImage = kResult + kKernel - 1;
  v1::Ipu ipu;
  v1::Instruction step;
  step.add_inputs(Add(&ipu, {1, kChannels, kImage, kImage}, true));
  step.add_inputs(Add(&ipu, {kChannels, kChannels, kKernel, kKernel}, false));
  step.add_outputs(Add(&ipu, {1, kChannels, kResult, kResult}, true));
  v1::Convolution* op = step.mutable_convolution();
  op->set_pass(v1::Convolution::FORWARD);
  op->set_groups(1);
  for (int i = 0; i < 2; ++i) {
    op->mutable_window()->add_kernel(kKernel);
    op->mutable_window()->add_stride(1);
    op->mutable_window()->add_dilation(1);
    op->mutable_window()->add_pad_before(0);
    op->mutable_window()->add_pad_after(0);
  }
  return Program(std::move(ipu), step);
}

// A product of matrices, about a millisecond.
std::string Product() {
  constexpr int64_t kSize = 384;
  v1::Ipu ipu;
  v1::Instruction step;
  for (int i = 0; i < 2; ++i) step.add_inputs(Add(&ipu, {kSize, kSize}, false));
  step.add_outputs(Add(&ipu, {kSize, kSize}, false));
  step.mutable_mat_mul();
  return Program(std::move(ipu), step);
}

absl::StatusOr<std::unique_ptr<ipuof::Lease>> Attach(const vipu::ActivePartition& partition,
                                                     uint32_t device) {
  ipuof::LeaseOptions options;
  options.device_id = device;
  options.job = popdist::ThisJobMember(1, 1);
  auto parts = ipuof::Lease::AttachParts(partition, options);
  if (!parts.ok()) return parts.status();
  return std::move(parts->front());
}

std::unique_ptr<ipuof::Lease> AttachAndLoad(const vipu::ActivePartition& partition, uint32_t device,
                                            const std::string& program) {
  auto lease = OrDie(Attach(partition, device));
  OrDie(lease->Load(program, "", {}));
  return lease;
}

// Runs program `number` to its end, or until it is refused.
absl::Status Run(ipuof::Lease& lease, uint32_t number) {
  return lease.StartRun(number, 0, ipuof::Transport::kSharedMemory)().status();
}

// Never returns: the benchmark kills it.
int BeOwner() {
  const auto partition = OrDie(vipu::FindActivePartition());
  const auto lease = AttachAndLoad(partition, kOwner, Convolution());
  std::printf("loaded\n");
  std::fflush(stdout);
  Check(Run(*lease, 0));
  return 1;
}

// Milliseconds of what is done again and again in the meantime.
struct Times {
  std::vector<double> runs, calls;

  static double Median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }
  static double Longest(const std::vector<double>& values) {
    return *std::max_element(values.begin(), values.end());
  }
};

// The other job's runs, and calls that the control thread answers, every 5 ms.
Times Watch(ipuof::Lease& other, ipuof::Lease& timer, std::chrono::seconds length) {
  constexpr std::chrono::milliseconds kPeriod(5);
  constexpr uint32_t kNoProgram = 1000;
  Times times;
  const Clock::time_point end = Clock::now() + length;
  std::thread calls([&] {
    for (auto next = Clock::now(); next < end; next += kPeriod) {
      std::this_thread::sleep_until(next);
      // From when the timer is due; the refusal comes from the control thread.
      const auto start = next;
      Run(timer, kNoProgram).IgnoreError();
      times.calls.push_back(Since(start));
    }
  });
  while (Clock::now() < end) {
    const auto start = Clock::now();
    Check(Run(other, 0));
    times.runs.push_back(Since(start));
    std::this_thread::sleep_for(kPeriod);
  }
  calls.join();
  return times;
}

int Main(const char* program) {
  constexpr std::chrono::seconds kLength(5);
  const auto partition = OrDie(vipu::FindActivePartition());
  const auto other = AttachAndLoad(partition, kOther, Product()),
             timer = AttachAndLoad(partition, kTimer, Product());
  const Times alone = Watch(*other, *timer, kLength);

  testing::Command owner({program, "owner"}, {});
  if (!owner.WaitForOutput("loaded")) Check(absl::InternalError(owner.Err()));
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const Times beside = Watch(*other, *timer, kLength);

  // The owner dies in the middle; what others notice of that counts as well.
  std::future<Times> dying =
      std::async(std::launch::async, [&] { return Watch(*other, *timer, kLength); });
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const auto killed = Clock::now();
  owner.Signal(SIGKILL);
  absl::StatusOr<std::unique_ptr<ipuof::Lease>> again = Attach(partition, kOwner);
  while (!again.ok() && Since(killed) < 60e3) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    again = Attach(partition, kOwner);
  }
  OrDie(std::move(again));
  std::printf(
      "owner of a convolution of 10^13 operations killed: its IPU attached %.0f ms later, aim 1000 "
      "ms\n",
      Since(killed));
  const Times death = dying.get();
  const double usual = Times::Median(alone.runs), call = Times::Median(alone.calls);
  std::printf(
      "another job's run: alone median %.2f ms, longest %.2f ms; beside the convolution "
      "median %.2f ms; delayed by at most %.2f ms, while the owner dies %.2f ms, aim 50 ms\n",
      usual, Times::Longest(alone.runs), Times::Median(beside.runs),
      Times::Longest(beside.runs) - usual, Times::Longest(death.runs) - usual);
  std::printf(
      "a timer and a call to the agent's control thread: alone median %.2f ms, longest "
      "%.2f ms; beside the convolution median %.2f ms; delayed by at most %.2f ms, while "
      "the owner dies %.2f ms, aim 50 ms\n",
      call, Times::Longest(alone.calls), Times::Median(beside.calls),
      Times::Longest(beside.calls) - call, Times::Longest(death.calls) - call);
  return 0;
}

}  // namespace
}  // namespace vpod

int main(int argc, char** argv) {
  return argc > 1 && std::string(argv[1]) == "owner" ? vpod::BeOwner() : vpod::Main(argv[0]);
}
