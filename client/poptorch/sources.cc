// What values of the tape are before an operator makes them: state, inputs and constants.
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/poptorch/builder.h"
#include "client/poptorch/types.h"
#include "device/base/status.h"

namespace vpod::poptorch {

using graph::Graph;
using graph::Tensor;
using program::TensorType;

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
  VPOD_ASSIGN_OR_RETURN(TensorType type,
                        DeviceType(tape_.values[static_cast<size_t>(state.value)]));
  if (state.groups) type.dims.insert(type.dims.begin(), state.groups->count);
  const bool trained = parameter && IsTrained(state, type);
  if (trained) built_.trained.push_back(state.name);
  // The names of parameters and buffers are whole paths. Their values are written at each load.
  const Graph::Scope whole_model = Graph::Scope::At(graph_, "");
  const auto zeros = graph::InitialValue::Filled(0);
  // Weights that do not change are variables where nothing is trained.
  const bool variable = trained || (parameter && !options_.training && program::IsFloat(type.type));
  const Tensor whole =
      variable ? graph_.Variable(state.name, type, zeros) : graph_.Buffer(state.name, type, zeros);
  return state.groups ? RowOfGroup(state.name, whole) : whole;
}

// All replicas have all rows. Each has a gradient in that of its group alone, so that the sum over
// all replicas is, in each row, the sum over its group.
Tensor Builder::RowOfGroup(const std::string& parameter, Tensor rows) {
  const Tensor group = graph_.Buffer(GroupNumberName(parameter), {program::v1::INT32, {1}},
                                     graph::InitialValue::Filled(0));
  program::Dims dims = graph_.TypeOf(rows).dims;
  dims.erase(dims.begin());
  return graph_.Reshape(graph_.DynamicSlice(rows, group, {0}, {1}), dims);
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
    case Source::Kind::kHook:
      VPOD_RETURN_IF_ERROR(MakeRegion(tape_.records[source.place]));
      return values_[static_cast<size_t>(value)];
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
  Source source = sources_[static_cast<size_t>(value)];
  while (source.kind == Source::Kind::kHook) source = sources_[static_cast<size_t>(source.hooked)];
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
  if (!use.stop || in_region_ || !has_gradient_[number]) return tensor;
  if (!stopped_[number].valid()) stopped_[number] = graph_.Stop(tensor);
  return stopped_[number];
}

}  // namespace vpod::poptorch
