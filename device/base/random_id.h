// Identifiers that nobody can guess: lease ids, boot ids, socket names.
#pragma once

#include <string>

namespace vpod::base {

// 128 bits of the kernel's randomness as 32 hexadecimal digits.
std::string RandomId();

}  // namespace vpod::base
