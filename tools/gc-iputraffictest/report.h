// Output of gc-iputraffictest (spec/gc-tools.md 6.3). Pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/telemetry/v1/telemetry.pb.h"
#include "proto/vipu/v1/vipuuser.pb.h"
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

// Names ("127.10.0.1 IPU3.NLC_E_0A") of IPU-Links between IPUs of a GCD that are led over, and that
// sent nothing between two readings.
std::vector<std::string> IdleLinks(const vipuuser::PartitionConfig& gcd,
                                   const std::vector<telemetry::v1::LinkTelemetry>& before,
                                   const std::vector<telemetry::v1::LinkTelemetry>& after);

}  // namespace vpod::tools
