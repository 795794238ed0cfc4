// Comparing secrets.
#pragma once

#include <openssl/crypto.h>

#include "absl/strings/string_view.h"

namespace vpod::base {

// In a time that depends on the lengths alone: an attacker who measures learns nothing of `secret`.
inline bool IsSecret(absl::string_view secret, absl::string_view shown) {
  return secret.size() == shown.size() &&
         CRYPTO_memcmp(secret.data(), shown.data(), secret.size()) == 0;
}

}  // namespace vpod::base
