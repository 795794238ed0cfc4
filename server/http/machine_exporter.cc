#include "server/http/machine_exporter.h"

#include <atomic>
#include <memory>
#include <utility>

#include "device/arch/chassis.h"
#include "device/arch/topology.h"
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

double WattsOf(const agent::MachineReading& machine) {
  double watts = arch::kMachineBaseWatts;
  for (const agent::IpuReading& ipu : machine.ipus) watts += ipu.sensors.power_watts;
  return watts;
}

void WritePower(const std::vector<agent::MachineReading>& machines, const Family& family,
                Exposition& out) {
  out.Begin(family);
  for (const agent::MachineReading& machine : machines) out.Add({machine.agent}, WattsOf(machine));
}

void WriteChassis(const std::vector<agent::MachineReading>& machines, Exposition& out) {
  out.Begin(kChassisFan);
  for (const agent::MachineReading& machine : machines) {
    for (uint32_t fan = 0; fan < arch::kChassisFans; ++fan)
      out.Add({machine.agent, std::to_string(fan)}, arch::FanRpm(WattsOf(machine)));
  }
  WritePower(machines, kChassisPower, out);
  out.Begin(kChassisTemperature);
  for (const agent::MachineReading& machine : machines) {
    out.Add({machine.agent, "inlet"}, arch::kInletCelsius);
    out.Add({machine.agent, "outlet"}, arch::OutletCelsius(WattsOf(machine)));
    // IPUs 0 and 1 are on one board, 2 and 3 on the other.
    out.Add({machine.agent, "board_1"}, machine.ipus[0].sensors.board_celsius);
    out.Add({machine.agent, "board_2"}, machine.ipus[2].sensors.board_celsius);
  }
}

// The families with published names, in their order.
void WritePublished(const std::vector<agent::MachineReading>& machines,
                    const arch::MachineType& type, uint64_t ticks, Exposition& out) {
  using agent::IpuReading;
  WriteChassis(machines, out);
  out.Begin(kExporterTicks);
  out.Add({}, static_cast<double>(ticks));
  WriteIpus(
      machines, kClockFrequency, [](const IpuReading& ipu) { return ipu.sensors.clock_hz / 1e6; },
      out);
  WriteIpuLinks(
      machines, kLinkErrorCount,
      [](const machine::LinkReading& link) {
        return link.counters.correctable_errors + link.counters.uncorrectable_errors;
      },
      out);
  WriteIpus(
      machines, kTileClockSpeed, [](const IpuReading& ipu) { return ipu.sensors.clock_hz; }, out);
  out.Begin(kHardwareInfo);
  for (const agent::MachineReading& machine : machines) {
    out.Add({machine.agent, type.board_type, machine::kFirmwareVersion,
             machine::kGatewaySoftwareVersion, machine::kIpuofServerVersion},
            1);
  }
}

}  // namespace

std::string WriteMachineMetrics(const std::vector<agent::MachineReading>& machines,
                                const arch::MachineType& type, Format format, uint64_t ticks) {
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
  WritePower(machines, kMachinePower, out);
  WritePublished(machines, type, ticks, out);
  return std::move(out).Finish();
}

Routes MachineRoutes(agent::Agent& agent, Health health) {
  Routes routes;
  routes["/healthz"] = HealthHandler(std::move(health));
  const auto ticks = std::make_shared<std::atomic<uint64_t>>(0);
  routes["/metrics"] = MetricsHandler([&agent, ticks](Format format) {
    return WriteMachineMetrics(agent.ReadMachines(), agent.machine_type(), format, ++*ticks);
  });
  return routes;
}

}  // namespace vpod::http
