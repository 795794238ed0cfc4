// Another administrator of a POD under attack, who looks at it after every message: whatever one
// client sends, the lists of the others can be read and hardly grow.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "client/vipu/client.h"
#include "tests/security/secure_pod.h"

namespace vpod::testing {

// Not thread-safe.
class Witness {
 public:
  // Creates the administrator `user`, and looks for the first time.
  Witness(SecurePod& pod, const std::string& user);
  // After each message: `list partitions`, `list events` and `get agent` can be read, and each has
  // grown by at most 1 KiB since the last look; from time to time also all that a support bundle
  // asks the controller for, which has grown by at most 1 KiB for each message since the first.
  ::testing::AssertionResult Look();
  std::string Sizes() const;

 private:
  static vipu::ClientConfig ConfigOfNew(SecurePod& pod, const std::string& user);
  // Sizes in bytes of what can be read, by name; an error if something cannot.
  absl::StatusOr<std::map<std::string, uint64_t>> Views();
  absl::StatusOr<uint64_t> Bundle();

  vipu::Client client_;
  std::map<std::string, uint64_t> views_;
  uint64_t looks_ = 0, first_bundle_ = 0, bundle_ = 0;
};

}  // namespace vpod::testing
