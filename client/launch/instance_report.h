// A supervisor's report of its instance (supervisor.h), as a line of text.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace vpod::launch {

// Programs that mpirun runs in place of the instance's, which they then start.
inline constexpr char kForkAgentVariable[] = "OMPI_MCA_orte_fork_agent";

enum class ReportKind : char { kStarted = 'S', kToldToEnd = 'T', kEnded = 'E' };

struct InstanceReport {
  int instance = 0;
  ReportKind kind = ReportKind::kStarted;
  pid_t pid = 0;   // of the program
  int status = 0;  // as wait(2) has it, with kEnded
  // Since the boot that `boot_id` names; processes of one boot share the clock.
  std::chrono::nanoseconds time{0};
  std::string boot_id, host;
  std::string pid_namespace;  // of `pid`, as base::PidNamespace() has it; empty: not known
};

// The instance of this process, from poprun's variables; -1 outside of a job.
int InstanceOfEnvironment();
// "<token>@<address>,…"
void Split(const std::string& where, std::string& token, std::vector<std::string>& addresses);
std::string BootId();
std::chrono::nanoseconds SinceBoot();

std::string FormatReport(const std::string& token, int instance, ReportKind kind, pid_t pid,
                         int status);
// Empty if the line is not a report with that token.
std::optional<InstanceReport> ParseReport(const std::string& line, const std::string& token);

}  // namespace vpod::launch
