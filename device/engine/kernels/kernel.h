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

using program::v1::Instruction;

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
// validation; communication and control are not kernels and give Internal.
absl::StatusOr<Kernel> PrepareKernel(const program::v1::Ipu& ipu, const Instruction& instruction);

// A row of the table of kernels; each is in the file of its family.
struct KernelDef {
  program::OpKind kind;
  absl::StatusOr<Kernel> (*prepare)(const program::v1::Ipu& ipu, const Instruction& instruction);
};

// Every op whose role is a kernel (device/program/op.h) has a row. Null for the others.
const KernelDef* FindKernel(program::OpKind kind);

// --- By family, for FindKernel ---
std::vector<KernelDef> Conv2dKernels();
std::vector<KernelDef> DataMovementKernels();
std::vector<KernelDef> ElementwiseKernels();
std::vector<KernelDef> LossKernels();
std::vector<KernelDef> MatMulKernels();
std::vector<KernelDef> OptimizerKernels();
std::vector<KernelDef> PoolKernels();
std::vector<KernelDef> ReduceKernels();

}  // namespace vpod::engine
