#include "client/poptorch/build.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/aten/lower.h"
#include "client/poptorch/losses.h"
#include "client/poptorch/types.h"
#include "device/base/status.h"

namespace vpod::poptorch {
namespace {

using graph::Graph;
using graph::Tensor;
using program::TensorType;

constexpr absl::string_view kOwnOperators = "poptorch::";
// Reductions of identity_loss.
constexpr int64_t kSum = 0, kMean = 1;

// What a value of the tape is before any operator has made it.
struct Source {
  enum class Kind { kOperator, kParameter, kBuffer, kInput, kConstant } kind = Kind::kOperator;
  size_t place = 0;  // in the tape's list of that kind
};

class Builder {
 public:
  Builder(const Tape& tape, const ModelOptions& options, const OptimizerOptions& optimizer)
      : tape_(tape),
        options_(options),
        values_(tape.values.size()),
        stopped_(tape.values.size()),
        has_gradient_(tape.values.size(), false),
        sources_(tape.values.size()) {
    for (const compiler::ParameterGroup& group : optimizer.groups)
      grouped_.insert(group.variables.begin(), group.variables.end());
  }

  absl::StatusOr<BuiltGraph> Build();

 private:
  absl::Status CheckNumbers() const;
  absl::Status ListSources();
  absl::Status AddRecord(const Record& record);
  void EnterBlock(int32_t block);
  // Of the tensor itself, whatever its uses are; it is created by its first use.
  absl::StatusOr<Tensor> ValueOf(ValueId value);
  // InvalidArgument names state that two IPUs of a pipeline read.
  absl::Status CheckIpu(ValueId value) const;
  absl::StatusOr<Tensor> CreateSource(const Source& source, ValueId value);
  absl::StatusOr<Tensor> CreateState(const NamedValue& state, bool parameter);
  absl::StatusOr<Tensor> TensorOf(const Use& use);
  absl::StatusOr<aten::Argument> Convert(const Argument& argument);
  absl::StatusOr<std::vector<aten::Argument>> ArgumentsOf(const Record& record);
  absl::StatusOr<std::vector<Tensor>> Lower(const std::string& name, const Record& record);
  absl::StatusOr<std::vector<Tensor>> LowerOwn(absl::string_view name, const Record& record);
  absl::Status SetOutputs(const std::string& name, const Record& record,
                          const std::vector<Tensor>& outputs);
  // Takes note of an operator that is not known; its outputs are constants, so that the others are
  // found as well.
  absl::Status AddUnsupported(const std::string& name, const Record& record);
  absl::Status UnsupportedError() const;
  absl::Status AddResults();
  absl::Status AssignState();
  absl::Status AddLoss();
  void SetMemoryProportions();
  bool IsTrained(const NamedValue& parameter, const TensorType& type) const;
  // "layer1.0 (model.py:12)"
  std::string PlaceOf(const Record& record) const;

  const Tape& tape_;
  const ModelOptions& options_;
  std::set<std::string> grouped_;
  BuiltGraph built_;
  Graph& graph_ = built_.graph;
  std::vector<Tensor> values_, stopped_;       // by number; invalid until they are made
  std::vector<bool> has_gradient_;             // by number: depends on a parameter that is trained
  std::vector<Source> sources_;                // by number
  std::map<ValueId, std::string> mismatches_;  // outputs of other types than on the tape
  std::map<size_t, float> proportions_;        // of the nodes that are products, by their number
  // What the operators are that are not known, with their places, in program order.
  std::vector<std::pair<std::string, std::string>> unsupported_;
};

std::string Builder::PlaceOf(const Record& record) const {
  const std::string& scope = tape_.scopes[record.scope];
  const std::string& line = tape_.lines[record.line];
  const std::string module = scope.empty() ? "the model" : absl::StrCat("module '", scope, "'");
  return line.empty() ? module : absl::StrCat(module, " (", line, ")");
}

// Everything that the rest of this file uses as an index.
absl::Status Builder::CheckNumbers() const {
  const auto bad = [](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tape is damaged: ", what, " has a number that does not exist"));
  };
  const auto exists = [&](ValueId value) {
    return value >= 0 && static_cast<size_t>(value) < tape_.values.size();
  };
  const auto exists_or_none = [&](ValueId value) { return value == kNoValue || exists(value); };
  for (const Record& record : tape_.records) {
    if (record.op >= tape_.operators.size() || record.scope >= tape_.scopes.size() ||
        record.line >= tape_.lines.size() || record.block < -1 ||
        record.block >= static_cast<int32_t>(tape_.blocks.size())) {
      return bad("a record");
    }
    for (ValueId output : record.outputs) {
      if (!exists_or_none(output)) return bad("an output of a record");
    }
    for (const Argument& argument : record.arguments) {
      const auto* use = std::get_if<Use>(&argument);
      if (use != nullptr && !exists(use->value)) return bad("an argument of a record");
      const auto* uses = std::get_if<std::vector<Use>>(&argument);
      if (uses == nullptr) continue;
      for (const Use& each : *uses) {
        if (!exists_or_none(each.value)) return bad("an argument of a record");
      }
    }
  }
  for (const auto* list : {&tape_.parameters, &tape_.buffers, &tape_.inputs}) {
    for (const NamedValue& each : *list) {
      if (!exists(each.value) || !exists(each.final)) return bad(absl::StrCat("'", each.name, "'"));
    }
  }
  for (ValueId result : tape_.results) {
    if (!exists(result)) return bad("a result");
  }
  for (const ConstantValue& constant : tape_.constants) {
    if (!exists(constant.value)) return bad("a constant");
  }
  for (const LossMark& loss : tape_.losses) {
    if (!exists(loss.value)) return bad("a loss");
  }
  for (ValueId value : tape_.checkpoints) {
    if (!exists(value)) return bad("a checkpoint");
  }
  return absl::OkStatus();
}

absl::Status Builder::ListSources() {
  const auto list = [&](const auto& all, Source::Kind kind) {
    for (size_t i = 0; i < all.size(); ++i) {
      // Tied parameters are one value: the first name counts.
      Source& source = sources_[static_cast<size_t>(all[i].value)];
      if (source.kind == Source::Kind::kOperator) source = {kind, i};
    }
  };
  list(tape_.parameters, Source::Kind::kParameter);
  list(tape_.buffers, Source::Kind::kBuffer);
  list(tape_.inputs, Source::Kind::kInput);
  list(tape_.constants, Source::Kind::kConstant);
  for (const NamedValue& parameter : tape_.parameters) {
    const auto value = static_cast<size_t>(parameter.value);
    VPOD_ASSIGN_OR_RETURN(const TensorType type, DeviceType(tape_.values[value]));
    has_gradient_[value] = IsTrained(parameter, type);
  }
  return absl::OkStatus();
}

bool Builder::IsTrained(const NamedValue& parameter, const TensorType& type) const {
  return options_.training && parameter.requires_grad && program::IsFloat(type.type) &&
         grouped_.contains(parameter.name);
}

absl::StatusOr<Tensor> Builder::CreateState(const NamedValue& state, bool parameter) {
  VPOD_ASSIGN_OR_RETURN(const TensorType type,
                        DeviceType(tape_.values[static_cast<size_t>(state.value)]));
  const bool trained = parameter && IsTrained(state, type);
  if (trained) built_.trained.push_back(state.name);
  // The names of parameters and buffers are whole paths. Their values are written at each load.
  const Graph::Scope whole_model = Graph::Scope::At(graph_, "");
  const auto zeros = graph::InitialValue::Filled(0);
  // Weights that do not change are variables where nothing is trained.
  if (trained || (parameter && !options_.training && program::IsFloat(type.type)))
    return graph_.Variable(state.name, type, zeros);
  return graph_.Buffer(state.name, type, zeros);
}

absl::StatusOr<Tensor> Builder::CreateSource(const Source& source, ValueId value) {
  const TapeValue& host = tape_.values[static_cast<size_t>(value)];
  switch (source.kind) {
    case Source::Kind::kParameter:
      return CreateState(tape_.parameters[source.place], /*parameter=*/true);
    case Source::Kind::kBuffer:
      return CreateState(tape_.buffers[source.place], /*parameter=*/false);
    case Source::Kind::kInput: {
      VPOD_ASSIGN_OR_RETURN(const TensorType type, DeviceType(host));
      return graph_.Input(InputName(source.place), type);
    }
    case Source::Kind::kConstant: {
      VPOD_ASSIGN_OR_RETURN(const TensorType type, DeviceType(host));
      const std::string& from = tape_.constants[source.place].bytes;
      if (from.size() != HostBytes(host)) {
        return absl::InvalidArgumentError(
            absl::StrCat("a constant of ", HostBytes(host), " bytes has ", from.size()));
      }
      std::string bytes(type.bytes(), '\0');
      VPOD_RETURN_IF_ERROR(ToDevice("a constant of the model", host.type, from,
                                    reinterpret_cast<std::byte*>(bytes.data())));
      return graph_.Constant(type, std::move(bytes));
    }
    case Source::Kind::kOperator:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the tape is damaged: value ", value, " is used before it is made"));
}

absl::StatusOr<Tensor> Builder::ValueOf(ValueId value) {
  Tensor& tensor = values_[static_cast<size_t>(value)];
  const auto mismatch = mismatches_.find(value);
  if (mismatch != mismatches_.end()) return absl::InternalError(mismatch->second);
  if (!tensor.valid()) {
    VPOD_ASSIGN_OR_RETURN(tensor, CreateSource(sources_[static_cast<size_t>(value)], value));
    VPOD_RETURN_IF_ERROR(graph_.TakeStatus());
  } else {
    VPOD_RETURN_IF_ERROR(CheckIpu(value));
  }
  return tensor;
}

absl::Status Builder::CheckIpu(ValueId value) const {
  const Source& source = sources_[static_cast<size_t>(value)];
  const bool parameter = source.kind == Source::Kind::kParameter;
  if (options_.strategy != Strategy::kPipelined ||
      (!parameter && source.kind != Source::Kind::kBuffer)) {
    return absl::OkStatus();
  }
  const uint32_t ipu = graph_.values()[values_[static_cast<size_t>(value)].id].ipu;
  if (ipu == graph_.ipu()) return absl::OkStatus();
  const NamedValue& state = (parameter ? tape_.parameters : tape_.buffers)[source.place];
  return absl::InvalidArgumentError(absl::StrCat(
      parameter ? "parameter '" : "buffer '", state.name, "' is used on IPU ", ipu, " and on IPU ",
      graph_.ipu(), ": layers of a pipeline that share a tensor must be on one IPU"));
}

absl::StatusOr<Tensor> Builder::TensorOf(const Use& use) {
  if (use.value == kNoValue) return Tensor{};
  VPOD_ASSIGN_OR_RETURN(const Tensor tensor, ValueOf(use.value));
  const auto number = static_cast<size_t>(use.value);
  // Elsewhere no gradient comes, and the graph stays simpler.
  if (!use.stop || !has_gradient_[number]) return tensor;
  if (!stopped_[number].valid()) stopped_[number] = graph_.Stop(tensor);
  return stopped_[number];
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
  if (std::holds_alternative<std::vector<double>>(argument))
    return absl::InvalidArgumentError("a list of floats is not an argument of any operator");
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
  const bool is_region = name == "region.default";
  if (is_region ? options_.training
                : name != "pass_by.default" && name != "identity_loss.default") {
    return absl::UnimplementedError(absl::StrCat(name, " is not among the operators of PopTorch"));
  }
  VPOD_ASSIGN_OR_RETURN(std::vector<aten::Argument> arguments, ArgumentsOf(record));
  // A span with gradients of the program's own: forward it is what it is given.
  if (is_region && !arguments.empty() && std::holds_alternative<std::vector<Tensor>>(arguments[0]))
    return std::get<std::vector<Tensor>>(arguments[0]);
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

absl::Status Builder::AddRecord(const Record& record) {
  EnterBlock(record.block);
  const std::string& name = tape_.operators[record.op];
  const size_t first_node = graph_.nodes().size();
  const Graph::Scope scope = Graph::Scope::At(graph_, tape_.scopes[record.scope]);
  bool has_gradient = false;
  const auto look = [&](const Use& use) {
    if (use.value != kNoValue && !use.stop)
      has_gradient = has_gradient || has_gradient_[static_cast<size_t>(use.value)];
  };
  for (const Argument& argument : record.arguments) {
    if (const auto* use = std::get_if<Use>(&argument)) look(*use);
    if (const auto* uses = std::get_if<std::vector<Use>>(&argument))
      std::for_each(uses->begin(), uses->end(), look);
  }
  for (ValueId output : record.outputs) {
    if (output != kNoValue) has_gradient_[static_cast<size_t>(output)] = has_gradient;
  }

  absl::StatusOr<std::vector<Tensor>> outputs = Lower(name, record);
  absl::Status status = outputs.status();
  if (absl::IsUnimplemented(status)) return AddUnsupported(name, record);
  if (status.ok()) status = graph_.TakeStatus();
  if (status.ok()) status = SetOutputs(name, record, *outputs);
  if (!status.ok())
    return absl::Status(status.code(), absl::StrCat(status.message(), ", in ", PlaceOf(record)));
  for (const auto& [value, proportion] : tape_.available_memory) {
    if (std::find(record.outputs.begin(), record.outputs.end(), value) == record.outputs.end())
      continue;
    for (size_t node = first_node; node < graph_.nodes().size(); ++node)
      proportions_[node] = proportion;
  }
  return absl::OkStatus();
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

absl::Status Builder::AddResults() {
  for (size_t i = 0; i < tape_.results.size(); ++i) {
    VPOD_ASSIGN_OR_RETURN(const Tensor value, ValueOf(tape_.results[i]));
    graph_.Output(ResultName(i), value);
  }
  for (size_t i = 0; i < tape_.inputs.size(); ++i) {
    const NamedValue& input = tape_.inputs[i];
    if (input.final == input.value) continue;
    VPOD_ASSIGN_OR_RETURN(const Tensor value, ValueOf(input.final));
    graph_.Output(WrittenInputName(i), value);
  }
  return graph_.TakeStatus();
}

absl::Status Builder::AssignState() {
  for (const auto* list : {&tape_.parameters, &tape_.buffers}) {
    for (const NamedValue& state : *list) {
      if (state.final == state.value) continue;
      VPOD_ASSIGN_OR_RETURN(const Tensor value, ValueOf(state.final));
      // State that is only written lies where it is written.
      graph_.SetIpu(graph_.values()[value.id].ipu);
      graph_.SetStage(graph_.values()[value.id].stage);
      VPOD_ASSIGN_OR_RETURN(const Tensor to, ValueOf(state.value));
      graph_.Assign(to, value, graph::Assigned::kAlways);
    }
  }
  return graph_.TakeStatus();
}

absl::Status Builder::AddLoss() {
  if (!options_.training) return absl::OkStatus();
  VPOD_ASSIGN_OR_RETURN(const ValueId loss, FindLoss(tape_));
  VPOD_ASSIGN_OR_RETURN(Tensor value, ValueOf(loss));
  // Back-propagation begins with ones, as many as the loss has elements.
  if (!graph_.TypeOf(value).dims.empty()) {
    graph_.SetIpu(graph_.values()[value.id].ipu);
    graph_.SetStage(graph_.values()[value.id].stage);
    value = graph_.Sum(value);
  }
  built_.loss = value;
  return graph_.TakeStatus();
}

void Builder::SetMemoryProportions() {
  if (proportions_.empty()) return;
  std::vector<graph::Node> nodes = graph_.nodes();
  for (const auto& [number, proportion] : proportions_) {
    program::v1::Instruction& op = nodes[number].instruction;
    if (op.has_mat_mul()) {
      op.mutable_mat_mul()->mutable_plan()->set_memory_proportion(proportion);
    } else if (op.has_convolution()) {
      op.mutable_convolution()->mutable_plan()->set_memory_proportion(proportion);
    }
  }
  graph_.SetNodes(std::move(nodes));
}

absl::StatusOr<BuiltGraph> Builder::Build() {
  VPOD_RETURN_IF_ERROR(CheckNumbers());
  VPOD_RETURN_IF_ERROR(ListSources());
  for (const Record& record : tape_.records) VPOD_RETURN_IF_ERROR(AddRecord(record));
  VPOD_RETURN_IF_ERROR(UnsupportedError());
  for (ValueId checkpoint : tape_.checkpoints) {
    VPOD_ASSIGN_OR_RETURN(const Tensor value, ValueOf(checkpoint));
    graph_.Checkpoint(value);
  }
  VPOD_RETURN_IF_ERROR(AddResults());
  VPOD_RETURN_IF_ERROR(AddLoss());
  VPOD_RETURN_IF_ERROR(AssignState());
  SetMemoryProportions();
  return std::move(built_);
}

}  // namespace

std::string InputName(size_t input) { return absl::StrCat("input", input); }
std::string ResultName(size_t result) { return absl::StrCat("output", result); }
std::string WrittenInputName(size_t input) { return absl::StrCat("input", input, "/written"); }

absl::StatusOr<BuiltGraph> BuildGraph(const Tape& tape, const ModelOptions& options,
                                      const OptimizerOptions& optimizer) {
  return Builder(tape, options, optimizer).Build();
}

}  // namespace vpod::poptorch
