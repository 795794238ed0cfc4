#include "device/base/id_order.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace vpod::base {
namespace {

// Takes the digits at the front of `text`; without leading zeros, longer is larger.
absl::string_view TakeNumber(absl::string_view& text) {
  const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  absl::string_view number = text.substr(0, end);
  text.remove_prefix(end);
  number.remove_prefix(std::min(number.find_first_not_of('0'), number.size()));
  return number;
}

int CompareCounted(absl::string_view a, absl::string_view b) {
  const auto is_digit = [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); };
  while (!a.empty() && !b.empty()) {
    if (is_digit(a[0]) && is_digit(b[0])) {
      const absl::string_view left = TakeNumber(a), right = TakeNumber(b);
      if (left.size() != right.size()) return left.size() < right.size() ? -1 : 1;
      if (const int order = left.compare(right); order != 0) return order;
      continue;
    }
    if (const int order = a.substr(0, 1).compare(b.substr(0, 1)); order != 0) return order;
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  return static_cast<int>(!a.empty()) - static_cast<int>(!b.empty());
}

}  // namespace

bool IdOrder::operator()(absl::string_view a, absl::string_view b) const {
  const int order = CompareCounted(a, b);
  return order != 0 ? order < 0 : a < b;
}

}  // namespace vpod::base
