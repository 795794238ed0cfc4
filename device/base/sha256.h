// SHA-256 in lower-case hexadecimal.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace vpod::base {

std::string Sha256Hex(absl::string_view bytes);

}  // namespace vpod::base
