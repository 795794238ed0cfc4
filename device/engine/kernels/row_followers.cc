#include "device/engine/kernels/row_followers.h"

#include <algorithm>
#include <utility>

#include "device/base/status.h"

namespace vpod::engine {
namespace {

struct Range {
  uint64_t begin, end;
  bool Overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
  friend bool operator==(const Range&, const Range&) = default;
};

Range RangeOf(const program::v1::Ipu& ipu, uint32_t tensor) {
  const program::v1::Tensor& text = ipu.tensors(static_cast<int>(tensor));
  return {text.offset(), text.offset() + program::ArenaBytes(text)};
}

}  // namespace

bool CanFollowByRows(const program::v1::Ipu& ipu, const Instruction& first, const Kernel& kernel,
                     const Instruction& next, const Kernel& follower) {
  if (!kernel.rows_of_chunk || !follower.by_rows) return false;
  const Range rows = RangeOf(ipu, first.outputs(0)), written = RangeOf(ipu, next.outputs(0));
  // The same rows, though the tensor may have another name.
  const program::v1::Tensor &made = ipu.tensors(static_cast<int>(first.outputs(0))),
                            &read = ipu.tensors(static_cast<int>(next.inputs(0)));
  if (RangeOf(ipu, next.inputs(0)) != rows || program::TypeOf(made) != program::TypeOf(read) ||
      program::StridesOf(made) != program::StridesOf(read))
    return false;
  // In place, or somewhere else.
  if (written.Overlaps(rows) && written != rows) return false;
  return std::none_of(first.inputs().begin(), first.inputs().end(),
                      [&](uint32_t input) { return RangeOf(ipu, input).Overlaps(written); }) &&
         std::none_of(next.inputs().begin() + 1, next.inputs().end(),
                      [&](uint32_t input) { return RangeOf(ipu, input).Overlaps(rows); });
}

void FollowByRows(Kernel& kernel, const Kernel& follower) {
  // Its scratch lies behind the kernel's own.
  const size_t scratch = (kernel.scratch_bytes + 63) / 64 * 64;
  Phase& last = kernel.phases.back();
  last.run = [run = std::move(last.run), rows_of_chunk = std::move(kernel.rows_of_chunk),
              by_rows = follower.by_rows, scratch](const Workspace& at, size_t chunk) {
    VPOD_RETURN_IF_ERROR(run(at, chunk));
    const Rows rows = rows_of_chunk(chunk);
    Workspace behind = at;
    behind.scratch += scratch;
    by_rows(behind, rows.first, rows.count);
    return absl::OkStatus();
  };
  kernel.rows_of_chunk = nullptr;
  kernel.scratch_bytes = scratch + follower.scratch_bytes;
}

}  // namespace vpod::engine
