#include "server/http/metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace vpod::http {
namespace {

void AppendNumber(double value, std::string& text) {
  if (std::isnan(value)) {
    text += "NaN";
  } else if (std::isinf(value)) {
    text += value > 0 ? "+Inf" : "-Inf";
  } else {
    // Whole numbers in full: "16384", not "1.6384e+04".
    const bool whole = value == std::floor(value) && std::fabs(value) < 1e15;
    char digits[32];
    const auto end = whole ? std::to_chars(digits, digits + 32, static_cast<int64_t>(value))
                           : std::to_chars(digits, digits + 32, value);
    text.append(digits, end.ptr);
  }
}

// Help texts leave quotation marks as they are in text 0.0.4; ours have none.
void AppendEscaped(absl::string_view value, std::string& text) {
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
}

}  // namespace

absl::string_view KindText(Kind kind) {
  switch (kind) {
    case Kind::kGauge:
      return "gauge";
    case Kind::kCounter:
      return "counter";
    case Kind::kHistogram:
      return "histogram";
  }
  return "";
}

void Histogram::Observe(double seconds) {
  counts[static_cast<size_t>(std::lower_bound(kBounds.begin(), kBounds.end(), seconds) -
                             kBounds.begin())]++;
  sum += seconds;
}

uint64_t Histogram::count() const {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

Histogram& Histogram::operator+=(const Histogram& other) {
  for (size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
  sum += other.sum;
  return *this;
}

absl::string_view ContentType(Format format) {
  return format == Format::kText ? "text/plain; version=0.0.4; charset=utf-8"
                                 : "application/openmetrics-text; version=1.0.0; charset=utf-8";
}

void Exposition::Begin(const Family& family) {
  family_ = &family;
  label_names_ =
      family.labels.empty() ? std::vector<absl::string_view>() : absl::StrSplit(family.labels, ',');
  // OpenMetrics names a counter's family without the suffix of its samples.
  absl::string_view name = family.name;
  if (format_ == Format::kOpenMetrics && family.kind == Kind::kCounter)
    absl::ConsumeSuffix(&name, "_total");
  absl::StrAppend(&text_, "# HELP ", name, " ");
  AppendEscaped(family.help, text_);
  absl::StrAppend(&text_, "\n# TYPE ", name, " ", KindText(family.kind), "\n");
}

void Exposition::Add(absl::Span<const absl::string_view> label_values, double value) {
  Line("", label_values, "", value);
}

void Exposition::Add(std::initializer_list<absl::string_view> label_values,
                     const Histogram& histogram) {
  const auto values = absl::MakeConstSpan(label_values.begin(), label_values.size());
  uint64_t below = 0;
  for (size_t i = 0; i < histogram.counts.size(); ++i) {
    below += histogram.counts[i];
    std::string bound = "+Inf";
    if (i < Histogram::kBounds.size()) {
      bound = absl::StrCat(Histogram::kBounds[i]);
      // OpenMetrics' way in both formats, so that both yield the same series.
      if (bound.find('.') == std::string::npos) bound += ".0";
    }
    Line("_bucket", values, bound, static_cast<double>(below));
  }
  Line("_count", values, "", static_cast<double>(below));
  Line("_sum", values, "", histogram.sum);
}

void Exposition::Line(absl::string_view suffix, absl::Span<const absl::string_view> label_values,
                      absl::string_view le, double value) {
  absl::StrAppend(&text_, family_->name, suffix);
  char separator = '{';
  const auto label = [&](absl::string_view name, absl::string_view text) {
    text_ += separator;
    absl::StrAppend(&text_, name, "=\"");
    AppendEscaped(text, text_);
    text_ += '"';
    separator = ',';
  };
  for (size_t i = 0; i < label_names_.size(); ++i) label(label_names_[i], label_values[i]);
  if (!le.empty()) label("le", le);
  if (separator == ',') text_ += '}';
  text_ += ' ';
  AppendNumber(value, text_);
  text_ += '\n';
}

std::string Exposition::Finish() && {
  if (format_ == Format::kOpenMetrics) text_ += "# EOF\n";
  return std::move(text_);
}

}  // namespace vpod::http
