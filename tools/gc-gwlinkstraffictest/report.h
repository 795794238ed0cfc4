// What gc-gwlinkstraffictest prints (spec/gc-tools.md 6.4). Pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/telemetry/v1/telemetry.pb.h"
#include "tools/link_test/link_traffic.h"

namespace vpod::tools {

// A GW-Link of this GCD's machines and what it carried in the test.
struct GwLinkResult {
  std::string from, to;  // "127.10.0.1 GW_E"
  bool passed = false;
  double gbps = 0;  // modelled
};

// From what the links had counted before and after the test. Links of the partition's other
// machines, which carried nothing for us, are left out, unless they are down.
std::vector<GwLinkResult> GwLinkResults(const std::vector<telemetry::v1::LinkTelemetry>& before,
                                        const std::vector<telemetry::v1::LinkTelemetry>& after,
                                        const LinkTraffic& traffic);
bool AllPassed(const std::vector<GwLinkResult>& links);

std::string GwLinksText(const std::vector<GwLinkResult>& links);
std::string GwLinksJson(const std::vector<GwLinkResult>& links);

}  // namespace vpod::tools
