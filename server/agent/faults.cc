// Faults on demand: of links and IPUs, errors that programs ask for, and a process that does not
// answer. They are set here, and heeded before programs are loaded and run.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/arch/soc_error.h"
#include "device/base/status.h"
#include "server/agent/agent_state.h"

namespace vpod::agent {
namespace {

constexpr double kLongestHangSeconds = 3600;

// Returns the effect of a fault that breaks a link, as the end of a sentence about the link.
absl::string_view WhatIsWrong(const machine::LinkFault& fault) {
  if (fault.down) return "is down";
  return fault.swapped ? "has its cable in the neighbouring port" : "corrupts data";
}

absl::Status BrokenLink(const machine::Machine& machine, uint32_t port,
                        const machine::LinkFault& fault) {
  return absl::DataLossError(
      absl::StrCat("[Recovery action: PARTITION_RESET] ",
                   arch::LinkKindName(arch::KindOfPort(port)), " ", arch::PortName(port),
                   " of machine ", machine.identity().management_ip, " ", WhatIsWrong(fault)));
}

std::string ProcessKey(const ipuof::v1::ProcessInfo& process) {
  return absl::StrCat(process.host(), " ", process.pid(), " ", process.start_time_unix());
}

}  // namespace

absl::StatusOr<uint32_t> Agent::FindMachine(const std::string& host) const {
  const auto it = machine_by_host_.find(host);
  if (it == machine_by_host_.end())
    return absl::NotFoundError(absl::StrCat("machine ", host, " is not on this agent"));
  return static_cast<uint32_t>(it->second);
}

absl::Status Agent::Inject(const vipuagent::InjectRequest& request) {
  VPOD_ASSIGN_OR_RETURN(const uint32_t machine, FindMachine(request.host()));
  switch (request.fault()) {
    case vipuagent::FAULT_NONE:
      if (!request.link().empty()) return InjectOnLink(machine, request);
      machines_[machine]->links().ClearAllFaults();
      for (uint32_t ipu = 0; ipu < arch::kIpusPerMachine; ++ipu)
        machines_[machine]->ipu(ipu).faults.Reset(/*initialise_parity=*/true);
      return absl::OkStatus();
    case vipuagent::LINK_DOWN:
    case vipuagent::LINK_ERRORS:
    case vipuagent::LINK_CORRUPTS:
    case vipuagent::CABLE_SWAPPED:
      return InjectOnLink(machine, request);
    case vipuagent::IPU_ERROR:
    case vipuagent::OVER_TEMPERATURE:
    case vipuagent::MEMORY_PARITY:
      return InjectOnIpu(machine, request);
    case vipuagent::AGENT_HANG:
      if (!(request.seconds() > 0 && request.seconds() <= kLongestHangSeconds)) {
        return absl::InvalidArgumentError(absl::StrCat("seconds is ", request.seconds(),
                                                       ", must be above 0 and at most ",
                                                       kLongestHangSeconds));
      }
      gate_.Close(HangGate::Clock::now() + std::chrono::duration_cast<HangGate::Clock::duration>(
                                               std::chrono::duration<double>(request.seconds())));
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(absl::StrCat("fault ", request.fault(), " does not exist"));
  }
}

absl::Status Agent::InjectOnLink(uint32_t index, const vipuagent::InjectRequest& request) {
  machine::Machine& machine = *machines_[index];
  VPOD_ASSIGN_OR_RETURN(const uint32_t port, arch::FindPort(request.link()));
  machine::LinkFault fault;
  if (request.fault() == vipuagent::LINK_ERRORS) {
    fault.correctable_errors_per_gb = request.rate();
    if (!(request.rate() > 0) || !std::isfinite(request.rate())) {
      return absl::InvalidArgumentError(
          absl::StrCat("rate is ", request.rate(), ", must be a number above 0 of errors per GB"));
    }
  }
  fault.down = request.fault() == vipuagent::LINK_DOWN;
  fault.corrupts = request.fault() == vipuagent::LINK_CORRUPTS;
  fault.swapped = request.fault() == vipuagent::CABLE_SWAPPED;
  if (fault.swapped && !arch::IsCablePort(port)) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.link(), " is a connection inside the machine, not a cable"));
  }
  machine.links().SetFault(port, fault);
  {
    base::MutexLock lock(mutex_);
    MarkFaulty(index);
  }
  if (!fault.breaks()) return absl::OkStatus();
  FailJobs([&](const Lease& lease) {
    const auto uses = [&](const MachineTraffic& traffic) {
      if (traffic.machine != index) return false;
      for (const machine::PortBytes& each : traffic.ports) {
        if (each.port == port) return true;
      }
      return false;
    };
    if (lease.loaded == nullptr) return absl::OkStatus();
    for (const auto& program : lease.loaded->traffic) {
      for (const MachineTraffic& traffic : program) {
        if (uses(traffic)) return BrokenLink(machine, port, fault);
      }
    }
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status Agent::InjectOnIpu(uint32_t machine, const vipuagent::InjectRequest& request) {
  if (request.pcie_id() >= arch::kIpusPerMachine) {
    return absl::InvalidArgumentError(
        absl::StrCat("IPU ", request.pcie_id(), " does not exist; a machine has 0 to 3"));
  }
  const uint32_t ipu = machine * arch::kIpusPerMachine + request.pcie_id();
  switch (request.fault()) {
    case vipuagent::IPU_ERROR:
      VPOD_RETURN_IF_ERROR(arch::CheckSocError("error", request.error()));
      IpuAt(ipu).faults.SetError(request.error(), /*simulated=*/false);
      break;
    case vipuagent::OVER_TEMPERATURE:
      IpuAt(ipu).faults.SetOverTemperature();
      break;
    default:
      IpuAt(ipu).faults.SetParityError();
  }
  absl::Status cause;
  {
    base::MutexLock lock(mutex_);
    MarkFaulty(machine);
    cause = IpuStatus(ipu);
  }
  if (cause.ok()) return absl::OkStatus();  // too hot: slow, but programs go on
  FailJobs([&](const Lease& lease) {
    for (uint32_t used : lease.unit_ipus) {
      if (used == ipu) return cause;
    }
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

void Agent::FailJobs(const std::function<absl::Status(const Lease&)>& hit) {
  std::vector<std::pair<std::shared_ptr<fabric::Job>, absl::Status>> failing;
  {
    base::MutexLock lock(mutex_);
    for (const auto& [id, lease] : leases_) {
      if (lease->job == nullptr || lease->releasing) continue;
      if (absl::Status cause = hit(*lease); !cause.ok())
        failing.emplace_back(lease->job, std::move(cause));
    }
  }
  for (const auto& [job, cause] : failing) job->Fail(cause);
}

absl::Status Agent::ResetMachine(const std::string& host) {
  VPOD_ASSIGN_OR_RETURN(const uint32_t machine, FindMachine(host));
  const std::string reason = absl::StrCat("machine ", host, " was reset");
  std::vector<std::pair<LeasePtr, std::string>> ending;
  {
    base::MutexLock lock(mutex_);
    for (const auto& [id, lease] : leases_) {
      for (uint32_t ipu : lease->ipus) {
        if (ipu / arch::kIpusPerMachine != machine) continue;
        ending.emplace_back(lease, reason);
        break;
      }
    }
    for (uint32_t i = 0; i < arch::kIpusPerMachine; ++i)
      ClearIpu(machine * arch::kIpusPerMachine + i, /*initialise_parity=*/true);
    faulty_.erase(machine);
  }
  Revoke(ending);
  machines_[machine]->Reset();
  // Why an IPU of the machine is not free, or nothing.
  const auto still_runs = [&]() -> std::string {
    for (uint32_t i = 0; i < arch::kIpusPerMachine; ++i) {
      const LeasePtr& holder = owners_[machine * arch::kIpusPerMachine + i].holder;
      if (holder != nullptr && holder->releasing)
        return absl::StrCat("IPU ", i, " is RELEASING: ", WhyReleasing(*holder));
    }
    return "";
  };
  base::MutexLock lock(mutex_);
  lock.WaitUntil(released_, std::chrono::steady_clock::now() + options_.reset_patience,
                 [&] { return still_runs().empty(); });
  const std::string why = still_runs();
  return why.empty() ? absl::OkStatus() : absl::FailedPreconditionError(why);
}

std::vector<vipuagent::MachineHealth> Agent::Unwell() {
  std::vector<vipuagent::MachineHealth> unwell;
  base::MutexLock lock(mutex_);
  for (auto it = faulty_.begin(); it != faulty_.end();) {
    machine::Machine& machine = *machines_[*it];
    vipuagent::MachineHealth health;
    health.set_host(machine.identity().management_ip);
    bool faulty = false;  // somehow, be it in a way that partitions survive
    for (uint32_t ipu = 0; ipu < arch::kIpusPerMachine; ++ipu) {
      const ipu::FaultState faults = machine.ipu(ipu).faults.Read();
      faulty = faulty || !faults.usable() || faults.over_temperature;
      if (!faults.error.empty() && !faults.simulated) health.add_failed_ipus(ipu);
      if (faults.parity_error) health.add_parity_ipus(ipu);
    }
    for (uint32_t port = 0; port < arch::kPortsPerMachine; ++port) {
      const machine::LinkFault fault = machine.links().Read(port).fault;
      faulty = faulty || fault.breaks() || fault.correctable_errors_per_gb > 0;
      if (fault.breaks())
        health.add_failed_links(absl::StrCat(arch::PortName(port), " ", WhatIsWrong(fault)));
    }
    if (health.failed_ipus_size() + health.failed_links_size() + health.parity_ipus_size() > 0)
      unwell.push_back(std::move(health));
    it = faulty ? std::next(it) : faulty_.erase(it);
  }
  any_faulty_ = !faulty_.empty();
  for (vipuagent::Holding& holding : Holdings(/*unclaimed_only=*/true)) {
    auto machine = std::find_if(unwell.begin(), unwell.end(), [&](const auto& health) {
      return health.host() == holding.host();
    });
    if (machine == unwell.end()) {
      machine = unwell.emplace(unwell.end());
      machine->set_host(holding.host());
    }
    *machine->add_unclaimed() = std::move(holding);
  }
  return unwell;
}

void Agent::MarkFaulty(uint32_t machine) {
  faulty_.insert(machine);
  any_faulty_ = true;
}

absl::Status Agent::IpuStatus(uint32_t ipu) {
  const ipu::FaultState faults = IpuAt(ipu).faults.Read();
  if (faults.usable()) return absl::OkStatus();
  const uint32_t number = ipu % arch::kIpusPerMachine;
  // Users know an IPU by its device id, which is its routing id.
  uint32_t id = number;
  if (const auto partition = partitions_.find(partition_of_[ipu]); partition != partitions_.end()) {
    for (const auto& gcd : partition->second->gcds) {
      for (const Member& member : gcd) {
        if (member.ipu == ipu) id = member.routing_id;
      }
    }
  }
  if (faults.parity_error) {
    return absl::FailedPreconditionError(
        absl::StrCat("Device ", id,
                     " needs a parity init. Cannot load binary. Please run 'gc-reset "
                     "-p -d ",
                     id, "'."));
  }
  return absl::DataLossError(absl::StrCat(
      "[Recovery action: IPU_RESET] CIUERRVR.", faults.error, " error on IPU ", id, " (machine ",
      machines_[ipu / arch::kIpusPerMachine]->identity().management_ip, ", IPU# ", number, ")"));
}

absl::Status Agent::LinkStatus(const Loaded& loaded) const {
  for (const auto& program : loaded.traffic) {
    for (const MachineTraffic& traffic : program) {
      for (const machine::PortBytes& each : traffic.ports) {
        const machine::LinkFault fault = machines_[traffic.machine]->links().Read(each.port).fault;
        if (fault.breaks()) return BrokenLink(*machines_[traffic.machine], each.port, fault);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Agent::BeforeLoad(const Lease& lease) {
  if (!any_faulty_) return absl::OkStatus();
  base::MutexLock lock(mutex_);
  for (uint32_t ipu : lease.unit_ipus) VPOD_RETURN_IF_ERROR(IpuStatus(ipu));
  return absl::OkStatus();
}

absl::Status Agent::BeforeRun(Lease& lease, const Loaded& loaded) {
  if (lease.open.simulated_error().errors_size() > 0) {
    base::MutexLock lock(mutex_);
    RaiseSimulatedError(lease);
  }
  if (!any_faulty_) return absl::OkStatus();
  VPOD_RETURN_IF_ERROR(BeforeLoad(lease));
  return LinkStatus(loaded);
}

void Agent::RaiseSimulatedError(Lease& lease) {
  const ipuof::v1::SimulatedSocError& wanted = lease.open.simulated_error();
  // If a device has several parts, the process of its first IPU raises it.
  if (lease.units.front() != 0 || ++lease.runs != std::max(1u, wanted.trigger_count())) return;
  const uint32_t ipu = lease.unit_ipus.front();
  const std::string process = ProcessKey(lease.open.process());
  SimulatedError& before = simulated_[ipu];
  if (before.process == process) return;  // once, unless a reset armed it again
  before = {process, wanted.rearm_on_reset()};
  IpuAt(ipu).faults.SetError(absl::StrJoin(wanted.errors(), ","), /*simulated=*/true);
  MarkFaulty(ipu / arch::kIpusPerMachine);
}

void Agent::ClearIpu(uint32_t ipu, bool initialise_parity) {
  IpuAt(ipu).faults.Reset(initialise_parity);
  machines_[ipu / arch::kIpusPerMachine]->links().ClearFaults(ipu % arch::kIpusPerMachine);
  const auto simulated = simulated_.find(ipu);
  if (simulated != simulated_.end() && simulated->second.rearm_on_reset)
    simulated_.erase(simulated);
}

std::set<uint32_t> Agent::IpusHere(const Partition& partition) {
  std::set<uint32_t> ipus;
  for (const auto& gcd : partition.gcds) {
    for (const Member& member : gcd) {
      if (member.here()) ipus.insert(member.ipu);
    }
  }
  return ipus;
}

void Agent::EndSimulatedErrors(const Partition& before, const Partition* after) {
  if (simulated_.empty()) return;  // as nearly always
  const std::set<uint32_t> kept = after == nullptr ? std::set<uint32_t>() : IpusHere(*after);
  for (uint32_t ipu : IpusHere(before)) {
    if (kept.contains(ipu)) continue;
    IpuAt(ipu).faults.EndSimulatedError();
    simulated_.erase(ipu);
  }
}

void Agent::ClearIpus(const Partition& before, const Partition& after) {
  std::map<uint32_t, uint32_t> cleared;  // IPUs by machine
  const std::set<uint32_t> kept = IpusHere(after);
  for (uint32_t ipu : IpusHere(before)) {
    const LeasePtr& holder = owners_[ipu].holder;
    if (!kept.contains(ipu) || (holder != nullptr && holder->unclaimed != nullptr)) continue;
    ClearIpu(ipu, /*initialise_parity=*/true);
    ++cleared[ipu / arch::kIpusPerMachine];
  }
  // SYNC and GW-Links serve all IPUs of a machine: others may use them unless all are the
  // partition's.
  for (const auto& [machine, ipus] : cleared) {
    if (ipus == arch::kIpusPerMachine) machines_[machine]->links().ClearSharedFaults();
  }
}

}  // namespace vpod::agent
