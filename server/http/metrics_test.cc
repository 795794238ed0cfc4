#include "server/http/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "server/http/accept.h"

namespace vpod::http {
namespace {

constexpr Family kRequests{"requests_total", Kind::kCounter, "method,code",
                           "Requests.\nWith a \\ in the text."};
constexpr Family kBuild{"build", Kind::kGauge, "", "A number."};
constexpr Family kDuration{"duration_seconds", Kind::kHistogram, "verb", "Time."};

std::string Write(Format format) {
  Exposition out(format);
  out.Begin(kRequests);
  out.Add({"Get\"Partition\"\n", "a\\b"}, 3);
  out.Add({"List", ""}, 12345678901234);
  out.Begin(kBuild);
  out.Add({}, -0.125);
  return std::move(out).Finish();
}

TEST(MetricsTest, TextFormat) {
  EXPECT_EQ(Write(Format::kText),
            "# HELP requests_total Requests.\\nWith a \\\\ in the text.\n"
            "# TYPE requests_total counter\n"
            "requests_total{method=\"Get\\\"Partition\\\"\\n\",code=\"a\\\\b\"} 3\n"
            "requests_total{method=\"List\",code=\"\"} 12345678901234\n"
            "# HELP build A number.\n"
            "# TYPE build gauge\n"
            "build -0.125\n");
}

TEST(MetricsTest, OpenMetricsNamesCountersWithoutSuffixAndEnds) {
  EXPECT_EQ(Write(Format::kOpenMetrics),
            "# HELP requests Requests.\\nWith a \\\\ in the text.\n"
            "# TYPE requests counter\n"
            "requests_total{method=\"Get\\\"Partition\\\"\\n\",code=\"a\\\\b\"} 3\n"
            "requests_total{method=\"List\",code=\"\"} 12345678901234\n"
            "# HELP build A number.\n"
            "# TYPE build gauge\n"
            "build -0.125\n"
            "# EOF\n");
}

TEST(MetricsTest, Numbers) {
  const auto text = [](double value) {
    Exposition out(Format::kText);
    out.Begin(kBuild);
    out.Add({}, value);
    const std::string all = std::move(out).Finish();
    return all.substr(all.rfind(' ') + 1);
  };
  EXPECT_EQ(text(0), "0\n");
  EXPECT_EQ(text(1.33e9), "1330000000\n");
  EXPECT_EQ(text(0.1), "0.1\n");
  EXPECT_EQ(text(1e300), "1e+300\n");
  EXPECT_EQ(text(INFINITY), "+Inf\n");
  EXPECT_EQ(text(-INFINITY), "-Inf\n");
  EXPECT_EQ(text(NAN), "NaN\n");
}

TEST(MetricsTest, HistogramsCountUpwards) {
  Histogram histogram;
  for (const double seconds : {0.0005, 0.0006, 0.3, 1.0, 1000.0}) histogram.Observe(seconds);
  Histogram more;
  more.Observe(0.0001);
  histogram += more;
  Exposition out(Format::kText);
  out.Begin(kDuration);
  out.Add({"create"}, histogram);
  EXPECT_EQ(std::move(out).Finish(),
            "# HELP duration_seconds Time.\n"
            "# TYPE duration_seconds histogram\n"
            "duration_seconds_bucket{verb=\"create\",le=\"0.0005\"} 2\n"
            "duration_seconds_bucket{verb=\"create\",le=\"0.001\"} 3\n"
            "duration_seconds_bucket{verb=\"create\",le=\"0.0025\"} 3\n"
            "duration_seconds_bucket{verb=\"create\",le=\"0.005\"} 3\n"
            "duration_seconds_bucket{verb=\"create\",le=\"0.01\"} 3\n"
            "duration_seconds_bucket{verb=\"create\",le=\"0.025\"} 3\n"
            "duration_seconds_bucket{verb=\"create\",le=\"0.05\"} 3\n"
            "duration_seconds_bucket{verb=\"create\",le=\"0.1\"} 3\n"
            "duration_seconds_bucket{verb=\"create\",le=\"0.25\"} 3\n"
            "duration_seconds_bucket{verb=\"create\",le=\"0.5\"} 4\n"
            "duration_seconds_bucket{verb=\"create\",le=\"1.0\"} 5\n"
            "duration_seconds_bucket{verb=\"create\",le=\"2.5\"} 5\n"
            "duration_seconds_bucket{verb=\"create\",le=\"10.0\"} 5\n"
            "duration_seconds_bucket{verb=\"create\",le=\"60.0\"} 5\n"
            "duration_seconds_bucket{verb=\"create\",le=\"+Inf\"} 6\n"
            "duration_seconds_count{verb=\"create\"} 6\n"
            "duration_seconds_sum{verb=\"create\"} 1001.3012\n");
}

TEST(AcceptTest, MostSpecificRangeDecides) {
  EXPECT_EQ(Quality("", "text/plain"), 1);
  EXPECT_EQ(Quality("text/plain", "text/plain"), 1);
  EXPECT_EQ(Quality("TEXT/*;q=0.5", "text/plain"), 0.5);
  EXPECT_EQ(Quality("*/*;q=0.9, text/plain;q=0", "text/plain"), 0);
  EXPECT_EQ(Quality("text/plain;q=0.2, */*;q=0.9", "application/json"), 0.9);
  EXPECT_EQ(Quality("text/plain;version=0.0.4;q=0.3,text/plain;q=0.2", "text/plain"), 0.3);
  EXPECT_EQ(Quality("image/png", "text/plain"), 0);
}

TEST(AcceptTest, NonsenseMatchesNothing) {
  for (const char* nonsense : {";", ",,,", "text", "text/", "*", "/", "text/plain;q=x",
                               "text/plain;q=-1", "text/plain;q=2", "text/plain;q=nan"}) {
    EXPECT_EQ(Quality(nonsense, "text/plain"), 0) << nonsense;
  }
}

TEST(AcceptTest, FormatOfAScrape) {
  // Prometheus 2.42 sends this.
  EXPECT_EQ(ChooseFormat("application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
                         "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"),
            Format::kOpenMetrics);
  EXPECT_EQ(ChooseFormat(""), Format::kText);
  EXPECT_EQ(ChooseFormat("*/*"), Format::kText);
  EXPECT_EQ(ChooseFormat("text/html,application/xhtml+xml,*/*;q=0.8"), Format::kText);
  EXPECT_EQ(ChooseFormat("application/openmetrics-text"), Format::kOpenMetrics);
  EXPECT_EQ(ChooseFormat("application/json"), std::nullopt);
}

}  // namespace
}  // namespace vpod::http
