// Prints docs/ops.md: every op with what the op tables and the comments of program.proto say, the
// constraints of its type rule, and an example. The argument is program.proto.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/graph/gradients/gradients.h"
#include "device/program/op.h"
#include "tests/support/small_ops.h"

namespace vpod {
namespace {

using program::v1::Instruction;

// A message or enumeration of program.proto: the comment above it, with those that are set off
// before it, and its text.
struct Definition {
  std::string comment, text;
};

// Appends a line of a comment to text in Markdown.
void AppendComment(absl::string_view line, std::string& comment) {
  if (line.empty()) {
    if (!comment.empty() && !absl::EndsWith(comment, "\n\n")) comment += "\n\n";
    return;
  }
  if (!comment.empty() && comment.back() != '\n') comment += ' ';
  comment += absl::StrReplaceAll(line, {{"*", "\\*"}, {"<", "\\<"}});
}

std::map<std::string, Definition> ReadDefinitions(std::istream& proto) {
  std::map<std::string, Definition> definitions;
  std::string comment, name;
  for (std::string line; std::getline(proto, line);) {
    if (!name.empty()) {
      absl::StrAppend(&definitions[name].text, line, "\n");
      if (line == "}") name.clear();
      continue;
    }
    absl::string_view rest = line;
    if (absl::StartsWith(rest, "// ---")) {
      comment.clear();  // a heading
    } else if (rest.empty() || rest == "//") {
      AppendComment("", comment);
    } else if (absl::ConsumePrefix(&rest, "// ")) {
      AppendComment(rest, comment);
    } else {
      if (absl::ConsumePrefix(&rest, "message ") || absl::ConsumePrefix(&rest, "enum ")) {
        name = std::string(rest.substr(0, rest.find(' ')));
        definitions[name] = {comment, absl::StrCat(line, "\n")};
        if (absl::EndsWith(line, "}")) name.clear();
      }
      comment.clear();
    }
  }
  return definitions;
}

std::string Count(const program::Arity& arity, absl::string_view noun) {
  const std::string plural = absl::StrCat(noun, arity.least == 1 && arity.most == 1 ? "" : "s");
  if (arity.most == program::kAnyNumber) return absl::StrCat(arity.least, " or more ", plural);
  if (arity.most == 0) return absl::StrCat("no ", plural);
  if (arity.least == arity.most) return absl::StrCat(arity.most, " ", plural);
  const char* between = arity.most == arity.least + 1 ? " or " : " to ";
  return absl::StrCat(arity.least, between, arity.most, " ", plural);
}

std::string Executor(program::Role role) {
  switch (role) {
    case program::Role::kKernel:
      return "A kernel of its IPU executes it.";
    case program::Role::kCollective:
      return "Replicas execute it together.";
    case program::Role::kExchange:
      return "The IPUs of a replica execute it together.";
    case program::Role::kStream:
      return "It exchanges data with the host.";
    default:
      return "It executes functions.";
  }
}

std::string Maker(program::Form form) {
  switch (form) {
    case program::Form::kGraph:
      return "Graphs may have it.";
    case program::Form::kFused:
      return "The compiler's fusion makes it.";
    case program::Form::kLowered:
      return "The compiler's lowering makes it.";
    default:
      return "The compiler's assembly makes it.";
  }
}

std::string Gradient(program::OpKind kind) {
  const graph::GradientDef& gradient = *graph::FindGradient(kind);
  if (gradient.add != nullptr) return "It has a gradient.";
  return gradient.none != nullptr
             ? absl::StrCat("No gradient flows back: ", gradient.none, ".")
             : absl::StrCat("Its gradient is missing: ", gradient.missing, ".");
}

std::string LayoutName(program::Layout layout) {
  switch (layout) {
    case program::Layout::kChannelsLast:
      return "channels innermost";
    case program::Layout::kDense:
      return "dense";
    case program::Layout::kStrided:
      return "any layout";
    default:
      return "row-major";
  }
}

// "float32[2,8,4,4], channels innermost"
std::string Operand(const program::OpDef& op, const Instruction& instruction,
                    const program::TensorType& type, program::OperandPlace place) {
  const program::Layout layout =
      op.layout == nullptr ? program::Layout::kRowMajor : op.layout(instruction, place);
  const bool matters = type.rank() > 1 || layout == program::Layout::kStrided;
  return absl::StrCat("`", type.ToString(), "`",
                      matters ? absl::StrCat(" (", LayoutName(layout), ")") : "");
}

void PrintConstraints(const program::OpDef& op) {
  if (op.constraints.empty()) return;
  std::printf("Constraints:\n\n");
  for (const program::Constraint& constraint : op.constraints)
    std::printf("- `%s` %s\n", constraint.label, constraint.text);
  std::printf("\n");
}

void PrintExample(const program::OpDef& op, const testing::SmallOp& small) {
  const Instruction instruction = testing::Attributes(small);
  program::Types outputs = small.outputs;
  if (op.infer != nullptr) outputs = *program::InferTypes(instruction, small.inputs);
  const auto join = [&](const program::Types& types, bool output) {
    std::vector<std::string> operands;
    for (size_t i = 0; i < types.size(); ++i) {
      operands.push_back(
          Operand(op, instruction, types[i], {.output = output, .position = static_cast<int>(i)}));
    }
    return operands.empty() ? "nothing" : absl::StrJoin(operands, ", ");
  };
  std::printf("Example: `%s` of %s gives %s.\n\n", instruction.ShortDebugString().c_str(),
              join(small.inputs, false).c_str(), join(outputs, true).c_str());
}

void PrintOp(const google::protobuf::FieldDescriptor& field, const Definition& definition,
             const testing::SmallOp& small) {
  const auto kind = static_cast<program::OpKind>(field.number());
  const program::OpDef& op = *program::FindOp(kind);
  std::printf("## %s\n\n", field.name().c_str());
  std::printf("%s\n\n", definition.comment.c_str());
  std::printf("```proto\n%s```\n\n", definition.text.c_str());
  std::vector<std::string> facts = {absl::StrCat("It takes ", Count(op.inputs, "input"),
                                                 " and gives ", Count(op.outputs, "output"), "."),
                                    Executor(op.role), Maker(op.form), Gradient(kind)};
  for (const program::InPlace& pair : op.in_place)
    facts.push_back(absl::StrCat("Output ", pair.output, " is input ", pair.input, " itself."));
  if (op.updates) facts.push_back("Its output may lie over input 0.");
  if (op.elementwise) facts.push_back("It may be a step of a map.");
  if (op.view != nullptr)
    facts.push_back("Compiled programs have a view instead, unless the input is a buffer.");
  if (op.rounds) facts.push_back("It may round float16 outputs stochastically.");
  std::printf("%s\n\n", absl::StrJoin(facts, " ").c_str());
  PrintConstraints(op);
  PrintExample(op, small);
}

int Main(const char* path) {
  std::ifstream proto(path);
  const auto definitions = ReadDefinitions(proto);
  if (definitions.empty()) {
    std::cerr << "ops_document: error: cannot read messages from " << path << "\n";
    return 1;
  }
  const auto small_ops = testing::SmallOps();
  std::printf(
      "# Operations\n\n"
      "This page lists the operations that an instruction of an "
      "[executable](architecture.md#load) can be. Each has its comment and definition from "
      "`proto/program/v1/program.proto`, the facts of its row in the [op tables](adding-an-op.md), "
      "the constraints of its type rule and a small example that the tests run. An error of the "
      "type rule ends with the label of the constraint that is broken: `groups is 3, must divide "
      "the 4 channels (conv_c5)`. Layouts are those of the example's operands. "
      "`tests/ops/run` writes this page, and a test compares it.\n\n");
  const auto* oneof = Instruction::descriptor()->FindOneofByName("attributes");
  std::vector<std::string> links;
  for (int i = 0; i < oneof->field_count(); ++i) {
    const std::string& name = oneof->field(i)->name();
    links.push_back(absl::StrCat("[", name, "](#", name, ")"));
  }
  std::printf("%s\n\n", absl::StrJoin(links, " · ").c_str());
  for (int i = 0; i < oneof->field_count(); ++i) {
    const auto& field = *oneof->field(i);
    PrintOp(field, definitions.at(field.message_type()->name()), small_ops.at(field.name()));
  }
  std::printf("## Messages and enumerations in attributes\n\n");
  for (const char* name : {"DataType", "UnaryOperator", "BinaryOperator", "ReduceOperator",
                           "SlidingWindow", "ReplicaGroup", "StochasticRounding"}) {
    const Definition& definition = definitions.at(name);
    std::printf("%s\n\n```proto\n%s```\n\n", definition.comment.c_str(), definition.text.c_str());
  }
  return 0;
}

}  // namespace
}  // namespace vpod

int main(int argc, char** argv) {
  if (argc == 2) return vpod::Main(argv[1]);
  std::cerr << "usage: ops_document program.proto\n";
  return 2;
}
