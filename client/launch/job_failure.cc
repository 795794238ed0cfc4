#include "client/launch/job_failure.h"

#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "client/launch/instance_reports.h"
#include "device/base/device_use.h"

namespace vpod::launch {
namespace {

std::string HostName() {
  char name[256] = "localhost";
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string HowItEnded(const FirstEnd& end) {
  if (!end.status.has_value()) return end.pid == 0 ? "was lost before its program ran" : "was lost";
  return WIFSIGNALED(*end.status) ? absl::StrCat("was killed by signal ", WTERMSIG(*end.status))
                                  : absl::StrCat("ended with exit code ", WEXITSTATUS(*end.status));
}

std::string Describe(const FirstEnd& first, const Layout& layout) {
  const auto index = static_cast<uint32_t>(first.instance);
  const std::string host = !first.host.empty()  ? first.host
                           : layout.hosts_given ? layout.hosts[layout.host_of(index)]
                                                : HostName();
  const std::string pid =
      first.pid == 0 ? ""
                     : absl::StrCat("pid ",
                                    base::PidText(static_cast<uint32_t>(first.pid),
                                                  first.pid_namespace, base::PidNamespace()),
                                    ", ");
  return absl::StrCat("instance ", index, " (", pid, host, ") ", HowItEnded(first));
}

bool AllWereToldToEnd(const std::vector<InstanceReport>& reports, uint32_t instances) {
  std::set<int> told;
  for (const InstanceReport& report : reports) {
    if (report.kind == ReportKind::kToldToEnd) told.insert(report.instance);
  }
  return told.size() == instances;
}

}  // namespace

std::string DescribeFirstEnd(const JobEnd& end, const Layout& layout) {
  if (end.reports.has_value()) {
    const auto first = FindFirstEnd(*end.reports, static_cast<int>(layout.instances));
    if (first.has_value()) return Describe(*first, layout);
    // Otherwise several supervisors were ended while they started.
    if (!end.reports->empty())
      return AllWereToldToEnd(*end.reports, layout.instances)
                 ? "mpirun was told to end, and ended all instances"
                 : "an instance was lost before its program ran";
  }
  if (!end.lost.has_value()) return "";
  return absl::StrCat(
      "instance ", end.lost->index, " (pid ", end.lost->pid, ", ", end.lost->host, ") ",
      end.exit_code > 128 ? absl::StrCat("was killed by signal ", end.exit_code - 128)
                          : "was lost");
}

}  // namespace vpod::launch
