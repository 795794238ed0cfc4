#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"

namespace vpod::program {
namespace {

absl::Status CheckStream(uint32_t index, uint32_t tensor, bool to_device, const Operands& tensors) {
  const v1::Executable& executable = tensors.executable();
  if (index >= static_cast<uint32_t>(executable.streams_size()))
    return absl::InvalidArgumentError(absl::StrCat("stream ", index, " does not exist"));
  const v1::Stream& stream = executable.streams(static_cast<int>(index));
  if (stream.to_device() != to_device || stream.ipu() != tensors.ipu()) {
    return absl::InvalidArgumentError(
        absl::StrCat("stream '", stream.name(), "' has another direction or IPU"));
  }
  return tensors.Expect(tensor, TypeOf(stream));
}

absl::Status CheckPeer(uint32_t tensor, uint32_t peer, const Operands& tensors) {
  if (peer == tensors.ipu() || peer >= tensors.executable().ipus_per_replica()) {
    return absl::InvalidArgumentError(
        absl::StrCat("IPU ", peer, " is not another IPU of the replica"));
  }
  return tensors.Plain(tensor).status();
}

}  // namespace

std::vector<OpDef> TransferOps() {
  return {
      {v1::Instruction::kStreamIn,
       Role::kStream,
       {{"tensor", Access::kWrite}},
       [](const v1::Instruction& instruction, const Operands& tensors) {
         const v1::StreamIn& op = instruction.stream_in();
         return CheckStream(op.stream(), op.tensor(), /*to_device=*/true, tensors);
       }},
      {v1::Instruction::kStreamOut,
       Role::kStream,
       {{"tensor", Access::kRead}},
       [](const v1::Instruction& instruction, const Operands& tensors) {
         const v1::StreamOut& op = instruction.stream_out();
         return CheckStream(op.stream(), op.tensor(), /*to_device=*/false, tensors);
       }},
      {v1::Instruction::kSend,
       Role::kExchange,
       {{"tensor", Access::kRead}},
       [](const v1::Instruction& instruction, const Operands& tensors) {
         return CheckPeer(instruction.send().tensor(), instruction.send().to_ipu(), tensors);
       }},
      {v1::Instruction::kReceive,
       Role::kExchange,
       {{"tensor", Access::kWrite}},
       [](const v1::Instruction& instruction, const Operands& tensors) {
         return CheckPeer(instruction.receive().tensor(), instruction.receive().from_ipu(),
                          tensors);
       }},
  };
}

}  // namespace vpod::program
