#include "tools/vpod/support_bundle.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/render/table.h"
#include "client/vipu/client.h"
#include "device/base/file.h"
#include "device/base/status.h"
#include "device/base/unique_fd.h"
#include "device/base/version.h"
#include "tools/vipu/json.h"
#include "tools/vpod/daemons.h"
#include "tools/vpod/doctor.h"
#include "tools/vpod/fail.h"
#include "tools/vpod/plan_figures.h"
#include "tools/vpod/run_program.h"
#include "tools/vpod/status.h"

extern char** environ;

namespace vpod::tools {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostLogBytes = 8u << 20;  // of each log, from its end
constexpr uint32_t kMostEvents = 1000;
constexpr char kRemoved[] = "(removed)";

bool IsSecret(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  for (const char* word : {"key", "password", "secret", "token"}) {
    if (absl::StrContains(lower, word)) return true;
  }
  return false;
}

void RemoveSecrets(Json& json) {
  for (auto& [key, value] : json.items()) {
    const bool may_hold_one = value.is_string() || value.is_structured();
    if (may_hold_one && json.is_object() && IsSecret(key)) {
      value = kRemoved;
    } else if (value.is_structured()) {
      RemoveSecrets(value);
    }
  }
}

// Returns the variables that tools of the POD read, without secrets.
std::string EnvironmentText() {
  std::vector<std::string> lines;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::pair<absl::string_view, absl::string_view> variable =
        absl::StrSplit(*entry, absl::MaxSplits('=', 1));
    const auto begins = [&](const char* prefix) {
      return absl::StartsWith(variable.first, prefix);
    };
    if (begins("IPUOF_") || begins("VIPU_") || begins("VPOD_") || begins("POPLAR_") ||
        begins("POPRUN_") || begins("POPDIST_") || begins("GCDA_") || begins("OMPI_") ||
        begins("XDG_STATE_") || variable.first == "PATH") {
      const std::string value = IsSecret(variable.first) ? kRemoved : Shown(variable.second);
      lines.push_back(absl::StrCat(variable.first, "=", value, "\n"));
    }
  }
  std::sort(lines.begin(), lines.end());
  return absl::StrJoin(lines, "");
}

// The last line of /etc/os-release and the like that begins with a key.
std::string ValueIn(const std::string& file, absl::string_view key) {
  std::string value;
  for (absl::string_view line : absl::StrSplit(base::ReadFile(file), '\n')) {
    if (absl::ConsumePrefix(&line, key)) value = std::string(line);
  }
  return value;
}

std::string VersionsText() {
  utsname system{};
  uname(&system);
  std::string text = absl::StrCat("vpod: ", base::kVersion, "\nSDK: ", base::kSdkVersion,
                                  "\nkernel: ", system.release, " ", system.version,
                                  "\nsystem: ", ValueIn("/etc/os-release", "PRETTY_NAME="),
                                  "\nprocessors: ", sysconf(_SC_NPROCESSORS_ONLN), " of",
                                  ValueIn("/proc/cpuinfo", "model name\t:"),
                                  "\nmemory: ", ValueIn("/proc/meminfo", "MemTotal:"), "\n");
  for (const char* program : {"vpod", "vipu-server", "vipu-agent", "vipu", "poprun", "mpirun"}) {
    const auto path = FindProgram(program);
    absl::StrAppend(&text, program, ": ", path.ok() ? *path : "not found", "\n");
  }
  return text;
}

// A list, or why there is none.
template <class Message>
Json ListOrError(const absl::StatusOr<std::vector<Message>>& list) {
  return list.ok() ? ToJson(*list) : Json(std::string(list.status().message()));
}

Json Objects(const Pod& pod) {
  const auto shape = pod.Shape();
  if (!shape.ok()) return std::string(shape.status().message());
  vipu::Client client(ApiOf(*shape), std::chrono::seconds(5));
  if (const auto info = client.ServerInfo(); !info.ok())
    return std::string(info.status().message());
  vipuadmin::ListEventsRequest events;
  events.set_limit(kMostEvents);
  return {{"agents", ListOrError(client.ListAgents())},
          {"clusters", ListOrError(client.ListClusters())},
          {"allocations", ListOrError(client.ListAllAllocations())},
          {"users", ListOrError(client.ListUsers())},
          {"partitions", ListOrError(client.ListPartitions(/*with_devices=*/true))},
          {"events", ListOrError(client.ListEvents(events))}};
}

std::string EndOf(const std::string& path) {
  const std::string text = base::ReadFile(path);
  if (text.size() <= kMostLogBytes) return text;
  // From the beginning of a line on: nothing is cut in a word or a character.
  const size_t line = text.find('\n', text.size() - kMostLogBytes - 1);
  return line == std::string::npos ? "" : text.substr(line + 1);
}

// The files of the bundle, by name.
class Staging {
 public:
  explicit Staging(std::string directory) : directory_(std::move(directory)) {
    std::error_code error;
    fs::create_directories(directory_, error);
  }
  absl::Status Add(const std::string& name, absl::string_view text) const {
    return base::ReplaceFile(absl::StrCat(directory_, "/", name), text, 0644);
  }
  // The POD's own files: logs as they are, configuration without its secrets.
  absl::Status AddFilesOf(const std::string& home) const {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(home, error)) {
      const std::string name = entry.path().filename().string();
      if (absl::EndsWith(name, ".log")) {
        VPOD_RETURN_IF_ERROR(Add(name, EndOf(entry.path())));
      } else if (name == "pod.json") {
        VPOD_RETURN_IF_ERROR(Add(name, JsonWithoutSecrets(base::ReadFile(entry.path()))));
      } else if (absl::EndsWith(name, ".hcl")) {
        VPOD_RETURN_IF_ERROR(Add(name, HclWithoutSecrets(base::ReadFile(entry.path()))));
      }
    }
    for (const auto& entry : fs::directory_iterator(home + "/" + vipu::kPodIpuofDirectory, error)) {
      VPOD_RETURN_IF_ERROR(Add("ipuof-" + entry.path().filename().string(),
                               JsonWithoutSecrets(base::ReadFile(entry.path()))));
    }
    return absl::OkStatus();
  }

 private:
  const std::string directory_;
};

absl::Status Fill(const Pod& pod, const Staging& staging) {
  const PodStatus status = StatusOf(pod);
  Json objects = Objects(pod);
  RemoveSecrets(objects);
  VPOD_RETURN_IF_ERROR(staging.Add("status.txt", StatusText(status)));
  VPOD_RETURN_IF_ERROR(staging.Add("status.json", Dump(StatusJson(status), 2) + "\n"));
  VPOD_RETURN_IF_ERROR(staging.Add("objects.json", Dump(objects, 2) + "\n"));
  VPOD_RETURN_IF_ERROR(staging.Add("doctor.txt", Diagnose(pod).text));
  VPOD_RETURN_IF_ERROR(staging.Add("versions.txt", VersionsText()));
  VPOD_RETURN_IF_ERROR(staging.Add("environment.txt", EnvironmentText()));
  return staging.AddFilesOf(pod.home());
}

// Packs a directory in `parent` into an open file, which `file` names in messages.
absl::Status Pack(const std::string& parent, const std::string& directory, int into,
                  const std::string& file) {
  VPOD_ASSIGN_OR_RETURN(const std::string packed,
                        RunProgram({"tar", "-C", parent, "-czf", "-", directory}));
  for (absl::string_view rest = packed; !rest.empty();) {
    const ssize_t written = TEMP_FAILURE_RETRY(write(into, rest.data(), rest.size()));
    if (written <= 0)
      return absl::UnavailableError(
          absl::StrCat("cannot write ", file, ": ", std::strerror(errno)));
    rest.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace

std::string JsonWithoutSecrets(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_structured()) return absl::StrCat("(not JSON: ", text.size(), " bytes left out)\n");
  RemoveSecrets(json);
  return json.dump(2) + "\n";
}

std::string HclWithoutSecrets(const std::string& text) {
  std::string clean;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    const absl::string_view value = absl::StripAsciiWhitespace(parts.second);
    const bool quoted =
        value.size() >= 2 && value.front() == '"' && value.find('"', 1) == value.size() - 1;
    if (!quoted) {
      absl::StrAppend(&clean, "(not key=\"value\": ", line.size(), " bytes left out)\n");
    } else if (IsSecret(parts.first)) {
      absl::StrAppend(&clean, parts.first, "=", kRemoved, "\n");
    } else {
      absl::StrAppend(&clean, line, "\n");
    }
  }
  return clean;
}

std::string SupportBundleName(const Pod& pod) {
  std::string name = vipu::NameOfPod(pod.home());
  if (name.empty()) name = fs::path(pod.home()).filename().string();
  const std::string time =
      absl::StrReplaceAll(render::UtcTime(std::time(nullptr)), {{"-", ""}, {":", ""}});
  return absl::StrCat("vpod-support-", name, "-", time, ".tar.gz");
}

absl::Status WriteSupportBundle(const Pod& pod, const std::string& file) {
  const base::UniqueFd out(open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!out.valid() && errno == EEXIST)
    return absl::AlreadyExistsError(absl::StrCat(file, " is there already"));
  if (!out.valid())
    return absl::UnavailableError(absl::StrCat("cannot write ", file, ": ", std::strerror(errno)));
  std::error_code error;
  std::string parent = (fs::temp_directory_path(error) / "vpod-support-XXXXXX").string();
  const bool made = mkdtemp(parent.data()) != nullptr;
  const absl::Cleanup remove = [&] { fs::remove_all(parent, error); };
  const std::string directory = fs::path(SupportBundleName(pod)).stem().stem().string();
  absl::Status status = made ? Fill(pod, Staging(absl::StrCat(parent, "/", directory)))
                             : absl::UnavailableError(absl::StrCat("cannot write to ", parent));
  if (status.ok()) status = Pack(parent, directory, out.get(), file);
  if (!status.ok()) fs::remove(file, error);
  return status;
}

}  // namespace vpod::tools
