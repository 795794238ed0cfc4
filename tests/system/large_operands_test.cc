// Operands of 800 MB of float16, almost all that an IPU holds: kernels convert them in blocks, so
// that the agent's resident memory stays under the POD's limit and 256 MiB for everything else.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "client/ipuof/lease.h"
#include "client/popdist/job.h"
#include "client/vipu/client.h"
#include "client/vipu/ipuof_config.h"
#include "device/program/executable.h"
#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

namespace v1 = program::v1;
using program::Dims;

constexpr long kLimitMib = 1400, kRestMib = 256;

// A program of one instruction.
class OneStep {
 public:
  OneStep() { executable_.set_ipus_per_replica(1); }

  OneStep& In(v1::DataType type, const Dims& dims, bool image = false) {
    step_.add_inputs(Add(type, dims, image));
    return *this;
  }
  OneStep& Out(v1::DataType type, const Dims& dims, bool image = false) {
    step_.add_outputs(Add(type, dims, image));
    return *this;
  }
  v1::Instruction& step() { return step_; }
  std::string Bytes() {
    *ipu_.add_functions()->add_instructions() = step_;
    *executable_.add_ipus() = ipu_;
    executable_.add_programs()->set_name("run");
    executable_.mutable_programs(0)->add_functions(0);
    return program::Serialize(executable_);
  }

 private:
  uint32_t Add(v1::DataType type, const Dims& dims, bool image) {
    v1::Tensor* tensor = ipu_.add_tensors();
    tensor->set_type(type);
    tensor->mutable_dims()->Add(dims.begin(), dims.end());
    const Dims strides = program::ChannelsLastStrides(dims);
    if (image && strides != program::RowMajorStrides(dims))
      tensor->mutable_strides()->Add(strides.begin(), strides.end());
    tensor->set_offset(ipu_.arena_bytes());
    ipu_.set_arena_bytes((ipu_.arena_bytes() + program::ArenaBytes(*tensor) + 63) / 64 * 64);
    return static_cast<uint32_t>(ipu_.tensors_size() - 1);
  }

  v1::Executable executable_;
  v1::Ipu ipu_;
  v1::Instruction step_;
};

constexpr auto kHalf = v1::FLOAT16;

std::vector<std::pair<std::string, OneStep>> Programs() {
  std::vector<std::pair<std::string, OneStep>> programs(5);
  programs[0] = {"mat_mul",
                 OneStep().In(kHalf, {4, 20000}).In(kHalf, {20000, 20000}).Out(kHalf, {4, 20000})};
  programs[0].second.step().mutable_mat_mul();
  programs[1] = {"convolution", OneStep()
                                    .In(kHalf, {1, 4000, 4, 4}, true)
                                    .In(kHalf, {4000, 4000, 5, 5})
                                    .Out(kHalf, {1, 4000, 4, 4}, true)};
  v1::Convolution* convolution = programs[1].second.step().mutable_convolution();
  convolution->set_pass(v1::Convolution::FORWARD);
  convolution->set_groups(1);
  for (int i = 0; i < 2; ++i) {
    v1::SlidingWindow* window = convolution->mutable_window();
    window->add_kernel(5);
    window->add_stride(1);
    window->add_dilation(1);
    window->add_pad_before(2);
    window->add_pad_after(2);
  }
  programs[2] = {"reduce", OneStep().In(kHalf, {400'000'000}).Out(kHalf, {})};
  programs[2].second.step().mutable_reduce()->set_operator_(v1::SUM);
  programs[2].second.step().mutable_reduce()->add_axes(0);
  programs[3] = {"arg_max", OneStep().In(kHalf, {1, 400'000'000}).Out(v1::INT32, {1})};
  programs[3].second.step().mutable_arg_max();
  programs[4] = {"softmax_cross_entropy", OneStep()
                                              .In(kHalf, {1, 200'000'000})
                                              .In(v1::INT32, {1})
                                              .Out(kHalf, {1})
                                              .Out(kHalf, {1, 200'000'000})};
  programs[4].second.step().mutable_softmax_cross_entropy();
  return programs;
}

long PeakMib(int pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  long kib = 0;
  for (std::string word; status >> word;) {
    if (word == "VmHWM:") status >> kib;
  }
  return kib >> 10;
}

// Each has a POD of its own: the peak is its own then, and so is the budget.
TEST(LargeOperandsTest, StayUnderTheMemoryLimit) {
  for (auto& [name, program] : Programs()) {
    SCOPED_TRACE(name);
    TestPod pod(0);
    const Outcome up =
        pod.Run({"vpod", "up", "--pod", "4", "--api-port", std::to_string(pod.port()),
                 "--memory-limit", std::to_string(kLimitMib)});
    ASSERT_EQ(up.code, 0) << up.err;
    pod.CreatePartition("p", 4);
    for (const auto& [variable, value] : pod.environment())
      setenv(variable.c_str(), value.c_str(), 1);
    setenv("IPUOF_VIPU_API_PARTITION_ID", "p", 1);
    const auto partition = vipu::FindActivePartition();
    ASSERT_TRUE(partition.ok()) << partition.status();
    ipuof::LeaseOptions options;
    options.job = popdist::ThisJobMember(1, 1);
    const auto lease = ipuof::Lease::AttachParts(*partition, options);
    ASSERT_TRUE(lease.ok()) << lease.status();
    const auto loaded = lease->front()->Load(program.Bytes(), "", {});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const absl::Status status =
        lease->front()->StartRun(0, 0, ipuof::Transport::kSharedMemory)().status();
    EXPECT_TRUE(status.ok()) << status;
    const long peak = PeakMib(pod.AgentPid());
    std::printf("%s: %ld MiB\n", name.c_str(), peak);
    EXPECT_GT(peak, 700);
    EXPECT_LT(peak, kLimitMib + kRestMib);
  }
}

}  // namespace
}  // namespace vpod::testing
