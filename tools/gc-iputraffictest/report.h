// What gc-iputraffictest prints (spec/gc-tools.md 6.3). Pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/telemetry/v1/telemetry.pb.h"
#include "tools/link_test/link_traffic.h"

namespace vpod::tools {

struct IpuTrafficReport {
  std::string device0, device1;  // empty with --all-links
  LinkTraffic traffic;
  bool wall = false;                              // show figures of the host too
  std::vector<telemetry::v1::IpuTelemetry> ipus;  // that took part, read during the test
};

std::string IpuTrafficJson(const IpuTrafficReport& report);
// The same values, a line each.
std::string IpuTrafficText(const IpuTrafficReport& report);

}  // namespace vpod::tools
