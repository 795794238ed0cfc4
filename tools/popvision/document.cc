#include "tools/popvision/document.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "device/base/text.h"

namespace vpod::popvision {
namespace {

std::string Grouped(uint64_t count) {
  const std::string digits = absl::StrCat(count);
  std::string grouped;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) grouped += ',';
    grouped += digits[i];
  }
  return grouped;
}

}  // namespace

std::string Show(const Value& value) {
  if (std::holds_alternative<std::nullptr_t>(value)) return "-";
  if (const auto* text = std::get_if<std::string>(&value))
    return base::Printable(*text, std::string::npos);
  if (const auto* count = std::get_if<uint64_t>(&value)) return Grouped(*count);
  if (const auto* change = std::get_if<int64_t>(&value)) {
    const auto size = static_cast<uint64_t>(*change);
    return *change < 0 ? "-" + Grouped(-size) : "+" + Grouped(size);
  }
  const double number = std::get<double>(value);
  return std::abs(number) < 0.05 && number != 0 ? absl::StrFormat("%.3f", number)
                                                : absl::StrFormat("%.1f", number);
}

std::vector<uint64_t> Peaks(const Chart& chart, size_t parts) {
  const size_t n = chart.series.empty() ? 0 : chart.series[0].values.size();
  std::vector<uint64_t> peaks(std::min(parts, n));
  for (size_t i = 0; i < n; ++i) {
    uint64_t sum = 0;
    for (const Chart::Series& series : chart.series) sum += series.values[i];
    uint64_t& peak = peaks[i * peaks.size() / n];
    peak = std::max(peak, sum);
  }
  return peaks;
}

std::vector<std::optional<size_t>> MostOf(const Lanes& lanes, const Lanes::Lane& lane,
                                          size_t parts) {
  std::vector<std::vector<double>> shares(parts, std::vector<double>(lanes.kinds.size()));
  const double width = static_cast<double>(lanes.end) / static_cast<double>(parts);
  for (const Lanes::Segment& segment : lane.segments) {
    if (segment.end <= segment.begin) continue;
    const auto begin = static_cast<double>(segment.begin), end = static_cast<double>(segment.end);
    const auto first = static_cast<size_t>(begin / width);
    for (size_t part = first; part < parts && static_cast<double>(part) * width < end; ++part) {
      const double from = std::max(begin, static_cast<double>(part) * width),
                   to = std::min(end, static_cast<double>(part + 1) * width);
      shares[part][segment.kind] += to - from;
    }
  }
  std::vector<std::optional<size_t>> most(parts);
  for (size_t part = 0; part < parts; ++part) {
    const auto largest = std::max_element(shares[part].begin(), shares[part].end());
    if (largest != shares[part].end() && *largest > 0)
      most[part] = static_cast<size_t>(largest - shares[part].begin());
  }
  return most;
}

}  // namespace vpod::popvision
