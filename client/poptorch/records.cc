// Operators of the tape as operations of the graph.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/aten/lower.h"
#include "client/poptorch/builder.h"
#include "client/poptorch/types.h"
#include "device/base/status.h"

namespace vpod::poptorch {

using graph::Graph;
using graph::Tensor;
using program::TensorType;

namespace {

constexpr absl::string_view kOwnOperators = "poptorch::";
constexpr absl::string_view kRegion = "poptorch::region.default";
// Reductions of identity_loss.
constexpr int64_t kSum = 0, kMean = 1;

}  // namespace

std::string Builder::PlaceOf(const Record& record) const {
  const std::string& scope = tape_.scopes[record.scope];
  const std::string& line = tape_.lines[record.line];
  const std::string module = scope.empty() ? "the model" : absl::StrCat("module '", scope, "'");
  return line.empty() ? module : absl::StrCat(module, " (", line, ")");
}

absl::StatusOr<aten::Argument> Builder::Convert(const Argument& argument) {
  if (const auto* use = std::get_if<Use>(&argument)) {
    VPOD_ASSIGN_OR_RETURN(const Tensor tensor, TensorOf(*use));
    return aten::Argument(tensor);
  }
  if (const auto* uses = std::get_if<std::vector<Use>>(&argument)) {
    std::vector<Tensor> tensors;
    for (const Use& use : *uses) {
      VPOD_ASSIGN_OR_RETURN(const Tensor tensor, TensorOf(use));
      tensors.push_back(tensor);
    }
    return aten::Argument(std::move(tensors));
  }
  if (const auto* flag = std::get_if<bool>(&argument)) return aten::Argument(*flag);
  if (const auto* integer = std::get_if<int64_t>(&argument)) return aten::Argument(*integer);
  if (const auto* number = std::get_if<double>(&argument)) return aten::Argument(*number);
  if (const auto* text = std::get_if<std::string>(&argument)) return aten::Argument(*text);
  if (const auto* integers = std::get_if<std::vector<int64_t>>(&argument))
    return aten::Argument(*integers);
  if (const auto* numbers = std::get_if<std::vector<double>>(&argument))
    return aten::Argument(*numbers);
  return aten::Argument();
}

absl::StatusOr<std::vector<aten::Argument>> Builder::ArgumentsOf(const Record& record) {
  std::vector<aten::Argument> arguments;
  for (const Argument& argument : record.arguments) {
    VPOD_ASSIGN_OR_RETURN(aten::Argument converted, Convert(argument));
    arguments.push_back(std::move(converted));
  }
  return arguments;
}

absl::StatusOr<std::vector<Tensor>> Builder::LowerOwn(absl::string_view name,
                                                      const Record& record) {
  if (name != "pass_by.default" && name != "identity_loss.default")
    return absl::UnimplementedError(absl::StrCat(name, " is not among the operators of PopTorch"));
  VPOD_ASSIGN_OR_RETURN(const std::vector<aten::Argument> arguments, ArgumentsOf(record));
  const auto is_tensor = [&](size_t i) {
    return i < arguments.size() && std::holds_alternative<Tensor>(arguments[i]);
  };
  const auto wrong = absl::InvalidArgumentError("the arguments are not those of the operator");
  if (!is_tensor(0)) return wrong;
  const Tensor x = std::get<Tensor>(arguments[0]);
  if (name == "pass_by.default") {
    if (!is_tensor(1)) return wrong;
    return std::vector<Tensor>{graph_.PassBy(x, std::get<Tensor>(arguments[1]))};
  }
  if (arguments.size() < 2 || !std::holds_alternative<int64_t>(arguments[1])) return wrong;
  const int64_t reduction = std::get<int64_t>(arguments[1]);
  if (reduction == kSum || reduction == kMean)
    return aten::Lower(graph_, reduction == kSum ? "sum.default" : "mean.default", {x});
  return std::vector<Tensor>{x};
}

absl::StatusOr<std::vector<Tensor>> Builder::Lower(const std::string& name, const Record& record) {
  absl::string_view own = name;
  if (absl::ConsumePrefix(&own, kOwnOperators)) return LowerOwn(own, record);
  VPOD_ASSIGN_OR_RETURN(std::vector<aten::Argument> arguments, ArgumentsOf(record));
  return aten::Lower(graph_, name, std::move(arguments));
}

void Builder::EnterBlock(int32_t block) {
  const uint32_t ipu = block < 0 ? 0 : tape_.blocks[static_cast<size_t>(block)].ipu;
  if (ipu == graph_.ipu()) return;
  graph_.SetIpu(ipu);
  built_.ipus = std::max(built_.ipus, ipu + 1);
  ++built_.stages;
  if (options_.strategy == Strategy::kPipelined) graph_.SetStage(built_.stages - 1);
}

absl::Status Builder::AddUnsupported(const std::string& name, const Record& record) {
  const std::string base = name.substr(0, name.find('.'));
  unsupported_.emplace_back(absl::StrContains(base, "::") ? base : absl::StrCat("aten::", base),
                            PlaceOf(record));
  std::vector<Tensor> placeholders;
  for (ValueId output : record.outputs) {
    placeholders.emplace_back();
    if (output == kNoValue) continue;
    VPOD_ASSIGN_OR_RETURN(const TensorType type,
                          DeviceType(tape_.values[static_cast<size_t>(output)]));
    placeholders.back() = graph_.Constant(type, 0.0);
  }
  return SetOutputs(name, record, placeholders);
}

absl::Status Builder::SetOutputs(const std::string& name, const Record& record,
                                 const std::vector<Tensor>& outputs) {
  for (size_t i = 0; i < record.outputs.size(); ++i) {
    const ValueId output = record.outputs[i];
    if (output == kNoValue) continue;
    const auto number = static_cast<size_t>(output);
    VPOD_ASSIGN_OR_RETURN(const TensorType type, DeviceType(tape_.values[number]));
    if (i >= outputs.size() || !outputs[i].valid()) {
      return absl::InternalError(absl::StrCat(name, " has no output ", i));
    }
    const TensorType made = graph_.TypeOf(outputs[i]);
    if (made == type) {
      values_[number] = outputs[i];
    } else {
      // Meta kernels give some outputs that nothing reads another shape than those of the CPU.
      mismatches_[output] =
          absl::StrCat("output ", i, " of ", name, " in ", PlaceOf(record), " is ", made.ToString(),
                       ", and ", type.ToString(), " on the tape");
    }
  }
  return absl::OkStatus();
}

bool Builder::HasGradient(const Record& record) const {
  const auto flows = [&](const Use& use) {
    return use.value != kNoValue && !use.stop && has_gradient_[static_cast<size_t>(use.value)];
  };
  return std::any_of(record.arguments.begin(), record.arguments.end(), [&](const Argument& each) {
    if (const auto* use = std::get_if<Use>(&each)) return flows(*use);
    const auto* uses = std::get_if<std::vector<Use>>(&each);
    return uses != nullptr && std::any_of(uses->begin(), uses->end(), flows);
  });
}

absl::Status Builder::AddRecord(const Record& record) {
  const bool has_gradient = HasGradient(record);
  for (ValueId output : record.outputs) {
    if (output != kNoValue) has_gradient_[static_cast<size_t>(output)] = has_gradient;
  }
  if (tape_.operators[record.op] == kRegion) return AddRegion(record);
  EnterBlock(record.block);
  const size_t first_node = graph_.nodes().size();
  VPOD_RETURN_IF_ERROR(AddOperator(record));
  marks_.AddNodes(static_cast<size_t>(&record - tape_.records.data()), first_node, graph_);
  return absl::OkStatus();
}

absl::Status Builder::AddOperator(const Record& record) {
  const std::string& name = tape_.operators[record.op];
  const Graph::Scope scope = Graph::Scope::At(graph_, tape_.scopes[record.scope]);
  const absl::StatusOr<std::vector<Tensor>> outputs = Lower(name, record);
  absl::Status status = outputs.status();
  if (absl::IsUnimplemented(status)) return AddUnsupported(name, record);
  if (status.ok()) status = graph_.TakeStatus();
  if (status.ok()) status = SetOutputs(name, record, *outputs);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), ", in ", PlaceOf(record)));
}

absl::Status Builder::UnsupportedError() const {
  if (unsupported_.empty()) return absl::OkStatus();
  std::vector<std::string> names, places;
  for (const auto& [name, place] : unsupported_) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    places.push_back(absl::StrCat(name, " in ", place));
  }
  return absl::UnimplementedError(absl::StrCat(
      "Unsupported ops found in compiled model: [", absl::StrJoin(names, ", "),
      "]. Not all operations are supported yet by Graphcore's PyTorch compiler. ",
      "docs/aten.md lists those that are. They are used here: ", absl::StrJoin(places, "; ")));
}

}  // namespace vpod::poptorch
