#include "tools/vpod/doctor.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/vipu/client.h"
#include "client/vipu/pod_home.h"
#include "device/base/text.h"
#include "device/base/unique_fd.h"
#include "tools/vpod/daemons.h"
#include "tools/vpod/run_program.h"

namespace vpod::tools {
namespace {

uint64_t AvailableMemoryMib() {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    uint64_t kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %lu kB", &kib) == 1) return kib >> 10;
  }
  return 0;
}

class Report {
 public:
  void Check(bool good, const std::string& what, const std::string& advice) {
    const std::string line = good || advice.empty() ? what : absl::StrCat(what, " - ", advice);
    absl::StrAppend(&diagnosis_.text, good ? "ok   " : "FAIL ", base::OneLine(line), "\n");
    diagnosis_.well = diagnosis_.well && good;
  }
  const Diagnosis& Result() const { return diagnosis_; }

 private:
  Diagnosis diagnosis_;
};

// Whether the daemons can write their state, logs and files there.
void CheckDirectory(const std::string& home, Report& report) {
  std::error_code error;
  if (!std::filesystem::exists(home, error)) return;  // `vpod up` makes it
  std::string path = home + "/.doctor.XXXXXX";
  const base::UniqueFd file(mkostemp(path.data(), O_CLOEXEC));
  const std::string text(4096, 'x');
  const bool written =
      file.valid() && write(file.get(), text.data(), text.size()) == 4096 && fsync(file.get()) == 0;
  const int why = errno;
  if (file.valid()) unlink(path.c_str());
  report.Check(written,
               written ? absl::StrCat(home, " can be written")
                       : absl::StrCat("cannot write to ", home, ": ", std::strerror(why)),
               "the controller refuses what it cannot store; free some space, or make it writable");
  struct statvfs disk {};
  if (statvfs(home.c_str(), &disk) != 0) return;
  const uint64_t free_mib = (static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize) >> 20;
  report.Check(free_mib >= 64, absl::StrCat("free on the disk of ", home, ": ", free_mib, " MiB"),
               "state and logs need 64 MiB or more");
}

// Checks a home without a usable pod.json.
void CheckWithoutPod(const Pod& pod, const absl::Status& why, Report& report) {
  if (absl::IsDataLoss(why)) {
    // The partitions are lost if the POD's file is damaged or gone, and not if it cannot be read.
    const bool is_lost = absl::EndsWith(why.message(), "'vpod down' removes it");
    report.Check(false, std::string(why.message()), is_lost ? "its partitions are lost then" : "");
    return;
  }
  if (pod.ServerPid() > 0 || pod.AgentPid() > 0) {
    report.Check(false, absl::StrCat("daemons run without their state in ", pod.home()),
                 "'vpod down' ends them");
    return;
  }
  report.Check(true,
               PortIsFree(8090) ? "port 8090 is free"
                                : "port 8090 is in use; 'vpod up' takes the next that is free",
               "");
  std::error_code error;
  const bool stale = std::filesystem::exists(pod.home() + "/vipu-server.db", error) ||
                     std::filesystem::exists(pod.ServerPidFile(), error) ||
                     std::filesystem::exists(pod.AgentPidFile(), error);
  report.Check(!stale, absl::StrCat(stale ? "stale files" : "no POD", " in ", pod.home()),
               "'vpod down' removes them");
}

// Whether the controller would start on its storage, which it does not use now.
void CheckStorage(const Pod& pod, Report& report) {
  const auto server = FindProgram("vipu-server");
  if (!server.ok()) return;  // said already
  // A controller that starts meanwhile would find its storage in use.
  const auto lock = pod.Lock();
  if (!lock.ok()) return;
  const auto checked = RunProgram({*server, "--config", "/dev/null", "--log-level", "off",
                                   "--check", "--storage", pod.Storage()});
  report.Check(checked.ok(),
               checked.ok() ? absl::StrCat("storage ", pod.Storage(), " is intact")
                            : std::string(checked.status().message()),
               "'vpod restore' brings back a backup");
}

// The first ids of a list.
std::string Named(std::vector<std::string> ids) {
  constexpr size_t kNamed = 8;
  const bool more = ids.size() > kNamed;
  if (more) ids.resize(kNamed);
  return absl::StrCat(absl::StrJoin(ids, ", "), more ? ", …" : "");
}

void CheckMachines(const Pod& pod, const std::vector<vipuadmin::Agent>& agents, Report& report) {
  std::vector<std::string> down;
  for (const vipuadmin::Agent& agent : agents) {
    if (agent.status() != "Up") down.push_back(agent.id());
  }
  report.Check(down.empty() && !agents.empty(),
               absl::StrCat(agents.size() - down.size(), " of ", agents.size(), " machines are up"),
               agents.empty()
                   ? "the controller has no agents; 'vpod up' adds them"
                   : absl::StrCat(down.size() == 1 ? "agent " : "agents ", Named(down),
                                  down.size() == 1 ? " does" : " do", " not answer; see ",
                                  pod.home(), "/", Pod::AgentName(0), "*.log"));
}

void CheckClusters(const std::vector<vipuadmin::Cluster>& clusters, Report& report) {
  std::vector<std::string> ids;
  for (const vipuadmin::Cluster& cluster : clusters) ids.push_back(cluster.id());
  report.Check(!ids.empty(),
               ids.empty() ? "there is no cluster"
                           : absl::StrCat(ids.size() == 1 ? "cluster: " : "clusters: ", Named(ids)),
               "no partition can be created; 'vipu-admin create cluster' joins agents");
}

// The message of an ACTIVE partition names an IPU that loads no program before a parity init.
void CheckParity(const std::vector<vipuuser::Partition>& partitions, Report& report) {
  constexpr int kNamed = 8;
  int found = 0;
  for (const vipuuser::Partition& partition : partitions) {
    const vipuuser::PartitionStatus& status = partition.status();
    if (status.state() != vipuuser::PS_ACTIVE || status.message().empty()) continue;
    if (++found > kNamed) continue;
    report.Check(false,
                 absl::StrCat("partition ", partition.requirements().id(), ": ",
                              absl::StripSuffix(status.message(), ".")),
                 "programs cannot load until then");
  }
  if (found > kNamed) {
    report.Check(false, absl::StrCat(found - kNamed, " more partitions need such a repair"),
                 "'vipu-admin list partitions --showjson' has their messages");
  }
}

void CheckPartitions(const std::vector<vipuuser::Partition>& partitions, Report& report) {
  std::vector<std::string> failed;
  std::string why;  // of the first
  for (const vipuuser::Partition& partition : partitions) {
    if (partition.status().state() != vipuuser::PS_ERROR) continue;
    if (failed.empty()) why = partition.status().message();
    failed.push_back(partition.requirements().id());
  }
  const size_t all = partitions.size();
  if (failed.empty()) {
    report.Check(true,
                 absl::StrCat(all, all == 1 ? " partition" : " partitions", ", none in ERROR"), "");
    return;
  }
  report.Check(false,
               absl::StrCat(failed.size(), " of ", all, all == 1 ? " partition" : " partitions",
                            failed.size() == 1 ? " is" : " are", " in ERROR: ", Named(failed),
                            why.empty() ? "" : absl::StrCat(" (", why, ")")),
               absl::StrCat("'vipu-admin get partition ", failed[0],
                            "' gives the reason, 'vipu-admin reset partition ", failed[0],
                            "' configures it again"));
}

// What the controller says about itself, and of what is there.
void CheckController(const Pod& pod, const PodShape& shape, Report& report) {
  vipu::Client client(ApiOf(shape), std::chrono::seconds(3));
  const auto agents = client.ListAgents();
  report.Check(agents.ok(),
               absl::StrCat("the controller ", agents.ok() ? "answers" : "does not answer",
                            " on port ", shape.api_port),
               absl::StrCat("see ", pod.ServerLog()));
  if (!agents.ok()) return;
  CheckMachines(pod, *agents, report);
  const auto clusters = client.ListClusters();
  // Without agents there cannot be any, and `vpod up` makes those of a POD that is not set up.
  if (clusters.ok() && !agents->empty() && !shape.unfinished) CheckClusters(*clusters, report);
  if (const auto partitions = client.ListPartitions(); partitions.ok()) {
    CheckPartitions(*partitions, report);
    CheckParity(*partitions, report);
  }
}

}  // namespace

Diagnosis Diagnose(const Pod& pod) {
  Report report;
  for (const char* program : {"vipu-server", "vipu-agent", "poprun", "mpirun"}) {
    const auto path = FindProgram(program);
    report.Check(
        path.ok(), absl::StrCat(program, path.ok() ? ": " + *path : ": not found"),
        std::string(program) == "mpirun" ? "install openmpi-bin" : "source deploy/enable.sh");
  }
  const base::UniqueFd memfd(memfd_create("vpod-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  report.Check(memfd.valid(), "shared memory (memfd)", "a kernel of 3.17 or newer is needed");
  const base::UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  report.Check(pidfd.valid(), "process handles (pidfd)",
               "a kernel of 5.3 or newer is needed; a container may forbid it");
  const uint64_t memory = AvailableMemoryMib();
  report.Check(memory >= 1024, absl::StrCat("available memory: ", memory, " MiB"),
               "a POD16 in use needs 1 GiB or more; close something or lower --memory-limit");

  const absl::Status environment = vipu::CheckPodEnvironment();
  if (!environment.ok()) report.Check(false, std::string(environment.message()), "in this shell");
  CheckDirectory(pod.home(), report);
  const auto shape = pod.Shape();
  const int server = pod.ServerPid();
  if (!shape.ok()) {
    CheckWithoutPod(pod, shape.status(), report);
    return report.Result();
  }
  report.Check(
      server > 0,
      absl::StrCat("vipu-server", server > 0 ? absl::StrCat(" runs as ", server) : " does not run"),
      "'vpod up' restores the POD, 'vpod down' removes it");
  for (uint32_t agent = 0; agent < shape->agents(); ++agent) {
    const int pid = pod.AgentPid(agent);
    report.Check(pid > 0,
                 absl::StrCat(Pod::AgentName(agent),
                              pid > 0 ? absl::StrCat(" runs as ", pid) : " does not run"),
                 absl::StrCat("'vpod up' restores the POD, 'vpod down' removes it; see ",
                              pod.AgentLog(agent)));
  }
  if (const std::string stopped = pod.StoppedDaemon(*shape); !stopped.empty())
    report.Check(false, stopped, "");
  report.Check(!shape->unfinished,
               shape->unfinished ? "the POD has not been set up" : "the POD has been set up",
               "'vpod up' finishes what was interrupted");
  if (server > 0) {
    CheckController(pod, *shape, report);
  } else {
    CheckStorage(pod, report);
  }
  return report.Result();
}

}  // namespace vpod::tools
