// Tests that other descriptions of the metrics agree with their definitions: METRICS.md, the rules
// of deploy/prometheus and the dashboards of deploy/grafana.
#include "server/http/families.h"

#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "device/base/file.h"
#include "server/http/document.h"

namespace vpod::http {
namespace {

namespace fs = std::filesystem;

std::vector<const Family*> AllFamilies() {
  std::vector<const Family*> all(std::begin(kControllerFamilies), std::end(kControllerFamilies));
  all.insert(all.end(), std::begin(kMachineFamilies), std::end(kMachineFamilies));
  return all;
}

TEST(FamiliesTest, NamesFollowTheConventions) {
  std::set<absl::string_view> names;
  for (const Family* family : AllFamilies()) {
    SCOPED_TRACE(family->name);
    EXPECT_TRUE(names.insert(family->name).second) << "twice";
    EXPECT_EQ(family->kind == Kind::kCounter, absl::EndsWith(family->name, "_total"));
    EXPECT_TRUE(absl::EndsWith(family->help, ".")) << family->help;
    const std::string characters = absl::StrCat(family->name, family->labels);
    EXPECT_EQ(characters.find_first_not_of("abcdefghijklmnopqrstuvwxyz_,"), std::string::npos);
  }
}

TEST(FamiliesTest, DocumentIsUpToDate) {
  EXPECT_EQ(base::ReadFile("deploy/prometheus/METRICS.md"), MetricsDocument())
      << "bazel run //server/http:document > deploy/prometheus/METRICS.md";
}

// Labels that a name in a query may have: of the families as they are, of what Prometheus adds, and
// of the recording rules.
using Known = std::map<std::string, std::set<std::string>>;

Known KnownMetrics() {
  Known known = {{"up", {}}};
  for (const Family* family : AllFamilies()) {
    std::set<std::string> labels = absl::StrSplit(family->labels, ',', absl::SkipEmpty());
    const std::string name(family->name);
    if (family->kind == Kind::kHistogram) {
      known[name + "_count"] = known[name + "_sum"] = labels;
      labels.insert("le");
      known[name + "_bucket"] = labels;
    } else {
      known[name] = labels;
    }
  }
  for (auto& [name, labels] : known) labels.insert({"job", "instance"});
  return known;
}

// The metrics a query names, with the labels it selects them by.
class Query {
 public:
  explicit Query(const std::string& text) : text_(text) {
    while (at_ < text_.size()) Step();
  }
  const std::map<std::string, std::set<std::string>>& metrics() const { return metrics_; }

 private:
  static bool IsWord(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == ':' || c == '$';
  }

  std::string Word() {
    std::string word;
    while (at_ < text_.size() && IsWord(text_[at_])) word += text_[at_++];
    return word;
  }

  void Skip(char end) { at_ = std::min(text_.find(end, at_), text_.size() - 1) + 1; }

  void Step() {
    const char c = text_[at_];
    if (c == '[') return Skip(']');
    if (c == '"') {
      ++at_;
      return Skip('"');
    }
    if (!IsWord(c)) {
      ++at_;
      return;
    }
    const std::string word = Word();
    static const std::set<std::string> kGrouping = {"by",       "without",    "on",
                                                    "ignoring", "group_left", "group_right"};
    static const std::set<std::string> kOperators = {"and", "or", "unless", "bool", "offset"};
    const size_t next = text_.find_first_not_of(' ', at_);
    const char follows = next == std::string::npos ? ' ' : text_[next];
    if (kGrouping.contains(word)) return Skip(')');
    if (std::isdigit(static_cast<unsigned char>(word[0])) || kOperators.contains(word)) return;
    if (follows == '(') return;  // a function
    const absl::string_view rest = absl::string_view(text_).substr(std::min(next, text_.size()));
    if (absl::StartsWith(rest, "by (") || absl::StartsWith(rest, "without (")) return;
    std::set<std::string>& labels = metrics_[word];
    if (follows != '{') return;
    for (at_ = next + 1; text_[at_ - 1] != '}';) {
      labels.insert(Word());
      Skip('"');
      Skip('"');
      ++at_;  // the comma or the brace
    }
  }

  const std::string text_;
  size_t at_ = 0;
  std::map<std::string, std::set<std::string>> metrics_;
};

TEST(FamiliesTest, QueriesAreTakenApart) {
  const Query query(
      "sum by (a, b) (rate(x_total{c=\"d (e)\",f=~\"$g\"}[5m])) / on (h) y:z:w > 0.5e3 and up");
  EXPECT_EQ(query.metrics(), (Known{{"x_total", {"c", "f"}}, {"y:z:w", {}}, {"up", {}}}));
}

void ExpectKnown(const std::string& expression, const Known& known) {
  SCOPED_TRACE(expression);
  const Query query(expression);
  for (const auto& [name, labels] : query.metrics()) {
    const auto it = known.find(name);
    ASSERT_NE(it, known.end()) << "no metric " << name;
    for (const std::string& label : labels)
      EXPECT_TRUE(it->second.contains(label)) << name << " has no label " << label;
  }
}

// Values of a key in our rule files, which have each on one line.
std::vector<std::string> Values(const std::string& path, const std::string& key) {
  std::vector<std::string> values;
  for (absl::string_view line : absl::StrSplit(base::ReadFile(path), '\n')) {
    line = absl::StripAsciiWhitespace(line);
    absl::ConsumePrefix(&line, "- ");
    if (absl::ConsumePrefix(&line, absl::StrCat(key, ": "))) values.emplace_back(line);
  }
  return values;
}

// Recording rules keep the labels they group by; which ones, Prometheus' own check of the
// dashboards' queries tells (tests/system/metrics_test).
Known KnownToDashboards() {
  Known known = KnownMetrics();
  for (const std::string& record : Values("deploy/prometheus/recording_rules.yml", "record"))
    known[record] = {"cluster", "agent", "partition", "user", "verb", "noun"};
  return known;
}

TEST(FamiliesTest, RulesNameMetricsThatExist) {
  const auto records = Values("deploy/prometheus/recording_rules.yml", "expr");
  EXPECT_FALSE(records.empty());
  for (const std::string& expression : records) ExpectKnown(expression, KnownMetrics());
  const auto alerts = Values("deploy/prometheus/alert_rules.yml", "expr");
  EXPECT_EQ(alerts.size(), Values("deploy/prometheus/alert_rules.yml", "alert").size());
  for (const std::string& expression : alerts) ExpectKnown(expression, KnownToDashboards());
}

TEST(FamiliesTest, EveryAlertHasATest) {
  const std::string tests = base::ReadFile("deploy/prometheus/alert_rules_test.yml");
  for (const std::string& alert : Values("deploy/prometheus/alert_rules.yml", "alert")) {
    EXPECT_TRUE(
        absl::StrContains(tests, absl::StrCat("alertname: ", alert, "\n        exp_alerts")))
        << alert << " is not seen to fire";
    EXPECT_TRUE(absl::StrContains(tests, absl::StrCat("alertname: ", alert, "}")))
        << alert << " is not seen to keep quiet";
  }
}

TEST(FamiliesTest, DashboardsNameMetricsThatExist) {
  int queries = 0;
  for (const auto& entry : fs::directory_iterator("deploy/grafana/dashboards")) {
    SCOPED_TRACE(entry.path());
    const auto dashboard = nlohmann::json::parse(base::ReadFile(entry.path()), nullptr, false);
    ASSERT_TRUE(dashboard.is_object());
    for (const auto& panel : dashboard["panels"]) {
      for (const auto& target : panel["targets"]) {
        ExpectKnown(target["expr"].get<std::string>(), KnownToDashboards());
        ++queries;
      }
    }
    for (const auto& variable : dashboard["templating"]["list"]) {
      if (variable["type"] != "query") continue;
      // "label_values(metric, label)"
      std::string query = variable["query"]["query"];
      ASSERT_TRUE(absl::StartsWith(query, "label_values(") && absl::EndsWith(query, ")")) << query;
      const std::vector<std::string> parts =
          absl::StrSplit(query.substr(13, query.size() - 14), ", ");
      ASSERT_EQ(parts.size(), 2u);
      ExpectKnown(absl::StrCat(parts[0], "{", parts[1], "=\"\"}"), KnownMetrics());
    }
  }
  EXPECT_GT(queries, 30);
}

}  // namespace
}  // namespace vpod::http
