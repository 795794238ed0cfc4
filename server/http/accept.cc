#include "server/http/accept.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace vpod::http {
namespace {

// 0: no match, then */*, text/*, text/plain.
int Specificity(absl::string_view range, absl::string_view type) {
  if (absl::EqualsIgnoreCase(range, type)) return 3;
  if (range == "*/*") return 1;
  const absl::string_view main_type = type.substr(0, type.find('/') + 1);
  return absl::ConsumeSuffix(&range, "*") && absl::EqualsIgnoreCase(range, main_type) ? 2 : 0;
}

}  // namespace

double Quality(absl::string_view accept, absl::string_view type) {
  accept = absl::StripAsciiWhitespace(accept);
  if (accept.empty()) return 1;
  int best = 0;
  double quality = 0;
  for (const absl::string_view entry : absl::StrSplit(accept, ',')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(entry, ';');
    const int specificity = Specificity(absl::StripAsciiWhitespace(parts[0]), type);
    if (specificity == 0 || specificity < best) continue;
    double wanted = 1;
    for (size_t i = 1; i < parts.size(); ++i) {
      absl::string_view parameter = absl::StripAsciiWhitespace(parts[i]);
      // Not a number compares false with everything, so it counts as 0.
      if (absl::ConsumePrefix(&parameter, "q=") &&
          !(absl::SimpleAtod(parameter, &wanted) && wanted >= 0 && wanted <= 1)) {
        wanted = 0;
      }
    }
    // One type in several versions is wanted as much as the best of them.
    quality = specificity > best ? wanted : std::max(quality, wanted);
    best = specificity;
  }
  return quality;
}

std::optional<Format> ChooseFormat(absl::string_view accept) {
  const double text = Quality(accept, "text/plain");
  const double open_metrics = Quality(accept, "application/openmetrics-text");
  if (text == 0 && open_metrics == 0) return std::nullopt;
  return open_metrics > text ? Format::kOpenMetrics : Format::kText;
}

}  // namespace vpod::http
