#include "server/http/machine_exporter.h"

#include "device/arch/topology.h"
#include "server/http/exporter.h"
#include "server/http/families.h"

namespace vpod::http {
namespace {

constexpr absl::string_view kNumbers[arch::kIpusPerMachine] = {"0", "1", "2", "3"};

// A family with one sample an IPU, without labels of its own.
template <class Value>
void WriteIpus(const std::vector<agent::MachineReading>& machines, const Family& family,
               const Value& value, Exposition& out) {
  out.Begin(family);
  for (const agent::MachineReading& machine : machines) {
    for (uint32_t number = 0; number < arch::kIpusPerMachine; ++number) {
      const agent::IpuReading& ipu = machine.ipus[number];
      out.Add({machine.agent, kNumbers[number], ipu.partition, ipu.user},
              static_cast<double>(value(ipu)));
    }
  }
}

// A family with one sample an IPU-Link port.
template <class Value>
void WriteIpuLinks(const std::vector<agent::MachineReading>& machines, const Family& family,
                   const Value& value, Exposition& out) {
  out.Begin(family);
  for (const agent::MachineReading& machine : machines) {
    for (uint32_t port = 0; port < arch::kFirstSyncPort && port < machine.links.size(); ++port) {
      const uint32_t number = port / arch::kLinksPerIpu;
      const agent::IpuReading& ipu = machine.ipus[number];
      out.Add({machine.agent, kNumbers[number], ipu.partition, ipu.user, arch::PortName(port)},
              static_cast<double>(value(machine.links[port])));
    }
  }
}

// A family with one sample a GW-Link port.
template <class Value>
void WriteGwLinks(const std::vector<agent::MachineReading>& machines, const Family& family,
                  const Value& value, Exposition& out) {
  out.Begin(family);
  for (const agent::MachineReading& machine : machines) {
    if (machine.links.empty()) continue;
    const machine::LinkReading* gw = &machine.links[arch::kFirstGwPort];
    out.Add({machine.agent, "east"}, static_cast<double>(value(gw[0])));
    out.Add({machine.agent, "west"}, static_cast<double>(value(gw[1])));
  }
}

void WriteLinks(const std::vector<agent::MachineReading>& machines, Exposition& out) {
  using machine::LinkReading;
  const auto up = [](const LinkReading& link) { return !link.fault.down && !link.fault.swapped; };
  const auto tx = [](const LinkReading& link) { return link.counters.tx_bytes; };
  const auto rx = [](const LinkReading& link) { return link.counters.rx_bytes; };
  const auto correctable = [](const LinkReading& link) { return link.counters.correctable_errors; };
  const auto uncorrectable = [](const LinkReading& link) {
    return link.counters.uncorrectable_errors;
  };
  WriteIpuLinks(machines, kIpuLinkUp, up, out);
  WriteIpuLinks(machines, kIpuLinkTx, tx, out);
  WriteIpuLinks(machines, kIpuLinkRx, rx, out);
  WriteIpuLinks(machines, kIpuLinkCorrectable, correctable, out);
  WriteIpuLinks(machines, kIpuLinkUncorrectable, uncorrectable, out);
  WriteGwLinks(machines, kGwLinkUp, up, out);
  WriteGwLinks(machines, kGwLinkTx, tx, out);
  WriteGwLinks(machines, kGwLinkRx, rx, out);
  WriteGwLinks(
      machines, kGwLinkErrors,
      [&](const LinkReading& link) { return correctable(link) + uncorrectable(link); }, out);
}

}  // namespace

std::string WriteMachineMetrics(const std::vector<agent::MachineReading>& machines,
                                const arch::MachineType& type, Format format) {
  using agent::IpuReading;
  Exposition out(format);
  out.Begin(kIpuInfo);
  for (const agent::MachineReading& machine : machines) {
    for (uint32_t number = 0; number < arch::kIpusPerMachine; ++number) {
      const IpuReading& ipu = machine.ipus[number];
      out.Add({machine.agent, kNumbers[number], ipu.partition, ipu.user, type.ipu_name,
               type.board_type, machine::kFirmwareVersion, ipu.serial},
              1);
    }
  }
  const auto write = [&](const Family& family, const auto& value) {
    WriteIpus(machines, family, value, out);
  };
  write(kIpuUtilisation, [](const IpuReading& ipu) { return ipu.sensors.utilisation; });
  write(kIpuDieTemperature, [](const IpuReading& ipu) { return ipu.sensors.die_celsius; });
  write(kIpuBoardTemperature, [](const IpuReading& ipu) { return ipu.sensors.board_celsius; });
  write(kIpuPower, [](const IpuReading& ipu) { return ipu.sensors.power_watts; });
  write(kIpuClock, [](const IpuReading& ipu) { return ipu.sensors.clock_hz; });
  write(kIpuAttached, [](const IpuReading& ipu) { return ipu.attached; });
  write(kIpuErrorState, [](const IpuReading& ipu) { return ipu.error; });
  write(kIpuParityErrors, [](const IpuReading& ipu) { return ipu.parity_errors; });
  write(kHostLinkTx, [](const IpuReading& ipu) { return ipu.host_tx_bytes; });
  write(kHostLinkRx, [](const IpuReading& ipu) { return ipu.host_rx_bytes; });
  write(kHostLinkErrors, [](const IpuReading&) { return 0; });
  WriteLinks(machines, out);
  out.Begin(kMachinePower);
  for (const agent::MachineReading& machine : machines) {
    double watts = arch::kMachineBaseWatts;
    for (const IpuReading& ipu : machine.ipus) watts += ipu.sensors.power_watts;
    out.Add({machine.agent}, watts);
  }
  return std::move(out).Finish();
}

Routes MachineRoutes(agent::Agent& agent) {
  Routes routes;
  routes["/healthz"] = Healthy;
  routes["/metrics"] = MetricsHandler([&agent](Format format) {
    return WriteMachineMetrics(agent.ReadMachines(), agent.machine_type(), format);
  });
  return routes;
}

}  // namespace vpod::http
