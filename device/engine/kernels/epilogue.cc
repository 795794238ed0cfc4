#include "device/engine/kernels/epilogue.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "device/base/status.h"
#include "device/program/op.h"

namespace vpod::engine {
namespace {

using program::ArenaRange;

ArenaRange RangeAt(const program::v1::Ipu& ipu, uint32_t tensor) {
  return program::RangeOf(ipu.tensors(static_cast<int>(tensor)), /*output=*/false);
}

bool Overlap(const ArenaRange& a, const ArenaRange& b) {
  return a.begin < b.end && b.begin < a.end;
}

// Whether an instruction reads bytes of the range, apart from its first `skipped` inputs.
bool Reads(const program::v1::Ipu& ipu, const Instruction& instruction, int skipped,
           const ArenaRange& range) {
  std::vector<uint32_t> read(instruction.inputs().begin() + skipped, instruction.inputs().end());
  if (instruction.has_rounding()) {
    read.push_back(instruction.rounding().seed());
    read.push_back(instruction.rounding().counter());
  }
  return std::any_of(read.begin(), read.end(),
                     [&](uint32_t tensor) { return Overlap(RangeAt(ipu, tensor), range); });
}

}  // namespace

bool CanBeEpilogue(const program::v1::Ipu& ipu, const Instruction& first, const Kernel& kernel,
                   const Instruction& next, const Kernel& epilogue) {
  if (!kernel.rows_of_chunk || !epilogue.by_rows) return false;
  const program::v1::Tensor &made = ipu.tensors(static_cast<int>(first.outputs(0))),
                            &read = ipu.tensors(static_cast<int>(next.inputs(0)));
  // The same rows, though the tensor may have another name.
  if (made.offset() != read.offset() || program::TypeOf(made) != program::TypeOf(read) ||
      program::StridesOf(made) != program::StridesOf(read))
    return false;
  const ArenaRange rows = RangeAt(ipu, first.outputs(0)), written = RangeAt(ipu, next.outputs(0));
  // In place, or somewhere else.
  if (Overlap(written, rows) && (written.begin != rows.begin || written.end != rows.end))
    return false;
  return !Reads(ipu, first, 0, written) && !Reads(ipu, next, 1, rows);
}

void AttachEpilogue(Kernel& kernel, const Kernel& epilogue) {
  // Its scratch lies behind the kernel's own.
  const size_t scratch = RoundUp(kernel.scratch_bytes);
  Phase& last = kernel.phases.back();
  last.run = [run = std::move(last.run), rows_of_chunk = std::move(kernel.rows_of_chunk),
              by_rows = epilogue.by_rows, scratch](const Workspace& at, size_t chunk) {
    VPOD_RETURN_IF_ERROR(run(at, chunk));
    const Rows rows = rows_of_chunk(chunk);
    Workspace behind = at;
    behind.scratch += scratch;
    by_rows(behind, rows.first, rows.count);
    return absl::OkStatus();
  };
  kernel.rows_of_chunk = nullptr;
  kernel.scratch_bytes = scratch + epilogue.scratch_bytes;
}

}  // namespace vpod::engine
