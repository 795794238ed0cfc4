// HMAC with SHA-256 in lower-case hexadecimal: keys and proofs that only the holders of a secret
// can make.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace vpod::base {

std::string KeyedHashHex(absl::string_view secret, absl::string_view message);

}  // namespace vpod::base
