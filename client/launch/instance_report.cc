#include "client/launch/instance_report.h"

#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>

#include "device/base/device_use.h"

namespace vpod::launch {
namespace {

long NumberOf(const char* name) {
  const char* text = std::getenv(name);
  char* end = nullptr;
  const long number = text == nullptr ? -1 : std::strtol(text, &end, 10);
  return text == nullptr || *text == '\0' || *end != '\0' ? -1 : number;
}

}  // namespace

int InstanceOfEnvironment() {
  const long offset = NumberOf("POPDIST_REPLICA_INDEX_OFFSET"),
             local = NumberOf("POPDIST_NUM_LOCAL_REPLICAS");
  return offset < 0 || local < 1 ? -1 : static_cast<int>(offset / local);
}

void Split(const std::string& where, std::string& token, std::vector<std::string>& addresses) {
  const size_t at = where.find('@');
  token = where.substr(0, at);
  if (at == std::string::npos) return;
  std::istringstream rest(where.substr(at + 1));
  for (std::string address; std::getline(rest, address, ',');) addresses.push_back(address);
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  return file >> id ? id : "-";
}

std::chrono::nanoseconds SinceBoot() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

std::string FormatReport(const std::string& token, int instance, ReportKind kind, pid_t pid,
                         int status) {
  char host[256] = "localhost";
  gethostname(host, sizeof(host) - 1);
  std::ostringstream line;
  line << token << ' ' << instance << ' ' << static_cast<char>(kind) << ' ' << pid << ' ' << status
       << ' ' << SinceBoot().count() << ' ' << BootId() << ' ' << host << ' '
       << base::PidNamespace() << '\n';
  return line.str();
}

std::optional<InstanceReport> ParseReport(const std::string& line, const std::string& token) {
  std::istringstream words(line);
  InstanceReport report;
  std::string given;
  char kind = 0;
  int64_t time = 0;
  if (!(words >> given >> report.instance >> kind >> report.pid >> report.status >> time >>
        report.boot_id >> report.host) ||
      given != token || (kind != 'S' && kind != 'T' && kind != 'E')) {
    return std::nullopt;
  }
  words >> report.pid_namespace;  // a process that cannot read it sends none
  report.kind = static_cast<ReportKind>(kind);
  report.time = std::chrono::nanoseconds(time);
  return report;
}

}  // namespace vpod::launch
