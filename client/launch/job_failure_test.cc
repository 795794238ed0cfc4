#include "client/launch/job_failure.h"

#include <gtest/gtest.h>

#include <vector>

#include "device/base/device_use.h"

namespace vpod::launch {
namespace {

constexpr int kKilled = 9, kExit3 = 3 << 8;  // wait statuses as Linux has them

InstanceReport Report(int instance, ReportKind kind, int at_ms, int status = 0) {
  return {instance, kind,   4711 + instance,     status, std::chrono::milliseconds(at_ms),
          "boot",   "host", base::PidNamespace()};
}

Layout LayoutOf(uint32_t instances) {
  Layout layout;
  layout.instances = instances;
  layout.replicas = instances;
  return layout;
}

std::string Text(const std::vector<InstanceReport>& reports, uint32_t instances = 2) {
  return DescribeFirstEnd({.reports = reports, .lost = LostInstance{1, "12", "far"}},
                          LayoutOf(instances));
}

TEST(JobFailureTest, TheSupervisorsSayWhichInstanceEndedFirstAndHow) {
  const InstanceReport started = Report(0, ReportKind::kStarted, 1);
  EXPECT_EQ(Text({started, Report(0, ReportKind::kEnded, 5, kKilled)}),
            "instance 0 (pid 4711, host) was killed by signal 9");
  EXPECT_EQ(Text({started, Report(1, ReportKind::kEnded, 5, kExit3)}),
            "instance 1 (pid 4712, host) ended with exit code 3");
  EXPECT_EQ(Text({started, Report(1, ReportKind::kToldToEnd, 5)}),
            "instance 0 (pid 4711, host) was lost");
}

TEST(JobFailureTest, AnInstanceOfWhichNobodyHeardIsNamedByItsHost) {
  Layout layout = LayoutOf(2);
  layout.hosts = {"h1", "h2"};
  layout.hosts_given = true;
  EXPECT_EQ(
      DescribeFirstEnd({.reports = std::vector{Report(0, ReportKind::kToldToEnd, 5)}}, layout),
      "instance 1 (h2) was lost before its program ran");
}

TEST(JobFailureTest, SeveralSilentInstancesHaveNoName) {
  EXPECT_EQ(Text({Report(0, ReportKind::kStarted, 1), Report(1, ReportKind::kStarted, 1)}),
            "an instance was lost before its program ran");
  EXPECT_EQ(Text({Report(0, ReportKind::kToldToEnd, 1), Report(1, ReportKind::kToldToEnd, 1)}),
            "mpirun was told to end, and ended all instances");
}

TEST(JobFailureTest, WithoutSupervisorsTheAgentKnows) {
  const LostInstance lost{1, "12", "far"};
  EXPECT_EQ(DescribeFirstEnd({.lost = lost, .exit_code = 137}, LayoutOf(2)),
            "instance 1 (pid 12, far) was killed by signal 9");
  EXPECT_EQ(DescribeFirstEnd({.lost = lost, .exit_code = 1}, LayoutOf(2)),
            "instance 1 (pid 12, far) was lost");
  EXPECT_EQ(Text({}), "instance 1 (pid 12, far) was lost") << "no supervisor could report";
  EXPECT_EQ(DescribeFirstEnd({.exit_code = 1}, LayoutOf(2)), "");
}

}  // namespace
}  // namespace vpod::launch
