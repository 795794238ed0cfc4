#include "tools/gc-info/status.h"

#include <initializer_list>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "device/arch/device_id.h"
#include "device/arch/hardware.h"
#include "device/base/device_use.h"
#include "device/base/status.h"
#include "tools/gc-info/info.h"

namespace vpod::tools {
namespace {

// Columns of supertiles: 0-7 north of the exchange, 8-15 south of it.
constexpr uint32_t kColumns = 16;
constexpr uint32_t kTilesPerSupertile = 4;
constexpr uint32_t kRows = arch::kTilesPerIpu / kTilesPerSupertile / kColumns;

std::string Lines(const telemetry::v1::IpuTelemetry& ipu, const std::string& prefix,
                  std::initializer_list<const char*> keys) {
  std::string text;
  for (const char* key : keys) {
    const auto it = ipu.attributes().find(key);
    if (it != ipu.attributes().end()) absl::StrAppend(&text, prefix, key, ": ", it->second, "\n");
  }
  return text;
}

bool IsNumberUpTo(absl::string_view text, uint32_t largest) {
  uint32_t number = 0;
  return absl::SimpleAtoi(text, &number) && number <= largest;
}

std::string DeviceInUse(uint32_t device_id, const ipuof::v1::ProcessInfo& process, int64_t now) {
  return base::DeviceInUse(
      {.device_id = device_id,
       .pid = base::PidText(process.pid(), process.pid_namespace(), base::PidNamespace()),
       .program = process.executable(),
       .user = process.user(),
       .host = process.host(),
       .since = "started",
       .seconds = now - process.start_time_unix()});
}

}  // namespace

absl::Status CheckIdle(const MonitoredPartition& partition, uint32_t device_id, int64_t now) {
  VPOD_ASSIGN_OR_RETURN(const arch::IpuRange range, IpusOf(partition, device_id));
  for (const auto& ipu : partition.ipus) {
    if (ipu.routing_id() < range.first || ipu.routing_id() >= range.first + range.count) continue;
    if (!ipu.attached()) continue;
    return absl::FailedPreconditionError(DeviceInUse(device_id, ipu.process(), now));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> TileOverview(const MonitoredPartition& partition, uint32_t device_id) {
  VPOD_ASSIGN_OR_RETURN(const auto* ipu, FirstIpu(partition, device_id));
  const bool stopped = ipuof::HasError(*ipu);
  std::string text = "   ";
  for (uint32_t column = 0; column < kColumns; ++column)
    absl::StrAppendFormat(&text, column == 0 ? "%4d" : "%5d", column);
  text += "\n";
  for (uint32_t row = 0; row < kRows; ++row) {
    absl::StrAppendFormat(&text, "%3d", row);
    for (uint32_t column = 0; column < kColumns; ++column)
      text += stopped ? " EEEE" : row == 0 ? " xx::" : " ::::";
    text += "\n";
  }
  return text;
}

absl::StatusOr<std::string> LinkStatus(const MonitoredPartition& partition, uint32_t device_id) {
  VPOD_ASSIGN_OR_RETURN(const auto* ipu, FirstIpu(partition, device_id));
  return Lines(*ipu, absl::StrCat("IPUID ", ipu->routing_id(), " "),
               {"link speed", "link width", "link correctable error count",
                "link correctable error count (session)"});
}

absl::StatusOr<std::string> PciStatus(const MonitoredPartition& partition, uint32_t device_id) {
  VPOD_ASSIGN_OR_RETURN(const auto* ipu, FirstIpu(partition, device_id));
  return Lines(*ipu, "", {"pci id", "pcie physical slot", "host link correctable error count"});
}

absl::Status CheckTile(const std::string& text) {
  if (text == "-" || IsNumberUpTo(text, arch::kTilesPerIpu - 1)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not a tile; use 0 to ", arch::kTilesPerIpu - 1));
}

absl::Status CheckContext(const std::string& text) {
  const bool worker = text.size() == 2 && text[0] == 'W' &&
                      IsNumberUpTo(absl::string_view(text).substr(1), arch::kWorkersPerTile - 1);
  if (text == "SU" || worker || IsNumberUpTo(text, arch::kWorkersPerTile)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not a context; use SU, W0 to W5 or 0 to 6"));
}

}  // namespace vpod::tools
