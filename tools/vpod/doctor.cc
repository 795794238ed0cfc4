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

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/vipu/client.h"
#include "client/vipu/pod_home.h"
#include "device/base/unique_fd.h"
#include "tools/vpod/daemons.h"

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
    absl::StrAppend(&diagnosis_.text, good ? "ok   " : "FAIL ", what, good ? "" : " - ",
                    good ? "" : advice, "\n");
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
    report.Check(false, std::string(why.message()), "its partitions are lost then");
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
  report.Check(!shape->unfinished,
               absl::StrCat("cluster c", shape->ipus,
                            shape->unfinished ? " has not been set up" : " has been set up"),
               "'vpod up' finishes what was interrupted");
  if (server > 0) {
    vipu::Client client(ApiOf(*shape), std::chrono::seconds(3));
    const auto agents = client.ListAgents();
    report.Check(agents.ok(), absl::StrCat("the controller answers on port ", shape->api_port),
                 absl::StrCat("see ", pod.ServerLog()));
    std::vector<std::string> down;
    for (size_t i = 0; agents.ok() && i < agents->size(); ++i) {
      if ((*agents)[i].status() != "Up") down.push_back((*agents)[i].id());
    }
    if (agents.ok()) {
      constexpr size_t kNamed = 8;
      const size_t more = down.size() - std::min(down.size(), kNamed);
      down.resize(down.size() - more);
      report.Check(down.empty() && !agents->empty(),
                   absl::StrCat(agents->size() - down.size() - more, " of ", agents->size(),
                                " machines are up"),
                   agents->empty() ? "the controller has no agents; 'vpod up' adds them"
                                   : absl::StrCat("agents ", absl::StrJoin(down, ", "),
                                                  more > 0 ? ", …" : "", " do not answer; see ",
                                                  pod.home(), "/", Pod::AgentName(0), "*.log"));
    }
  }
  return report.Result();
}

}  // namespace vpod::tools
