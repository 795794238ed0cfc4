// Metrics as Prometheus reads them: families of samples, written as Prometheus text 0.0.4 or as
// OpenMetrics 1.0. The exporters hold no state of their own but histograms; everything else is
// computed when it is asked for.
//
//   Exposition out(Format::kText);
//   out.Begin(families::kAgents);
//   out.Add({"Up"}, 16);
//   std::string body = std::move(out).Finish();
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace vpod::http {

enum class Kind { kGauge, kCounter, kHistogram };
// "gauge", "counter", "histogram"
absl::string_view KindText(Kind kind);

// Definition of a family, which exporters write and the documentation lists.
struct Family {
  absl::string_view name;  // counters end in _total
  Kind kind;
  absl::string_view labels;  // names by commas, in the order of a sample's values
  absl::string_view help;    // one sentence, with the unit where the name has none
};

// Durations in seconds. Not thread-safe.
struct Histogram {
  static constexpr std::array<double, 14> kBounds = {
      0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60};
  std::array<uint64_t, kBounds.size() + 1> counts{};  // of each bucket alone; the last is +Inf
  double sum = 0;

  void Observe(double seconds);
  uint64_t count() const;
  Histogram& operator+=(const Histogram& other);
};

enum class Format { kText, kOpenMetrics };

absl::string_view ContentType(Format format);

// Writes families one after the other; both formats want the samples of a family together.
class Exposition {
 public:
  explicit Exposition(Format format) : format_(format) {}

  // Heads a family; the samples that follow are its own.
  void Begin(const Family& family);
  // One value for each label of the family, in valid UTF-8.
  void Add(absl::Span<const absl::string_view> label_values, double value);
  void Add(std::initializer_list<absl::string_view> label_values, double value) {
    Add(absl::MakeConstSpan(label_values.begin(), label_values.size()), value);
  }
  void Add(std::initializer_list<absl::string_view> label_values, const Histogram& histogram);

  std::string Finish() &&;

 private:
  void Line(absl::string_view suffix, absl::Span<const absl::string_view> label_values,
            absl::string_view le, double value);

  const Format format_;
  const Family* family_ = nullptr;
  std::vector<absl::string_view> label_names_;
  std::string text_;
};

}  // namespace vpod::http
