#include "client/gcipuinfo/gcipuinfo.h"

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>

#include "client/gcipuinfo/health.h"
#include "client/ipuof/telemetry.h"
#include "device/base/mutex.h"
#include "device/base/status.h"

namespace {

using vpod::ipuof::MonitoredPartition;
using Json = nlohmann::json;

constexpr char kNotAvailable[] = "N/A";
// Samplers ask for one attribute after another, and each is to be of about the same moment.
constexpr std::chrono::milliseconds kOld(100);

// Data that a query reads first.
enum class Refresh { kWhatIsOld, kAll, kNothing };

std::string Text(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace);
}

// The mode of this process: that of its first object.
absl::Status ClaimMode(gcipuinfo::DeviceDiscoveryMode mode) {
  static std::atomic<int> claimed = -1;
  int before = -1;
  if (claimed.compare_exchange_strong(before, mode) || before == mode) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "this process already uses gcipuinfo with the other discovery mode; the two cannot be mixed");
}

absl::StatusOr<std::vector<MonitoredPartition>> Discover(gcipuinfo::DeviceDiscoveryMode mode) {
  VPOD_RETURN_IF_ERROR(ClaimMode(mode));
  return vpod::ipuof::FindPartitions(mode == gcipuinfo::DiscoverAllPartitionIPUs);
}

std::string Named(const gcipuinfo::Attributes& device, const std::string& label) {
  const auto it = device.find(label);
  return it == device.end() ? kNotAvailable : it->second;
}

}  // namespace

struct gcipuinfo::Impl {
  explicit Impl(DeviceDiscoveryMode mode) : partitions(Discover(mode)) {}

  bool Update() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const bool complete = Read();
    read_at = std::chrono::steady_clock::now();
    return complete;
  }
  bool Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (!partitions.ok()) return false;
    for (const absl::Status& status : vpod::ipuof::ReadTelemetry(*partitions)) {
      if (!status.ok()) return false;
    }
    std::vector<Attributes> read;
    for (const MonitoredPartition& partition : *partitions) {
      if (!partition.silent.empty()) return false;
      for (const auto& ipu : partition.ipus) {
        const auto attributes = vpod::ipuof::AttributesOf(ipu, static_cast<uint32_t>(read.size()));
        Attributes& device = read.emplace_back(attributes.begin(), attributes.end());
        for (const auto& [name, value] : ipu.idle_sensors()) device[name] = value;
      }
    }
    devices = std::move(read);
    return true;
  }
  // Returns the devices for a query, read first if `refresh` says so.
  const std::vector<Attributes>& Devices() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const bool old = std::chrono::steady_clock::now() - read_at > kOld;
    if (refresh == Refresh::kAll || (refresh == Refresh::kWhatIsOld && old)) Update();
    return devices;
  }

  vpod::base::Mutex mutex;
  absl::StatusOr<std::vector<MonitoredPartition>> partitions ABSL_GUARDED_BY(mutex);
  std::vector<Attributes> devices ABSL_GUARDED_BY(mutex);
  std::chrono::steady_clock::time_point read_at ABSL_GUARDED_BY(mutex);
  Refresh refresh ABSL_GUARDED_BY(mutex) = Refresh::kWhatIsOld;
};

gcipuinfo::gcipuinfo(DeviceDiscoveryMode discoveryMode)
    : impl_(std::make_unique<Impl>(discoveryMode)) {
  vpod::base::MutexLock lock(impl_->mutex);
  impl_->Update();
}
gcipuinfo::~gcipuinfo() = default;

bool gcipuinfo::updateData() {
  vpod::base::MutexLock lock(impl_->mutex);
  if (impl_->refresh == Refresh::kWhatIsOld) impl_->refresh = Refresh::kNothing;
  return impl_->Update();
}

void gcipuinfo::setUpdateMode(bool autoUpdate) {
  vpod::base::MutexLock lock(impl_->mutex);
  impl_->refresh = autoUpdate ? Refresh::kAll : Refresh::kNothing;
}

std::vector<gcipuinfo::Attributes> gcipuinfo::getDevices() {
  vpod::base::MutexLock lock(impl_->mutex);
  return impl_->Devices();
}

std::string gcipuinfo::getDevicesAsJSON() { return Text(Json(getDevices())); }

std::vector<std::string> gcipuinfo::getNamedAttributeForAll(const std::string& label) {
  vpod::base::MutexLock lock(impl_->mutex);
  std::vector<std::string> values;
  for (const Attributes& device : impl_->Devices()) values.push_back(Named(device, label));
  return values;
}

std::string gcipuinfo::getNamedAttributeForDevice(unsigned id, const std::string& label) {
  vpod::base::MutexLock lock(impl_->mutex);
  const std::vector<Attributes>& devices = impl_->Devices();
  return id < devices.size() ? Named(devices[id], label) : kNotAvailable;
}

gcipuinfo::Attributes gcipuinfo::getLastAppEventRecord(const std::string& path) const {
  const std::string where =
      path.empty() ? vpod::vipu::Environment(vpod::ipuof::kRecordVariable) : path;
  const auto record = vpod::ipuof::ReadEventRecord(where);
  if (!record.ok()) return {{"error", std::string(record.status().message())}};
  return *record;
}

std::string gcipuinfo::getLastAppEventRecordAsJSON(const std::string& path) const {
  return Text(Json(getLastAppEventRecord(path)));
}

std::string gcipuinfo::checkHealthOfDevices() {
  vpod::base::MutexLock lock(impl_->mutex);
  auto& partitions = impl_->partitions;
  if (!partitions.ok()) return Text(Json({{"error", std::string(partitions.status().message())}}));
  // Agents that do not answer are part of the findings.
  vpod::ipuof::ReadTelemetry(*partitions);
  return vpod::gcinfo::HealthText(*partitions);
}
