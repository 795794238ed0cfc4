// HTTP routes of the controller: /metrics, /healthz, its objects as JSON below /api/v1/, and the
// exporters of its machines in the form in which Prometheus discovers targets. Read-only.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "proto/vipu/v1/vipuadmin.pb.h"
#include "proto/vipu/v1/vipuuser.pb.h"
#include "server/controller/controller.h"
#include "server/http/exporter.h"
#include "server/http/metrics.h"
#include "server/http/request_counter.h"
#include "server/http/server.h"

namespace vpod::http {

// The objects of the controller, as its lists show them.
struct ControllerState {
  std::vector<vipuadmin::Agent> agents;
  std::vector<vipuadmin::Cluster> clusters;
  std::vector<vipuadmin::Allocation> allocations;
  std::vector<vipuuser::Partition> partitions;
  size_t users = 0;
};

// `calls` are those answered since the start, at `start_time` (seconds since 1970).
std::string WriteControllerMetrics(const ControllerState& state,
                                   const std::map<RequestCounter::Call, Histogram>& calls,
                                   double start_time, Format format);

// Sources of the routes; they outlive the routes' server.
struct ControllerSources {
  controller::Controller& controller;
  const RequestCounter& calls;
  Health health;
};

// Nothing here asks who the reader is; so with `secure`, the objects are not shown to those who may
// not see them through the API.
Routes ControllerRoutes(const ControllerSources& sources, bool secure);

}  // namespace vpod::http
