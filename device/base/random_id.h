// Random bytes and names from the kernel's generator; safe for secrets.
#pragma once

#include <cstddef>
#include <string>

namespace vpod::base {

std::string RandomBytes(size_t count);

// 128 random bits in lower-case hexadecimal: ids of leases, requests and boots.
std::string RandomId();

}  // namespace vpod::base
