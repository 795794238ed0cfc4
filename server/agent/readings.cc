// Readings for the exporter.
#include <algorithm>

#include "device/arch/device_id.h"
#include "server/agent/agent_state.h"
#include "server/agent/machine_reading.h"

namespace vpod::agent {

void Agent::SetAgentIds(std::map<std::string, std::string> id_by_host) {
  base::MutexLock lock(mutex_);
  agent_ids_ = std::move(id_by_host);
}

bool Agent::IsIdle(size_t machine) const {
  const auto first = partition_of_.begin() + static_cast<int64_t>(machine * arch::kIpusPerMachine);
  return std::all_of(first, first + arch::kIpusPerMachine,
                     [](const std::string& partition) { return partition.empty(); });
}

std::vector<MachineReading> Agent::ReadMachines() {
  std::vector<MachineReading> readings;
  std::vector<machine::Machine*> machines;
  {
    base::MutexLock lock(mutex_);
    for (size_t m = 0; m < machines_.size(); ++m) {
      if (machines_.size() > kMachinesReadWhole && IsIdle(m)) continue;
      machines.push_back(machines_[m].get());
      MachineReading& reading = readings.emplace_back();
      const std::string& host = machines_[m]->identity().management_ip;
      const auto id = agent_ids_.find(host);
      reading.agent = id == agent_ids_.end() ? host : id->second;
      for (uint32_t number = 0; number < arch::kIpusPerMachine; ++number) {
        const size_t index = m * arch::kIpusPerMachine + number;
        IpuReading& ipu = reading.ipus[number];
        ipu.partition = partition_of_[index];
        const auto partition = partitions_.find(ipu.partition);
        if (partition != partitions_.end()) ipu.user = partition->second->spec.owner();
        const LeasePtr& holder = owners_[index].holder;
        ipu.attached = holder != nullptr && !holder->releasing;
      }
    }
  }
  // Sensors are read without the mutex, so that attaching does not wait for them.
  for (size_t i = 0; i < readings.size(); ++i) ReadHardware(*machines[i], readings[i]);
  return readings;
}

void Agent::ReadHardware(machine::Machine& machine, MachineReading& reading) const {
  const ipu::WallClock::time_point now = ipu::WallClock::now();
  for (uint32_t number = 0; number < arch::kIpusPerMachine; ++number) {
    machine::Ipu& source = machine.ipu(number);
    IpuReading& ipu = reading.ipus[number];
    ipu.serial = arch::BoardSerial(machine.identity().index, number);
    ipu.error = !source.faults.Read().usable();
    ipu.parity_errors = source.faults.parity_errors();
    ipu.sensors = machine.ReadSensors(number, now);
    ipu.host_rx_bytes = source.host_rx_bytes;
    ipu.host_tx_bytes = source.host_tx_bytes;
  }
  if (machines_.size() > kMachinesReadWhole && !machine.links().touched()) return;
  for (uint32_t port = 0; port < arch::kPortsPerMachine; ++port)
    reading.links.push_back(machine.links().Read(port));
}

}  // namespace vpod::agent
