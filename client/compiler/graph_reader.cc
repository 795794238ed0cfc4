#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/compiler/checks.h"
#include "client/compiler/graph_text.h"
#include "client/compiler/optimizer.h"
#include "client/compiler/option_fields.h"
#include "client/compiler/text_reader.h"
#include "device/base/status.h"
#include "device/program/op.h"

namespace vpod::compiler {
namespace {

using graph::Origin;
using graph::Tensor;
using graph::Value;
using program::Form;
using program::Types;
using program::v1::Instruction;

// More than the tensors of all IPUs of a replica (program::Limits).
constexpr uint32_t kMostValues = 1 << 20;

// InvalidArgument unless an instruction takes and makes values of these types.
absl::Status CheckTypes(const Instruction& instruction, const Types& inputs, const Types& outputs) {
  const program::OpDef& op = *program::FindOp(instruction.attributes_case());
  if (op.infer == nullptr) {  // the executable's validation checks the types
    const auto fits = [](const Types& types, const program::Arity& arity) {
      const auto number = static_cast<int>(types.size());
      return number >= arity.least && number <= arity.most;
    };
    if (fits(inputs, op.inputs) && fits(outputs, op.outputs)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(program::OpName(op.kind), " does not take ",
                                                   inputs.size(), " inputs and make ",
                                                   outputs.size(), " outputs"));
  }
  VPOD_ASSIGN_OR_RETURN(const Types inferred, program::InferTypes(instruction, inputs));
  if (inferred == outputs) return absl::OkStatus();
  const std::string expected =
      absl::StrJoin(inferred, ", ", [](std::string* out, const program::TensorType& type) {
        absl::StrAppend(out, type.ToString());
      });
  return absl::InvalidArgumentError(
      absl::StrCat("expected ", expected, " as what ", program::OpName(op.kind), " makes"));
}

class GraphReader {
 public:
  explicit GraphReader(absl::string_view text) : reader_(text) {}

  absl::StatusOr<GraphProgram> Read() {
    reader_.NextLine();
    reader_.Expect("program");
    program_.spec.name = reader_.Text();
    ReadFields(program_);
    while (reader_.NextLine()) ReadLine();
    CheckThatAllIsThere();
    VPOD_RETURN_IF_ERROR(reader_.status());
    CompileOptions options;
    options.ipus_per_replica = program_.ipus;
    options.total_replicas = program_.replicas;
    options.tensor_shards = program_.tensor_shards;
    options.programs = {program_.spec};
    const absl::Status checked = CheckOptions(options);
    if (!checked.ok())
      return absl::InvalidArgumentError("line 1: " + std::string(checked.message()));
    MakeGraph();
    return std::move(program_);
  }

 private:
  void ReadLine() {
    ProgramSpec& spec = program_.spec;
    if (reader_.Take("optimizer")) {
      spec.optimizer = ReadOptimizer();
    } else if (reader_.Take("group")) {
      ReadGroup();
    } else if (reader_.Take("clip_norm")) {
      spec.clip_norm = reader_.Float();
    } else if (reader_.Take("clip_value")) {
      spec.clip_value = reader_.Float();
    } else if (reader_.Take("reduction")) {
      spec.reduction = reader_.Take("sum")            ? GradientReduction::kSum
                       : reader_.Take("running mean") ? GradientReduction::kRunningMean
                                                      : GradientReduction::kMean;
      if (spec.reduction == GradientReduction::kMean) reader_.Expect("mean");
      spec.float16_accumulators = reader_.Take("in float16");
    } else if (reader_.Take("outputs")) {
      ReadOutputMode();
    } else if (reader_.Take("automatic_loss_scale")) {
      ReadFields(spec.automatic_loss_scale.emplace());
    } else if (reader_.Take("histogram_loss_scale")) {
      ReadFields(spec.histogram_loss_scale.emplace());
    } else if (reader_.Take("loss_scale_factor")) {
      program_.gradients.loss_scale_factor = Known(buffers_, "buffer");
    } else if (reader_.Take("counted")) {
      program_.gradients.counted.push_back(Known());
    } else if (reader_.Take("remote_buffer on IPU")) {
      reader_.Braced(parts_.remote_buffers[Ipu()].emplace_back());
    } else if (reader_.Take("output")) {
      graph::GraphOutput& output = parts_.outputs.emplace_back();
      output.name = Name();
      output.value = Known();
      if (reader_.Take("returns")) spec.output_modes[output.name] = ReadMode();
    } else if (reader_.Take("assign")) {
      ReadAssignment();
    } else if (reader_.Take("loss")) {
      spec.loss = Known();
    } else if (reader_.Take("loss_scale")) {
      program_.gradients.loss_scale = Known(buffers_, "buffer");
      reader_.Expect("=");
      spec.loss_scale = reader_.Float();
    } else if (reader_.Take("backward from")) {
      program_.first_backward = reader_.Id();
    } else if (reader_.Take("gradient of")) {
      ReadGradients();
    } else if (reader_.Take("recomputed")) {
      const uint32_t copy = Known().id;
      reader_.Expect("=");
      program_.recomputed[copy] = reader_.Id();
    } else if (reader_.Take("rounding on IPU")) {
      ReadFields(program_.rounding[Ipu()]);
    } else {
      ReadValues();
    }
  }

  void ReadAssignment() {
    graph::Assignment& assignment = parts_.assignments.emplace_back();
    assignment.variable = Known();
    if (reader_.ok() && values_[assignment.variable.id].origin != Origin::kVariable)
      reader_.Fail(absl::StrCat("%", assignment.variable.id, " is not a buffer or variable"));
    reader_.Expect("=");
    assignment.value = Known();
    if (reader_.Take("always")) assignment.when = graph::Assigned::kAlways;
    if (reader_.Take("if read")) assignment.when = graph::Assigned::kIfRead;
  }

  Optimizer ReadOptimizer() {
    for (Optimizer optimizer : std::initializer_list<Optimizer>{
             SgdOptions{}, AdamOptions{}, RmsPropOptions{}, LambOptions{}, LarsOptions{}}) {
      if (!reader_.Take(NameOf(optimizer))) continue;
      std::visit([&](auto& options) { ReadFields(options); }, optimizer);
      return optimizer;
    }
    reader_.Expect("SGD");
    return {};
  }

  void ReadGroup() {
    ParameterGroup& group = program_.spec.groups.emplace_back();
    group.optimizer = ReadOptimizer();
    reader_.Expect("of");
    while (!reader_.AtEnd()) group.variables.push_back(Name());
  }

  OutputMode ReadMode() {
    for (const auto& [name, mode] : kOutputModeNames) {
      if (reader_.Take(name)) return mode;
    }
    reader_.Expected("a mode of outputs");
    return {};
  }

  void ReadOutputMode() {
    program_.spec.output_mode = ReadMode();
    if (!reader_.ok()) return;
    reader_.Expect("period");
    program_.spec.output_period = reader_.Number();
  }

  void ReadGradients() {
    const Tensor variable = Known(variables_, "variable");
    reader_.Expect(":");
    const auto [gradients, is_new] = gradients_.try_emplace(variable.id);
    if (!is_new) reader_.Fail(absl::StrCat("%", variable.id, " has its gradients already"));
    for (uint32_t id : reader_.Ids()) gradients->second.push_back(Check(id));
  }

  // A node, or a value that no node makes.
  void ReadValues() {
    const std::vector<uint32_t> made = reader_.Ids();
    if (!made.empty()) reader_.Expect("=");
    if (made.size() != 1 || !ReadSource(made[0])) ReadNode(made);
  }

  // False if an operation comes next.
  bool ReadSource(uint32_t id) {
    Value value;
    if (reader_.Take("input")) {
      value.origin = Origin::kInput;
    } else if (reader_.Take("variable")) {
      value.origin = Origin::kVariable;
      variables_.insert(id);
    } else if (reader_.Take("buffer")) {
      value.origin = Origin::kVariable;
      buffers_.insert(id);
    } else if (reader_.Take("constant elements")) {
      value.origin = Origin::kConstant;
      value.elements = ReadElements();
    } else if (reader_.Take("constant")) {
      value.origin = Origin::kConstant;
      value.constant = reader_.Double();
    } else if (reader_.Take("reshape")) {
      value.alias_of = value.gradient_to = Source();
    } else if (reader_.Take("stop")) {
      value.alias_of = Source();
    } else if (reader_.Take("pass_by")) {
      value.alias_of = Source();
      reader_.Expect("gradient to");
      value.gradient_to = reader_.Id();
    } else if (!reader_.Take("dead")) {
      return false;
    }
    if (value.origin == Origin::kInput || value.origin == Origin::kVariable) value.name = Name();
    reader_.Expect(":");
    ReadType(value);
    reader_.Expect("on IPU");
    value.ipu = Ipu();
    if (variables_.contains(id) && reader_.Take("with outputs innermost"))
      program_.filters.insert(id);
    if (value.elements != nullptr && value.elements->size() != value.type.bytes()) {
      reader_.Fail(absl::StrCat("expected the ", value.type.bytes(), " bytes of ",
                                value.type.ToString(), ", not ", value.elements->size()));
    }
    if (value.alias_of != ~0u) CheckReshape(values_[value.alias_of].type, value.type);
    Define(id, std::move(value));
    return true;
  }

  std::shared_ptr<const std::string> ReadElements() {
    const std::string digits = reader_.Text();
    const bool is_hex =
        digits.size() % 2 == 0 && std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit);
    if (!is_hex) reader_.Fail("expected two hexadecimal digits for each byte");
    return std::make_shared<const std::string>(absl::HexStringToBytes(is_hex ? digits : ""));
  }

  // Reads the value whose bytes an alias shares.
  uint32_t Source() {
    reader_.Expect("(");
    const uint32_t source = Known().id;
    reader_.Expect(")");
    return source;
  }

  void CheckReshape(const program::TensorType& from, const program::TensorType& to) {
    if (from.type == to.type && from.elements() == to.elements()) return;
    reader_.Fail(
        absl::StrCat("expected the elements of ", from.ToString(), ", not ", to.ToString()));
  }

  void ReadNode(const std::vector<uint32_t>& made) {
    graph::Node node;
    node.instruction = reader_.Operation(Form::kFused);
    node.instruction.mutable_outputs()->Add(made.begin(), made.end());
    std::vector<Value> values(made.size());
    for (size_t i = 0; i < values.size(); ++i) {
      reader_.Expect(i == 0 ? ":" : ",");
      ReadType(values[i]);
    }
    reader_.Expect("on IPU");
    node.ipu = Ipu();
    reader_.Expect("from");
    program::v1::Origin origin;
    reader_.Braced(origin);
    node.origin = parts_.origins.Add(origin);
    Types inputs, outputs;
    for (uint32_t id : node.instruction.inputs()) inputs.push_back(values_[Check(id).id].type);
    for (const Value& value : values) outputs.push_back(value.type);
    if (!reader_.ok()) return;
    if (node.instruction.has_rounding()) reader_.Fail("a node has no rounding of its own");
    const absl::Status types = CheckTypes(node.instruction, inputs, outputs);
    if (!types.ok()) reader_.Fail(types.message());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i].ipu = node.ipu;
      Define(made[i], std::move(values[i]));
    }
    parts_.nodes.push_back(std::move(node));
  }

  void ReadType(Value& value) {
    value.type = reader_.Type();
    if (reader_.Take("stage")) value.stage = reader_.Number();
    value.is_checkpoint = reader_.Take("checkpoint");
  }

  void ReadFields(auto& options) {
    ForEachField(options, [&](const char* name, auto& value) {
      reader_.Expect(name);
      Set(value);
    });
  }
  void Set(bool& value) { value = reader_.Bool(); }
  void Set(uint32_t& value) { value = reader_.Number(); }
  void Set(float& value) { value = reader_.Float(); }
  void Set(Tensor& value) { value = Known(); }

  std::string Name() {
    std::string name = reader_.Text();
    if (name.empty()) reader_.Fail("expected a name that is not empty");
    return name;
  }

  uint32_t Ipu() {
    const uint32_t ipu = reader_.Number();
    if (ipu >= program_.ipus)
      reader_.Fail(absl::StrCat("expected an IPU below ", program_.ipus, ", found ", ipu));
    return ipu;
  }

  void Define(uint32_t id, Value value) {
    if (id >= kMostValues) {
      reader_.Fail(absl::StrCat("expected an id below ", kMostValues, ", found %", id));
    } else if (!values_.emplace(id, std::move(value)).second) {
      reader_.Fail(absl::StrCat("%", id, " is defined twice"));
    }
  }

  // A value that is defined already.
  Tensor Known() { return Check(reader_.Id()); }
  Tensor Known(const std::set<uint32_t>& kind, absl::string_view name) {
    const Tensor value = Known();
    if (!kind.contains(value.id)) reader_.Fail(absl::StrCat("%", value.id, " is not a ", name));
    return value;
  }
  Tensor Check(uint32_t id) {
    if (!values_.contains(id))
      reader_.Fail(absl::StrCat("%", id, " is not defined before this line"));
    return {id};
  }

  // A program that trains has all of these lines.
  void CheckThatAllIsThere() {
    const ProgramSpec& spec = program_.spec;
    if (!spec.optimizer && !spec.loss && gradients_.empty()) return;
    const auto require = [&](bool is_there, absl::string_view line) {
      if (!is_there) reader_.Fail(absl::StrCat("expected a line '", line, "' before the end"));
    };
    require(spec.optimizer.has_value(), "optimizer");
    require(spec.loss.has_value(), "loss");
    require(program_.first_backward != ~0u, "backward from");
    for (uint32_t variable : variables_)
      require(gradients_.contains(variable), absl::StrCat("gradient of %", variable));
  }

  // A graph numbers its values in the order in which they are added.
  void MakeGraph() {
    if (!values_.empty()) parts_.values.resize(values_.rbegin()->first + 1);
    for (auto& [id, value] : values_) {
      if (value.origin == Origin::kInput) parts_.inputs.push_back({id});
      parts_.values[id] = std::move(value);
    }
    for (uint32_t id : buffers_) parts_.buffers.push_back({id});
    for (uint32_t id : variables_) {
      parts_.variables.push_back({id});
      if (program_.trains()) program_.gradients.of_variables.push_back(std::move(gradients_[id]));
    }
    program_.graph = graph::Graph(std::move(parts_));
  }

  TextReader reader_;
  GraphProgram program_;
  graph::GraphParts parts_;
  std::map<uint32_t, Value> values_;                   // by id
  std::set<uint32_t> variables_, buffers_;             // ids
  std::map<uint32_t, std::vector<Tensor>> gradients_;  // by the variable's id
};

}  // namespace

absl::StatusOr<GraphProgram> ReadGraph(absl::string_view text) { return GraphReader(text).Read(); }

}  // namespace vpod::compiler
