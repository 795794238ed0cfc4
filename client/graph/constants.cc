#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/graph/graph.h"
#include "device/program/float_codec.h"

namespace vpod::graph {
namespace {

// Returns the value of one element. A NaN has none: a double would not keep its encoding.
std::optional<double> Decoded(v1::DataType type, absl::string_view element) {
  if (program::IsFloat(type)) {
    const double value = program::DecodeFloats(element, type)[0];
    return std::isnan(value) ? std::nullopt : std::optional(value);
  }
  uint32_t bits = 0;
  std::memcpy(&bits, element.data(), element.size());
  if (!program::IsSigned(type)) return bits;
  const auto unused = static_cast<int>(32 - 8 * element.size());
  return static_cast<int32_t>(bits << unused) >> unused;
}

// Returns the value of all elements if their bytes are equal.
std::optional<double> CommonValue(v1::DataType type, absl::string_view elements) {
  const size_t size = program::SizeOf(type);
  if (elements.substr(size) != elements.substr(0, elements.size() - size)) return std::nullopt;
  return Decoded(type, elements.substr(0, size));
}

}  // namespace

Tensor Graph::Constant(TensorType type, double value) {
  absl::Status status = program::Check(type);
  if (status.ok()) status = program::CheckValue(value, type.type);
  if (!status.ok()) return Refuse("constant", status.message());
  const Tensor tensor = NewValue(std::move(type));
  values_.back().origin = Origin::kConstant;
  values_.back().region = ~0u;
  values_.back().constant = value;
  return tensor;
}

Tensor Graph::Constant(TensorType type, std::string elements) {
  const absl::Status status = program::Check(type);
  if (!status.ok()) return Refuse("constant", status.message());
  if (elements.size() != type.bytes()) {
    return Refuse("constant", absl::StrCat(type.ToString(), " has ", type.bytes(), " bytes; ",
                                           elements.size(), " given"));
  }
  if (type.type == v1::BOOL &&
      std::any_of(elements.begin(), elements.end(), [](char each) { return each & ~1; }))
    return Refuse("constant", "a bool is neither 0 nor 1");
  if (elements.empty()) return Constant(std::move(type), 0);
  if (const auto value = CommonValue(type.type, elements)) return Constant(std::move(type), *value);
  const size_t hash = std::hash<std::string>()(elements);
  for (auto [it, end] = constants_.equal_range(hash); it != end; ++it) {
    const Value& known = values_[it->second];
    if (known.type == type && *known.elements == elements && known.ipu == ipu_ &&
        known.stage == stage_)
      return {it->second};
  }
  const Tensor tensor = NewValue(std::move(type));
  values_.back().origin = Origin::kConstant;
  values_.back().region = ~0u;
  values_.back().elements = std::make_shared<const std::string>(std::move(elements));
  constants_.emplace(hash, tensor.id);
  return tensor;
}

}  // namespace vpod::graph
