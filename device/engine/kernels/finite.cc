#include <cmath>

#include "absl/strings/str_cat.h"
#include "device/engine/kernels/loop.h"

namespace vpod::engine {
namespace {

// Elements that lie `step` apart; OK or the first one's error.
template <class T>
absl::Status CheckRow(const T* at, int64_t step, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const auto value = static_cast<float>(at[static_cast<int64_t>(i) * step]);
    if (!std::isfinite(value)) return absl::OutOfRangeError(absl::StrCat("gives ", value));
  }
  return absl::OkStatus();
}

template <class T>
Phase CheckElements(const Operand& output) {
  const Loop loop = PlanLoop(output.type.dims, {output.strides});
  const Chunking chunks = loop.chunking();
  return {chunks.chunks(), [=](const Workspace& at, size_t chunk) {
            absl::Status status;
            loop.ForBlocks(chunks.begin(chunk), chunks.end(chunk),
                           [&](const auto& position, size_t n) {
                             if (!status.ok()) return;
                             status = CheckRow(output.As<T>(at) + position[0], loop.steps[0], n);
                           });
            return status;
          }};
}

}  // namespace

Kernel PrepareFiniteCheck(const program::v1::Ipu& ipu, const Instruction& instruction) {
  Kernel kernel;
  for (uint32_t index : instruction.outputs()) {
    const Operand output = Resolve(ipu, index);
    if (!program::IsFloat(output.type.type) || output.elements() == 0) continue;
    if (ipu.tensors(static_cast<int>(index)).wide_accumulator()) {
      kernel.phases.push_back(CheckElements<double>(output));
    } else if (output.type.type == program::v1::FLOAT16) {
      kernel.phases.push_back(CheckElements<_Float16>(output));
    } else {
      kernel.phases.push_back(CheckElements<float>(output));
    }
  }
  return kernel;
}

}  // namespace vpod::engine
