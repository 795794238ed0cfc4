// Whole numbers on command lines that CLI11 parses.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace vpod::base {

// For Option::transform: accepts decimal numbers in this range and names the range in the error.
// CLI11 itself reads 010 as 8 and names no range for text that is not a number.
inline CLI::Validator WholeNumber(uint64_t low, uint64_t high) {
  const std::string range = absl::StrCat(low, " to ", high);
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        uint64_t value = 0;
        if (!absl::SimpleAtoi(text, &value) || value < low || value > high)
          return absl::StrCat(text, " is not a whole number from ", range);
        text = absl::StrCat(value);
        return "";
      },
      range);
}

}  // namespace vpod::base
