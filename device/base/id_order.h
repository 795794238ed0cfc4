// The order in which people count names: ag2 before ag10.
#pragma once

#include "absl/strings/string_view.h"

namespace vpod::base {

// Runs of digits compare as numbers, all else as bytes. Total: names that count alike (ag2, ag02)
// compare as bytes. For maps whose order users see: std::map<std::string, Agent, IdOrder>.
struct IdOrder {
  using is_transparent = void;
  bool operator()(absl::string_view a, absl::string_view b) const;
};

}  // namespace vpod::base
