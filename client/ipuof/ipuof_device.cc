#include "client/ipuof/ipuof_device.h"

#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/ipuof/lease.h"
#include "device/arch/device_id.h"
#include "device/base/status.h"
#include "device/program/executable.h"
#include "device/program/stream_layout.h"

namespace vpod::ipuof {
namespace {

absl::StatusOr<Transport> ChooseTransport(const Lease& lease) {
  const std::string forced = vipu::Environment("VPOD_TRANSPORT");
  if (!forced.empty() && forced != "shm" && forced != "tcp") {
    return absl::InvalidArgumentError(
        absl::StrCat("VPOD_TRANSPORT is '", forced, "', must be shm or tcp"));
  }
  if (forced == "shm" && !lease.same_host()) {
    return absl::FailedPreconditionError("VPOD_TRANSPORT=shm, but the agent is on another host");
  }
  return forced != "tcp" && lease.same_host() ? Transport::kSharedMemory : Transport::kGrpc;
}

class IpuofDevice : public session::Device {
 public:
  IpuofDevice(std::unique_ptr<Lease> lease, Transport transport, const DeviceOptions& options,
              std::string name, double clock_hz)
      : lease_(std::move(lease)),
        transport_(transport),
        options_(options),
        name_(std::move(name)),
        clock_hz_(clock_hz) {}

  uint32_t local_replicas() const override { return options_.job.local_replicas(); }
  double clock_hz() const override { return clock_hz_; }
  std::string name() const override { return name_; }

  absl::Status Load(const std::string& bytes) override {
    VPOD_ASSIGN_OR_RETURN(executable_, program::Executable::Parse(bytes));
    layout_ = program::StreamLayout(executable_->proto(), local_replicas());
    VPOD_RETURN_IF_ERROR(lease_->Load(bytes).status());
    if (transport_ == Transport::kSharedMemory) {
      VPOD_ASSIGN_OR_RETURN(shared_, lease_->MapStreams());
    } else {
      private_.assign(layout_.TotalBytes(), std::byte{});
    }
    return absl::OkStatus();
  }

  std::byte* Slot(uint32_t slot) override {
    std::byte* base = transport_ == Transport::kSharedMemory ? shared_.data() : private_.data();
    return base + slot * layout_.SlotBytes();
  }

  absl::StatusOr<base::Cycles> Run(uint32_t program, uint32_t slot) override {
    if (transport_ == Transport::kSharedMemory) return lease_->Run(program, slot);
    VPOD_RETURN_IF_ERROR(CopyStreams(slot, /*to_device=*/true));
    VPOD_ASSIGN_OR_RETURN(const base::Cycles cycles, lease_->Run(program, slot));
    VPOD_RETURN_IF_ERROR(CopyStreams(slot, /*to_device=*/false));
    return cycles;
  }

  absl::Status WriteVariable(absl::string_view name, absl::string_view bytes) override {
    return lease_->WriteTensor(name, bytes);
  }
  absl::StatusOr<std::string> ReadVariable(absl::string_view name, uint32_t replica) override {
    return lease_->ReadTensor(name, replica);
  }
  absl::StatusOr<std::vector<base::Cycles>> Counters() override { return lease_->Counters(); }

 private:
  // Moves the streams of one direction between our buffer and the agent's.
  absl::Status CopyStreams(uint32_t slot, bool to_device) {
    for (int i = 0; i < executable_->proto().streams_size(); ++i) {
      if (executable_->proto().streams(i).to_device() != to_device) continue;
      const uint64_t offset = layout_.Offset(static_cast<uint32_t>(i), 0, 0);
      const uint64_t bytes = layout_.StreamBytes(static_cast<uint32_t>(i));
      std::byte* data = Slot(slot) + offset;
      VPOD_RETURN_IF_ERROR(
          to_device ? lease_->WriteStream(slot, offset,
                                          absl::string_view(reinterpret_cast<char*>(data), bytes))
                    : lease_->ReadStream(slot, offset, bytes, data));
    }
    return absl::OkStatus();
  }

  const std::unique_ptr<Lease> lease_;
  const Transport transport_;
  const DeviceOptions options_;
  const std::string name_;
  const double clock_hz_;
  std::shared_ptr<const program::Executable> executable_;
  program::StreamLayout layout_;
  shm::Segment shared_;
  std::vector<std::byte> private_;
};

// Clock of the partition's IPUs, as their attribute says.
absl::StatusOr<double> ClockOf(const vipu::ActivePartition& partition) {
  VPOD_ASSIGN_OR_RETURN(const std::string endpoint, EndpointOf(partition));
  VPOD_ASSIGN_OR_RETURN(const auto telemetry, vipu::GetTelemetry(endpoint, partition.partition_id));
  double mhz = 0;
  if (telemetry.ipus().empty()) return absl::InternalError("the agent describes no IPU");
  const auto clock = telemetry.ipus(0).attributes().find("clock");
  const std::string text = clock == telemetry.ipus(0).attributes().end() ? "" : clock->second;
  if (!absl::SimpleAtod(text.substr(0, text.find("MHz")), &mhz))
    return absl::InternalError("no clock attribute");
  return mhz * 1e6;
}

}  // namespace

absl::StatusOr<std::unique_ptr<session::Device>> AttachDevice(
    const vipu::ActivePartition& partition, const DeviceOptions& options) {
  const auto num_ipus = static_cast<uint32_t>(partition.config.devices_size());
  const uint32_t needed =
      arch::NextPowerOfTwo(options.job.local_replicas() * options.job.ipus_per_replica());
  std::vector<uint32_t> candidates;
  if (options.device_id >= 0) {
    candidates.push_back(static_cast<uint32_t>(options.device_id));
  } else {
    for (uint32_t first = 0; first + needed <= num_ipus; first += needed) {
      VPOD_ASSIGN_OR_RETURN(const uint32_t id, arch::DeviceOfIpus(num_ipus, {first, needed}));
      candidates.push_back(id);
    }
  }
  const auto failed = [&](absl::StatusCode code, absl::string_view why) {
    return absl::Status(code, absl::StrCat("Failed to acquire ", needed, " IPU(s): ", why));
  };
  if (candidates.empty()) {
    return failed(absl::StatusCode::kResourceExhausted,
                  absl::StrCat("partition ", partition.partition_id, " has ", num_ipus));
  }
  absl::Status refusal;
  for (uint32_t id : candidates) {
    auto lease = Lease::Attach(partition, {.device_id = id, .job = options.job});
    if (lease.ok()) {
      VPOD_ASSIGN_OR_RETURN(const Transport transport, ChooseTransport(**lease));
      if (const std::string level = vipu::Environment("IPUOF_LOG_LEVEL");
          level == "INFO" || level == "DEBUG") {
        std::fprintf(stderr, "IPUOF [I] device %u, streams by %s\n", id,
                     transport == Transport::kSharedMemory ? "shared memory" : "gRPC");
      }
      VPOD_ASSIGN_OR_RETURN(const double clock_hz, ClockOf(partition));
      return std::make_unique<IpuofDevice>(
          *std::move(lease), transport, options,
          absl::StrCat("device ", id, " of partition ", partition.partition_id), clock_hz);
    }
    refusal = lease.status();
    if (!absl::IsResourceExhausted(refusal)) break;
  }
  return failed(refusal.code(), refusal.message());
}

}  // namespace vpod::ipuof
