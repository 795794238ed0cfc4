#include "client/graph/initial_value.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "device/program/float_codec.h"

namespace vpod::graph {
namespace {

template <class Distribution>
void Draw(Distribution distribution, uint64_t seed, std::vector<float>& values) {
  std::mt19937_64 random(seed);
  for (float& value : values) value = static_cast<float>(distribution(random));
}

}  // namespace

InitialValue::InitialValue(std::vector<float> values)
    : given_(std::make_shared<const Given>(std::move(values))) {}
InitialValue::InitialValue(std::vector<double> values)
    : given_(std::make_shared<const Given>(std::move(values))) {}

InitialValue InitialValue::Filled(double value) { return {Kind::kFilled, value, 0}; }
InitialValue InitialValue::Uniform(double bound, uint64_t seed) {
  return {Kind::kUniform, bound, seed};
}
InitialValue InitialValue::Normal(double deviation, uint64_t seed) {
  return {Kind::kNormal, deviation, seed};
}

absl::Status InitialValue::Check(const program::TensorType& type) const {
  const bool is_random = kind_ == Kind::kUniform || kind_ == Kind::kNormal;
  if (is_random && !(std::isfinite(parameter_) && parameter_ >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "random initial values with a ", kind_ == Kind::kUniform ? "bound" : "deviation", " of ",
        parameter_, ", must be 0 or more and finite"));
  }
  if (CountFor(type) != type.elements()) {
    return absl::InvalidArgumentError(
        absl::StrCat(CountFor(type), " initial values, must have ", type.elements()));
  }
  const auto fits = [&](double value) { return program::CheckValue(value, type.type).ok(); };
  const bool all_fit =
      kind_ != Kind::kGiven
          ? fits(parameter_) && (!is_random || program::IsFloat(type.type))
          : std::visit(
                [&](const auto& values) {
                  return std::all_of(values.begin(), values.end(),
                                     [&](auto value) { return fits(static_cast<double>(value)); });
                },
                *given_);
  if (all_fit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("an initial value that ", program::Name(type.type), " cannot hold"));
}

int64_t InitialValue::CountFor(const program::TensorType& type) const {
  if (kind_ != Kind::kGiven) return type.elements();
  return std::visit([](const auto& values) { return static_cast<int64_t>(values.size()); },
                    *given_);
}

std::vector<float> InitialValue::Values(const program::TensorType& type) const {
  if (kind_ == Kind::kGiven) {
    return std::visit(
        [](const auto& values) { return std::vector<float>(values.begin(), values.end()); },
        *given_);
  }
  std::vector<float> values(static_cast<size_t>(type.elements()), static_cast<float>(parameter_));
  if (kind_ == Kind::kUniform)
    Draw(std::uniform_real_distribution<double>(-parameter_, parameter_), seed_, values);
  // A normal distribution has a deviation above 0.
  if (kind_ == Kind::kNormal && parameter_ > 0)
    Draw(std::normal_distribution<double>(0, parameter_), seed_, values);
  return values;
}

std::string InitialValue::Bytes(const program::TensorType& type) const {
  if (kind_ == Kind::kGiven) {
    const auto* doubles = std::get_if<std::vector<double>>(given_.get());
    return doubles != nullptr
               ? program::EncodeDoubles(*doubles, type.type)
               : program::EncodeFloats(std::get<std::vector<float>>(*given_), type.type);
  }
  if (kind_ == Kind::kFilled && !program::IsFloat(type.type)) {
    const std::vector<double> all(static_cast<size_t>(type.elements()), parameter_);
    return program::EncodeDoubles(all, type.type);
  }
  return program::EncodeFloats(Values(type), type.type);
}

}  // namespace vpod::graph
