#include "tools/device_check/device_check.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "client/ipuof/ipuof_device.h"
#include "client/vipu/subset.h"
#include "device/base/random_id.h"
#include "device/base/status.h"

namespace vpod::tools {
namespace {

int64_t Now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void AddTestOptions(po::options_description& options, TestOptions& values) {
  options.add_options()("help,h", "help")("version,v", "version")                           //
      ("device-id,d", po::value(&values.device)->default_value({}, "0"), "device to test")  //
      ("json-output,j", po::bool_switch(&values.json), "JSON")                              //
      ("wall", po::bool_switch(&values.wall), "figures of the emulating host too");
}

absl::StatusOr<std::unique_ptr<session::Device>> AttachForTest(const AttachOptions& options) {
  VPOD_ASSIGN_OR_RETURN(const auto partition, vipu::FindActivePartition());
  VPOD_ASSIGN_OR_RETURN(const auto range, vipu::Subset(partition).IpusOf(options.device_id));
  ipuof::DeviceOptions attach;
  attach.device_id = static_cast<int>(options.device_id);
  attach.monitoring = options.monitoring;
  attach.job.set_job_id(base::RandomId());
  attach.job.set_num_instances(1);
  attach.job.set_local_replicas(range.count);
  attach.job.set_total_replicas(range.count);
  attach.job.set_ipus_per_replica(1);
  return ipuof::AttachDevice(partition, attach);
}

absl::StatusOr<std::vector<uint32_t>> IpusOfActiveDevice(uint32_t device_id) {
  VPOD_ASSIGN_OR_RETURN(const auto partition, vipu::FindActivePartition());
  VPOD_ASSIGN_OR_RETURN(const auto range, vipu::Subset(partition).IpusOf(device_id));
  std::vector<uint32_t> ids(range.count);
  for (uint32_t i = 0; i < range.count; ++i) ids[i] = range.first + i;
  return ids;
}

model::Topology TopologyOf(const session::Device& device) {
  return {.clock_hz = device.clock_hz(),
          .num_replicas = device.local_replicas(),
          .ipus_per_replica = 1};
}

absl::StatusOr<std::vector<base::Cycles>> RunCounted(session::Session& session,
                                                     const std::string& program, uint32_t slot) {
  VPOD_ASSIGN_OR_RETURN(const auto before, session.device().Counters());
  VPOD_RETURN_IF_ERROR(session.Run(program, slot).status());
  VPOD_ASSIGN_OR_RETURN(auto cycles, session.device().Counters());
  for (size_t i = 0; i < cycles.size(); ++i) cycles[i] = cycles[i] - before[i];
  return cycles;
}

std::string AllDigits(double value) { return absl::StrFormat("%.17g", value); }

std::string JsonObject(const Rows& rows) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [key, value] : rows) json[key] = value;
  return json.dump(1) + "\n";
}

WallTimer::WallTimer() : start_nanoseconds_(Now()) {}

double WallTimer::Seconds() const { return static_cast<double>(Now() - start_nanoseconds_) * 1e-9; }

}  // namespace vpod::tools
