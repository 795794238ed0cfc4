// Real numbers on command lines that CLI11 parses.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace vpod::base {

// For Option::check: accepts numbers for which `is_in_range` holds, and names the range in the
// error, as "from 0 to 1". CLI11's own ranges accept a NaN.
inline CLI::Validator RealNumber(bool (*is_in_range)(double), const std::string& range) {
  return CLI::Validator(
      [=](const std::string& text) -> std::string {
        float value = 0;
        if (absl::SimpleAtof(text, &value) && is_in_range(value)) return "";
        return absl::StrCat(text, " is not a number ", range);
      },
      range);
}

}  // namespace vpod::base
