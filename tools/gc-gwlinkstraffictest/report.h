// Output of gc-gwlinkstraffictest (spec/gc-tools.md 6.4). Pure functions.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "proto/telemetry/v1/telemetry.pb.h"
#include "tools/link_test/link_traffic.h"

namespace vpod::tools {

// A GW-Link of a machine that takes part and what it carried in the test.
struct GwLinkResult {
  std::string from, to;  // "127.10.0.1 GW_E"
  bool carried = false;  // it sent something
  bool passed = false;   // and what arrived is right
  double gbps = 0;       // modelled
};

// The GW-Links of `machines` (data-plane addresses), from what the links of the partition had
// counted before and after the test. One that carried nothing has not passed.
std::vector<GwLinkResult> GwLinkResults(const std::vector<telemetry::v1::LinkTelemetry>& before,
                                        const std::vector<telemetry::v1::LinkTelemetry>& after,
                                        const std::set<std::string>& machines,
                                        const LinkTraffic& traffic);
bool AllPassed(const std::vector<GwLinkResult>& links);

std::string GwLinksText(const std::vector<GwLinkResult>& links);
std::string GwLinksJson(const std::vector<GwLinkResult>& links);

}  // namespace vpod::tools
