#include "device/engine/kernels/loop.h"

#include <cstdlib>
#include <numeric>

namespace vpod::engine {

using program::Dims;

Loop PlanLoop(const Dims& dims, std::vector<Dims> strides) {
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) {
    return {.length = 0,
            .steps = std::vector<int64_t>(strides.size(), 1),
            .strides = std::vector<Dims>(strides.size())};
  }
  std::vector<size_t> axes;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] > 1) axes.push_back(i);
  }
  // Outermost the axis along which the first operand has the widest steps.
  std::stable_sort(axes.begin(), axes.end(), [&](size_t a, size_t b) {
    return std::abs(strides[0][a]) > std::abs(strides[0][b]);
  });
  Loop loop;
  loop.strides.resize(strides.size());
  for (const size_t axis : axes) {
    // An axis whose steps continue the axis outside it becomes one with that.
    bool continues = !loop.dims.empty();
    for (size_t o = 0; o < strides.size() && continues; ++o)
      continues = loop.strides[o].back() == strides[o][axis] * dims[axis];
    if (continues) {
      loop.dims.back() *= dims[axis];
    } else {
      loop.dims.push_back(dims[axis]);
    }
    for (size_t o = 0; o < strides.size(); ++o) {
      if (!continues) loop.strides[o].push_back(0);
      loop.strides[o].back() = strides[o][axis];
    }
  }
  loop.steps.assign(strides.size(), 1);
  if (!loop.dims.empty()) {
    loop.length = static_cast<size_t>(loop.dims.back());
    loop.dims.pop_back();
    for (size_t o = 0; o < strides.size(); ++o) {
      loop.steps[o] = loop.strides[o].back();
      loop.strides[o].pop_back();
    }
  }
  for (int64_t dim : loop.dims) loop.rows *= static_cast<size_t>(dim);
  return loop;
}

Dims BroadcastStrides(const Operand& operand, const Dims& dims) {
  const Dims& own = operand.type.dims;
  Dims strides(dims.size() - own.size(), 0);
  for (size_t i = 0; i < own.size(); ++i) strides.push_back(own[i] == 1 ? 0 : operand.strides[i]);
  return strides;
}

}  // namespace vpod::engine
