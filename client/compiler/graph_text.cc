#include "client/compiler/graph_text.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "client/compiler/optimizer.h"
#include "client/compiler/option_fields.h"
#include "client/compiler/text_form.h"

namespace vpod::compiler {
namespace {

using graph::Origin;
using graph::Tensor;
using graph::Value;

constexpr uint32_t kNone = ~0u;

std::string Show(bool value) { return value ? "true" : "false"; }
std::string Show(uint32_t value) { return absl::StrCat(value); }
std::string Show(float value) { return Digits(value); }
std::string Show(Tensor value) { return absl::StrCat("%", value.id); }

// " ipus 1 replicas 2 …"
std::string Fields(const auto& options) {
  std::string text;
  ForEachField(options, [&](const char* name, const auto& value) {
    absl::StrAppend(&text, " ", name, " ", Show(value));
  });
  return text;
}

// "SGD learning_rate 0.01 …"
std::string Show(const Optimizer& optimizer) {
  return absl::StrCat(NameOf(optimizer),
                      std::visit([](const auto& options) { return Fields(options); }, optimizer));
}

class GraphPrinter {
 public:
  explicit GraphPrinter(const GraphProgram& program) : program_(program), graph_(program.graph) {}

  std::string Print() {
    AddOptions();
    for (const auto& [ipu, buffers] : graph_.remote_buffers()) {
      if (ipu >= program_.ipus) continue;  // nothing uses them, or the checks would refuse it
      for (const program::v1::RemoteBuffer& buffer : buffers)
        AddLine("remote_buffer on IPU ", ipu, " ", Braced(buffer));
    }
    for (const graph::Node& node : graph_.nodes()) Add(node);
    for (const graph::GraphOutput& output : graph_.outputs()) {
      Introduce({output.value});
      const auto own = program_.spec.output_modes.find(output.name);
      AddLine("output ", Quoted(output.name), " ", Show(output.value),
              own == program_.spec.output_modes.end() ? "" : " returns ",
              own == program_.spec.output_modes.end() ? "" : NameOf(own->second));
    }
    for (const auto& [variable, value, when] : graph_.assignments()) {
      Introduce({variable, value});
      AddLine("assign ", Show(variable), " = ", Show(value),
              when == graph::Assigned::kAlways   ? " always"
              : when == graph::Assigned::kIfRead ? " if read"
                                                 : "");
    }
    if (program_.trains()) AddTraining();
    return std::move(text_);
  }

 private:
  template <class... Pieces>
  void AddLine(const Pieces&... pieces) {
    absl::StrAppend(&text_, pieces..., "\n");
  }

  void AddOptions() {
    const ProgramSpec& spec = program_.spec;
    AddLine("program ", Quoted(spec.name), Fields(program_));
    for (const auto& [name, mode] : kOutputModeNames) {
      if (mode == spec.output_mode && (mode != OutputMode::kAll || spec.output_period != 1))
        AddLine("outputs ", name, " period ", spec.output_period);
    }
    if (!program_.trains()) return;
    AddLine("optimizer ", Show(*spec.optimizer));
    for (const ParameterGroup& group : spec.groups) {
      AddLine("group ", Show(group.optimizer), " of",
              absl::StrJoin(group.variables, "", [](std::string* out, const std::string& name) {
                absl::StrAppend(out, " ", Quoted(name));
              }));
    }
    if (spec.clip_norm) AddLine("clip_norm ", Show(*spec.clip_norm));
    if (spec.clip_value) AddLine("clip_value ", Show(*spec.clip_value));
    AddLine("reduction ",
            spec.reduction == GradientReduction::kMean  ? "mean"
            : spec.reduction == GradientReduction::kSum ? "sum"
                                                        : "running mean",
            spec.float16_accumulators ? " in float16" : "");
    if (spec.automatic_loss_scale)
      AddLine("automatic_loss_scale", Fields(*spec.automatic_loss_scale));
    if (spec.histogram_loss_scale)
      AddLine("histogram_loss_scale", Fields(*spec.histogram_loss_scale));
  }

  void Add(const graph::Node& node) {
    for (uint32_t id : node.instruction.inputs()) Introduce({Tensor{id}});
    const auto& made = node.instruction.outputs();
    const auto type = [&](std::string* out, uint32_t id) { absl::StrAppend(out, TypeOf(id)); };
    AddLine(compiler::Print(node.instruction), made.empty() ? "" : " : ",
            absl::StrJoin(made, ", ", type), " on IPU ", node.ipu, " from ",
            Braced(graph_.origins().at(node.origin)));
    known_.insert(made.begin(), made.end());
  }

  void AddTraining() {
    Introduce({*program_.spec.loss});
    AddLine("loss ", Show(*program_.spec.loss));
    if (const Tensor scale = program_.gradients.loss_scale; scale.valid()) {
      Introduce({scale});
      AddLine("loss_scale ", Show(scale), " = ", Show(*program_.spec.loss_scale));
    }
    if (const Tensor factor = program_.gradients.loss_scale_factor; factor.valid()) {
      Introduce({factor});
      AddLine("loss_scale_factor ", Show(factor));
    }
    for (Tensor gradient : program_.gradients.counted) {
      Introduce({gradient});
      AddLine("counted ", Show(gradient));
    }
    AddLine("backward from %", program_.first_backward);
    for (size_t v = 0; v < graph_.variables().size(); ++v) {
      const Tensor variable = graph_.variables()[v];
      const std::vector<Tensor>& gradients = program_.gradients.of_variables[v];
      Introduce({variable});
      Introduce(gradients);
      AddLine("gradient of ", Show(variable), ":",
              absl::StrJoin(gradients, ",", [](std::string* out, Tensor gradient) {
                absl::StrAppend(out, " ", Show(gradient));
              }));
    }
    for (const auto& [copy, original] : program_.recomputed) {
      if (known_.contains(copy)) AddLine("recomputed %", copy, " = %", original);
    }
    for (const auto& [ipu, state] : program_.rounding) {
      Introduce({state.seed, state.number, state.counter, state.replicas});
      AddLine("rounding on IPU ", ipu, Fields(state));
    }
  }

  // Adds lines for those of the values that no node has made, and for what they are aliases of.
  void Introduce(absl::Span<const Tensor> values) {
    for (Tensor value : values) {
      std::vector<uint32_t> chain;
      for (uint32_t id = value.id; id != kNone && known_.insert(id).second;
           id = graph_.values()[id].alias_of)
        chain.push_back(id);
      for (; !chain.empty(); chain.pop_back()) {
        const uint32_t id = chain.back();
        AddLine("%", id, " = ", SourceOf(id), " : ", TypeOf(id), " on IPU ",
                graph_.values()[id].ipu,
                program_.filters.contains(id) ? " with outputs innermost" : "");
      }
    }
  }

  std::string SourceOf(uint32_t id) const {
    const Value& value = graph_.values()[id];
    if (value.alias_of != kNone) return AliasOf(value);
    if (value.elements != nullptr)
      return absl::StrCat("constant elements ", Quoted(absl::BytesToHexString(*value.elements)));
    if (value.origin == Origin::kConstant) return absl::StrCat("constant ", Digits(value.constant));
    if (value.origin == Origin::kOperation) return "dead";
    const std::vector<Tensor>& buffers = graph_.buffers();
    const bool is_buffer = std::find(buffers.begin(), buffers.end(), Tensor{id}) != buffers.end();
    const char* kind = value.origin == Origin::kInput ? "input" : is_buffer ? "buffer" : "variable";
    return absl::StrCat(kind, " ", Quoted(value.name));
  }

  static std::string AliasOf(const Value& value) {
    const bool is_reshape = value.gradient_to == value.alias_of, stops = value.gradient_to == kNone;
    return absl::StrCat(
        is_reshape ? "reshape"
        : stops    ? "stop"
                   : "pass_by",
        " (%", value.alias_of, ")",
        is_reshape || stops ? "" : absl::StrCat(" gradient to %", value.gradient_to));
  }

  // With the stage to which the value belongs, and whether it is a checkpoint.
  std::string TypeOf(uint32_t id) const {
    const Value& value = graph_.values()[id];
    return absl::StrCat(value.type.ToString(),
                        value.stage == 0 ? "" : absl::StrCat(" stage ", value.stage),
                        value.is_checkpoint ? " checkpoint" : "");
  }

  const GraphProgram& program_;
  const graph::Graph& graph_;
  std::set<uint32_t> known_;
  std::string text_;
};

}  // namespace

std::string Print(const GraphProgram& program) { return GraphPrinter(program).Print(); }

}  // namespace vpod::compiler
