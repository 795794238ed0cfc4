// The arithmetic of the op set. A kernel is prepared once for an executable and then runs for every
// replica on that replica's arena; it is immutable and may run on several threads at once. Float16
// operands are computed in float32 and rounded once; reductions carry float64; oneDNN always runs
// on one thread, because its bits depend on their number.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/program/executable.h"

namespace vpod::engine {

// Temporary memory of one compute thread; grows to the largest request and is reused.
class Scratch {
 public:
  // The scratch of the calling thread.
  static Scratch& OfThisThread();
  // `bytes` of memory aligned to 64, distinct for each `slot`, valid until the next call with the
  // same slot.
  std::byte* Get(size_t slot, size_t bytes);
  float* Floats(size_t slot, size_t count) {
    return reinterpret_cast<float*>(Get(slot, count * sizeof(float)));
  }

 private:
  std::vector<std::vector<std::byte>> buffers_;
};

// Runs on the arena of one (replica, IPU). Fails only for data that the operation does not take (a
// label out of range).
using Kernel = std::function<absl::Status(std::byte* arena)>;

// Prepares the kernel of a computing instruction of IPU `ipu`. The instruction has passed
// validation; communication steps and repeats are not kernels and give Internal.
absl::StatusOr<Kernel> PrepareKernel(const program::v1::Ipu& ipu,
                                     const program::v1::Instruction& instruction);

// --- By family, called by PrepareKernel ---
Kernel PrepareFill(const program::v1::Ipu& ipu, const program::v1::Fill& op);
Kernel PrepareCopy(const program::v1::Ipu& ipu, const program::v1::Copy& op);
Kernel PrepareCast(const program::v1::Ipu& ipu, const program::v1::Cast& op);
Kernel PrepareUnary(const program::v1::Ipu& ipu, const program::v1::Unary& op);
Kernel PrepareBinary(const program::v1::Ipu& ipu, const program::v1::Binary& op);
Kernel PrepareReduce(const program::v1::Ipu& ipu, const program::v1::Reduce& op);
Kernel PrepareArgMax(const program::v1::Ipu& ipu, const program::v1::ArgMax& op);
absl::StatusOr<Kernel> PrepareMatMul(const program::v1::Ipu& ipu, const program::v1::MatMul& op);
absl::StatusOr<Kernel> PrepareConv2d(const program::v1::Ipu& ipu, const program::v1::Conv2d& op);
Kernel PrepareMaxPool2d(const program::v1::Ipu& ipu, const program::v1::MaxPool2d& op);
Kernel PrepareMaxPool2dGradient(const program::v1::Ipu& ipu,
                                const program::v1::MaxPool2dGradient& op);
Kernel PrepareSoftmaxCrossEntropy(const program::v1::Ipu& ipu,
                                  const program::v1::SoftmaxCrossEntropy& op);
Kernel PrepareSoftmaxCrossEntropyGradient(const program::v1::Ipu& ipu,
                                          const program::v1::SoftmaxCrossEntropyGradient& op);
Kernel PrepareAccumulate(const program::v1::Ipu& ipu, const program::v1::Accumulate& op);
Kernel PrepareSgd(const program::v1::Ipu& ipu, const program::v1::Sgd& op);

}  // namespace vpod::engine
