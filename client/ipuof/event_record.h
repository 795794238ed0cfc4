// The application event record (spec/gc-tools.md 9.2): what last happened to the devices of a
// program, for those who look after it. Written by programs that hold devices, read by gcipuinfo.
//
// One file a directory, kRecordFile in the one that IPU_APP_EVENT_RECORD_PATH names; off without.
// Programs of one host may share it: a lock on the directory orders them, and the file is replaced
// by renaming, so that readers see one record or the other.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace vpod::ipuof {

// Rising; a record is replaced by one of equal or higher severity only.
enum class EventSeverity { kInfo, kWarning, kError, kFatal };

inline constexpr char kRecordVariable[] = "IPU_APP_EVENT_RECORD_PATH";
inline constexpr char kRecordFile[] = "ipu_app_event_record.json";

// Keys of a record; all values are strings, lists have commas.
namespace event_key {
inline constexpr char kRecordPath[] = "event record path";
inline constexpr char kTimestamp[] = "timestamp";  // 20211122T224648Z
inline constexpr char kSeverity[] = "severity";    // Info, Warning, Error or Fatal
inline constexpr char kCommandLine[] = "command line";
inline constexpr char kPid[] = "pid";
inline constexpr char kAttachedIpus[] = "attached ipus";  // by device id
inline constexpr char kSpecificIpus[] = "specific ipus";  // those that the event is about
inline constexpr char kAttachedIpuHosts[] = "attached ipu hosts";
inline constexpr char kSpecificIpuHosts[] = "specific ipu hosts";
inline constexpr char kPartition[] = "partition";
inline constexpr char kDescription[] = "description";
}  // namespace event_key

using EventRecord = std::map<std::string, std::string>;

// Writes a record of this process into a directory, unless the one there is more severe. Path,
// timestamp, severity, command line and pid are filled in. The error names the file.
absl::Status WriteEventRecord(const std::string& directory, EventSeverity severity,
                              EventRecord record);

// The record at a path: that of a directory, or a file. Empty when there is none; DataLoss: it is
// none.
absl::StatusOr<EventRecord> ReadEventRecord(const std::string& path);

}  // namespace vpod::ipuof
