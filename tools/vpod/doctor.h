// `vpod doctor`: what could keep a POD from working here, and what to do about it.
#pragma once

#include <string>

#include "tools/vpod/pod.h"

namespace vpod::tools {

struct Diagnosis {
  std::string text;  // a line a check
  bool well = true;
};
Diagnosis Diagnose(const Pod& pod);

}  // namespace vpod::tools
