#include <cstring>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/engine/kernels/operand.h"
#include "device/engine/kernels/read_once.h"

namespace vpod::engine {
namespace {

// Copies between a row of a remote buffer and a tensor, in chunks of bytes.
absl::StatusOr<Kernel> PrepareCopy(const program::v1::Ipu& ipu, uint32_t index, uint32_t tensor,
                                   uint32_t row_tensor, bool load) {
  const program::v1::RemoteBuffer& buffer = ipu.remote_buffers(static_cast<int>(index));
  const Operand operand = Resolve(ipu, tensor), row_operand = Resolve(ipu, row_tensor);
  const uint64_t first = program::RemoteOffset(ipu, index);
  const uint32_t rows = buffer.rows();
  const size_t row_bytes = program::RowBytes(buffer);
  const Chunking bytes = ChunkItems(row_bytes, 1);
  const auto copy = [=, name = buffer.name()](const Workspace& at, size_t chunk) -> absl::Status {
    const int32_t row = ReadOnce(row_operand.As<int32_t>(at));
    if (row < 0 || static_cast<uint32_t>(row) >= rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("row ", row, " of remote buffer '", name, "' is outside 0 to ", rows - 1));
    }
    std::byte* const remote =
        at.remote + first + static_cast<size_t>(row) * row_bytes + bytes.begin(chunk);
    std::byte* const local = operand.At(at) + bytes.begin(chunk);
    std::memcpy(load ? local : remote, load ? remote : local, bytes.size(chunk));
    return absl::OkStatus();
  };
  return OnePhase(bytes.chunks(), 0, copy);
}

absl::StatusOr<Kernel> PrepareLoad(const program::v1::Ipu& ipu, const Instruction& instruction) {
  return PrepareCopy(ipu, instruction.remote_load().buffer(), instruction.outputs(0),
                     instruction.inputs(0), /*load=*/true);
}

absl::StatusOr<Kernel> PrepareStore(const program::v1::Ipu& ipu, const Instruction& instruction) {
  return PrepareCopy(ipu, instruction.remote_store().buffer(), instruction.inputs(0),
                     instruction.inputs(1), /*load=*/false);
}

}  // namespace

std::vector<KernelDef> RemoteKernels() {
  return {{Instruction::kRemoteLoad, PrepareLoad}, {Instruction::kRemoteStore, PrepareStore}};
}

}  // namespace vpod::engine
