#include "client/ipuof/event_record.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "device/base/file.h"
#include "device/base/unique_fd.h"

namespace vpod::ipuof {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// By EventSeverity.
constexpr std::array<const char*, 4> kSeverityNames = {"Info", "Warning", "Error", "Fatal"};

// The order of the file.
constexpr std::array<const char*, 11> kKeys = {
    event_key::kRecordPath,
    event_key::kTimestamp,
    event_key::kSeverity,
    event_key::kCommandLine,
    event_key::kPid,
    event_key::kAttachedIpus,
    event_key::kSpecificIpus,
    event_key::kAttachedIpuHosts,
    event_key::kSpecificIpuHosts,
    event_key::kPartition,
    event_key::kDescription,
};

std::string CommandLine() {
  std::string words = base::ReadFile("/proc/self/cmdline");
  while (!words.empty() && words.back() == '\0') words.pop_back();
  std::replace(words.begin(), words.end(), '\0', ' ');
  return words;
}

bool IsMoreSevere(const EventRecord& record, EventSeverity than) {
  const auto severity = record.find(event_key::kSeverity);
  if (severity == record.end()) return false;
  const auto* name = std::find(kSeverityNames.begin(), kSeverityNames.end(), severity->second);
  return name != kSeverityNames.end() && name - kSeverityNames.begin() > static_cast<int>(than);
}

std::string ToJson(const EventRecord& record) {
  Json json = Json::object();
  for (const char* key : kKeys) {
    const auto value = record.find(key);
    json[key] = value == record.end() ? "" : value->second;
  }
  // A command line may be in any encoding.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

absl::Status WriteEventRecord(const std::string& directory, EventSeverity severity,
                              EventRecord record) {
  const std::string path = absl::StrCat(directory, "/", kRecordFile);
  const auto failed = [&](const char* what) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
  };
  const base::UniqueFd lock(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock.valid() || flock(lock.get(), LOCK_EX) != 0) return failed("lock the directory of");
  const auto present = ReadEventRecord(path);
  if (present.ok() && IsMoreSevere(*present, severity)) return absl::OkStatus();
  record[event_key::kRecordPath] = path;
  record[event_key::kTimestamp] =
      absl::FormatTime("%Y%m%dT%H%M%SZ", absl::Now(), absl::UTCTimeZone());
  record[event_key::kSeverity] = kSeverityNames[static_cast<size_t>(severity)];
  record[event_key::kCommandLine] = CommandLine();
  record[event_key::kPid] = absl::StrCat(getpid());
  const std::string text = ToJson(record);
  const std::string temporary = path + ".new";
  std::remove(temporary.c_str());
  const base::UniqueFd file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file.valid()) return failed("write");
  if (write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      std::rename(temporary.c_str(), path.c_str()) != 0) {
    const absl::Status status = failed("write");
    std::remove(temporary.c_str());
    return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<EventRecord> ReadEventRecord(const std::string& path) {
  std::error_code error;
  const std::string file =
      fs::is_directory(path, error) ? absl::StrCat(path, "/", kRecordFile) : path;
  if (!fs::exists(file, error)) return EventRecord();
  const Json json = Json::parse(base::ReadFile(file), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::DataLossError(absl::StrCat(file, " is not an event record"));
  EventRecord record;
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string())
      return absl::DataLossError(absl::StrCat(file, " is not an event record"));
    record[key] = value.get<std::string>();
  }
  return record;
}

}  // namespace vpod::ipuof
