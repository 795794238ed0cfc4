#include "client/launch/partition.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/launch/hosts.h"
#include "client/launch/mpirun.h"
#include "client/vipu/ipuof_config.h"
#include "device/arch/device_id.h"
#include "device/base/counted.h"
#include "device/base/device_use.h"
#include "device/base/status.h"

namespace vpod::launch {
namespace {

constexpr std::chrono::seconds kPauseBetweenAttempts(1);
// After one instance has failed, and left in an orderly way, the others are lost by mpirun's
// SIGTERM and SIGKILL, one second and two later; then they are not the cause.
constexpr std::chrono::seconds kMpirunEndsOthers(5);

constexpr const char* kOptionOrder[] = {"ipuLinkDomainSize", "ipuLinkConfiguration",
                                        "ipuLinkTopology", "gatewayMode", "instanceSize"};

// {"ipuLinkDomainSize":"64",…}: the known keys in their order, then others.
std::string OptionsJson(const std::map<std::string, std::string>& options) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const char* key : kOptionOrder) {
    if (options.contains(key)) json[key] = options.at(key);
  }
  for (const auto& [key, value] : options) json[key] = value;
  return json.dump();
}

// The process id of an instance in an event of an agent.
template <class Event>
std::string PidText(const Event& event) {
  return base::PidText(event.pid(), event.pid_namespace(), base::PidNamespace());
}

std::string Capitalised(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

// A host that is not this machine under one of its names or addresses.
std::optional<std::string> OtherHost(const Layout& layout) {
  if (!layout.hosts_given) return std::nullopt;
  for (const std::string& host : layout.hosts) {
    if (!IsLoopback(host) && !IsThisHost(host)) return host;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobPartition>> JobPartition::Prepare(
    const Options& options, Layout& layout, const std::string& job_id, const Log& log,
    base::Interruption& interruption) {
  std::unique_ptr<JobPartition> partition(
      new JobPartition(options, layout, job_id, log, interruption));
  VPOD_RETURN_IF_ERROR(partition->FindServer());
  VPOD_RETURN_IF_ERROR(partition->FindId());
  VPOD_RETURN_IF_ERROR(partition->MakeItFit());
  VPOD_ASSIGN_OR_RETURN(const auto status, partition->client_->GetPartitionStatus(partition->id_));
  layout.ilds = std::max(1u, status.num_ilds());
  VPOD_RETURN_IF_ERROR(CheckIlds(layout));
  VPOD_RETURN_IF_ERROR(partition->CheckDevicesForHosts());
  partition->vipu_options_.insert(status.target_options().begin(), status.target_options().end());
  // As in public logs: an instance's share of the partition, whatever part of it the job uses.
  partition->vipu_options_["instanceSize"] = absl::StrCat(partition->size_ / layout.instances);
  return partition;
}

absl::Status JobPartition::FindServer() {
  vipu::ConfigFlags flags;
  flags.host = options_.vipu_server_host;
  if (!flags.host.empty() && options_.vipu_server_port_given)
    flags.port = absl::StrCat(options_.vipu_server_port);
  VPOD_ASSIGN_OR_RETURN(vipu::ClientConfig config, vipu::DiscoverConfig(flags));
  if (options_.vipu_server_port_given) config.port = options_.vipu_server_port;
  if (!flags.host.empty()) config.source = "--vipu-server-host";
  client_ =
      std::make_unique<vipu::Client>(config, std::chrono::seconds(options_.vipu_server_timeout));
  if (options_.vipu_server_host.empty()) {
    log_.Info(absl::StrCat("V-IPU server address picked up from 'vipu': ", config.address()));
  }
  VPOD_RETURN_IF_ERROR(CheckServerForHosts());
  log_.Debug(absl::StrCat("Connecting to ", config.address()));
  const auto info = client_->ServerInfo();
  if (info.ok()) return absl::OkStatus();
  // The client's first sentence says the same as ours.
  absl::string_view why = info.status().message();
  absl::ConsumePrefix(
      &why, absl::StrCat("Cannot connect to the V-IPU server at ", config.address(), ". "));
  return absl::UnavailableError(
      absl::StrCat("cannot reach the V-IPU server at ", config.address(), ": ", why));
}

absl::Status JobPartition::CheckServerForHosts() const {
  const auto other = OtherHost(layout_);
  if (!other.has_value() || !IsLoopback(server().host)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the V-IPU server is at ", server().address(), ", which host ", *other,
                   " cannot reach; give --vipu-server-host an address of the network"));
}

absl::Status JobPartition::CheckDevicesForHosts() const {
  const auto other = OtherHost(layout_);
  if (!other.has_value()) return absl::OkStatus();
  VPOD_ASSIGN_OR_RETURN(const auto partition, client_->GetPartition(id_));
  std::set<std::string> seen;
  for (const vipuuser::PartitionConfig& gcd : partition.gcds()) {
    for (const vipuuser::IpuofDevice& device : gcd.devices()) {
      const std::string endpoint = device.endpoint().empty() ? device.ip() : device.endpoint();
      if (!seen.insert(endpoint).second || !IsLoopback(endpoint.substr(0, endpoint.rfind(':'))))
        continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "agent ", device.agent_id(), " of partition ", id_, " is at ", endpoint, ", which host ",
          *other, " cannot reach; start it on an address of the network"));
    }
  }
  return absl::OkStatus();
}

absl::Status JobPartition::FindId() {
  id_ = options_.vipu_partition;
  id_source_ = "--vipu-partition";
  if (id_.empty()) {
    id_source_ = "IPUOF_VIPU_API_PARTITION_ID";
    id_ = vipu::Environment(id_source_.c_str());
  }
  if (!id_.empty()) return absl::OkStatus();  // ParseOptions has checked it
  id_source_ = "";
  VPOD_ASSIGN_OR_RETURN(const auto partitions, client_->ListPartitions());
  if (partitions.empty()) {
    return absl::NotFoundError(
        "no V-IPU partition is visible; give --vipu-partition, and --vipu-allocation to create it");
  }
  if (partitions.size() > 1) {
    const auto name = [](std::string* out, const vipuuser::Partition& p) {
      out->append(p.requirements().id());
    };
    return absl::FailedPreconditionError(
        absl::StrCat(partitions.size(), " V-IPU partitions are visible (",
                     absl::StrJoin(partitions, ", ", name), "); choose one with --vipu-partition"));
  }
  id_ = partitions[0].requirements().id();
  log_.Info(absl::StrCat("Using V-IPU partition ", id_, " as it is the only one available"));
  return absl::OkStatus();
}

vipuuser::PartitionRequirements JobPartition::Wanted() const {
  vipuuser::PartitionRequirements wanted;
  wanted.set_id(id_);
  wanted.set_size(layout_.ipus());
  wanted.set_num_gcds(layout_.instances);
  wanted.set_num_replicas(layout_.replicas);
  wanted.set_reconfigurable(false);  // unset, an update would keep what there is
  wanted.set_num_ilds(options_.num_ilds.value_or(0));
  wanted.set_allocation_id(options_.vipu_allocation);
  wanted.set_cluster_id(options_.vipu_allocation.empty() ? options_.vipu_cluster : "");
  wanted.set_sync_type(options_.sync_type);
  return wanted;
}

absl::Status JobPartition::Create() {
  log_.Info(absl::StrCat("Partition ", id_, " does not exist, creating it with ",
                         base::Counted(layout_.ipus(), "IPU"), ", ",
                         base::Counted(layout_.instances, "GCD"), ", ",
                         base::Counted(layout_.replicas, "replica")));
  if (!options_.vipu_cluster.empty())
    log_.Warning("--vipu-cluster is deprecated, use --vipu-allocation");
  vipuuser::CreatePartitionRequest request;
  *request.mutable_requirements() = Wanted();
  const absl::Status status = client_->CreatePartition(request);
  if (!status.ok()) {
    return absl::Status(
        status.code(),
        absl::StrCat("partition ", id_,
                     id_source_.empty() ? "" : absl::StrCat(", which ", id_source_, " names,"),
                     " does not exist, and cannot be created: ", status.message()));
  }
  created_ = true;
  interruption_.SetLast(RemovalCommand());
  return Await();
}

std::optional<std::string> JobPartition::WhyUnfit(const vipuuser::Partition& partition) const {
  const vipuuser::PartitionRequirements& r = partition.requirements();
  const uint32_t ilds = partition.status().num_ilds(),
                 wanted_ilds = options_.num_ilds.value_or(r.reconfigurable() ? 1 : ilds);
  const bool size_fits =
      r.reconfigurable() ? r.size() >= layout_.ipus() : r.size() == layout_.ipus();
  if (!size_fits) {
    return absl::StrCat("partition ", id_, " has ", base::Counted(r.size(), "IPU"), ", but ",
                        base::Counted(layout_.replicas, "replica"), " x ",
                        base::Counted(layout_.ipus_per_replica, "IPU"), " need ", layout_.ipus());
  }
  if (r.reconfigurable() && r.num_gcds() != 1) {
    return absl::StrCat("partition ", id_, " is reconfigurable and has ", r.num_gcds(),
                        " GCDs, but the instances have to share one");
  }
  if (r.reconfigurable() ? (ilds == 1 && wanted_ilds == 1)
                         : (r.num_gcds() == layout_.instances &&
                            r.num_replicas() == layout_.replicas && ilds == wanted_ilds)) {
    return std::nullopt;
  }
  return absl::StrCat("partition ", id_, " has ", r.num_gcds(), " GCD(s), ", r.num_replicas(),
                      " replica(s), ", ilds, " ILD(s), but ", layout_.instances, " GCD(s), ",
                      layout_.replicas, " replica(s), ", wanted_ilds, " ILD(s) are needed");
}

absl::Status JobPartition::MakeItFit() {
  auto partition = client_->GetPartition(id_);
  if (absl::IsNotFound(partition.status())) {
    VPOD_RETURN_IF_ERROR(Create());
    size_ = layout_.ipus();
    return absl::OkStatus();
  }
  if (!partition.ok()) return partition.status();
  log_.Debug(
      absl::StrCat("Status for partition ", id_, ": OK (error ", partition->status().error(), ")"));
  log_.Info(absl::StrCat("Partition ", id_, " already exists and is in state: ",
                         vipuuser::PartitionState_Name(partition->status().state())));
  const auto unfit = WhyUnfit(*partition);
  if (unfit.has_value()) {
    if (!options_.update_partition) {
      return absl::FailedPreconditionError(
          absl::StrCat(*unfit, "; allow a change with --update-partition=yes"));
    }
    log_.Info(absl::StrCat("Updating partition ", id_, ": ", *unfit));
    vipuuser::UpdatePartitionRequest update;
    *update.mutable_requirements() = Wanted();
    const absl::Status status = client_->UpdatePartition(update);
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat("cannot update partition ", id_, ": ", status.message()));
    }
    VPOD_RETURN_IF_ERROR(Await());
    VPOD_ASSIGN_OR_RETURN(partition, client_->GetPartition(id_));
  } else if (options_.reset_partition.value_or(!partition->requirements().reconfigurable())) {
    log_.Info(absl::StrCat("Resetting partition ", id_));
    VPOD_RETURN_IF_ERROR(Reset());
    VPOD_RETURN_IF_ERROR(Await());
  } else if (partition->status().state() != vipuuser::PS_ACTIVE) {
    VPOD_RETURN_IF_ERROR(Await());
  }
  reconfigurable_ = partition->requirements().reconfigurable();
  size_ = partition->requirements().size();
  if (reconfigurable_) log_.Debug(absl::StrCat("The reconfigurable partition ", id_, " is OK"));
  return absl::OkStatus();
}

// It is refused while an agent of the partition is away. That one may come back: Await shows it.
absl::Status JobPartition::Reset() {
  const absl::Status status = client_->ResetPartition(id_);
  return absl::IsFailedPrecondition(status) ? absl::OkStatus() : status;
}

absl::Status JobPartition::Await() {
  const uint32_t attempts = options_.vipu_partition_attempts;
  for (uint32_t attempt = 1;; ++attempt) {
    const absl::Status status =
        client_->WaitUntilActive(id_, [] { return base::PendingEndSignal() != 0; });
    VPOD_ASSIGN_OR_RETURN(const auto final_status, client_->GetPartitionStatus(id_));
    const std::string state = vipuuser::PartitionState_Name(final_status.state());
    log_.Debug(absl::StrCat("Done polling, final state of ", id_, ": ", state));
    if (status.ok() || absl::IsCancelled(status)) return status;
    log_.Warning(absl::StrCat("Partition ", id_, " ended in state ", state, ", attempt ", attempt,
                              " of ", attempts));
    if (attempt == attempts) {
      return absl::FailedPreconditionError(absl::StrCat(
          "partition ", id_, " is in state ", state, " after ", attempts, " attempt(s)",
          final_status.message().empty() ? "" : ": ", final_status.message()));
    }
    VPOD_RETURN_IF_ERROR(Reset());
    AwaitSignal(kPauseBetweenAttempts);
    if (base::PendingEndSignal() != 0) return absl::CancelledError("interrupted");
  }
}

absl::Status JobPartition::ComputeTargetOptions() {
  std::map<std::string, std::string> from_environment;
  const std::string text = vipu::Environment("POPLAR_TARGET_OPTIONS");
  if (!text.empty()) {
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object())
      return absl::InvalidArgumentError("POPLAR_TARGET_OPTIONS must be a JSON object of strings");
    for (const auto& [key, value] : json.items()) {
      if (!value.is_string())
        return absl::InvalidArgumentError("POPLAR_TARGET_OPTIONS must be a JSON object of strings");
      from_environment[key] = value.get<std::string>();
    }
  }
  log_.Debug(absl::StrCat("Target options from environment: ", OptionsJson(from_environment)));
  log_.Debug(absl::StrCat("Target options from V-IPU partition: ", OptionsJson(vipu_options_)));
  std::map<std::string, std::string> merged = from_environment;
  merged.insert(vipu_options_.begin(), vipu_options_.end());
  target_options_ = OptionsJson(merged);
  return absl::OkStatus();
}

ipuof::LeaseOptions JobPartition::Reservation() {
  ipuof::LeaseOptions lease;
  lease.reserve_only = true;
  lease.job.set_job_id(job_id_);
  lease.job.set_num_instances(layout_.instances);
  lease.on_notice = [](const std::string&) {};
  lease.on_job_failed = [this](const ipuof::v1::JobFailed& failed) {
    base::MutexLock lock(mutex_);
    if (!failed.instance_lost()) {
      last_left_ = Clock::now();
    } else if (!lost_.has_value() && Clock::now() - last_left_ > kMpirunEndsOthers) {
      lost_ = LostInstance{failed.instance_index(), PidText(failed), failed.host()};
    }
  };
  lease.on_instance_stopped = [this](const ipuof::v1::InstanceStopped& event) {
    {
      base::MutexLock lock(mutex_);
      // Each agent at which the instance has a part says so.
      const bool news = event.goes_on() ? stopped_.erase(event.instance_index()) == 1
                                        : stopped_.insert(event.instance_index()).second;
      if (!news) return;
    }
    log_.Warning(absl::StrCat("Instance ", event.instance_index(), " (pid ", PidText(event), " on ",
                              event.host(),
                              event.goes_on() ? ") goes on" : ") is stopped (SIGSTOP)"));
  };
  lease.on_lost = [this](const absl::Status& why) {
    {
      base::MutexLock lock(mutex_);
      if (lost_device_.ok()) lost_device_ = why;
    }
    kill(getpid(), kDeviceLostSignal);  // for RunMpirun, which waits for signals
  };
  return lease;
}

absl::Status JobPartition::lost_device() {
  base::MutexLock lock(mutex_);
  return lost_device_;
}

absl::Status JobPartition::ReserveGcds() {
  for (uint32_t gcd = 0; gcd < layout_.instances; ++gcd) {
    VPOD_ASSIGN_OR_RETURN(auto config, client_->GetPartitionConfig(id_, static_cast<int>(gcd)));
    const vipu::ActivePartition active = vipu::Describe(std::move(config));
    const auto size = static_cast<uint32_t>(active.config.devices_size());
    ipuof::LeaseOptions lease = Reservation();
    VPOD_ASSIGN_OR_RETURN(lease.device_id, arch::DeviceOfIpus(size, {0, size}));
    auto attached = ipuof::Lease::AttachParts(active, lease);
    if (!attached.ok()) {
      return absl::Status(attached.status().code(),
                          absl::StrCat("cannot attach to GCD ", gcd, " of partition ", id_, ": ",
                                       attached.status().message()));
    }
    absl::c_move(*attached, std::back_inserter(reserved_));
  }
  return absl::OkStatus();
}

absl::Status JobPartition::ReserveParent() {
  const uint32_t needed = layout_.ipus();
  VPOD_ASSIGN_OR_RETURN(auto config, client_->GetPartitionConfig(id_, 0));
  const vipu::ActivePartition active = vipu::Describe(std::move(config));
  log_.Debug(absl::StrCat("Found ", size_ / needed, " devices with ", needed, " IPUs"));
  ipuof::LeaseOptions lease = Reservation();
  absl::Status refusal = absl::ResourceExhaustedError("no device");
  for (uint32_t first = 0; first + needed <= size_ && reserved_.empty(); first += needed) {
    VPOD_ASSIGN_OR_RETURN(lease.device_id, arch::DeviceOfIpus(size_, {first, needed}));
    auto attached = ipuof::Lease::AttachParts(active, lease);
    if (attached.ok()) {
      reserved_ = *std::move(attached);
    } else {
      refusal = attached.status();
      if (!absl::IsResourceExhausted(refusal)) break;
    }
  }
  if (reserved_.empty()) {
    return absl::Status(refusal.code(),
                        absl::StrCat("cannot attach to ", base::Counted(needed, "IPU"),
                                     " of partition ", id_, ": ", refusal.message()));
  }
  parent_device_ = lease.device_id;
  log_.Debug(absl::StrCat("Attached to device ", parent_device_));
  if (layout_.instances > 1) {
    log_.Debug(absl::StrCat("Found ", layout_.instances, " children (expected ", layout_.instances,
                            ") of device ", parent_device_, " with ", layout_.ipus_per_instance(),
                            " IPUs each"));
  }
  log_.Info(absl::StrCat("Preparing parent device ", parent_device_));
  std::map<std::string, std::string> device(reserved_[0]->attached().target_options().begin(),
                                            reserved_[0]->attached().target_options().end());
  device["instanceSize"] = absl::StrCat(layout_.ipus_per_instance());
  // A device of a mesh is wired by default, also where its partition has a sliding window.
  if (device["ipuLinkTopology"] == "mesh") device["ipuLinkConfiguration"] = "default";
  log_.Debug(absl::StrCat(
      "Device ", parent_device_, " ipuLinkDomainSize=", device["ipuLinkDomainSize"],
      ", ipuLinkConfiguration=", Capitalised(device["ipuLinkConfiguration"]),
      ", ipuLinkTopology=", Capitalised(device["ipuLinkTopology"]),
      ", gatewayMode=", device["gatewayMode"], ", instanceSize=", device["instanceSize"]));
  log_.Debug(absl::StrCat("Target options from Poplar device: ", OptionsJson(device)));
  return absl::OkStatus();
}

void JobPartition::TellEnded(const InstanceReport& report) {
  ipuof::v1::AttachInstanceEnded ended;
  ended.set_instance_index(static_cast<uint32_t>(report.instance));
  ended.mutable_process()->set_pid(static_cast<uint32_t>(report.pid));
  ended.mutable_process()->set_host(report.host);
  ended.mutable_process()->set_pid_namespace(report.pid_namespace);
  for (const auto& lease : reserved_) lease->TellInstanceEnded(ended);
}

std::optional<LostInstance> JobPartition::lost_instance() {
  base::MutexLock lock(mutex_);
  return lost_;
}

std::vector<std::string> JobPartition::RemovalCommand() const {
  if (!MustBeRemoved()) return {};
  return {"vipu",       "remove",      "partition",  id_,
          "--api-host", server().host, "--api-port", absl::StrCat(server().port)};
}

JobPartition::~JobPartition() {
  reserved_.clear();
  if (!MustBeRemoved()) return;
  log_.Info(absl::StrCat("Removing partition ", id_));
  const absl::Status status = client_->RemovePartition(id_);
  if (!status.ok()) {
    log_.Warning(
        absl::StrCat("Partition ", id_, " could not be removed: ", std::string(status.message())));
  }
}

}  // namespace vpod::launch
