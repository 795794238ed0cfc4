// Access keys of users: made here, shown once, kept as salted scrypt hashes.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace vpod::controller {

// 11 characters of [A-Za-z0-9_], 65 random bits.
std::string NewAccessKey();

// A key as it is kept.
struct KeyHash {
  std::string salt;  // 16 bytes
  std::string hash;  // 32 bytes
};

// A new key, for its user, and what is kept of it.
struct IssuedKey {
  std::string key;
  KeyHash kept;
};

// Both take tens of milliseconds and 16 MiB, on purpose; a host without that memory gives
// ResourceExhausted, or false.
absl::StatusOr<KeyHash> HashAccessKey(absl::string_view key);
bool IsAccessKey(const KeyHash& kept, absl::string_view key);

}  // namespace vpod::controller
