// vpod: brings local PODs up and down.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "client/render/table.h"
#include "client/vipu/client.h"
#include "device/arch/hardware.h"
#include "device/base/file.h"
#include "device/base/stdout.h"
#include "tools/vpod/daemons.h"
#include "tools/vpod/doctor.h"
#include "tools/vpod/pod.h"

namespace vpod::tools {
namespace {

namespace fs = std::filesystem;

constexpr char kNotRunning[] = "not running";

int Fail(absl::string_view message, int code = 1) {
  std::fprintf(stderr, "vpod: error: %s\n", std::string(message).c_str());
  return code;
}

int Up(Pod& pod, const PodRequest& request) {
  const auto brought = pod.Up(request);
  if (!brought.ok())
    return Fail(brought.status().message(), absl::IsInvalidArgument(brought.status()) ? 2 : 1);
  const PodShape& now = brought->shape;
  if (brought->was_up) {
    std::printf("POD%u is already up in %s (API 127.0.0.1:%u); nothing changed.\n", now.ipus,
                pod.home().c_str(), now.api_port);
    return 0;
  }
  std::printf(
      "POD%u is up: %u machines (%s) in cluster c%u, API 127.0.0.1:%u, memory limit %lu MiB, state "
      "in %s\n",
      now.ipus, now.ipus / arch::kIpusPerMachine, now.machine_type.c_str(), now.ipus, now.api_port,
      now.memory_limit_mib, pod.home().c_str());
  std::printf("To use it in this shell: eval \"$(vpod env)\"\n");
  return 0;
}

// Pids of the agents' processes, and the logs of those that are missing.
std::string Agents(const Pod& pod, const PodShape& shape) {
  std::vector<std::string> pids, missing;
  for (uint32_t agent = 0; agent < shape.agents(); ++agent) {
    const int pid = pod.AgentPid(agent);
    if (pid > 0) {
      pids.push_back(absl::StrCat(pid));
    } else {
      missing.push_back(pod.AgentLog(agent));
    }
  }
  if (pids.empty()) return kNotRunning;
  const std::string what = missing.empty()
                               ? ""
                               : absl::StrCat(" (", missing.size(), " of ", shape.agents(),
                                              " missing: see ", absl::StrJoin(missing, ", "), ")");
  return absl::StrCat("pid ", absl::StrJoin(pids, " "), what);
}

int Down(Pod& pod) {
  const auto stopped = pod.Down();
  if (!stopped.ok()) return Fail(stopped.status().message());
  std::printf(*stopped ? "POD in %s is down.\n" : "no POD runs in %s\n", pod.home().c_str());
  return 0;
}

// With their states; of many only the first.
std::string NamesOf(const std::vector<vipuuser::Partition>& partitions) {
  constexpr size_t kShown = 16;
  const auto name = [](std::string* out, const vipuuser::Partition& partition) {
    absl::StrAppend(out, partition.requirements().id(), " (",
                    vipu::StateText(partition.status().state()), ")");
  };
  const auto shown = absl::MakeSpan(partitions).subspan(0, kShown);
  const std::string names = absl::StrJoin(shown, ", ", name);
  return partitions.size() <= kShown ? names : absl::StrCat(names, ", … of ", partitions.size());
}

int Status(const Pod& pod) {
  const auto shape = pod.Shape();
  if (absl::IsDataLoss(shape.status())) return Fail(shape.status().message());
  if (!shape.ok()) {
    std::printf("no POD in %s\n", pod.home().c_str());
    return 1;
  }
  const std::string agents = Agents(pod, *shape);
  const bool runs = pod.ServerPid() > 0 || agents != kNotRunning;
  const std::vector<std::string> missing = pod.Missing(*shape);
  std::vector<std::pair<std::string, std::string>> rows = {
      {"POD", absl::StrCat("POD", shape->ipus)},
      {"State", missing.empty() ? "running"
                : runs          ? absl::StrCat("in part: ", absl::StrJoin(missing, ", "),
                                               "; 'vpod up' starts the rest")
                                : "stopped"},
      {"Home", pod.home()},
      {"API", absl::StrCat("127.0.0.1:", shape->api_port)},
      {"Machines", absl::StrCat(shape->ipus / arch::kIpusPerMachine, " x ", shape->machine_type)},
      {"vipu-server", pod.ServerPid() > 0 ? absl::StrCat("pid ", pod.ServerPid()) : kNotRunning},
      {"vipu-agent", agents},
  };
  if (pod.Running(*shape)) {
    vipu::ClientConfig config;
    config.host = "127.0.0.1";
    config.port = shape->api_port;
    vipu::Client client(config, std::chrono::seconds(5));
    const auto info = client.ServerInfo();
    if (info.ok() && !info->metrics_endpoint().empty())
      rows.emplace_back("Metrics", absl::StrCat("http://", info->metrics_endpoint(), "/metrics"));
    const auto partitions = client.ListPartitions();
    rows.emplace_back("Partitions", partitions.ok() ? NamesOf(*partitions)
                                                    : std::string(partitions.status().message()));
  }
  std::fputs(render::Block(rows).c_str(), stdout);
  return missing.empty() ? 0 : 1;
}

int Env(const Pod& pod) {
  const auto shape = pod.Shape();
  if (!shape.ok()) return Fail(shape.status().message());
  std::fputs(pod.EnvironmentText(*shape).c_str(), stdout);
  return 0;
}

int Logs(const Pod& pod, const std::string& which, size_t lines) {
  std::vector<std::pair<std::string, std::string>> files = {{"server", pod.ServerLog()}};
  const auto shape = pod.Shape();
  for (uint32_t agent = 0; agent < (shape.ok() ? shape->agents() : 1); ++agent)
    files.emplace_back(agent == 0 ? "agent" : absl::StrCat("agent.", agent), pod.AgentLog(agent));
  for (const auto& [name, path] : files) {
    if (!which.empty() && name.rfind(which, 0) != 0) continue;
    if (!std::ifstream(path)) return Fail(absl::StrCat("cannot read ", path));
    std::vector<std::string> all = absl::StrSplit(base::ReadFile(path), '\n', absl::SkipEmpty());
    if (all.size() > lines) all.erase(all.begin(), all.end() - static_cast<int64_t>(lines));
    for (const std::string& line : all) std::printf("%s: %s\n", name.c_str(), line.c_str());
  }
  return 0;
}

// PODs of this user, found by their servers.
int List() {
  render::Table table;
  table.headings = {"POD", "API", "Partitions", "Home"};
  table.minimum_widths = {11};
  for (const int pid : ProcessesOf("vipu-server")) {
    const fs::path pid_file = PidFileOf(pid);
    if (pid_file.empty()) continue;  // a controller that vpod did not start
    const Pod pod(pid_file.parent_path());
    const auto shape = pod.Shape();
    if (!shape.ok()) {
      table.rows.push_back({"damaged", "-", "-", pod.home()});
      continue;
    }
    vipu::ClientConfig config;
    config.host = "127.0.0.1";
    config.port = shape->api_port;
    const auto partitions = vipu::Client(config, std::chrono::seconds(3)).ListPartitions();
    table.rows.push_back({absl::StrCat("POD", shape->ipus), config.address(),
                          partitions.ok() ? absl::StrCat(partitions->size()) : "-", pod.home()});
  }
  std::fputs(render::StyleH(table).c_str(), stdout);
  return 0;
}

int Main(int argc, char** argv) {
  base::CheckStdoutAtExit();
  PodRequest request;
  std::string log_name;
  size_t log_lines = 50;
  CLI::App app(
      "Brings virtual IPU-PODs up and down on this machine. VPOD_HOME names the state directory "
      "(~/.vpod).",
      "vpod");
  app.require_subcommand(1);
  auto* up = app.add_subcommand(
      "up",
      "start a POD in the background; one that is there is restored, and options that are not "
      "given are as it has them");
  up->add_option("--pod", request.ipus, "IPUs: 4, 16, 64, 128, 256, … (16)");
  up->add_option("--machine-type", request.machine_type, "m2000 or bow2000 (m2000)");
  up->add_option(
        "--cluster-topology", request.cluster_topology,
        "how racks are joined, looped or switched (looped up to a POD256); of 2 racks or more")
      ->check(CLI::IsMember({"looped", "switched"}));
  up->add_option("--memory-limit", request.memory_limit_mib,
                 "MiB of host memory for programs (3/4 of the host's)")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40));
  up->add_option("--api-port", request.api_port, "port of the controller (8090)")
      ->check(CLI::Range(1, 65535));
  std::string agents;
  up->add_option(
        "--agents", agents,
        "one: a process for all machines; processes: one a machine, at its own address (one)")
      ->check(CLI::IsMember({"one", "processes"}));
  auto* down = app.add_subcommand("down", "stop the POD; its partitions are gone");
  auto* status = app.add_subcommand(
      "status", "what runs, and what is missing; exit status 1 unless the POD is whole");
  auto* env = app.add_subcommand("env", "export lines for eval");
  auto* logs = app.add_subcommand("logs", "last lines of the daemons' logs");
  logs->add_option("daemon", log_name, "server or agent; default both")
      ->check(CLI::IsMember({"server", "agent"}));
  logs->add_option("-n", log_lines, "number of lines")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  auto* list = app.add_subcommand("list", "all PODs that this user runs on this machine");
  auto* doctor = app.add_subcommand("doctor", "check what a POD needs");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    const auto named = [&](const CLI::App* command) { return command->check_name(argv[1]); };
    if (argc > 1 && *argv[1] != '-' && app.get_subcommands(named).empty())
      return Fail(absl::StrCat("unknown command '", argv[1], "'. Try 'vpod --help'."), 2);
    return Fail(absl::StrCat(error.what(), ". Try 'vpod --help'."), 2);
  }
  const auto home = vipu::PodHome();
  if (!home.ok()) return Fail(home.status().message(), 2);
  Pod pod(*home);
  if (!agents.empty()) request.agent_per_machine = agents == "processes";
  if (*up) return Up(pod, request);
  if (*down) return Down(pod);
  if (*status) return Status(pod);
  if (*env) return Env(pod);
  if (*logs) return Logs(pod, log_name, log_lines);
  if (*list) return List();
  if (*doctor) return Doctor(pod);
  return 2;
}

}  // namespace
}  // namespace vpod::tools

int main(int argc, char** argv) { return vpod::tools::Main(argc, argv); }
