#include "server/http/controller_exporter.h"

#include <google/protobuf/util/json_util.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/controller/requirements.h"
#include "server/http/accept.h"
#include "server/http/families.h"

namespace vpod::http {
namespace {

using controller::StateText;

void WriteAgents(const ControllerState& state, Exposition& out) {
  std::map<std::string, double> by_status = {{"Up", 0}, {"Down", 0}, {"Unknown", 0}};
  for (const auto& agent : state.agents) ++by_status[agent.status()];
  out.Begin(kAgents);
  for (const auto& [status, count] : by_status) out.Add({status}, count);
  out.Begin(kAgentUp);
  for (const auto& agent : state.agents)
    out.Add({agent.id(), agent.cluster_id()}, agent.status() == "Up" ? 1 : 0);
  out.Begin(kAgentLastSeen);
  for (const auto& agent : state.agents) {
    if (agent.last_seen_ms() >= 0)
      out.Add({agent.id()}, static_cast<double>(agent.last_seen_ms()) / 1000);
  }
}

void WritePartitions(const ControllerState& state, Exposition& out) {
  std::map<std::string, double> by_state = {
      {"PENDING", 0}, {"RELEASING", 0}, {"ACTIVE", 0}, {"ERROR", 0}};
  for (const auto& partition : state.partitions) ++by_state[StateText(partition.status().state())];
  out.Begin(kPartitions);
  for (const auto& [name, count] : by_state) out.Add({name}, count);
  out.Begin(kPartitionSize);
  for (const auto& partition : state.partitions) {
    const auto& r = partition.requirements();
    out.Add({r.id(), r.cluster_id(), r.allocation_id(), partition.status().created_by(),
             StateText(partition.status().state())},
            r.size());
  }
}

void WriteIpus(const ControllerState& state, Exposition& out) {
  std::map<absl::string_view, const vipuadmin::Agent*> agents;
  for (const auto& agent : state.agents) agents[agent.id()] = &agent;
  out.Begin(kIpus);
  for (const auto& allocation : state.allocations) {
    double free = 0, used = 0, error = 0;
    for (const std::string& id : allocation.agent_ids()) {
      const auto it = agents.find(id);
      if (it == agents.end()) continue;  // removed between the two lists
      const vipuadmin::Agent& agent = *it->second;
      if (agent.status() != "Up") {
        error += agent.num_ipus();
      } else {
        const double failed_used = agent.failed_ipus() - agent.failed_free_ipus();
        free += agent.free_ipus() - agent.failed_free_ipus();
        used += agent.num_ipus() - agent.free_ipus() - failed_used;
        error += agent.failed_ipus();
      }
    }
    const std::string& cluster = allocation.cluster_id();
    out.Add({cluster, allocation.id(), "free"}, free);
    out.Add({cluster, allocation.id(), "used"}, used);
    out.Add({cluster, allocation.id(), "error"}, error);
  }
}

void WriteTests(const ControllerState& state, Exposition& out) {
  out.Begin(kClusterTestPassed);
  for (const auto& cluster : state.clusters) {
    for (const auto& row : cluster.last_tests()) out.Add({cluster.id(), row.test()}, row.passed());
  }
  out.Begin(kClusterTestExpected);
  for (const auto& cluster : state.clusters) {
    for (const auto& row : cluster.last_tests())
      out.Add({cluster.id(), row.test()}, row.expected());
  }
}

// Verb and noun of the command behind a method: "create", "partition" from CreatePartition. False
// for methods that are parts of commands.
bool SplitMethod(const std::string& method, std::string& verb, std::string& noun) {
  static constexpr std::pair<absl::string_view, absl::string_view> kNouns[] = {
      {"Agent", "agent"},         {"Cluster", "cluster"}, {"Allocation", "allocation"},
      {"Partition", "partition"}, {"User", "user"},       {"IpuAttribute", "ipu-attrs"},
      {"Event", "event"}};
  absl::string_view start = method;
  absl::ConsumeSuffix(&start, "s");  // of a list
  for (const auto& [suffix, word] : kNouns) {
    if (!absl::ConsumeSuffix(&start, suffix)) continue;
    verb = absl::AsciiStrToLower(start);
    noun = std::string(word);
    return true;
  }
  return false;
}

void WriteCalls(const std::map<RequestCounter::Call, Histogram>& calls, Exposition& out) {
  // By verb, noun and result. User and admin end-point have methods in common.
  std::map<std::tuple<std::string, std::string, std::string>, Histogram> operations;
  // By end-point, method and code.
  std::map<std::tuple<std::string, std::string, std::string>, double> requests;
  for (const auto& [call, durations] : calls) {
    const auto& [service, method, code] = call;
    const std::string endpoint = service == "vipuuser.VipuUser" ? "user" : "admin";
    requests[{endpoint, method, absl::StatusCodeToString(static_cast<absl::StatusCode>(code))}] +=
        static_cast<double>(durations.count());
    std::string verb, noun;
    if (SplitMethod(method, verb, noun))
      operations[{verb, noun, code == grpc::StatusCode::OK ? "success" : "failed"}] += durations;
  }
  out.Begin(kOperations);
  for (const auto& [key, durations] : operations) {
    const auto& [verb, noun, result] = key;
    out.Add({verb, noun, result}, static_cast<double>(durations.count()));
  }
  out.Begin(kApiRequests);
  for (const auto& [key, count] : requests)
    out.Add({std::get<0>(key), std::get<1>(key), std::get<2>(key)}, count);
  out.Begin(kOperationDuration);
  for (const auto& [key, durations] : operations)
    out.Add({std::get<0>(key), std::get<1>(key), std::get<2>(key)}, durations);
}

ControllerState ReadState(const ControllerSources& sources) {
  controller::Controller& controller = sources.controller;
  return {controller.ListAgents(), controller.ListClusters(), controller.ListAllocations(),
          controller.ListPartitions(), sources.controller.users().List().size()};
}

// The reply of the call that lists the same, in protobuf's JSON.
Response Json(const Request& request, const google::protobuf::Message& reply) {
  if (Quality(request.accept, "application/json") == 0)
    return {.status = 406, .body = "available is application/json\n"};
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string body;
  if (!google::protobuf::util::MessageToJsonString(reply, &body, options).ok())
    return {.status = 500, .body = "the reply cannot be written as JSON\n"};
  return {.content_type = "application/json", .body = body + "\n"};
}

// https://prometheus.io/docs/prometheus/latest/http_sd/: a list of groups of targets.
Response Exporters(controller::Controller& controller) {
  std::set<std::string> targets;  // one process may serve many machines
  for (const auto& agent : controller.ListAgents()) {
    absl::string_view target = agent.exporter();
    if (absl::ConsumePrefix(&target, "http://"))
      targets.insert(std::string(target.substr(0, target.find('/'))));
  }
  const auto groups = nlohmann::json::array({{{"targets", targets}}});
  return {.content_type = "application/json", .body = groups.dump() + "\n"};
}

// The lists of the API.
void AddObjects(controller::Controller& controller, Routes& routes) {
  routes["/api/v1/agents"] = [&controller](const Request& request) {
    vipuadmin::ListAgentsReply reply;
    for (auto& agent : controller.ListAgents()) *reply.add_agents() = std::move(agent);
    return Json(request, reply);
  };
  routes["/api/v1/clusters"] = [&controller](const Request& request) {
    vipuadmin::ListClustersReply reply;
    for (auto& cluster : controller.ListClusters()) *reply.add_clusters() = std::move(cluster);
    return Json(request, reply);
  };
  routes["/api/v1/allocations"] = [&controller](const Request& request) {
    vipuadmin::ListAllocationsReply reply;
    for (auto& allocation : controller.ListAllocations())
      *reply.add_allocations() = std::move(allocation);
    return Json(request, reply);
  };
  routes["/api/v1/partitions"] = [&controller](const Request& request) {
    vipuuser::ListPartitionsReply reply;
    for (auto& partition : controller.ListPartitions())
      *reply.add_partitions() = std::move(partition);
    return Json(request, reply);
  };
}

}  // namespace

std::string WriteControllerMetrics(const ControllerState& state,
                                   const std::map<RequestCounter::Call, Histogram>& calls,
                                   double start_time, Format format) {
  Exposition out(format);
  out.Begin(kBuildInfo);
  out.Add({controller::kVersion}, 1);
  out.Begin(kStartTime);
  out.Add({}, start_time);
  WriteAgents(state, out);
  out.Begin(kClusters);
  out.Add({}, static_cast<double>(state.clusters.size()));
  out.Begin(kAllocations);
  out.Add({}, static_cast<double>(state.allocations.size()));
  out.Begin(kUsers);
  out.Add({}, static_cast<double>(state.users));
  WritePartitions(state, out);
  WriteIpus(state, out);
  WriteTests(state, out);
  WriteCalls(calls, out);
  return std::move(out).Finish();
}

Routes ControllerRoutes(const ControllerSources& sources, bool secure) {
  const auto start_time = static_cast<double>(std::time(nullptr));
  Routes routes;
  routes["/healthz"] = HealthHandler(sources.health);
  routes["/metrics"] = MetricsHandler([sources, start_time](Format format) {
    return WriteControllerMetrics(ReadState(sources), sources.calls.Calls(), start_time, format);
  });
  routes["/api/v1/exporters"] = [&controller = sources.controller](const Request&) {
    return Exporters(controller);
  };
  if (!secure) AddObjects(sources.controller, routes);
  return routes;
}

}  // namespace vpod::http
