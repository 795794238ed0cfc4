// Between the passes of a compilation: which ops may exist there, and files of the printed forms.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/compiler/compiler.h"
#include "client/compiler/graph_text.h"
#include "client/compiler/lowered_text.h"
#include "client/compiler/lowering.h"
#include "client/compiler/text_form.h"
#include "client/graph/graph.h"
#include "device/program/op.h"

namespace vpod::compiler {

// The first form of a program in which an instruction may occur.
program::Form FirstForm(const program::v1::Instruction& instruction);
// Internal, naming the pass and the op, unless a program of that form may have the instructions.
absl::Status CheckForm(absl::string_view pass, program::Form form,
                       absl::Span<const program::v1::Instruction> instructions);
absl::Status CheckForm(absl::string_view pass, program::Form form,
                       const std::vector<graph::Node>& nodes);
absl::Status CheckForm(absl::string_view pass, const LoweredProgram& program);

// Writes the printed forms of a compilation to a directory, one file a pass, in order; does nothing
// without a directory.
class PassDump {
 public:
  explicit PassDump(const CompileOptions& options) : directory_(options.dump_passes) {}

  // InvalidArgument or Unavailable if the file cannot be written; the directory is made if it is
  // missing.
  template <class Form>
  absl::Status Add(absl::string_view program, absl::string_view pass, const Form& form) {
    if (directory_.empty()) return absl::OkStatus();
    return Write(program, pass, Print(form));
  }

 private:
  absl::Status Write(absl::string_view program, absl::string_view pass, const std::string& text);

  const std::string directory_;
  int number_ = 0;
};

}  // namespace vpod::compiler
