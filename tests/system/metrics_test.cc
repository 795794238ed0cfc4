// The exporters as the real Prometheus sees them: formats, discovery, rules, and every query of the
// dashboards.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "device/base/file.h"
#include "tests/support/http_get.h"
#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool Installed() { return access("/usr/bin/prometheus", X_OK) == 0; }

std::string Replace(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

std::string BodyOf(const std::string& answer) {
  const size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

// host:port of the first address behind `row` in a block that a tool prints.
std::string EndpointInRow(const std::string& block, const std::string& row) {
  size_t at = block.find(" " + row + " ");
  if (at == std::string::npos) return "";
  at = block.find("http://", at);
  const size_t begin = at + 7, end = block.find("/metrics", at);
  return at == std::string::npos ? "" : block.substr(begin, end - begin);
}

std::string Encoded(const std::string& text) {
  std::string result;
  for (const unsigned char c : text) {
    char hex[4];
    std::snprintf(hex, sizeof(hex), "%%%02X", c);
    result += std::isalnum(c) ? std::string(1, static_cast<char>(c)) : hex;
  }
  return result;
}

class MetricsTest : public ::testing::Test {
 protected:
  MetricsTest() {
    controller_ = EndpointInRow(pod_.Run({"vpod", "status"}).out, "Metrics");
    machines_ = EndpointInRow(pod_.Run({"vipu-admin", "get", "agent", "ag0"}).out, "Exporter");
  }

  TestPod pod_;
  std::string controller_, machines_;  // host:port of the exporters
};

// Our configuration, asking this POD and more often.
std::string ConfigurationFor(const std::string& controller) {
  const std::string text = base::ReadFile("deploy/prometheus/prometheus.yml");
  EXPECT_NE(text.find("127.0.0.1:2113"), std::string::npos);
  return Replace(Replace(Replace(text, "127.0.0.1:2113", controller), "15s", "2s"), "30s", "2s");
}

// A Prometheus of our own, with its data in the POD's directory.
class Prometheus {
 public:
  Prometheus(TestPod& pod, const std::string& controller) {
    const std::string directory = pod.directory() + "/prometheus";
    fs::create_directories(directory);
    for (const char* rules : {"recording_rules.yml", "alert_rules.yml"})
      fs::copy(std::string("deploy/prometheus/") + rules, directory);
    std::ofstream(directory + "/prometheus.yml") << ConfigurationFor(controller);
    process_ = pod.Start({"prometheus", "--config.file=" + directory + "/prometheus.yml",
                          "--storage.tsdb.path=" + directory + "/data",
                          "--web.listen-address=127.0.0.1:0"});
    EXPECT_TRUE(process_->WaitForOutput("ready to receive web requests")) << process_->Err();
    const std::string log = process_->Err(), before = "msg=\"Listening on\" address=";
    const size_t begin = log.find(before) + before.size();
    endpoint_ = log.substr(begin, log.find_first_of(" \n", begin) - begin);
  }

  // The series an expression yields; fails the test when it is no good.
  json Query(const std::string& expression) {
    const json answer = json::parse(
        BodyOf(HttpGet("http://" + endpoint_ + "/api/v1/query?query=" + Encoded(expression))),
        nullptr, false);
    EXPECT_EQ(answer.value("status", ""), "success") << expression << "\n" << answer.dump();
    return answer.contains("data") ? answer["data"]["result"] : json::array();
  }
  // Asks until the expression yields something.
  json WaitFor(const std::string& expression) {
    for (int tries = 0; tries < 1200; ++tries) {
      const json result = Query(expression);
      if (!result.empty() || ::testing::Test::HasFailure()) return result;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    ADD_FAILURE() << "nothing to see of " << expression;
    return json::array();
  }

 private:
  std::unique_ptr<Command> process_;
  std::string endpoint_;
};

// Sets the variables that dashboards leave to the viewer.
std::string WithVariables(std::string query) {
  const std::map<std::string, std::string> values = {
      {"$__rate_interval", "1m"}, {"$cluster", ".*"}, {"$agent", "ag0"}, {"$partition", "p8"}};
  for (const auto& [name, value] : values) query = Replace(query, name, value);
  return query;
}

std::set<std::string> QueriesOfDashboards() {
  std::set<std::string> queries;
  for (const auto& entry : fs::directory_iterator("deploy/grafana/dashboards")) {
    const json dashboard = json::parse(base::ReadFile(entry.path()), nullptr, false);
    for (const auto& panel : dashboard["panels"]) {
      for (const auto& target : panel["targets"]) queries.insert(WithVariables(target["expr"]));
    }
  }
  return queries;
}

TEST(MetricsFilesTest, PromtoolAcceptsConfigurationRulesAndTheirTests) {
  if (!Installed()) GTEST_SKIP() << "prometheus is not installed (deploy/packages-test.txt)";
  TestPod pod(0);
  for (const char* check : {"check config deploy/prometheus/prometheus.yml",
                            "test rules deploy/prometheus/alert_rules_test.yml"}) {
    const Outcome outcome = pod.Shell(std::string("promtool ") + check);
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  }
}

TEST_F(MetricsTest, BothFormatsAndNothingElse) {
  ASSERT_NE(controller_, "");
  ASSERT_NE(machines_, "");
  for (const std::string& endpoint : {controller_, machines_}) {
    const std::string url = "http://" + endpoint, text = HttpGet(url + "/metrics");
    EXPECT_NE(text.find("Content-Type: text/plain; version=0.0.4"), std::string::npos) << text;
    const std::string open_metrics = HttpGet(url + "/metrics", "application/openmetrics-text");
    EXPECT_NE(open_metrics.find("Content-Type: application/openmetrics-text; version=1.0.0"),
              std::string::npos)
        << open_metrics;
    EXPECT_EQ(open_metrics.substr(open_metrics.size() - 6), "# EOF\n");
    EXPECT_EQ(HttpGet(url + "/metrics", "image/png").substr(9, 3), "406");
    EXPECT_EQ(BodyOf(HttpGet(url + "/healthz")), "ok\n");
    if (!Installed()) continue;
    std::ofstream(pod_.directory() + "/scrape") << BodyOf(text);
    const Outcome check = pod_.Shell("promtool check metrics < " + pod_.directory() + "/scrape");
    EXPECT_EQ(check.code, 0) << check.err;
    EXPECT_EQ(check.err, "");
  }
}

TEST_F(MetricsTest, PrometheusFindsScrapesAndAnswersEveryDashboard) {
  if (!Installed()) GTEST_SKIP() << "prometheus is not installed (deploy/packages-test.txt)";
  pod_.CreatePartition("p8", 8);
  Prometheus prometheus(pod_, controller_);
  prometheus.WaitFor("up{job=\"vipu-controller\"} == 1");
  const json machines = prometheus.WaitFor("up{job=\"vipu-machines\"} == 1");
  ASSERT_EQ(machines.size(), 1u);
  EXPECT_EQ(machines[0]["metric"]["instance"], machines_);
  prometheus.WaitFor("count(ipu_info{agent=~\"ag[0-3]\"}) == 16");

  const auto job =
      pod_.Start({"poprun", "--vipu-partition", "p8", "--num-instances", "2", "--num-replicas", "8",
                  "replica_job", "--runs", "2000", "--pause-ms", "10"});
  const json attached = prometheus.WaitFor("sum by (partition) (ipu_attached) == 8");
  EXPECT_EQ(attached[0]["metric"]["partition"], "p8");
  prometheus.WaitFor("partition:host_link_rx_bytes:rate1m{partition=\"p8\"} > 0");
  prometheus.WaitFor("partition:ipu_link_tx_bytes:rate1m{partition=\"p8\"} > 0");
  const Outcome refused = pod_.Run({"vipu", "create", "partition", "p3", "--size", "3"});
  EXPECT_NE(refused.code, 0);
  prometheus.WaitFor("vipu_operations_total{verb=\"create\",result=\"failed\"} == 1");
  for (const std::string& query : QueriesOfDashboards()) {
    // Queries that show what is wrong have nothing to show.
    const bool trouble =
        query.find("== 0") != std::string::npos || query.find("> 0") != std::string::npos;
    EXPECT_EQ((trouble ? prometheus.Query(query) : prometheus.WaitFor(query)).empty(),
              trouble && query.find("vector(0)") == std::string::npos)
        << query;
  }
  const json alerts = prometheus.Query("ALERTS{alertstate=\"firing\"}");
  EXPECT_TRUE(alerts.empty()) << alerts.dump();

  kill(pod_.AgentPid(), SIGKILL);
  prometheus.WaitFor("count(ALERTS{alertname=\"VipuAgentDown\"}) == 4");
  prometheus.WaitFor("ALERTS{alertname=\"VipuPartitionError\",partition=\"p8\"}");
}

}  // namespace
}  // namespace vpod::testing
