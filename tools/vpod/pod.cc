#include "tools/vpod/pod.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "client/vipu/client.h"
#include "device/arch/hardware.h"
#include "device/base/file.h"
#include "device/base/status.h"
#include "device/base/text.h"
#include "device/base/unique_fd.h"
#include "tools/vpod/daemons.h"
#include "tools/vpod/restore_attempt.h"

namespace vpod::tools {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr char kServer[] = "vipu-server";
constexpr char kAgent[] = "vipu-agent";
constexpr char kUp[] = "Up";  // the status of an agent that answers
constexpr std::chrono::seconds kStartLimit{20};

uint64_t HostMemoryMib() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
             static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE)) >>
         20;
}

// Racks are cabled in a loop as far as a POD256, larger PODs have switches (spec/vipu.md 6).
std::string DefaultClusterTopology(const PodShape& shape) {
  if (shape.racks() == 1) return kOneRack;
  return shape.ipus <= 256 ? "looped" : "switched";
}

// The addresses of the POD of a machine: "127.10" of 127.10.0.1.
std::string AddressesOf(const std::string& host) { return host.substr(0, host.find('.', 4)); }

// The first names of a list, for messages.
std::string FirstOf(const std::vector<std::string>& names) {
  constexpr size_t kNamed = 8;
  const std::string named = absl::StrJoin(absl::MakeSpan(names).subspan(0, kNamed), ", ");
  return names.size() <= kNamed ? named : absl::StrCat(named, ", … of ", names.size());
}

const char* Verb(const std::vector<std::string>& subjects, const char* one, const char* several) {
  return subjects.size() == 1 ? one : several;
}

// The last line of a log, for messages.
std::string LastLine(const std::string& path) {
  std::ifstream file(path);
  std::string line, last;
  while (std::getline(file, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

// Asks again until `ready` says yes, its error is final, or the limit is reached. It waits for
// another process to start, which offers no event to wait on.
absl::Status PollUntil(const std::function<absl::StatusOr<bool>()>& ready,
                       const std::string& what) {
  const Clock::time_point deadline = Clock::now() + kStartLimit;
  while (true) {
    VPOD_ASSIGN_OR_RETURN(const bool done, ready());
    if (done) return absl::OkStatus();
    if (Clock::now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(what, " within ", kStartLimit.count(), " s"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

uint32_t PortInEnvironmentOf(const std::string& home) {
  const std::string made_for = vipu::Environment(vipu::kEnvironmentHome);
  std::error_code error;
  uint32_t port = 0;
  const bool is_ours = made_for == home || fs::equivalent(made_for, home, error);
  const bool is_port = absl::SimpleAtoi(vipu::Environment("VIPU_CLI_API_PORT"), &port) &&
                       port > 0 && port <= kLastPort;
  return is_ours && is_port ? port : 0;
}

vipu::ClientConfig ApiOf(const PodShape& shape) {
  vipu::ClientConfig config = shape.administrator;
  config.host = "127.0.0.1";
  config.port = shape.api_port;
  if (config.user_id.empty()) config.user_id = vipu::OsUserName();
  return config;
}

int Pod::ServerPid() const { return RunningDaemon(ServerPidFile(), kServer); }
int Pod::AgentPid(uint32_t agent) const { return RunningDaemon(AgentPidFile(agent), kAgent); }

std::string Pod::AgentName(uint32_t agent) {
  return agent == 0 ? kAgent : absl::StrCat(kAgent, ".", agent);
}
std::string Pod::AgentPidFile(uint32_t agent) const {
  return absl::StrCat(home_, "/", AgentName(agent), ".pid");
}
std::string Pod::AgentLog(uint32_t agent) const {
  return absl::StrCat(home_, "/", AgentName(agent), ".log");
}

bool Pod::Running(const PodShape& shape) const {
  for (uint32_t agent = 0; agent < shape.agents(); ++agent) {
    if (AgentPid(agent) == 0) return false;
  }
  return ServerPid() > 0;
}

std::string Pod::StoppedDaemon(const PodShape& shape) const {
  std::vector<std::pair<std::string, int>> daemons = {{kServer, ServerPid()}};
  for (uint32_t agent = 0; agent < shape.agents(); ++agent)
    daemons.emplace_back(AgentName(agent), AgentPid(agent));
  for (const auto& [name, pid] : daemons) {
    if (pid > 0 && IsStopped(pid))
      return absl::StrCat(name, " is stopped; 'kill -CONT ", pid, "' continues it");
  }
  return "";
}

std::vector<std::string> Pod::Missing(const PodShape& shape) const {
  std::vector<std::string> missing, silent, ending;
  for (uint32_t agent = 0; agent < shape.agents(); ++agent) {
    const int pid = AgentPid(agent);
    if (pid == 0) silent.push_back(AgentName(agent));
    if (pid > 0 && IsEnding(pid)) ending.push_back(AgentName(agent));
  }
  if (!silent.empty())
    missing.push_back(FirstOf(silent) + Verb(silent, " does", " do") + " not run");
  if (ServerPid() == 0) {
    missing.insert(missing.begin(), "vipu-server does not run");
    return missing;
  }
  if (IsEnding(ServerPid())) ending.insert(ending.begin(), kServer);
  if (!ending.empty()) {
    missing.push_back(FirstOf(ending) + Verb(ending, " is", " are") + " ending");
    return missing;
  }
  if (const std::string stopped = StoppedDaemon(shape); !stopped.empty()) {
    missing.push_back(stopped);
    return missing;
  }
  if (shape.unfinished) {
    missing.push_back("the POD has not been set up");
    return missing;
  }
  vipu::Client client(ApiOf(shape), std::chrono::seconds(2));
  const auto agents = client.ListAgents();
  if (!agents.ok()) {
    missing.push_back("vipu-server does not answer");
    return missing;
  }
  silent.clear();
  for (const vipuadmin::Agent& agent : *agents) {
    if (AddressesOf(agent.host()) == shape.addresses && agent.status() != kUp)
      silent.push_back(agent.id());
  }
  if (agents->empty()) missing.push_back("the controller has no agents");
  if (!silent.empty())
    missing.push_back("agents " + FirstOf(silent) + Verb(silent, " is", " are") + " not up");
  return missing;
}

void Pod::AwaitEndingDaemons() const {
  const auto await = [](const std::string& pid_file, const std::string& program) {
    const int pid = RunningDaemon(pid_file, program);
    if (pid > 0 && IsEnding(pid)) StopDaemon(pid_file, program);
  };
  for (const std::string& file : PidFiles(home_, kAgent)) await(file, kAgent);
  await(ServerPidFile(), kServer);
}

// Also of a POD whose shape cannot be read any more.
bool Pod::StopAgents(const std::set<std::string>& but) const {
  bool any = false;
  for (const std::string& file : PidFiles(home_, kAgent))
    any = (!but.contains(file) && StopDaemon(file, kAgent)) || any;
  return any;
}

absl::StatusOr<PodShape> Pod::Shape() const {
  VPOD_RETURN_IF_ERROR(CheckNoRestoreIsUnfinished(home_));
  return ShapeAsItIs();
}

absl::StatusOr<PodShape> Pod::ShapeAsItIs() const {
  errno = 0;
  std::ifstream file(home_ + "/pod.json");
  // Such a POD is there, and must not be taken for one that is gone.
  if (!file && errno != ENOENT && errno != ENOTDIR) {
    return absl::DataLossError(
        absl::StrCat("cannot read ", home_, "/pod.json: ", std::strerror(errno)));
  }
  if (!file && ServerPid() > 0) {
    return absl::DataLossError(
        absl::StrCat(home_, "/pod.json is gone while the POD runs; 'vpod down' removes it"));
  }
  if (!file) {
    return absl::NotFoundError(absl::StrCat("no POD in ", home_, "; bring one up with 'vpod up'"));
  }
  // The iterators of the file's buffer would throw for a directory.
  std::ostringstream text;
  text << file.rdbuf();
  absl::StatusOr<PodShape> shape = ParseShape(std::move(text).str());
  if (!shape.ok()) {
    return absl::DataLossError(absl::StrCat(home_, "/", kShapeFile, " is damaged: ",
                                            shape.status().message(), "; 'vpod down' removes it"));
  }
  if (shape->secure) VPOD_RETURN_IF_ERROR(TakeAdministrator(*shape));
  return shape;
}

absl::Status Pod::WriteFiles(const PodShape& shape) const {
  VPOD_RETURN_IF_ERROR(
      base::ReplaceFile(absl::StrCat(home_, "/", kShapeFile), ShapeText(shape), 0644));
  if (shape.secure) return vipu::WriteSecretHcl(ClientConfig(), ApiOf(shape));
  return base::ReplaceFile(ClientConfig(), vipu::HclText(ApiOf(shape)), 0644);
}

absl::Status Pod::WaitForServer(const PodShape& shape) const {
  vipu::Client client(ApiOf(shape), std::chrono::seconds(2)), patient(ApiOf(shape), kStartLimit);
  return PollUntil(
      [&]() -> absl::StatusOr<bool> {
        if (ServerPid() == 0) {
          return absl::UnavailableError(absl::StrCat("vipu-server ended: ", LastLine(ServerLog())));
        }
        if (!client.ServerInfo().ok()) return false;
        // Somebody may show wrong keys in the administrator's name. There is room soon for the
        // trial of the right one, and later calls need none.
        const absl::Status login = patient.ListAgents().status();
        return !absl::IsResourceExhausted(login) && !absl::IsDeadlineExceeded(login);
      },
      "vipu-server did not answer");
}

absl::StatusOr<std::vector<vipuadmin::DiscoveredAgent>> Pod::AwaitMachines(
    const PodShape& shape, uint32_t machines) const {
  vipu::Client client(ApiOf(shape), std::chrono::seconds(10));
  std::vector<vipuadmin::DiscoveredAgent> found;
  VPOD_RETURN_IF_ERROR(PollUntil(
      [&]() -> absl::StatusOr<bool> {
        for (uint32_t agent = 0; agent < (shape.agent_per_machine ? machines : 1); ++agent) {
          if (AgentPid(agent) == 0) {
            return absl::UnavailableError(
                absl::StrCat("vipu-agent ended: ", LastLine(AgentLog(agent))));
          }
        }
        VPOD_ASSIGN_OR_RETURN(found, client.DiscoverAgents(/*add=*/false));
        return found.size() >= machines;
      },
      "not all machines registered"));
  return found;
}

absl::Status Pod::AddAgents(const PodShape& shape) const {
  vipu::Client client(ApiOf(shape), std::chrono::seconds(10));
  vipuadmin::Cluster cluster;
  cluster.set_id(absl::StrCat("c", shape.ipus));
  VPOD_ASSIGN_OR_RETURN(const auto agents, client.DiscoverAgents(/*add=*/true));
  if (shape.described_clusters) return absl::OkStatus();  // they follow
  // An interrupted call may have come as far as this.
  VPOD_ASSIGN_OR_RETURN(const auto clusters, client.ListClusters());
  if (std::any_of(clusters.begin(), clusters.end(),
                  [&](const auto& existing) { return existing.id() == cluster.id(); })) {
    return absl::OkStatus();
  }
  for (const auto& agent : agents) cluster.add_agent_ids(agent.agent_id());
  cluster.set_num_ipulinkdomains(shape.racks());
  // A full rack is a torus (hardware F13, F14).
  cluster.set_topology(shape.ipus >= arch::kMaxIpusPerLinkDomain ? "torus" : "mesh");
  cluster.set_cluster_topology(shape.cluster_topology);
  return client.CreateCluster(cluster);
}

absl::Status Pod::WaitForAgents(const PodShape& shape) const {
  if (const std::string stopped = StoppedDaemon(shape); !stopped.empty())
    return absl::UnavailableError(stopped);
  const Clock::time_point begin = Clock::now();
  vipu::Client client(ApiOf(shape), std::chrono::seconds(10));
  std::string missing;
  return PollUntil(
      [&]() -> absl::StatusOr<bool> {
        // A process that was killed a moment ago still counts as up.
        const auto since =
            std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
        VPOD_ASSIGN_OR_RETURN(const auto agents, client.ListAgents());
        const auto waited_for = std::find_if(agents.begin(), agents.end(), [&](const auto& agent) {
          return AddressesOf(agent.host()) == shape.addresses &&
                 (agent.status() != kUp ||
                  (!shape.unfinished && agent.last_seen_ms() >= since.count()));
        });
        if (waited_for == agents.end()) return true;
        missing = absl::StrCat("agent ", waited_for->id(), " did not come up");
        return false;
      },
      missing);
}

absl::StatusOr<base::UniqueFd> Pod::KeepApiPort(const PodRequest& request, PodShape& shape) const {
  const bool may_choose = !request.api_port.has_value() && shape.unfinished;
  // A shell whose variables are those of the POD that was here finds the new one, if it can be.
  if (const uint32_t former = PortInEnvironmentOf(home_); may_choose && former != 0) {
    base::UniqueFd kept = KeepPort(former);
    if (kept.valid()) shape.api_port = former;
    if (kept.valid()) return kept;
  }
  const uint32_t last = may_choose ? kLastPort : shape.api_port;
  for (uint32_t port = shape.api_port; port <= last; ++port) {
    base::UniqueFd kept = KeepPort(port);
    if (!kept.valid()) continue;
    shape.api_port = port;
    return kept;
  }
  return absl::UnavailableError(absl::StrCat(
      "port ", shape.api_port, " is in use",
      shape.unfinished ? "; give another with --api-port" : ", which is that of the POD"));
}

absl::Status Pod::StartServer(const PodShape& shape) {
  VPOD_ASSIGN_OR_RETURN(const std::string server, FindProgram(kServer));
  // The configuration file of the system's own controller does not concern this POD.
  std::vector<std::string> command = {server,
                                      "--config",
                                      "/dev/null",
                                      "--storage",
                                      Storage(),
                                      "--user-api-listen",
                                      ApiOf(shape).address(),
                                      "--log-file",
                                      ServerLog()};
  if (shape.secure) {
    for (const std::string& word :
         {std::string("--secure"), std::string("--certs-dir"), CertificatesDirectory()})
      command.push_back(word);
  }
  if (shape.metrics_port != 0) {
    if (!PortIsFree(shape.metrics_port)) {
      return absl::UnavailableError(absl::StrCat("port ", shape.metrics_port,
                                                 " is in use; give another with --metrics-port"));
    }
    command.push_back("--metrics-listen");
    command.push_back(absl::StrCat("127.0.0.1:", shape.metrics_port));
  }
  return StartDaemon(command, ServerLog(), ServerPidFile()).status();
}

absl::Status Pod::Start(PodShape& shape) {
  VPOD_ASSIGN_OR_RETURN(const std::string agent, FindProgram(kAgent));
  if (shape.secure && shape.administrator.access_key.empty())
    VPOD_RETURN_IF_ERROR(SetUpAccess(shape));
  if (ServerPid() == 0) VPOD_RETURN_IF_ERROR(StartServer(shape));
  VPOD_RETURN_IF_ERROR(WaitForServer(shape));
  if (AgentPid() == 0) VPOD_RETURN_IF_ERROR(StartAgent(shape, 0, agent));
  if (shape.addresses.empty()) {
    // The first process has chosen the addresses of all. They are kept before the controller hears
    // of an agent: a later start needs the same ones, whatever other PODs have taken meanwhile.
    VPOD_ASSIGN_OR_RETURN(const auto found, AwaitMachines(shape, 1));
    shape.addresses = AddressesOf(found[0].host());
    VPOD_RETURN_IF_ERROR(WriteFiles(shape));
  }
  for (uint32_t number = 1; number < shape.agents(); ++number) {
    if (AgentPid(number) == 0) VPOD_RETURN_IF_ERROR(StartAgent(shape, number, agent));
  }
  VPOD_RETURN_IF_ERROR(AwaitMachines(shape, shape.machines()).status());
  if (shape.unfinished) VPOD_RETURN_IF_ERROR(AddAgents(shape));
  VPOD_RETURN_IF_ERROR(WaitForAgents(shape));
  shape.unfinished = false;
  return WriteFiles(shape);
}

absl::Status Pod::StartAgent(const PodShape& shape, uint32_t number, const std::string& program) {
  const uint32_t agents = shape.agents();
  std::vector<std::string> command = {program,
                                      "--machines",
                                      absl::StrCat(shape.machines() / agents),
                                      "--machine-type",
                                      shape.machine_type,
                                      "--controller",
                                      ApiOf(shape).address(),
                                      "--memory-limit",
                                      absl::StrCat(shape.memory_limit_mib / agents),
                                      "--log-file",
                                      AgentLog(number)};
  if (!shape.addresses.empty()) {
    command.push_back("--addresses");
    command.push_back(shape.addresses);
  }
  if (number > 0) {
    command.push_back("--first-machine");
    command.push_back(absl::StrCat(number));
  }
  if (shape.agent_per_machine) command.push_back("--listen-on-machine");
  if (shape.secure) {
    const base::TlsFiles tls = ServerCertificate();
    for (const std::string& word : {std::string("--tls-ca"), tls.ca, std::string("--tls-cert"),
                                    tls.certificate, std::string("--tls-key"), tls.key})
      command.push_back(word);
  }
  return StartDaemon(command, AgentLog(number), AgentPidFile(number)).status();
}

absl::StatusOr<base::UniqueFd> Pod::Lock() const {
  // Read-only, so that a POD can be brought down on a disk that turned so.
  base::UniqueFd lock(open((home_ + "/lock").c_str(), O_CREAT | O_RDONLY | O_CLOEXEC, 0600));
  if (!lock.valid()) return absl::UnavailableError(absl::StrCat("cannot write to ", home_));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return absl::UnavailableError(absl::StrCat("another vpod command works in ", home_));
  return lock;
}

bool Pod::AnyAgentLives() const {
  const std::set<std::string> files = PidFiles(home_, kAgent);
  return std::any_of(files.begin(), files.end(),
                     [](const std::string& file) { return RunningDaemon(file, kAgent) > 0; });
}

// Acknowledged objects are never thrown away silently.
absl::Status Pod::CheckSame(const PodShape& wanted, const PodShape& existing) const {
  // A limit can change while nothing is held, the port of metrics while nobody serves them.
  if (existing.ipus == wanted.ipus && existing.machine_type == wanted.machine_type &&
      existing.api_port == wanted.api_port &&
      existing.cluster_topology == wanted.cluster_topology &&
      existing.agent_per_machine == wanted.agent_per_machine &&
      existing.described_clusters == wanted.described_clusters &&
      existing.secure == wanted.secure &&
      (existing.metrics_port == wanted.metrics_port || ServerPid() == 0) &&
      (existing.memory_limit_mib == wanted.memory_limit_mib || !AnyAgentLives())) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      home_, " holds the state of a POD", existing.ipus, " (", existing.machine_type, ", port ",
      existing.api_port,
      existing.metrics_port > 0 ? absl::StrCat(", metrics port ", existing.metrics_port) : "",
      existing.racks() > 1 ? ", racks " + existing.cluster_topology : "",
      existing.agent_per_machine ? ", agents processes" : "",
      existing.described_clusters ? ", clusters of a file" : "", existing.secure ? ", secure" : "",
      ", memory limit ", existing.memory_limit_mib,
      " MiB); 'vpod up' without options keeps it, 'vpod down' removes it with its partitions"));
}

absl::StatusOr<PodShape> Pod::Wanted(const PodRequest& request) const {
  const auto existing = Shape();
  if (!existing.ok() && !absl::IsNotFound(existing.status())) return existing.status();
  PodShape wanted = existing.ok() ? *existing : PodShape();
  wanted.ipus = request.ipus.value_or(wanted.ipus);
  wanted.machine_type = request.machine_type.value_or(wanted.machine_type);
  wanted.cluster_topology = request.cluster_topology.value_or(wanted.cluster_topology);
  wanted.api_port = request.api_port.value_or(wanted.api_port);
  wanted.metrics_port = request.metrics_port.value_or(wanted.metrics_port);
  wanted.memory_limit_mib = request.memory_limit_mib.value_or(wanted.memory_limit_mib);
  wanted.agent_per_machine = request.agent_per_machine.value_or(wanted.agent_per_machine);
  wanted.described_clusters = request.described_clusters.value_or(wanted.described_clusters);
  wanted.secure = request.secure.value_or(wanted.secure);
  // A topology that was not asked for is that of the POD that is there, which CheckSame names.
  if (wanted.racks() == 1 && !request.cluster_topology.has_value()) wanted.cluster_topology.clear();
  VPOD_RETURN_IF_ERROR(CheckShape(wanted, kOptionNames));
  if (existing.ok()) VPOD_RETURN_IF_ERROR(CheckSame(wanted, *existing));
  if (wanted.cluster_topology.empty()) wanted.cluster_topology = DefaultClusterTopology(wanted);
  if (wanted.memory_limit_mib == 0) wanted.memory_limit_mib = HostMemoryMib() * 3 / 4;
  return wanted;
}

absl::StatusOr<Pod::Brought> Pod::Up(const PodRequest& request) {
  VPOD_ASSIGN_OR_RETURN(PodShape shape, Wanted(request));
  const auto is_up = [&] { return Shape().ok() && Missing(shape).empty(); };
  if (is_up()) return Brought{shape, true};
  std::error_code error;
  fs::create_directories(IpuofDirectory(), error);
  VPOD_ASSIGN_OR_RETURN(const base::UniqueFd lock, Lock());
  AwaitEndingDaemons();
  // Another command may have been here meanwhile.
  VPOD_ASSIGN_OR_RETURN(shape, Wanted(request));
  if (is_up()) return Brought{shape, true};
  // The storage of a secure POD is of no use until its administrator's key is written down.
  const bool has_key = !shape.secure || !shape.administrator.access_key.empty();
  const bool has_database = fs::exists(Storage(), error) && has_key;
  if (has_database && !Shape().ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(home_,
                     " holds a database but no pod.json, which says what POD it is of; "
                     "'vpod restore' brings back a backup, 'vpod down' removes the "
                     "database"));
  }
  if (!has_database) {
    // A POD whose first start was interrupted has acknowledged nothing yet.
    if (!shape.unfinished && (ServerPid() > 0 || AnyAgentLives())) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the database in ", home_, " is missing while the POD runs; 'vpod down' cleans up"));
    }
    StopAgents();
    StopDaemon(ServerPidFile(), kServer);
    RemoveState();  // the log of an interrupted `vpod down` belongs to nothing
    fs::create_directories(IpuofDirectory(), error);
    shape.unfinished = true;
    shape.addresses.clear();
    shape.administrator = {};
  }
  // Without agents there is nothing to keep but users: its objects are made again.
  if (const auto agents = vipu::Client(ApiOf(shape), std::chrono::seconds(2)).ListAgents();
      agents.ok() && agents->empty()) {
    shape.unfinished = true;
  }
  // Daemons that live go on, with their jobs; a controller that does not answer is replaced.
  if (!vipu::Client(ApiOf(shape), std::chrono::seconds(2)).ServerInfo().ok())
    StopDaemon(ServerPidFile(), kServer);
  const bool serving = ServerPid() > 0;
  base::UniqueFd port;
  if (!serving) {
    VPOD_ASSIGN_OR_RETURN(port, KeepApiPort(request, shape));
  }
  std::set<std::string> living = PidFiles(home_, kAgent);
  std::erase_if(living, [](const std::string& file) { return RunningDaemon(file, kAgent) == 0; });
  VPOD_RETURN_IF_ERROR(WriteFiles(shape));
  const absl::Status status = Start(shape);
  if (status.ok()) return Brought{shape, false};
  StopAgents(living);
  if (!serving) StopDaemon(ServerPidFile(), kServer);
  if (!has_database) RemoveState();
  return status;
}

absl::StatusOr<bool> Pod::Down(bool keep) { return Stop(keep ? Then::kKeep : Then::kForget); }
absl::StatusOr<bool> Pod::Delete() { return Stop(Then::kRemoveDirectory); }

absl::StatusOr<bool> Pod::Stop(Then then) {
  std::error_code error;
  if (!fs::exists(home_, error)) {
    if (ServerPid() == 0 && PidFiles(home_, kAgent).empty()) return false;
    fs::create_directories(home_, error);  // was removed under daemons that live
  }
  VPOD_ASSIGN_OR_RETURN(const base::UniqueFd lock, Lock());
  const bool agent = StopAgents();
  const bool server = StopDaemon(ServerPidFile(), kServer);
  const bool state =
      fs::exists(home_ + "/pod.json", error) || !CheckNoRestoreIsUnfinished(home_).ok();
  if (then != Then::kKeep) RemoveState();
  if (then == Then::kRemoveDirectory) VPOD_RETURN_IF_ERROR(RemoveDirectory());
  return agent || server || state || then == Then::kRemoveDirectory;
}

absl::Status Pod::RemoveDirectory() const {
  std::error_code error;
  std::vector<fs::path> files = {home_ + "/lock"};
  for (const auto& entry : fs::directory_iterator(home_, error)) {
    const std::string name = entry.path().filename().string();
    if (absl::StartsWith(name, kServer) || absl::StartsWith(name, kAgent) ||
        absl::EndsWith(name, vipu::kPodClientFile))
      files.push_back(entry.path());
  }
  for (const fs::path& file : files) fs::remove(file, error);
  // Other files are not the POD's, and keep the directory.
  if (fs::remove(home_, error)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("cannot remove ", home_, ": ", error.message()));
}

}  // namespace vpod::tools
