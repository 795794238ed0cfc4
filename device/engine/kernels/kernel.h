// The arithmetic of the op set. A kernel is prepared once for an executable and then runs for every
// replica on that replica's arena; it is immutable and may run on several threads at once. Float16
// operands are computed in float32 and rounded once; reductions carry float64; oneDNN always runs
// on one thread, because its bits depend on their number.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/program/executable.h"

namespace vpod::engine {

using program::v1::Instruction;

// Where a kernel works. All memory is aligned to 64 bytes.
struct Workspace {
  std::byte* arena = nullptr;    // of one (replica, IPU)
  std::byte* shared = nullptr;   // Kernel::shared_bytes, one for all chunks of a run
  std::byte* packed = nullptr;   // Kernel::packed_bytes, the same
  std::byte* scratch = nullptr;  // Kernel::scratch_bytes, of the thread that runs the chunk
  std::byte* remote = nullptr;   // the remote buffers of the unit, at program::RemoteOffset
  uint32_t replica = 0;          // in the job
};

// To the alignment of a workspace's memory.
inline size_t RoundUp(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Chunks that may run in any order and at once. Their number depends on shapes only, and so do the
// results. A chunk writes what no other chunk reads or writes. It has at most about
// kOperationsOfAChunk operations, because it is not interrupted.
struct Phase {
  size_t chunks = 1;
  // Fails only for data that the operation does not take (a label out of range).
  std::function<absl::Status(const Workspace& at, size_t chunk)> run;
  // It takes a few hundred microseconds, for which it is worth waking a thread.
  bool is_long = false;
  // Sums too long for a chunk go on in the next round: it runs the following chunks, numbered on,
  // when all of the round before are done.
  size_t rounds = 1;
  // The most that a chunk has, as the op table counts operations; 0: element by element, at most a
  // block of some hundred thousand.
  double operations = 0;
};
inline constexpr double kOperationsOfAChunk = 1 << 28;

// Consecutive rows of a tensor of images: pixels, numbered over all images, with all their
// channels.
struct Rows {
  size_t first = 0, count = 0;
};

// Phases, one or more, run one after the other.
struct Kernel {
  std::vector<Phase> phases;
  size_t shared_bytes = 0;
  size_t scratch_bytes = 0;
  // If not 0, the first phase fills the packed memory from this input alone, and no other phase
  // changes it: that phase may be left out while memory and input are as they were.
  size_t packed_bytes = 0;
  int packed_input = 0;
  // If set: the rows of the output that a chunk of the last phase writes, and no other chunk does.
  std::function<Rows(size_t chunk)> rows_of_chunk;
  // If set: computes these rows of the output from the same rows of input 0, as the one phase does
  // for all.
  std::function<void(const Workspace& at, size_t first, size_t count)> by_rows;
  // Host memory that oneDNN's primitives take as long as the executable is loaded.
  size_t primitive_bytes = 0;
  // Names of a convolution's implementations: oneDNN's, or "depthwise" for our own; empty for plain
  // loops.
  std::vector<std::string> implementations;
};

// Prepares the kernel of a computing instruction of IPU `ipu`. The instruction has passed
// validation; communication and control are not kernels and give Internal.
absl::StatusOr<Kernel> PrepareKernel(const program::v1::Ipu& ipu, const Instruction& instruction);

// Looks through the float outputs of an instruction for NaN and infinity, which fail it with
// OutOfRange. Without phases if it has none.
Kernel PrepareFiniteCheck(const program::v1::Ipu& ipu, const Instruction& instruction);

// A row of the table of kernels; each is in the file of its family.
struct KernelDef {
  program::OpKind kind;
  absl::StatusOr<Kernel> (*prepare)(const program::v1::Ipu& ipu, const Instruction& instruction);
};

// Every op whose role is a kernel (device/program/op.h) has a row. Null for the others.
const KernelDef* FindKernel(program::OpKind kind);

// --- By family, for FindKernel ---
std::vector<KernelDef> BatchNormKernels();
std::vector<KernelDef> ConvolutionKernels();
std::vector<KernelDef> CumulateKernels();
std::vector<KernelDef> DataMovementKernels();
std::vector<KernelDef> GatherKernels();
std::vector<KernelDef> GradientKernels();
std::vector<KernelDef> LayerNormKernels();
std::vector<KernelDef> LossKernels();
std::vector<KernelDef> MapKernels();
std::vector<KernelDef> MatMulKernels();
std::vector<KernelDef> OptimizerKernels();
std::vector<KernelDef> PoolingKernels();
std::vector<KernelDef> RandomKernels();
std::vector<KernelDef> ReduceKernels();
std::vector<KernelDef> RemoteKernels();
std::vector<KernelDef> SoftmaxKernels();
std::vector<KernelDef> SortKernels();

}  // namespace vpod::engine
