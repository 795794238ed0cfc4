#include "client/compiler/passes.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/base/file.h"
#include "device/base/status.h"
#include "device/program/op.h"

namespace vpod::compiler {
namespace {

using graph::Graph;
using graph::Origin;
using graph::Value;
using program::Form;
using program::v1::Instruction;

// The first form of a program in which an instruction may occur.
Form FirstForm(const Instruction& instruction) {
  const program::OpDef& op = *program::FindOp(instruction.attributes_case());
  const bool fused = op.fused != nullptr && op.fused(instruction);
  return fused ? std::max(op.form, Form::kFused) : op.form;
}

std::string Attributes(const Instruction& instruction) {
  Instruction bare = instruction;
  bare.clear_inputs();
  bare.clear_outputs();
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text;
  printer.PrintToString(bare, &text);
  return std::string(absl::StripTrailingAsciiWhitespace(text));
}

template <class Operands>
std::string Names(const Operands& operands) {
  return absl::StrJoin(operands, ", ",
                       [](std::string* out, uint32_t id) { absl::StrAppend(out, "%", id); });
}

// "%3, %4 = binary { operator: ADD } (%1, %2)"
std::string Line(const Instruction& instruction) {
  return absl::StrCat(Names(instruction.outputs()), instruction.outputs().empty() ? "" : " = ",
                      Attributes(instruction), " (", Names(instruction.inputs()), ")");
}

// Prints values that no node makes before they are read.
class GraphPrinter {
 public:
  explicit GraphPrinter(const Graph& graph) : graph_(graph) {}

  void Add(const graph::Node& node) {
    for (uint32_t id : node.instruction.inputs()) Introduce(id);
    absl::StrAppend(&text_, Line(node.instruction), " : ",
                    absl::StrJoin(node.instruction.outputs(), ", ",
                                  [&](std::string* out, uint32_t id) {
                                    absl::StrAppend(out, graph_.values()[id].type.ToString());
                                  }),
                    " on IPU ", node.ipu, "\n");
    for (uint32_t id : node.instruction.outputs()) known_.insert(id);
  }
  void Add(const graph::GraphOutput& output) {
    Introduce(output.value.id);
    absl::StrAppend(&text_, "output \"", output.name, "\" %", output.value.id, "\n");
  }
  std::string Take() { return std::move(text_); }

 private:
  void Introduce(uint32_t id) {
    if (!known_.insert(id).second) return;
    const Value& value = graph_.values()[id];
    std::string source;
    if (value.alias_of != ~0u) {
      Introduce(value.alias_of);
      source = absl::StrCat("reshape (%", value.alias_of, ")");
    } else if (value.origin == Origin::kConstant) {
      source = absl::StrCat("constant ", value.constant);
    } else {
      source = absl::StrCat(value.origin == Origin::kInput ? "input" : "variable", " \"",
                            value.name, "\"");
    }
    absl::StrAppend(&text_, "%", id, " = ", source, " : ", value.type.ToString(), " on IPU ",
                    value.ipu, "\n");
  }

  const Graph& graph_;
  std::set<uint32_t> known_;
  std::string text_;
};

}  // namespace

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

std::string Print(const Graph& graph, const std::vector<graph::Node>& nodes) {
  GraphPrinter printer(graph);
  for (const graph::Node& node : nodes) printer.Add(node);
  for (const graph::GraphOutput& output : graph.outputs()) printer.Add(output);
  return printer.Take();
}

std::string Print(const LoweredProgram& program) {
  static constexpr const char* kSections[] = {"setup",  "clear",  "body",
                                              "reduce", "update", "finish"};
  static_assert(std::size(kSections) == kNumSections);
  std::string text;
  for (size_t i = 0; i < program.ipus.size(); ++i) {
    const LoweredIpu& ipu = program.ipus[i];
    absl::StrAppend(&text, "IPU ", i, "\n");
    for (size_t t = 0; t < ipu.tensors.size(); ++t) {
      const LoweredTensor& tensor = ipu.tensors[t];
      absl::StrAppend(&text, "%", t, " : ", tensor.type.ToString(), " strides [",
                      absl::StrJoin(tensor.strides, ","), "] in storage ", tensor.storage, " at ",
                      tensor.offset, tensor.wide_accumulator ? " wide" : "",
                      tensor.variable.empty() ? "" : absl::StrCat(" \"", tensor.variable, "\""),
                      "\n");
    }
    for (int s = 0; s < kNumSections; ++s) {
      if (ipu.sections[s].empty()) continue;
      absl::StrAppend(&text, kSections[s], ":\n");
      for (const LoweredStep& step : ipu.sections[s])
        absl::StrAppend(&text, "  ", Line(step.instruction), "\n");
    }
  }
  return text;
}

std::string Print(const program::v1::Executable& executable) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(executable, &text);
  return text;
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
