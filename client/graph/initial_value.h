// The values that a variable starts with, as a recipe: they are made when they are written to the
// device, so that models can be compiled and planned whose weights no memory would hold.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "device/program/tensor_type.h"

namespace vpod::graph {

// Cheap to copy. The same recipe gives the same values on each machine.
class InitialValue {
 public:
  // These values, row-major.
  InitialValue(std::vector<float> values);           // NOLINT: values are an initial value
  InitialValue(std::vector<double> values);          // NOLINT: for integers that no float holds
  InitialValue(std::initializer_list<float> values)  // NOLINT
      : InitialValue(std::vector<float>(values)) {}
  static InitialValue Filled(double value);
  // From [-bound, bound).
  static InitialValue Uniform(double bound, uint64_t seed);
  // With a mean of 0.
  static InitialValue Normal(double deviation, uint64_t seed);

  // Whether a tensor of this type can have them. InvalidArgument says what of it is wrong: "3
  // initial values, must have 2", "an initial value that uint8 cannot hold", "random initial values
  // with a deviation of -1, must be 0 or more and finite".
  absl::Status Check(const program::TensorType& type) const;
  // How many there are: as many as the tensor has elements, unless they are given.
  int64_t CountFor(const program::TensorType& type) const;
  // Integers above 2^24 are rounded; Bytes has them all.
  std::vector<float> Values(const program::TensorType& type) const;
  // In the encoding of the type.
  std::string Bytes(const program::TensorType& type) const;

  friend bool operator==(const InitialValue& a, const InitialValue& b) {
    return a.kind_ == b.kind_ && a.parameter_ == b.parameter_ && a.seed_ == b.seed_ &&
           (a.given_ == b.given_ || (a.given_ && b.given_ && *a.given_ == *b.given_));
  }

 private:
  enum class Kind { kGiven, kFilled, kUniform, kNormal };
  // Weights are floats and take half the memory.
  using Given = std::variant<std::vector<float>, std::vector<double>>;
  InitialValue(Kind kind, double parameter, uint64_t seed)
      : kind_(kind), parameter_(parameter), seed_(seed) {}

  Kind kind_ = Kind::kGiven;
  double parameter_ = 0;  // the value, bound or deviation
  uint64_t seed_ = 0;
  std::shared_ptr<const Given> given_;
};

}  // namespace vpod::graph
