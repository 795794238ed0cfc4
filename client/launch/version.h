// Output of poprun --version.
#pragma once

#include <string>

namespace vpod::launch {

// `format` is text, json, full-text or full-json; the full ones add the libraries of this build.
std::string VersionText(const std::string& format);

}  // namespace vpod::launch
