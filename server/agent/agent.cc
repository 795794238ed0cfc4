// Life of the agent, and what monitors see.
#include "server/agent/agent.h"

#include <arpa/inet.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "device/base/counted.h"
#include "device/base/device_use.h"
#include "device/base/sha256.h"
#include "device/base/status.h"
#include "server/agent/admission.h"
#include "server/agent/agent_state.h"

namespace vpod::agent {
namespace {

std::string MachineAddress(const std::string& prefix, uint32_t index) {
  const uint32_t number = index + 1;
  return absl::StrCat(prefix, ".", number / 256, ".", number % 256);
}

// For a machine that has no number in a POD: different for all hosts of a /13 network, and small
// enough for serial numbers.
uint32_t NumberOfHost(const std::string& host) {
  constexpr uint32_t kBits = 19;
  in_addr address;
  if (inet_pton(AF_INET, host.c_str(), &address) == 1) return ntohl(address.s_addr) % (1u << kBits);
  return static_cast<uint32_t>(std::stoul(base::Sha256Hex(host).substr(0, 7), nullptr, 16)) %
         (1u << kBits);
}

// "pod-native-default" from "ST_POD_NATIVE_DEFAULT", as the attribute shows it.
std::string SyncTypeText(absl::string_view name) {
  return absl::AsciiStrToLower(absl::StrReplaceAll(name, {{"ST_", ""}, {"_", "-"}}));
}

}  // namespace

Agent::Agent(const AgentOptions& options, arch::MachineType type)
    : options_(options),
      type_(type),
      budget_(options.memory_limit_bytes),
      executors_(options.compute_threads) {
  for (uint32_t i = 0; i < options.num_machines; ++i) {
    const uint32_t number = options.first_machine.value_or(0) + i;
    machine::Identity identity{number, MachineAddress(options.management_prefix, number), 8080,
                               MachineAddress(options.data_prefix, number)};
    if (!options.management_ip.empty()) {
      identity.management_ip = options.management_ip;
      if (!options.first_machine.has_value()) identity.index = NumberOfHost(options.management_ip);
    }
    if (!options.data_ip.empty()) identity.data_ip = options.data_ip;
    machine_by_host_[identity.management_ip] = i;
    machines_.push_back(std::make_unique<machine::Machine>(std::move(identity), type));
  }
  owners_.resize(size_t{options.num_machines} * arch::kIpusPerMachine);
  partition_of_.resize(owners_.size());
  ticker_ = executors_.Every(std::chrono::milliseconds(250), [this] { Tick(); });
}

absl::StatusOr<std::unique_ptr<Agent>> Agent::Create(const AgentOptions& options) {
  VPOD_ASSIGN_OR_RETURN(const arch::MachineType type, arch::FindMachineType(options.machine_type));
  if (options.num_machines < 1 || options.num_machines > kMostMachines ||
      options.first_machine.value_or(0) > kMostMachines - options.num_machines) {
    return absl::InvalidArgumentError(
        absl::StrCat(base::Counted(options.num_machines, "machine"), " from number ",
                     options.first_machine.value_or(0), " asked for; a POD has machines 0 to ",
                     kMostMachines - 1, " and an agent at least one"));
  }
  if (options.num_machines > 1 && !(options.management_ip + options.data_ip).empty()) {
    return absl::InvalidArgumentError("--host needs --machines 1");
  }
  return std::unique_ptr<Agent>(new Agent(options, type));
}

Agent::~Agent() { Stop(); }

void Agent::Stop() {
  gate_.OpenForEver();
  std::vector<std::shared_ptr<fabric::Job>> jobs;
  {
    base::MutexLock lock(mutex_);
    for (const auto& [key, job] : jobs_) jobs.push_back(job);
  }
  const absl::Status cause = absl::UnavailableError("the agent is shutting down");
  for (const auto& job : jobs) job->Fail(cause);  // also cancels the engines
  executors_.Stop();
  ticker_.reset();
}

machine::Ipu& Agent::IpuAt(uint32_t index) {
  return machines_[index / arch::kIpusPerMachine]->ipu(index % arch::kIpusPerMachine);
}

std::vector<vipuagent::Machine> Agent::DescribeMachines() const {
  std::vector<vipuagent::Machine> result;
  for (const auto& machine : machines_) {
    vipuagent::Machine description;
    description.set_host(machine->identity().management_ip);
    description.set_port(machine->identity().management_port);
    description.set_data_ip(machine->identity().data_ip);
    description.set_board_type(std::string(type_.board_type));
    description.set_clock(arch::ClockText(type_));
    result.push_back(std::move(description));
  }
  return result;
}

absl::StatusOr<vipuagent::DescribeMachineReply> Agent::DescribeMachine(const std::string& host) {
  const auto it = machine_by_host_.find(host);
  if (it == machine_by_host_.end())
    return absl::NotFoundError(absl::StrCat("machine ", host, " is not on this agent"));
  machine::Machine& machine = *machines_[it->second];
  vipuagent::DescribeMachineReply reply;
  for (const auto& [key, value] : machine.Facts()) (*reply.mutable_facts())[key] = value;
  for (uint32_t number = 0; number < arch::kIpusPerMachine; ++number) {
    vipuagent::MachineIpu* ipu = reply.add_ipus();
    ipu->set_pcie_id(number);
    ipu->set_pci(absl::StrCat("0000:", number + 1, "a:00.0"));
    ipu->set_firmware(machine::kFirmwareVersion);
    ipu->set_architecture(std::string(type_.ipu_name));
    ipu->set_num_tiles(arch::kTilesPerIpu);
    ipu->set_clock(arch::ClockText(type_));
    for (const auto& [key, value] : machine.Attributes(number, nullptr, nullptr))
      (*ipu->mutable_attributes())[key] = value;
  }
  return reply;
}

const Agent::Partition* Agent::PartitionOf(const Lease& lease) const {
  if (lease.unclaimed != nullptr) return lease.unclaimed.get();
  const auto it = partitions_.find(lease.open.partition_id());
  return it == partitions_.end() ? nullptr : it->second.get();
}

std::vector<vipuagent::Holding> Agent::Holdings(bool unclaimed_only) const {
  std::vector<vipuagent::Holding> holdings;
  std::set<uint32_t> seen;  // an IPU may be reserved and used
  for (const auto& [id, lease] : leases_) {
    if (lease->releasing || (unclaimed_only && lease->unclaimed == nullptr)) continue;
    const ipuof::v1::ProcessInfo& process = lease->open.process();
    for (const uint32_t ipu : lease->ipus) {
      if (!seen.insert(ipu).second) continue;
      vipuagent::Holding& holding = holdings.emplace_back();
      holding.set_host(machines_[ipu / arch::kIpusPerMachine]->identity().management_ip);
      holding.set_pcie_id(ipu % arch::kIpusPerMachine);
      holding.set_partition_id(lease->open.partition_id());
      holding.set_config_generation(lease->open.generation());
      holding.set_holder(absl::StrCat(ProcessName(process), " (", process.executable(), " of ",
                                      lease->UserName(), ")"));
    }
  }
  return holdings;
}

void Agent::DescribeState(vipuagent::RegisterRequest& request) {
  base::MutexLock lock(mutex_);
  request.clear_held();
  for (vipuagent::Holding& holding : Holdings(/*unclaimed_only=*/false))
    *request.add_held() = std::move(holding);
  request.set_controller_epoch(controller_epoch_);
  request.set_controller_boot_id(controller_boot_id_);
  request.set_controller_store(controller_store_);
  request.set_controller_proof(controller_proof_);
}

vipuagent::LaterController Agent::DescribeController() {
  base::MutexLock lock(mutex_);
  vipuagent::LaterController controller;
  controller.set_epoch(controller_epoch_);
  controller.set_boot_id(controller_boot_id_);
  controller.set_proof(controller_proof_);
  return controller;
}

absl::StatusOr<telemetry::v1::GetPartitionTelemetryReply> Agent::GetTelemetry(
    absl::string_view partition_id) {
  telemetry::v1::GetPartitionTelemetryReply reply;
  base::MutexLock lock(mutex_);
  const auto it = partitions_.find(std::string(partition_id));
  if (it == partitions_.end()) {
    return absl::NotFoundError(absl::StrCat("partition ", partition_id, " is not on this agent"));
  }
  const vipuagent::AgentPartition& spec = it->second->spec;
  for (const auto& gcd : it->second->gcds) {
    for (const Member& member : gcd) {
      if (!member.here()) continue;
      const Owner& owner = owners_[member.ipu];
      telemetry::v1::IpuTelemetry* ipu = reply.add_ipus();
      ipu->set_gcd_id(member.gcd);
      ipu->set_routing_id(member.routing_id);
      machine::Machine& machine = *machines_[member.ipu / arch::kIpusPerMachine];
      const machine::PartitionFacts facts{spec.id(),
                                          member.routing_id,
                                          spec.ild_routing(),
                                          spec.num_replicas(),
                                          SyncTypeText(spec.sync_type()),
                                          spec.reconfigurable()};
      std::optional<machine::Holder> holder;
      if (owner.holder != nullptr && owner.holder->releasing) {
        *ipu->mutable_process() = owner.holder->open.process();
        ipu->set_releasing(WhyReleasing(*owner.holder));
      } else if (owner.holder != nullptr) {
        const ipuof::v1::ProcessInfo& process = owner.holder->open.process();
        holder = {process.executable(),
                  process.user(),
                  process.pid(),
                  process.start_time_unix(),
                  owner.holder->open.monitoring(),
                  owner.holder->open.measure_utilisation()};
        ipu->set_attached(true);
        *ipu->mutable_process() = process;
      }
      for (const auto& [key, value] : machine.Attributes(member.ipu % arch::kIpusPerMachine, &facts,
                                                         holder.has_value() ? &*holder : nullptr)) {
        (*ipu->mutable_attributes())[key] = value;
      }
      if (!holder.has_value()) {
        for (const auto& [key, value] :
             machine.SensorAttributes(member.ipu % arch::kIpusPerMachine)) {
          (*ipu->mutable_idle_sensors())[key] = value;
        }
      }
      ipu->set_cycles(machine.ipu(member.ipu % arch::kIpusPerMachine).cycles.load());
    }
  }
  return reply;
}

absl::Status Agent::ResetDevice(absl::string_view partition_id, absl::string_view fabric_key,
                                uint32_t gcd, uint32_t device_id, bool initialise_parity) {
  base::MutexLock lock(mutex_);
  const Partition* partition = nullptr;
  VPOD_ASSIGN_OR_RETURN(const auto members, FindIpus(partition_id, gcd, device_id, &partition));
  VPOD_RETURN_IF_ERROR(Admit(partition->spec, fabric_key, false, endpoint_).status());
  for (const Member& member : members) {
    if (!member.here()) continue;
    const Owner& owner = owners_[member.ipu];
    for (const LeasePtr& lease : {owner.holder, owner.reserver}) {
      if (lease == nullptr) continue;
      if (lease->releasing) {
        return absl::FailedPreconditionError(
            absl::StrCat("device ", device_id, " is RELEASING: ", WhyReleasing(*lease)));
      }
      return absl::FailedPreconditionError(
          base::DeviceInUse(UseOf(*lease, device_id, base::PidNamespace())));
    }
  }
  for (const Member& member : members) {
    if (!member.here()) continue;
    IpuAt(member.ipu).cycles = 0;
    ClearIpu(member.ipu, initialise_parity);
  }
  return absl::OkStatus();
}

void Agent::Tick() {
  const fabric::Job::Clock::time_point now = fabric::Job::Clock::now();
  const bool hangs = gate_.closed();
  gate_.Tick(now);
  std::map<std::shared_ptr<fabric::Job>, std::chrono::seconds> jobs;
  std::vector<std::weak_ptr<RemotePart>> parts;
  std::vector<LeasePtr> unbound;
  {
    base::MutexLock lock(mutex_);
    parts = remote_parts_;
    for (const auto& [key, job] : jobs_) jobs[job] = std::chrono::seconds(120);
    for (const auto& [id, lease] : leases_) {
      if (lease->binds_until.has_value() && now > *lease->binds_until) unbound.push_back(lease);
      const uint32_t timeout = lease->open.job().join_timeout_seconds();
      if (lease->job != nullptr && timeout > 0) jobs[lease->job] = std::chrono::seconds(timeout);
    }
  }
  for (const LeasePtr& lease : unbound) SetBound(lease);
  for (const auto& [job, timeout] : jobs) job->Tick(now, options_.wait_patience, timeout);
  TellOfStopped(now);
  RefuseLateAttaches(now);
  for (const auto& weak : parts) {
    const auto part = weak.lock();
    if (part == nullptr) continue;
    if (hangs) part->Heard(now);
    part->Tick(now, options_.peer_patience);
  }
}

}  // namespace vpod::agent
