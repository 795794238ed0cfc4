// What the controller shows over HTTP: /metrics, /healthz, its objects as JSON below /api/v1/, and
// the exporters of its machines in the form in which Prometheus discovers targets. Read-only;
// nothing here asks who the reader is.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "proto/vipu/v1/vipuadmin.pb.h"
#include "proto/vipu/v1/vipuuser.pb.h"
#include "server/controller/controller.h"
#include "server/http/metrics.h"
#include "server/http/server.h"
#include "server/rpc/request_counter.h"

namespace vpod::http {

// The objects of the controller, as its lists show them.
struct ControllerState {
  std::vector<vipuadmin::Agent> agents;
  std::vector<vipuadmin::Cluster> clusters;
  std::vector<vipuuser::Allocation> allocations;
  std::vector<vipuuser::Partition> partitions;
};

// `calls` are those answered since the start, at `start_time` (seconds since 1970).
std::string WriteControllerMetrics(const ControllerState& state,
                                   const std::map<rpc::RequestCounter::Call, Histogram>& calls,
                                   double start_time, Format format);

// Controller and counter outlive the server of these routes.
Routes ControllerRoutes(controller::Controller& controller, const rpc::RequestCounter& counter);

}  // namespace vpod::http
