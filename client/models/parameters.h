// For tests: the parameters of a model.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "client/graph/graph.h"

namespace vpod::models {

// Parameters by name, without the running moments, and the number of their elements.
inline std::map<std::string, std::string> Parameters(const graph::Graph& graph, int64_t* count) {
  std::map<std::string, std::string> types;
  *count = 0;
  for (graph::Tensor variable : graph.variables()) {
    types[graph.values()[variable.id].name] = graph.TypeOf(variable).ToString();
    *count += graph.TypeOf(variable).elements();
  }
  return types;
}

}  // namespace vpod::models
