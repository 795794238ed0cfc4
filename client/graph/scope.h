// The one rule by which parts of a model are named in their scope.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace vpod::graph {

// A part of a scope by its full name: "0" in "layer1" is "layer1.0". If one of them is empty, it is
// the other.
std::string InScope(absl::string_view scope, absl::string_view name);

}  // namespace vpod::graph
