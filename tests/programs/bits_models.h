// The models whose bits are compared, on small images and short sequences.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "client/compiler/compiler.h"
#include "tests/support/classifier.h"

namespace vpod::testing {

struct BitsModel {
  Classifier classifier;
  compiler::Optimizer optimizer;
  std::optional<float> clip_norm = {};
  int64_t batch = 2;        // of a micro-batch
  uint32_t iterations = 2;  // of a run; each is an update
};

// By name. Dropout and stochastic depth are on, except in "small": they are part of the promise.
const std::map<std::string, BitsModel>& BitsModels();

}  // namespace vpod::testing
