#include "device/base/random_id.h"

#include <sys/random.h>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"

namespace vpod::base {

std::string RandomId() {
  char bytes[16];
  // Reads of up to 256 bytes are never cut short once the pool is initialised (getrandom(2)).
  while (getrandom(bytes, sizeof(bytes), 0) != static_cast<ssize_t>(sizeof(bytes))) {
  }
  return absl::BytesToHexString(absl::string_view(bytes, sizeof(bytes)));
}

}  // namespace vpod::base
