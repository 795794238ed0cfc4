// A function of two inputs for tests whose gradients finite differences do not check.
#pragma once

#include <vector>

#include "client/graph/gradients/gradient_check.h"

namespace vpod::graph {

using Values = std::vector<float>;

// A function of two inputs of three elements: its value, and its gradients with the weights that
// the value is summed with.
struct Result {
  Values y, dx, dz, weights;
};

inline const Values kX = {1.25f, -2.75f, 0.5f}, kZ = {3, 0.25f, -1.5f};

inline Result ResultOf(const Function& function) {
  Compiled compiled({{{3}}, {{3}}}, function);
  if (!compiled.ok()) return {};
  compiled.Set(0, kX);
  compiled.Set(1, kZ);
  compiled.Run();
  return {compiled.Output("y"), compiled.Output("dx0"), compiled.Output("dx1"), compiled.weights()};
}

}  // namespace vpod::graph
