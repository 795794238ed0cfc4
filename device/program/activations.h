// The activations that a batch norm can take over.
#pragma once

#include <algorithm>
#include <array>

#include "proto/program/v1/program.pb.h"

namespace vpod::program {

inline constexpr std::array kActivations = {v1::RELU, v1::RELU6, v1::SILU};

inline bool IsActivation(v1::UnaryOperator op) {
  return std::find(kActivations.begin(), kActivations.end(), op) != kActivations.end();
}

// The operator of (y, dy) or, for SILU, of (x, dy); unspecified if it is not one of them.
inline v1::BinaryOperator GradientOf(v1::UnaryOperator activation) {
  switch (activation) {
    case v1::RELU:
      return v1::RELU_GRADIENT;
    case v1::RELU6:
      return v1::RELU6_GRADIENT;
    case v1::SILU:
      return v1::SILU_GRADIENT;
    default:
      return v1::BINARY_OPERATOR_UNSPECIFIED;
  }
}

}  // namespace vpod::program
