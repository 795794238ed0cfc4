#include <algorithm>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"

namespace vpod::program {
namespace {

constexpr Constraint kStream{"transfer_c1", "The stream exists."};
constexpr Constraint kStreamIpu{"transfer_c2", "The stream is one of this IPU."};
constexpr Constraint kDirection{
    "transfer_c3", "`stream_in` takes a stream to the device, `stream_out` one to the host."};
constexpr Constraint kStreamType{"transfer_c4", "The tensor has the type of the stream."};
constexpr Constraint kBuffer{"transfer_c5", "The remote buffer exists."};
constexpr Constraint kRow{"transfer_c6", "The number of the row is an int32 scalar."};
constexpr Constraint kRowType{
    "transfer_c7", "The tensor has the type of a row, and is a wide accumulator if that is one."};
constexpr Constraint kExchange{"transfer_c8", "The exchange exists."};
constexpr Constraint kPartner{"transfer_c9", "The exchange names this IPU."};
constexpr Constraint kSent{
    "transfer_c10", "The inputs are the tensors that the exchange takes from this IPU, in order."};
constexpr Constraint kReceived{
    "transfer_c11", "The outputs are the tensors that the exchange brings to this IPU, in order."};

absl::Status CheckStream(uint32_t index, uint32_t tensor, bool to_device, const Operands& tensors) {
  const v1::Executable& executable = tensors.executable();
  if (index >= static_cast<uint32_t>(executable.streams_size()))
    return Broken(kStream, absl::StrCat("stream ", index, " does not exist (there are ",
                                        executable.streams_size(), ")"));
  const v1::Stream& stream = executable.streams(static_cast<int>(index));
  if (stream.ipu() != tensors.ipu()) {
    return Broken(kStreamIpu, absl::StrCat("stream '", stream.name(), "' is one of IPU ",
                                           stream.ipu(), ", not of IPU ", tensors.ipu()));
  }
  if (stream.to_device() != to_device) {
    return Broken(kDirection, absl::StrCat("stream '", stream.name(), "' goes ",
                                           to_device ? "to the host" : "to the device"));
  }
  return Labelled(kStreamType, tensors.Expect(tensor, TypeOf(stream)));
}

// The tensor is a row of the buffer.
absl::Status CheckRemote(uint32_t index, uint32_t tensor, uint32_t row, const Operands& tensors) {
  const v1::Ipu& ipu = tensors.executable().ipus(static_cast<int>(tensors.ipu()));
  if (index >= static_cast<uint32_t>(ipu.remote_buffers_size())) {
    return Broken(kBuffer, absl::StrCat("remote buffer ", index, " does not exist (there are ",
                                        ipu.remote_buffers_size(), ")"));
  }
  VPOD_RETURN_IF_ERROR(Labelled(kRow, tensors.Expect(row, {v1::INT32, {}})));
  const v1::RemoteBuffer& buffer = ipu.remote_buffers(static_cast<int>(index));
  if (!buffer.wide_accumulator()) return Labelled(kRowType, tensors.Expect(tensor, TypeOf(buffer)));
  VPOD_ASSIGN_OR_RETURN(const v1::Tensor* accumulator, tensors.Any(tensor));
  if (accumulator->wide_accumulator() && TypeOf(*accumulator) == TypeOf(buffer))
    return absl::OkStatus();
  return Broken(kRowType, absl::StrCat("tensor ", tensor, " must be a wide accumulator of ",
                                       TypeOf(buffer).ToString()));
}

// The table of exchanges says what moves; the instruction repeats this IPU's part of it as its
// operands, so that code that follows tensors need not look there.
absl::Status CheckExchangeStep(const v1::Instruction& instruction, const Operands& tensors) {
  const uint32_t index = instruction.exchange().exchange();
  if (index >= tensors.exchanges().size()) {
    return Broken(kExchange, absl::StrCat("exchange ", index, " does not exist (there are ",
                                          tensors.exchanges().size(), ")"));
  }
  const auto& [sent, received] = tensors.exchanges()[index];
  if (sent.empty() && received.empty())
    return Broken(kPartner, absl::StrCat("exchange ", index, " does not name IPU ", tensors.ipu()));
  if (!std::equal(sent.begin(), sent.end(), instruction.inputs().begin(),
                  instruction.inputs().end()))
    return Broken(kSent,
                  absl::StrCat("the inputs are not what exchange ", index, " takes from this IPU"));
  if (!std::equal(received.begin(), received.end(), instruction.outputs().begin(),
                  instruction.outputs().end()))
    return Broken(kReceived,
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
       .constraints = {kStream, kStreamIpu, kDirection, kStreamType},
       .form = Form::kLowered},
      {.kind = v1::Instruction::kStreamOut,
       .role = Role::kStream,
       .inputs = {1, 1},
       .check =
           [](const v1::Instruction& instruction, const Operands& tensors) {
             return CheckStream(instruction.stream_out().stream(), instruction.inputs(0),
                                /*to_device=*/false, tensors);
           },
       .constraints = {kStream, kStreamIpu, kDirection, kStreamType},
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
       .constraints = {kBuffer, kRow, kRowType},
       .flops_per_operation = 0,
       .own_data = true},
      {.kind = v1::Instruction::kRemoteStore,
       .role = Role::kKernel,
       .inputs = {2, 2},
       .check =
           [](const v1::Instruction& instruction, const Operands& tensors) {
             return CheckRemote(instruction.remote_store().buffer(), instruction.inputs(0),
                                instruction.inputs(1), tensors);
           },
       .constraints = {kBuffer, kRow, kRowType},
       .flops_per_operation = 0},
      {.kind = v1::Instruction::kExchange,
       .role = Role::kExchange,
       .inputs = {0, kAnyNumber},
       .outputs = {0, kAnyNumber},
       .check = CheckExchangeStep,
       .constraints = {kExchange, kPartner, kSent, kReceived},
       .form = Form::kLowered},
  };
}

}  // namespace vpod::program
