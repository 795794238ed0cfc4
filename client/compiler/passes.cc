#include "client/compiler/passes.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "device/base/file.h"
#include "device/base/status.h"
#include "device/program/op.h"

namespace vpod::compiler {

using program::Form;
using program::v1::Instruction;

Form FirstForm(const Instruction& instruction) {
  const program::OpDef& op = *program::FindOp(instruction.attributes_case());
  const bool fused = op.fused != nullptr && op.fused(instruction);
  return fused ? std::max(op.form, Form::kFused) : op.form;
}

absl::Status CheckForm(absl::string_view pass, Form form,
                       absl::Span<const Instruction> instructions) {
  for (const Instruction& instruction : instructions) {
    if (FirstForm(instruction) <= form) continue;
    return absl::InternalError(absl::StrCat("after pass '", pass, "' there is the op ",
                                            program::OpName(instruction.attributes_case()),
                                            ", which only a later pass may make"));
  }
  return absl::OkStatus();
}

absl::Status CheckForm(absl::string_view pass, Form form, const std::vector<graph::Node>& nodes) {
  for (const graph::Node& node : nodes)
    VPOD_RETURN_IF_ERROR(CheckForm(pass, form, absl::MakeSpan(&node.instruction, 1)));
  return absl::OkStatus();
}

absl::Status CheckForm(absl::string_view pass, const LoweredProgram& program) {
  for (const LoweredIpu& ipu : program.ipus) {
    for (const auto& section : ipu.sections) {
      for (const LoweredStep& step : section) {
        VPOD_RETURN_IF_ERROR(CheckForm(pass, Form::kLowered, absl::MakeSpan(&step.instruction, 1)));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status PassDump::Write(absl::string_view program, absl::string_view pass,
                             const std::string& text) {
  std::string name = absl::StrCat(number_++, "-", program, "-", pass, ".txt");
  for (char& c : name) {
    if (c == '/' || c == '\0') c = '_';  // of a program's name
  }
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot make the directory ", directory_, ": ", error.message()));
  }
  return base::ReplaceFile(absl::StrCat(directory_, "/", name), text, 0644);
}

}  // namespace vpod::compiler
