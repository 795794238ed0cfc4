// How vpod shows paths and reports failures.
#pragma once

#include <cstdio>
#include <string>

#include "absl/strings/string_view.h"
#include "device/base/text.h"

namespace vpod::tools {

// A path, or a value of the environment, as a terminal can show it.
inline std::string Shown(absl::string_view text) {
  return base::Printable(text, std::string::npos);
}

// One line on stderr; returns the exit status: 1 failed, 2 wrong usage.
inline int Fail(absl::string_view message, int code = 1) {
  std::fprintf(stderr, "vpod: error: %s\n", base::OneLine(message).c_str());
  return code;
}

}  // namespace vpod::tools
