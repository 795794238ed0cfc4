#include "device/base/random_id.h"

#include <sys/random.h>

#include "absl/strings/escaping.h"

namespace vpod::base {

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t have = 0; have < count;) {
    const ssize_t got = getrandom(&bytes[have], count - have, 0);
    if (got > 0) have += static_cast<size_t>(got);  // else a signal came
  }
  return bytes;
}

std::string RandomId() { return absl::BytesToHexString(RandomBytes(16)); }

}  // namespace vpod::base
