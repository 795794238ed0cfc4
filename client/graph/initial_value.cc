#include "client/graph/initial_value.h"

#include <algorithm>
#include <cmath>
#include <random>

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
    : given_(std::make_shared<const std::vector<float>>(std::move(values))) {}

InitialValue InitialValue::Filled(float value) {
  return {Kind::kFilled, static_cast<double>(value), 0};
}
InitialValue InitialValue::Uniform(double bound, uint64_t seed) {
  return {Kind::kUniform, bound, seed};
}
InitialValue InitialValue::Normal(double deviation, uint64_t seed) {
  return {Kind::kNormal, deviation, seed};
}

bool InitialValue::Fits(const program::TensorType& type) const {
  const auto fits = [&](double value) { return program::CheckValue(value, type.type).ok(); };
  if (kind_ == Kind::kFilled) return fits(parameter_);
  if (kind_ != Kind::kGiven)
    return program::IsFloat(type.type) && std::isfinite(parameter_) && parameter_ >= 0;
  return CountFor(type) == type.elements() &&
         std::all_of(given_->begin(), given_->end(),
                     [&](float value) { return fits(static_cast<double>(value)); });
}

int64_t InitialValue::CountFor(const program::TensorType& type) const {
  return kind_ == Kind::kGiven ? static_cast<int64_t>(given_->size()) : type.elements();
}

std::vector<float> InitialValue::Values(const program::TensorType& type) const {
  if (kind_ == Kind::kGiven) return *given_;
  std::vector<float> values(static_cast<size_t>(type.elements()), static_cast<float>(parameter_));
  if (kind_ == Kind::kUniform)
    Draw(std::uniform_real_distribution<double>(-parameter_, parameter_), seed_, values);
  if (kind_ == Kind::kNormal) Draw(std::normal_distribution<double>(0, parameter_), seed_, values);
  return values;
}

std::string InitialValue::Bytes(const program::TensorType& type) const {
  return program::EncodeFloats(Values(type), type.type);
}

}  // namespace vpod::graph
