// Gradients of the program's own as gradient regions of the graph.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/poptorch/builder.h"
#include "device/base/status.h"

namespace vpod::poptorch {

using graph::Graph;
using graph::Tensor;

absl::StatusOr<RegionUse> Builder::RegionOf(const Record& record) const {
  const auto damaged = absl::InvalidArgumentError(
      "the tape is damaged: the arguments of a region are not those of the operator");
  if (record.arguments.size() != 3) return damaged;
  const auto* values = std::get_if<std::vector<Use>>(&record.arguments[0]);
  const auto* inputs = std::get_if<std::vector<Use>>(&record.arguments[1]);
  const auto* number = std::get_if<int64_t>(&record.arguments[2]);
  if (values == nullptr || inputs == nullptr || number == nullptr || *number < 0 ||
      static_cast<size_t>(*number) >= tape_.regions.size())
    return damaged;
  const Region& region = tape_.regions[static_cast<size_t>(*number)];
  if (values->empty() || record.outputs.size() != values->size() ||
      region.cotangents.size() != values->size() || region.gradients.size() != inputs->size())
    return damaged;
  RegionUse use{.number = static_cast<size_t>(*number)};
  for (const Use& value : *values) use.values.push_back(value.value);
  for (const Use& input : *inputs) use.inputs.push_back(input.value);
  const auto lacks_one = [](const std::vector<ValueId>& values) {
    return std::find(values.begin(), values.end(), kNoValue) != values.end();
  };
  if (lacks_one(use.values) || lacks_one(use.inputs) || lacks_one(record.outputs)) return damaged;
  return use;
}

// A region belongs to the stage of its values, in whatever block it was recorded: that of a hook is
// recorded where the hook is registered, that of a function where the next operator runs.
absl::Status Builder::AddRegion(const Record& record) {
  VPOD_ASSIGN_OR_RETURN(const RegionUse use, RegionOf(record));
  const ValueId value = use.values[0];
  Source& source = sources_[static_cast<size_t>(record.outputs[0])];
  const bool is_hook = use.values.size() == 1 && !values_[static_cast<size_t>(value)].valid() &&
                       sources_[static_cast<size_t>(value)].kind != Source::Kind::kOperator;
  if (!is_hook || source.kind != Source::Kind::kOperator) return MakeRegion(record);
  source = {Source::Kind::kHook, static_cast<size_t>(&record - tape_.records.data()), value};
  return absl::OkStatus();
}

absl::Status Builder::MakeRegion(const Record& record) {
  VPOD_ASSIGN_OR_RETURN(const RegionUse use, RegionOf(record));
  const Graph::Scope scope = Graph::Scope::At(graph_, tape_.scopes[record.scope]);
  std::vector<Tensor> values, inputs;
  for (ValueId value : use.values) {
    VPOD_ASSIGN_OR_RETURN(values.emplace_back(), ValueOf(value));
  }
  // Where no gradient comes, a region is what it is given.
  if (!in_region_ && HasGradient(record)) {
    for (ValueId input : use.inputs) {
      VPOD_ASSIGN_OR_RETURN(inputs.emplace_back(), ValueOf(input));
    }
    Graph::Region region = graph_.AddRegion(values, inputs);
    VPOD_RETURN_IF_ERROR(graph_.TakeStatus());
    values = region.outputs;
    regions_.emplace_back(std::move(region), use.number);
  }
  return SetOutputs(tape_.operators[record.op], record, values);
}

absl::StatusOr<std::vector<Tensor>> Builder::AddRegionRecords(
    const Region& region, const std::vector<Tensor>& cotangents) {
  for (size_t i = 0; i < cotangents.size(); ++i)
    values_[static_cast<size_t>(region.cotangents[i])] = cotangents[i];
  for (const Record& record : region.records) VPOD_RETURN_IF_ERROR(AddOperator(record));
  std::vector<Tensor> gradients;
  for (ValueId gradient : region.gradients) {
    gradients.emplace_back();
    if (gradient == kNoValue) continue;
    VPOD_ASSIGN_OR_RETURN(gradients.back(), ValueOf(gradient));
  }
  return gradients;
}

absl::Status Builder::RecordRegions() {
  in_region_ = true;
  for (const auto& made : regions_) {
    const Graph::Region& region = made.first;
    const Region& recorded = tape_.regions[made.second];
    absl::StatusOr<std::vector<Tensor>> gradients;
    graph_.RecordRegion(region, [&] {
      gradients = AddRegionRecords(recorded, region.cotangents);
      return gradients.ok() ? *gradients : std::vector<Tensor>();
    });
    const absl::Status of_graph = graph_.TakeStatus();
    const absl::Status status = gradients.ok() ? of_graph : gradients.status();
    if (status.ok()) continue;
    return absl::Status(status.code(),
                        absl::StrCat(status.message(), ", in the gradient of ", recorded.name));
  }
  in_region_ = false;
  return absl::OkStatus();
}

}  // namespace vpod::poptorch
