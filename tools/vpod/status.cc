#include "tools/vpod/status.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "client/render/table.h"
#include "client/vipu/client.h"
#include "tools/vpod/daemons.h"
#include "tools/vpod/fail.h"

namespace vpod::tools {
namespace {

constexpr char kNotRunning[] = "not running";

// As JSON has it.
const char* NameOf(PodStatus::State state) {
  switch (state) {
    case PodStatus::State::kNone:
      return "down";
    case PodStatus::State::kDamaged:
      return "damaged";
    case PodStatus::State::kStopped:
      return "stopped";
    case PodStatus::State::kPartial:
      return "in part";
    case PodStatus::State::kRunning:
      return "running";
  }
  return "";
}

std::string Title(const PodShape& shape) { return absl::StrCat("POD", shape.ipus); }

// Pids of the agents' processes, and the logs of those that are missing.
std::string AgentsText(const std::vector<AgentProcess>& agents) {
  std::vector<std::string> pids, missing;
  for (const AgentProcess& agent : agents) {
    if (agent.pid > 0) {
      pids.push_back(absl::StrCat(agent.pid));
    } else {
      missing.push_back(agent.log);
    }
  }
  if (pids.empty()) return kNotRunning;
  const std::string what = missing.empty()
                               ? ""
                               : absl::StrCat(" (", missing.size(), " of ", agents.size(),
                                              " missing: see ", absl::StrJoin(missing, ", "), ")");
  return absl::StrCat("pid ", absl::StrJoin(pids, " "), what);
}

std::string StateText(const PodStatus& status) {
  if (status.state != PodStatus::State::kPartial) return NameOf(status.state);
  return absl::StrCat("in part: ", absl::StrJoin(status.missing, ", "),
                      "; 'vpod up' starts the rest");
}

std::string NameText(const PodStatus& status) {
  return absl::StrCat(status.name.empty() ? "-" : status.name, status.in_use ? " (in use)" : "");
}

// With their states; of many only the first.
std::string PartitionsText(const PodStatus& status) {
  if (!status.partitions.ok()) return std::string(status.partitions.status().message());
  constexpr size_t kShown = 16;
  const auto name = [](std::string* out, const vipuuser::Partition& partition) {
    absl::StrAppend(out, partition.requirements().id(), " (",
                    vipu::StateText(partition.status().state()), ")");
  };
  const auto shown = absl::MakeSpan(*status.partitions).subspan(0, kShown);
  const std::string names = absl::StrJoin(shown, ", ", name);
  const size_t all = status.partitions->size();
  return all <= kShown ? names : absl::StrCat(names, ", … of ", all);
}

// Asks the controller about itself and its partitions.
void AskController(PodStatus& status) {
  vipu::Client client(ApiOf(*status.shape), std::chrono::seconds(5));
  if (const auto info = client.ServerInfo(); info.ok() && !info->metrics_endpoint().empty())
    status.metrics = absl::StrCat("http://", info->metrics_endpoint(), "/metrics");
  status.partitions = client.ListPartitions();
}

nlohmann::ordered_json PartitionsJson(const PodStatus& status) {
  if (!status.partitions.ok()) return nullptr;
  auto partitions = nlohmann::ordered_json::array();
  for (const vipuuser::Partition& partition : *status.partitions) {
    partitions.push_back({{"id", partition.requirements().id()},
                          {"size", partition.requirements().size()},
                          {"state", vipu::StateText(partition.status().state())}});
  }
  return partitions;
}

nlohmann::ordered_json NumberOrNull(uint64_t number) {
  return number == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(number);
}

}  // namespace

PodStatus StatusOf(const Pod& pod) {
  PodStatus status{.home = pod.home(), .name = vipu::NameOfPod(pod.home())};
  const auto meant = vipu::PodHome();
  status.in_use = meant.ok() && *meant == pod.home();
  const auto shape = pod.Shape();
  if (absl::IsDataLoss(shape.status())) {
    status.state = PodStatus::State::kDamaged;
    status.damage = std::string(shape.status().message());
  }
  if (!shape.ok()) return status;
  status.shape = *shape;
  status.server_pid = pod.ServerPid();
  bool runs = status.server_pid > 0;
  for (uint32_t agent = 0; agent < shape->agents(); ++agent) {
    status.agents.push_back({Pod::AgentName(agent), pod.AgentLog(agent), pod.AgentPid(agent)});
    runs = runs || status.agents.back().pid > 0;
  }
  status.missing = pod.Missing(*shape);
  status.state = status.missing.empty() ? PodStatus::State::kRunning
                 : runs                 ? PodStatus::State::kPartial
                                        : PodStatus::State::kStopped;
  if (status.server_pid > 0) AskController(status);
  return status;
}

std::string StatusText(const PodStatus& status) {
  if (!status.shape.has_value()) return absl::StrCat("no POD in ", Shown(status.home), "\n");
  const PodShape& shape = *status.shape;
  std::vector<std::pair<std::string, std::string>> rows = {
      {"POD", Title(shape)},
      {"State", StateText(status)},
      {"Home", status.home},
      {"API", absl::StrCat(ApiOf(shape).address(), shape.secure ? " (secure)" : "")},
      {"Machines", absl::StrCat(shape.machines(), " x ", shape.machine_type)},
      {"vipu-server",
       status.server_pid > 0 ? absl::StrCat("pid ", status.server_pid) : kNotRunning},
      {"vipu-agent", AgentsText(status.agents)},
  };
  if (!status.name.empty()) rows.insert(rows.begin() + 1, {"Name", NameText(status)});
  if (!status.metrics.empty()) rows.emplace_back("Metrics", status.metrics);
  if (status.server_pid > 0) rows.emplace_back("Partitions", PartitionsText(status));
  for (auto& [key, value] : rows) value = Shown(value);
  return render::Block(rows);
}

nlohmann::ordered_json StatusJson(const PodStatus& status) {
  nlohmann::ordered_json json = {
      {"name",
       status.name.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(status.name)},
      {"in_use", status.in_use},
      {"home", status.home},
      {"state", NameOf(status.state)}};
  if (!status.damage.empty()) json["error"] = status.damage;
  if (!status.shape.has_value()) return json;
  const PodShape& shape = *status.shape;
  json["missing"] = status.missing;
  json["ipus"] = shape.ipus;
  json["machines"] = shape.machines();
  json["machine_type"] = shape.machine_type;
  json["memory_limit_mib"] = shape.memory_limit_mib;
  json["secure"] = shape.secure;
  json["api"] = ApiOf(shape).address();
  json["metrics"] =
      status.metrics.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(status.metrics);
  json["server"] = {{"pid", NumberOrNull(static_cast<uint64_t>(status.server_pid))}};
  json["agents"] = nlohmann::ordered_json::array();
  for (const AgentProcess& agent : status.agents) {
    json["agents"].push_back({{"name", agent.name},
                              {"pid", NumberOrNull(static_cast<uint64_t>(agent.pid))},
                              {"log", agent.log}});
  }
  json["partitions"] = PartitionsJson(status);
  return json;
}

std::vector<Pod> AllPods() {
  std::set<std::string> homes;
  for (const int pid : ProcessesOf("vipu-server")) {
    const std::filesystem::path pid_file = PidFileOf(pid);
    if (!pid_file.empty()) homes.insert(pid_file.parent_path());  // else not vpod's
  }
  for (const std::string& name : vipu::PodNames()) {
    if (const auto home = vipu::HomeOfPod(name); home.ok()) homes.insert(*home);
  }
  if (const auto home = vipu::PodHome();
      home.ok() && !absl::IsNotFound(Pod(*home).Shape().status()))
    homes.insert(*home);
  std::vector<Pod> pods;
  for (const std::string& home : homes) pods.emplace_back(home);
  return pods;
}

std::string ListText(const std::vector<PodStatus>& pods) {
  render::Table table;
  table.headings = {"POD", "Name", "State", "API", "Partitions", "Home"};
  table.minimum_widths = {11};
  for (const PodStatus& pod : pods) {
    const bool known = pod.shape.has_value();
    table.rows.push_back({known ? Title(*pod.shape) : "-", NameText(pod), NameOf(pod.state),
                          known ? ApiOf(*pod.shape).address() : "-",
                          pod.partitions.ok() ? absl::StrCat(pod.partitions->size()) : "-",
                          Shown(pod.home)});
  }
  return render::StyleH(table);
}

}  // namespace vpod::tools
