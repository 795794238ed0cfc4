#include "client/ipuof/ipuof_device.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <stop_token>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ipuof/device_events.h"
#include "client/ipuof/lease.h"
#include "client/sdk_log/sdk_log.h"
#include "client/vipu/subset.h"
#include "device/arch/device_id.h"
#include "device/base/status.h"
#include "device/program/executable.h"
#include "device/program/stream_layout.h"

namespace vpod::ipuof {
namespace {

absl::StatusOr<Transport> ChooseTransport(const std::vector<std::unique_ptr<Lease>>& parts) {
  const std::string forced = vipu::Environment("VPOD_TRANSPORT");
  if (!forced.empty() && forced != "shm" && forced != "tcp") {
    return absl::InvalidArgumentError(
        absl::StrCat("VPOD_TRANSPORT is '", forced, "', must be shm or tcp"));
  }
  const bool same_host =
      std::all_of(parts.begin(), parts.end(), [](const auto& part) { return part->same_host(); });
  if (forced == "shm" && !same_host) {
    return absl::FailedPreconditionError("VPOD_TRANSPORT=shm, but the agent is on another host");
  }
  return forced != "tcp" && same_host ? Transport::kSharedMemory : Transport::kGrpc;
}

void LogIpuof(LogLevel level, const std::string& text) { SdkLog(LogModule::kIpuof, level, text); }

// The IPUs of one device, held by one lease at each agent that has some of them.
class IpuofDevice : public session::Device {
 public:
  IpuofDevice(std::vector<std::unique_ptr<Lease>> parts, Transport transport,
              std::shared_ptr<DeviceEvents> events, const DeviceOptions& options, std::string name,
              double clock_hz)
      : parts_(std::move(parts)),
        events_(std::move(events)),
        transport_(transport),
        options_(options),
        name_(std::move(name)),
        clock_hz_(clock_hz) {}
  ~IpuofDevice() override {
    if (CheckProcess().ok()) LogIpuof(LogLevel::kInfo, absl::StrCat("Detaching from ", name_));
  }

  uint32_t local_replicas() const override { return options_.job.local_replicas(); }
  double clock_hz() const override { return clock_hz_; }
  session::JobPart job_part() const override {
    return {options_.job.total_replicas(), options_.job.replica_offset()};
  }
  bool is_model() const override { return false; }
  std::string name() const override { return name_; }

  absl::Status Load(std::shared_ptr<const program::Executable> executable,
                    const session::LoadOptions& options) override {
    VPOD_RETURN_IF_ERROR(CheckProcess());
    executable_ = std::move(executable);
    const std::string bytes = executable_->Bytes(), origins = executable_->OriginBytes();
    layout_ = program::StreamLayout(executable_->proto(), local_replicas());
    LogIpuof(LogLevel::kDebug, absl::StrCat("Loading ", bytes.size(), " bytes onto ", name_));
    std::vector<std::future<absl::Status>> loads;
    for (const auto& part : parts_) {
      loads.push_back(std::async(parts_.size() == 1 ? std::launch::deferred : std::launch::async,
                                 [&] { return part->Load(bytes, origins, options).status(); }));
    }
    absl::Status status;
    for (auto& load : loads) status.Update(load.get());
    if (!status.ok()) {
      events_->Failed(status);
      return status;
    }
    if (transport_ == Transport::kGrpc) {
      private_.assign(layout_.TotalBytes(), std::byte{});
      return absl::OkStatus();
    }
    // One set of buffers for all parts.
    VPOD_ASSIGN_OR_RETURN(shared_, parts_[0]->MapStreams());
    for (size_t part = 1; part < parts_.size(); ++part)
      VPOD_RETURN_IF_ERROR(parts_[part]->ShareStreams(shared_));
    return absl::OkStatus();
  }

  std::byte* Slot(uint32_t slot) override {
    std::byte* base = transport_ == Transport::kSharedMemory ? shared_.data() : private_.data();
    return base + slot * layout_.SlotBytes();
  }

  absl::StatusOr<base::Cycles> Run(uint32_t program, uint32_t slot) override {
    VPOD_RETURN_IF_ERROR(CheckProcess());
    // An agent does not keep a cancel that comes before it has loaded a program.
    if (cancelled_.stop_requested()) return absl::CancelledError("the run was cancelled");
    if (SdkLogs(LogModule::kIpuof, LogLevel::kTrace)) {
      LogIpuof(LogLevel::kTrace,
               absl::StrCat("Run of program ", program, ", slot ", slot, " on ", name_));
    }
    if (transport_ == Transport::kGrpc) VPOD_RETURN_IF_ERROR(CopyStreams(program, slot, true));
    VPOD_ASSIGN_OR_RETURN(const base::Cycles cycles, RunParts(program, slot));
    if (transport_ == Transport::kGrpc) VPOD_RETURN_IF_ERROR(CopyStreams(program, slot, false));
    return cycles;
  }

  void Cancel() override {
    if (!CheckProcess().ok()) return;
    cancelled_.request_stop();
    for (const auto& part : parts_) part->CancelRuns();
  }

  absl::Status WriteVariable(absl::string_view name, absl::string_view bytes,
                             std::optional<uint32_t> replica) override {
    VPOD_RETURN_IF_ERROR(CheckProcess());
    if (replica) {
      VPOD_ASSIGN_OR_RETURN(const auto* variable, executable_->FindVariable(name));
      return PartOf(*replica, variable->ipu).WriteTensor(name, bytes, replica);
    }
    for (const auto& part : parts_) VPOD_RETURN_IF_ERROR(part->WriteTensor(name, bytes));
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> ReadVariable(absl::string_view name, uint32_t replica) override {
    VPOD_RETURN_IF_ERROR(CheckProcess());
    VPOD_ASSIGN_OR_RETURN(const auto* variable, executable_->FindVariable(name));
    return PartOf(replica, variable->ipu).ReadTensor(name, replica);
  }
  absl::StatusOr<std::vector<base::Cycles>> Counters() override {
    VPOD_RETURN_IF_ERROR(CheckProcess());
    std::vector<base::Cycles> all(local_replicas() * executable_->ipus_per_replica());
    for (const auto& part : parts_) {
      VPOD_ASSIGN_OR_RETURN(const auto counters, part->Counters());
      for (size_t i = 0; i < counters.size(); ++i)
        all[part->attached().units(static_cast<int>(i))] = counters[i];
    }
    return all;
  }

 private:
  // The part that has a unit. A replica that no part has is answered by the first, with its error.
  Lease& PartOf(uint32_t replica, uint32_t ipu) const {
    const uint32_t unit = replica * executable_->ipus_per_replica() + ipu;
    for (const auto& part : parts_) {
      const auto& units = part->attached().units();
      if (std::binary_search(units.begin(), units.end(), unit)) return *part;
    }
    return *parts_[0];
  }

  // Runs all parts at once; the slowest counts.
  absl::StatusOr<base::Cycles> RunParts(uint32_t program, uint32_t slot) {
    std::vector<Lease::AwaitRun> runs;
    for (const auto& part : parts_) runs.push_back(part->StartRun(program, slot, transport_));
    absl::Status status;
    base::Cycles cycles(0);
    for (const Lease::AwaitRun& await : runs) {
      const absl::StatusOr<base::Cycles> result = await();
      if (result.ok()) {
        cycles = std::max(cycles, *result);
      } else {
        status.Update(result.status());
      }
    }
    if (!status.ok()) {
      events_->Failed(status);
      return AwaitTheEnd(status, cancelled_.get_token());
    }
    return cycles;
  }

  // Moves a program's streams of one direction between our buffer and the agents'.
  absl::Status CopyStreams(uint32_t program, uint32_t slot, bool to_device) {
    for (const uint32_t stream : executable_->streams(program)) {
      const auto& declared = executable_->proto().streams(static_cast<int>(stream));
      if (declared.to_device() != to_device) continue;
      // Neighbouring replicas of one part travel together.
      for (uint32_t first = 0; first < local_replicas();) {
        Lease& part = PartOf(first, declared.ipu());
        uint32_t end = first + 1;
        while (end < local_replicas() && &PartOf(end, declared.ipu()) == &part) ++end;
        const uint64_t offset = layout_.Offset(stream, first, 0);
        const uint64_t bytes =
            uint64_t{end - first} * layout_.Transfers(stream) * layout_.TransferBytes(stream);
        std::byte* data = Slot(slot) + offset;
        VPOD_RETURN_IF_ERROR(
            to_device ? part.WriteStream(slot, offset,
                                         absl::string_view(reinterpret_cast<char*>(data), bytes))
                      : part.ReadStream(slot, offset, bytes, data));
        first = end;
      }
    }
    return absl::OkStatus();
  }

  std::stop_source cancelled_;
  const std::vector<std::unique_ptr<Lease>> parts_;
  const std::shared_ptr<DeviceEvents> events_;  // the leases write to it too
  const Transport transport_;
  const DeviceOptions options_;
  const std::string name_;
  const double clock_hz_;
  std::shared_ptr<const program::Executable> executable_;
  program::StreamLayout layout_;
  shm::Segment shared_;
  std::vector<std::byte> private_;
};

// Returns the ids of the devices that have the IPUs that are needed.
absl::StatusOr<std::vector<uint32_t>> FindCandidates(const vipu::ActivePartition& partition,
                                                     const vipu::Subset& partition_ipus,
                                                     uint32_t needed) {
  std::vector<uint32_t> candidates;
  for (uint32_t id = 0; id < partition_ipus.num_devices(); ++id) {
    VPOD_ASSIGN_OR_RETURN(const arch::IpuRange range, partition_ipus.IpusOf(id));
    if (range.count == needed) candidates.push_back(id);
  }
  if (!candidates.empty()) return candidates;
  const auto num_ipus = static_cast<uint32_t>(partition.config.devices_size());
  return absl::ResourceExhaustedError(
      partition_ipus.is_group() || num_ipus < needed
          ? absl::StrCat("partition ", partition.partition_id, " has ", num_ipus)
          : absl::StrCat("the ", num_ipus,
                         " IPUs of the configuration are not a device of partition ",
                         partition.partition_id, ", so they are used one by one"));
}

// The leases of a device, and the record of events that they write to.
struct Held {
  std::vector<std::unique_ptr<Lease>> parts;
  std::shared_ptr<DeviceEvents> events;
};

absl::StatusOr<Held> Hold(uint32_t id, const arch::IpuRange& ipus,
                          const vipu::ActivePartition& partition, const DeviceOptions& options) {
  LeaseOptions lease;
  lease.device_id = id;
  lease.monitoring = options.monitoring;
  lease.job = options.job;
  const auto events = std::make_shared<DeviceEvents>(partition, ipus);
  lease.on_failure = [events](const absl::Status& cause) { events->Failed(cause); };
  LogIpuof(LogLevel::kDebug,
           absl::StrCat("Attaching to device ", id, " of partition ", partition.partition_id,
                        ", GCD ", partition.gcd, ", generation ", partition.generation));
  auto parts = Lease::AttachParts(partition, lease);
  if (parts.ok()) return Held{*std::move(parts), events};
  LogIpuof(LogLevel::kDebug, absl::StrCat("Device ", id, ": ", parts.status().message()));
  return parts.status();
}

absl::StatusOr<std::unique_ptr<session::Device>> MakeDevice(uint32_t id, Held held,
                                                            const vipu::ActivePartition& partition,
                                                            const DeviceOptions& options) {
  VPOD_ASSIGN_OR_RETURN(const Transport transport, ChooseTransport(held.parts));
  LogIpuof(LogLevel::kInfo,
           absl::StrCat("Attached to device ", id, " of partition ", partition.partition_id, " at ",
                        held.parts.size(), " agent(s), streams by ",
                        transport == Transport::kSharedMemory ? "shared memory" : "gRPC"));
  const double clock_hz = held.parts.front()->attached().clock_hz();
  held.events->Attached(id);
  return std::make_unique<IpuofDevice>(
      std::move(held.parts), transport, std::move(held.events), options,
      absl::StrCat("device ", id, " of partition ", partition.partition_id), clock_hz);
}

// Waits for devices that others use. The pauses between attempts grow from 20 ms to 1 s.
class Wait {
 public:
  explicit Wait(const DeviceOptions& options) : options_(options) {}

  // Pauses before the next attempt. Returns the refusal if the time is over, and Cancelled if
  // `stopped` ended the wait.
  absl::Status Pause(const absl::Status& refusal) {
    constexpr std::chrono::milliseconds kLongest(1000);
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - begin_);
    if (waited >= options_.wait) return refusal;
    if (pause_ == kFirst)
      LogIpuof(LogLevel::kInfo, absl::StrCat("Waiting for IPUs: ", refusal.message()));
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    never.wait_for(lock, options_.stopped, std::min(pause_, options_.wait - waited),
                   [] { return false; });
    pause_ = std::min(2 * pause_, kLongest);
    if (!options_.stopped.stop_requested()) return absl::OkStatus();
    return absl::CancelledError(absl::StrCat("the wait for IPUs was ended: ", refusal.message()));
  }

 private:
  static constexpr std::chrono::milliseconds kFirst{20};

  const DeviceOptions& options_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::chrono::milliseconds pause_ = kFirst;
};

}  // namespace

absl::StatusOr<std::unique_ptr<session::Device>> AttachDevice(
    const vipu::ActivePartition& partition, const DeviceOptions& options) {
  VPOD_RETURN_IF_ERROR(CheckSdkLog());
  const vipu::Subset partition_ipus(partition);
  const uint32_t needed =
      arch::NextPowerOfTwo(options.job.local_replicas() * options.job.ipus_per_replica());
  const auto failed = [&](const absl::Status& why) {
    return absl::Status(why.code(),
                        absl::StrCat("Failed to acquire ", needed, " IPU(s): ", why.message()));
  };
  absl::StatusOr<std::vector<uint32_t>> candidates =
      std::vector{static_cast<uint32_t>(options.device_id)};
  if (options.device_id < 0) candidates = FindCandidates(partition, partition_ipus, needed);
  if (!candidates.ok()) return failed(candidates.status());
  for (Wait wait(options);;) {
    absl::Status refusal;
    for (uint32_t id : *candidates) {
      VPOD_ASSIGN_OR_RETURN(const arch::IpuRange ipus, partition_ipus.IpusOf(id));
      absl::StatusOr<Held> held = Hold(id, ipus, partition, options);
      if (held.ok()) return MakeDevice(id, *std::move(held), partition, options);
      refusal = held.status();
      if (!absl::IsResourceExhausted(refusal)) return failed(refusal);
    }
    const absl::Status paused = wait.Pause(refusal);
    if (!paused.ok()) return failed(paused);
  }
}

}  // namespace vpod::ipuof
