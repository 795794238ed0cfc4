#include <algorithm>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"

namespace vpod::program {
namespace {

absl::Status Invalid(const std::string& message) { return absl::InvalidArgumentError(message); }

absl::Status CheckStream(uint32_t index, uint32_t tensor, bool to_device, const Operands& tensors) {
  const v1::Executable& executable = tensors.executable();
  if (index >= static_cast<uint32_t>(executable.streams_size()))
    return Invalid(absl::StrCat("stream ", index, " does not exist (there are ",
                                executable.streams_size(), ")"));
  const v1::Stream& stream = executable.streams(static_cast<int>(index));
  if (stream.ipu() != tensors.ipu()) {
    return Invalid(absl::StrCat("stream '", stream.name(), "' is one of IPU ", stream.ipu(),
                                ", not of IPU ", tensors.ipu()));
  }
  if (stream.to_device() != to_device) {
    return Invalid(absl::StrCat("stream '", stream.name(), "' goes ",
                                to_device ? "to the host" : "to the device"));
  }
  return tensors.Expect(tensor, TypeOf(stream));
}

// The tensor is a row of the buffer.
absl::Status CheckRemote(uint32_t index, uint32_t tensor, uint32_t row, const Operands& tensors) {
  const v1::Ipu& ipu = tensors.executable().ipus(static_cast<int>(tensors.ipu()));
  if (index >= static_cast<uint32_t>(ipu.remote_buffers_size())) {
    return Invalid(absl::StrCat("remote buffer ", index, " does not exist (there are ",
                                ipu.remote_buffers_size(), ")"));
  }
  VPOD_RETURN_IF_ERROR(tensors.Expect(row, {v1::INT32, {}}));
  return tensors.Expect(tensor, TypeOf(ipu.remote_buffers(static_cast<int>(index))));
}

// The table of exchanges says what moves; the instruction repeats this IPU's part of it as its
// operands, so that code that follows tensors need not look there.
absl::Status CheckExchangeStep(const v1::Instruction& instruction, const Operands& tensors) {
  const uint32_t index = instruction.exchange().exchange();
  if (index >= tensors.exchanges().size()) {
    return Invalid(absl::StrCat("exchange ", index, " does not exist (there are ",
                                tensors.exchanges().size(), ")"));
  }
  const auto& [sent, received] = tensors.exchanges()[index];
  if (sent.empty() && received.empty())
    return Invalid(absl::StrCat("exchange ", index, " does not name IPU ", tensors.ipu()));
  if (!std::equal(sent.begin(), sent.end(), instruction.inputs().begin(),
                  instruction.inputs().end()))
    return Invalid(
        absl::StrCat("the inputs are not what exchange ", index, " takes from this IPU"));
  if (!std::equal(received.begin(), received.end(), instruction.outputs().begin(),
                  instruction.outputs().end()))
    return Invalid(
        absl::StrCat("the outputs are not what exchange ", index, " brings to this IPU"));
  return absl::OkStatus();
}

}  // namespace

std::vector<OpDef> TransferOps() {
  return {
      {.kind = v1::Instruction::kStreamIn,
       .role = Role::kStream,
       .outputs = {1, 1},
       .check =
           [](const v1::Instruction& instruction, const Operands& tensors) {
             return CheckStream(instruction.stream_in().stream(), instruction.outputs(0),
                                /*to_device=*/true, tensors);
           },
       .form = Form::kLowered},
      {.kind = v1::Instruction::kStreamOut,
       .role = Role::kStream,
       .inputs = {1, 1},
       .check =
           [](const v1::Instruction& instruction, const Operands& tensors) {
             return CheckStream(instruction.stream_out().stream(), instruction.inputs(0),
                                /*to_device=*/false, tensors);
           },
       .form = Form::kLowered},
      {.kind = v1::Instruction::kRemoteLoad,
       .role = Role::kKernel,
       .inputs = {1, 1},
       .outputs = {1, 1},
       .check =
           [](const v1::Instruction& instruction, const Operands& tensors) {
             return CheckRemote(instruction.remote_load().buffer(), instruction.outputs(0),
                                instruction.inputs(0), tensors);
           },
       .flops_per_operation = 0},
      {.kind = v1::Instruction::kRemoteStore,
       .role = Role::kKernel,
       .inputs = {2, 2},
       .check =
           [](const v1::Instruction& instruction, const Operands& tensors) {
             return CheckRemote(instruction.remote_store().buffer(), instruction.inputs(0),
                                instruction.inputs(1), tensors);
           },
       .flops_per_operation = 0},
      {.kind = v1::Instruction::kExchange,
       .role = Role::kExchange,
       .inputs = {0, kAnyNumber},
       .outputs = {0, kAnyNumber},
       .check = CheckExchangeStep,
       .form = Form::kLowered},
  };
}

}  // namespace vpod::program
