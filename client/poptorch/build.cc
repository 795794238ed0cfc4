#include "client/poptorch/build.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/poptorch/builder.h"
#include "client/poptorch/check_tape.h"
#include "client/poptorch/losses.h"
#include "client/poptorch/options.h"
#include "device/base/status.h"

namespace vpod::poptorch {

using graph::Tensor;

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

absl::Status Builder::AddAnchors() {
  for (size_t i = 0; i < options_.anchors.size(); ++i) {
    const Anchor& anchor = options_.anchors[i];
    if (anchor.value < 0 || static_cast<size_t>(anchor.value) >= values_.size())
      return absl::InvalidArgumentError("an anchor has a number that does not exist");
    const Tensor known = values_[static_cast<size_t>(anchor.value)];
    if (known.valid()) {
      // A value is anchored where it is.
      graph_.SetIpu(graph_.values()[known.id].ipu);
      graph_.SetStage(graph_.values()[known.id].stage);
    }
    VPOD_ASSIGN_OR_RETURN(const Tensor value, ValueOf(anchor.value));
    if (anchor.gradient) {
      built_.gradient_outputs.push_back({AnchorName(i), value});
    } else {
      graph_.Output(AnchorName(i), value);
    }
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

// Gradients compute spans again: all values but those inside of spans are kept.
absl::Status Builder::KeepOutsideSpans() {
  const bool pipelined = options_.strategy == Strategy::kPipelined && built_.ipus > 1;
  if (!marks_.spans() || !options_.training || options_.recomputation || pipelined)
    return absl::OkStatus();
  built_.recomputes = true;
  for (uint32_t value : marks_.outside_spans()) graph_.Checkpoint({value});
  for (ValueId value : marks_.spans()->results()) {
    VPOD_ASSIGN_OR_RETURN(const Tensor result, ValueOf(value));
    graph_.Checkpoint(result);
  }
  return graph_.TakeStatus();
}

absl::StatusOr<BuiltGraph> Builder::Build() {
  VPOD_RETURN_IF_ERROR(CheckTape(tape_));
  VPOD_RETURN_IF_ERROR(CheckReplicaGroups(tape_, options_));
  VPOD_RETURN_IF_ERROR(ListSources());
  marks_.ReadTape();
  for (const Record& record : tape_.records) VPOD_RETURN_IF_ERROR(AddRecord(record));
  VPOD_RETURN_IF_ERROR(RecordRegions());
  VPOD_RETURN_IF_ERROR(UnsupportedError());
  for (ValueId checkpoint : tape_.checkpoints) {
    VPOD_ASSIGN_OR_RETURN(const Tensor value, ValueOf(checkpoint));
    graph_.Checkpoint(value);
  }
  VPOD_RETURN_IF_ERROR(AddResults());
  VPOD_RETURN_IF_ERROR(AddAnchors());
  VPOD_RETURN_IF_ERROR(AddLoss());
  VPOD_RETURN_IF_ERROR(AssignState());
  VPOD_RETURN_IF_ERROR(KeepOutsideSpans());
  marks_.SetProductPlans(graph_);
  return std::move(built_);
}

std::string InputName(size_t input) { return absl::StrCat("input", input); }
std::string ResultName(size_t result) { return absl::StrCat("output", result); }
std::string WrittenInputName(size_t input) { return absl::StrCat("input", input, "/written"); }
std::string AnchorName(size_t anchor) { return absl::StrCat("anchor", anchor); }
std::string GroupNumberName(const std::string& parameter) {
  return absl::StrCat(kGroupPrefix, parameter);
}

absl::StatusOr<BuiltGraph> BuildGraph(const Tape& tape, const ModelOptions& options,
                                      const OptimizerOptions& optimizer) {
  return Builder(tape, options, optimizer).Build();
}

}  // namespace vpod::poptorch
