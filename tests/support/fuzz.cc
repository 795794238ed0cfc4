#include "tests/support/fuzz.h"

#include <cstdlib>

#include "absl/strings/numbers.h"

namespace vpod::testing {

uint64_t NumberFrom(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  uint64_t number = 0;
  return text != nullptr && absl::SimpleAtoi(text, &number) ? number : otherwise;
}

void MutateBytes(std::string& bytes, Random& random) {
  for (uint64_t rounds = 1 + random() % 4; rounds > 0 && !bytes.empty(); --rounds) {
    const size_t at = random() % bytes.size();
    switch (random() % 5) {
      case 0:
        bytes.resize(at);
        break;
      case 1:
        bytes.insert(at, std::string(random() % 16, static_cast<char>(random())));
        break;
      case 2:
        bytes += bytes.substr(at, random() % 64);
        break;
      default:
        bytes[at] = static_cast<char>(random());
    }
  }
}

}  // namespace vpod::testing
