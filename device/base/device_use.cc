#include "device/base/device_use.h"

#include <filesystem>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"

namespace vpod::base {
namespace {

// Processes choose these names; quotes keep a name from passing for a part of the sentence.
std::string Quoted(const std::string& name) {
  const bool is_plain = absl::c_all_of(
      name, [](char c) { return absl::ascii_isalnum(c) || absl::StrContains("._+@-", c); });
  return is_plain ? name : absl::StrCat("\"", absl::StrReplaceAll(name, {{"\"", "'"}}), "\"");
}

std::string Framed(const char* before, const std::string& name, const char* after = "") {
  return name.empty() ? "" : absl::StrCat(before, Quoted(name), after);
}

std::string Duration(int64_t seconds) {
  return seconds <= 0 ? "0s" : absl::FormatDuration(absl::Seconds(seconds));
}

std::string NextStep(const DeviceUse& use) {
  if (use.partition.empty()) return "; wait until it detaches";
  if (use.free_ipus == 0)
    return absl::StrCat("; no IPU of ", use.partition, " is free. Wait, or use another partition");
  return absl::StrCat("; ", use.free_ipus, " of ", use.ipus, " IPUs of ", use.partition,
                      use.free_ipus == 1 ? " is free" : " are free",
                      ". Wait, or choose a device whose IPUs are free");
}

}  // namespace

const std::string& PidNamespace() {
  static const std::string* const name = [] {
    std::error_code error;
    return new std::string(std::filesystem::read_symlink("/proc/self/ns/pid", error).string());
  }();
  return *name;
}

bool IsOtherPidNamespace(absl::string_view pid_namespace, absl::string_view readers_namespace) {
  const bool is_known = !pid_namespace.empty() && !readers_namespace.empty();
  return is_known && pid_namespace != readers_namespace;
}

std::string PidText(uint32_t pid, absl::string_view pid_namespace,
                    absl::string_view readers_namespace) {
  const bool is_other = IsOtherPidNamespace(pid_namespace, readers_namespace);
  return absl::StrCat(pid, is_other ? " of another PID namespace" : "");
}

std::string DeviceInUse(const DeviceUse& use) {
  return absl::StrCat("device ", use.device_id, " is in use by process ", use.pid,
                      Framed(" (", use.program, ")"), Framed(" of ", use.user),
                      Framed(" on ", use.host), ", ", use.since, " ", Duration(use.seconds), " ago",
                      NextStep(use), "; run 'gc-monitor' to see who uses which IPUs");
}

}  // namespace vpod::base
