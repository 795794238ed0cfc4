#include "client/session/ipu_model.h"

#include <condition_variable>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "device/arch/device_id.h"
#include "device/arch/hardware.h"
#include "device/base/status.h"
#include "device/engine/engine.h"

namespace vpod::session {
namespace {

class IpuModel : public Device {
 public:
  IpuModel(const IpuModelOptions& options, const arch::MachineType& type)
      : options_(options),
        type_(type),
        budget_(options.memory_limit_bytes, "IPUModel", /*hint=*/""),
        executors_(std::make_unique<engine::Executors>(options.compute_threads)) {}

  ~IpuModel() override {
    if (!CheckProcess().ok()) {
      Abandon();
    } else if (engine_) {
      engine_->Cancel(absl::CancelledError("the device was closed"));
    }
  }

  uint32_t local_replicas() const override { return options_.replicas; }
  double clock_hz() const override { return type_.clock_hz; }
  JobPart job_part() const override { return {options_.replicas, 0}; }
  bool is_model() const override { return true; }
  std::string name() const override { return "IPUModel"; }

  absl::Status Load(std::shared_ptr<const program::Executable> executable,
                    const LoadOptions& options) override {
    VPOD_RETURN_IF_ERROR(CheckProcess());
    engine_.reset();
    auto job = std::make_shared<fabric::Job>(
        "ipu-model", fabric::JobShape{1, options_.replicas, options_.ipus_per_replica});
    fabric::JobMember member;
    member.local_replicas = options_.replicas;
    member.process = "this process";
    VPOD_RETURN_IF_ERROR(job->Join(job->shape(), std::move(member)));
    VPOD_ASSIGN_OR_RETURN(engine_,
                          engine::Engine::Create(executable, {.executors = executors_.get(),
                                                              .budget = &budget_,
                                                              .job = job,
                                                              .local_replicas = options_.replicas,
                                                              .clock_hz = type_.clock_hz,
                                                              .check_finite = options.check_finite,
                                                              .enforce_memory = false,
                                                              .sharing = options.sharing}));
    job->Loaded(0, 0, executable->hash());
    streams_.assign(engine_->layout().TotalBytes() + 64, std::byte{});
    return absl::OkStatus();
  }

  std::byte* Slot(uint32_t slot) override {
    const auto address = reinterpret_cast<uintptr_t>(streams_.data());
    return streams_.data() + (64 - address % 64) % 64 + slot * engine_->layout().SlotBytes();
  }

  absl::StatusOr<base::Cycles> Run(uint32_t program, uint32_t slot) override {
    VPOD_RETURN_IF_ERROR(CheckLoaded());
    base::Mutex mutex;
    std::condition_variable changed;
    std::optional<absl::StatusOr<engine::RunResult>> result;
    engine_->Run(program, Slot(slot), [&](absl::StatusOr<engine::RunResult> done) {
      base::MutexLock lock(mutex);
      result = std::move(done);
      changed.notify_all();
    });
    base::MutexLock lock(mutex);
    lock.Wait(changed, [&] { return result.has_value(); });
    if (!result->ok()) return result->status();
    return (*result)->cycles;
  }

  void Cancel() override {
    if (engine_ && CheckProcess().ok())
      engine_->Cancel(absl::CancelledError("the run was cancelled"));
  }

  absl::Status WriteVariable(absl::string_view name, absl::string_view bytes,
                             std::optional<uint32_t> replica) override {
    VPOD_RETURN_IF_ERROR(CheckLoaded());
    VPOD_ASSIGN_OR_RETURN(const auto* variable, engine_->executable().FindVariable(name));
    return engine_->WriteVariable(*variable, replica, 0, bytes);
  }

  absl::StatusOr<std::string> ReadVariable(absl::string_view name, uint32_t replica) override {
    VPOD_RETURN_IF_ERROR(CheckLoaded());
    VPOD_ASSIGN_OR_RETURN(const auto* variable, engine_->executable().FindVariable(name));
    return engine_->ReadVariable(*variable, replica);
  }

  absl::StatusOr<std::vector<base::Cycles>> Counters() override {
    VPOD_RETURN_IF_ERROR(CheckLoaded());
    return engine_->Counters();
  }

 private:
  absl::Status CheckLoaded() const {
    VPOD_RETURN_IF_ERROR(CheckProcess());
    if (!engine_) return absl::FailedPreconditionError("no executable is loaded");
    return absl::OkStatus();
  }

  // In a forked child, which has no thread of the executors: waiting for one would last for ever.
  void Abandon() {
    static_cast<void>(executors_.release());
    static_cast<void>(new std::shared_ptr<engine::Engine>(std::move(engine_)));
  }

  const IpuModelOptions options_;
  const arch::MachineType type_;
  engine::MemoryBudget budget_;
  std::vector<std::byte> streams_;
  std::shared_ptr<engine::Engine> engine_;
  // Last, so that its threads end before anything that they may touch.
  std::unique_ptr<engine::Executors> executors_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateIpuModel(const IpuModelOptions& options) {
  VPOD_ASSIGN_OR_RETURN(const arch::MachineType type, arch::FindMachineType(options.machine_type));
  const uint32_t ipus = options.ipus_per_replica;
  if (!arch::IsPowerOfTwo(ipus) || ipus > arch::kMaxIpusPerReplica) {
    return absl::InvalidArgumentError(absl::StrCat("ipus_per_replica is ", ipus,
                                                   ", must be a power of two from 1 to ",
                                                   arch::kMaxIpusPerReplica));
  }
  if (options.replicas < 1 || options.replicas > arch::kMaxIpusPerPod / ipus) {
    return absl::InvalidArgumentError(absl::StrCat("replicas is ", options.replicas,
                                                   ", must be 1 to ", arch::kMaxIpusPerPod / ipus,
                                                   ipus == 1 ? "" : " of that many IPUs each"));
  }
  constexpr int kMostThreads = 4096;  // as an agent takes
  if (options.compute_threads < 0 || options.compute_threads > kMostThreads) {
    return absl::InvalidArgumentError(absl::StrCat("compute_threads is ", options.compute_threads,
                                                   ", must be 0 to ", kMostThreads));
  }
  const auto number = [](const char* name) {
    uint32_t value = 1;
    const char* text = std::getenv(name);
    if (text == nullptr || !absl::SimpleAtoi(text, &value)) return 1u;
    return value;
  };
  const uint32_t total = number("POPDIST_NUM_TOTAL_REPLICAS"),
                 local = number("POPDIST_NUM_LOCAL_REPLICAS");
  if (total > local && local > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the IPUModel runs in one process and cannot take part in a job of ",
                     total / local, " instances; attach to a partition, or start one instance"));
  }
  return std::make_unique<IpuModel>(options, type);
}

}  // namespace vpod::session
