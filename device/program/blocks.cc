#include "device/program/blocks.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"

namespace vpod::program {
namespace {

using v1::Instruction;

bool CallsBlock(const Instruction& instruction) { return instruction.call().has_block(); }

// A tensor of the type and layout of a parameter, which is short.
bool Fits(const v1::Tensor& tensor, const v1::Tensor& parameter) {
  return tensor.type() == parameter.type() &&
         tensor.wide_accumulator() == parameter.wide_accumulator() &&
         std::equal(tensor.dims().begin(), tensor.dims().end(), parameter.dims().begin(),
                    parameter.dims().end()) &&
         std::equal(tensor.strides().begin(), tensor.strides().end(), parameter.strides().begin(),
                    parameter.strides().end());
}

// How much all calls write, on all IPUs.
struct Size {
  uint64_t instructions = 0, operands = 0, bytes = 0;
};

// The blocks of an IPU and their calls.
class Blocks {
 public:
  Blocks(const v1::Ipu& ipu, uint32_t number, const Limits& limits)
      : ipu_(ipu), number_(number), limits_(limits) {}

  // Checks blocks and calls, and adds what the calls write. Takes time in proportion to the text.
  absl::Status Check(Size& total) {
    for (int b = 0; b < ipu_.blocks_size(); ++b) {
      const absl::Status status = CheckBlock(ipu_.blocks(b));
      if (!status.ok())
        return Invalid(absl::StrCat("IPU ", number_, " block ", b, status.message()));
    }
    for (int f = 0; f < ipu_.functions_size(); ++f) {
      const auto& instructions = ipu_.functions(f).instructions();
      for (int i = 0; i < instructions.size(); ++i) {
        if (!CallsBlock(instructions[i])) continue;
        const absl::Status status = CheckCall(instructions[i], total);
        if (!status.ok()) {
          return Invalid(absl::StrCat("IPU ", number_, " function ", f, " instruction ", i,
                                      " (call): ", status.message()));
        }
      }
    }
    for (size_t b = 0; b < blocks_.size(); ++b) {
      if (!blocks_[b].is_called)
        return Invalid(absl::StrCat("IPU ", number_, " block ", b, " is never called"));
    }
    return absl::OkStatus();
  }

 private:
  struct Block {
    Size size;
    bool is_called = false;
  };

  static absl::Status Invalid(const std::string& message) {
    return absl::InvalidArgumentError(message);
  }

  absl::Status CheckBlock(const v1::Block& block) {
    for (int p = 0; p < block.parameters_size(); ++p) {
      const v1::Tensor& parameter = block.parameters(p);
      const int rank = std::max(parameter.dims_size(), parameter.strides_size());
      if (rank > kMaxRank || parameter.offset() != 0) {
        return Invalid(absl::StrCat(" parameter ", p, ": it needs at most ", kMaxRank,
                                    " dimensions, and no offset"));
      }
    }
    if (block.instructions().empty()) return Invalid(": it has no instructions");
    Size& size = blocks_.emplace_back().size;
    const auto parameters = static_cast<uint32_t>(block.parameters_size());
    for (int i = 0; i < block.instructions_size(); ++i) {
      Instruction instruction = block.instructions(i);
      const OpDef* op = FindOp(instruction.attributes_case());
      if (op == nullptr || op->role != Role::kKernel)
        return Invalid(
            absl::StrCat(" instruction ", i, ": a block has only instructions that compute"));
      bool inside = true;
      ForEachTensor(instruction, [&](uint32_t& tensor) { inside = inside && tensor < parameters; });
      if (!inside)
        return Invalid(
            absl::StrCat(" instruction ", i, ": the block has parameters below ", parameters));
      ++size.instructions;
      size.operands += static_cast<uint64_t>(instruction.inputs_size()) +
                       static_cast<uint64_t>(instruction.outputs_size());
      size.bytes += instruction.SpaceUsedLong();
    }
    return absl::OkStatus();
  }

  absl::Status CheckCall(const Instruction& call, Size& total) {
    const uint32_t number = call.call().block();
    if (number >= blocks_.size())
      return Invalid(
          absl::StrCat("block ", number, " does not exist (there are ", blocks_.size(), ")"));
    const v1::Block& block = ipu_.blocks(static_cast<int>(number));
    if (call.inputs_size() != block.parameters_size() || call.outputs_size() > 0 ||
        call.call().function() != 0 || call.has_rounding()) {
      return Invalid(
          absl::StrCat("block ", number, " takes ", block.parameters_size(),
                       " tensors as inputs, and neither outputs, rounding nor a function"));
    }
    const Size& size = blocks_[number].size;
    total.instructions += size.instructions;
    total.operands += size.operands;
    total.bytes += size.bytes;
    if (total.instructions > limits_.instructions || total.operands > limits_.operands ||
        total.bytes > limits_.parsed_bytes) {
      return Invalid(absl::StrCat("written out, blocks have more than ", limits_.instructions,
                                  " instructions, ", limits_.operands, " operands or ",
                                  limits_.parsed_bytes >> 20, " MiB"));
    }
    blocks_[number].is_called = true;
    for (int p = 0; p < call.inputs_size(); ++p) {
      const uint32_t tensor = call.inputs(p);
      if (tensor >= static_cast<uint32_t>(ipu_.tensors_size()))
        return Invalid(absl::StrCat("tensor ", tensor, " does not exist"));
      if (!Fits(ipu_.tensors(static_cast<int>(tensor)), block.parameters(p))) {
        return Invalid(absl::StrCat("tensor ", tensor, " is not as parameter ", p, " of block ",
                                    number, " in type, shape and layout"));
      }
    }
    return absl::OkStatus();
  }

  const v1::Ipu& ipu_;
  const uint32_t number_;
  const Limits& limits_;
  std::vector<Block> blocks_;
};

void WriteBlock(const v1::Block& block, const Instruction& call, v1::Function& to) {
  for (const Instruction& step : block.instructions()) {
    Instruction& written = *to.add_instructions();
    written = step;
    ForEachTensor(written,
                  [&](uint32_t& tensor) { tensor = call.inputs(static_cast<int>(tensor)); });
  }
}

}  // namespace

bool HasBlocks(const v1::Executable& executable) {
  return std::any_of(executable.ipus().begin(), executable.ipus().end(), [](const v1::Ipu& ipu) {
    return ipu.blocks_size() > 0 ||
           std::any_of(ipu.functions().begin(), ipu.functions().end(), [](const auto& function) {
             return std::any_of(function.instructions().begin(), function.instructions().end(),
                                CallsBlock);
           });
  });
}

absl::StatusOr<uint64_t> WrittenOutBytes(const v1::Executable& executable, const Limits& limits) {
  Size total;
  for (int i = 0; i < executable.ipus_size(); ++i) {
    total.instructions = total.operands = 0;  // their limits are those of an IPU
    VPOD_RETURN_IF_ERROR(Blocks(executable.ipus(i), static_cast<uint32_t>(i), limits).Check(total));
  }
  return executable.SpaceUsedLong() + total.bytes;
}

v1::Executable WriteOut(const v1::Executable& executable) {
  v1::Executable written = executable;
  for (v1::Ipu& ipu : *written.mutable_ipus()) {
    for (v1::Function& function : *ipu.mutable_functions()) {
      v1::Function whole;
      for (Instruction& instruction : *function.mutable_instructions()) {
        if (CallsBlock(instruction)) {
          WriteBlock(ipu.blocks(static_cast<int>(instruction.call().block())), instruction, whole);
        } else {
          *whole.add_instructions() = std::move(instruction);
        }
      }
      function = std::move(whole);
    }
    ipu.clear_blocks();
  }
  return written;
}

}  // namespace vpod::program
