// Numbers of things in messages for people.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace vpod::base {

// "1 IPU", "0 IPUs", "4 IPUs"; the noun takes an s.
inline std::string Counted(uint64_t number, absl::string_view noun) {
  return absl::StrCat(number, " ", noun, number == 1 ? "" : "s");
}

}  // namespace vpod::base
