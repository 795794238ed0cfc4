#include "device/machine/machine.h"

#include <algorithm>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "device/arch/device_id.h"
#include "device/base/version.h"

namespace vpod::machine {
namespace {

std::string UtcTime(int64_t unix_seconds) {
  const std::time_t time = unix_seconds;
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y%m%dT%H%M%SZ", &parts);
  return text;
}

}  // namespace

Machine::Machine(Identity identity, arch::MachineType type)
    : identity_(std::move(identity)), type_(type) {
  for (uint32_t i = 0; i < arch::kIpusPerMachine; ++i) {
    ipus_.push_back(std::make_unique<Ipu>(type_.dynamic_power_scale));
  }
}

void Machine::BeginSession(uint32_t number) {
  ipus_[number]->sensors.BeginSession(ipu::WallClock::now());
  ipus_[number]->link_errors_before_session = links_.CorrectableErrors(number);
}

void Machine::Reset() {
  links_.Reset();
  for (auto& each : ipus_) {
    each->faults.Reset(/*initialise_parity=*/true);
    each->cycles = 0;
    each->link_errors_before_session = 0;
  }
}

SensorValues Machine::ReadSensors(uint32_t number, ipu::WallClock::time_point now) {
  const ipu::Reading reading = ipus_[number]->sensors.Read(now);
  const ipu::Reading neighbour = ipus_[number ^ 1]->sensors.Read(now);
  const double board =
      ipu::BoardTemperature(reading.settled_power_watts, neighbour.settled_power_watts);
  SensorValues values = {.utilisation = reading.utilisation,
                         .die_celsius = ipu::DieTemperature(board, reading.settled_power_watts),
                         .board_celsius = board,
                         .power_watts = reading.power_watts,
                         .clock_hz = type_.clock_hz};
  if (ipus_[number]->faults.Read().over_temperature) {
    values.die_celsius = ipu::kHotDieCelsius;
    values.board_celsius = ipu::kHotBoardCelsius;
    values.clock_hz *= ipu::kThrottledClockShare;
  }
  return values;
}

std::map<std::string, std::string> Machine::SensorAttributes(uint32_t number) {
  const ipu::WallClock::time_point now = ipu::WallClock::now();
  const SensorValues values = ReadSensors(number, now);
  const double neighbour_watts = ipus_[number ^ 1]->sensors.Read(now).power_watts;
  return {{"average board temp", absl::StrFormat("%.1f C", values.board_celsius)},
          {"average die temp", absl::StrFormat("%.1f C", values.die_celsius)},
          {"ipu power", absl::StrFormat("%.1f W", values.power_watts)},
          {"total board power", absl::StrFormat("%.1f W", values.power_watts + neighbour_watts)}};
}

std::map<std::string, std::string> Machine::Attributes(uint32_t number,
                                                       const PartitionFacts* partition,
                                                       const Holder* holder) {
  const ipu::WallClock::time_point now = ipu::WallClock::now();
  const ipu::Reading reading = ipus_[number]->sensors.Read(now);
  const ipu::FaultState faults = ipus_[number]->faults.Read();
  const bool monitored = holder != nullptr && holder->monitoring;
  arch::MachineType type = type_;
  type.clock_hz = ReadSensors(number, now).clock_hz;
  const uint64_t link_errors = links_.CorrectableErrors(number);
  const auto utilisation = [&](double share) {
    return holder == nullptr || holder->utilisation ? absl::StrFormat("%.2f%%", share * 100)
                                                    : std::string("N/A");
  };
  const std::string ipu_number = absl::StrCat(number);

  std::map<std::string, std::string> all = {
      {"board ipu index", ipu_number},
      {"board serial number", arch::BoardSerial(identity_.index, number)},
      {"board type", std::string(type_.board_type)},
      {"board variant", std::string(type_.board_type)},
      {"clock", arch::ClockText(type)},
      {"config domain", absl::StrCat(94414229001808 + identity_.index)},
      {"driver version", kDriverVersion},
      {"firmware major version", "2"},
      {"firmware minor version", "5"},
      {"firmware patch version", "9"},
      {"firmware version", kFirmwareVersion},
      {"gateway software version", kGatewaySoftwareVersion},
      {"graph streaming", "true"},
      {"hexoatt active size (bytes)", "0"},
      {"hexoatt total size (bytes)", "34082914304"},
      {"hexopt active size (bytes)", "0"},
      {"hexopt total size (bytes)", "268435456"},
      {"host link correctable error count", "0"},
      {"icu bootloader version", "2.6.2"},
      {"ipu architecture", "ipu2"},
      {"ipu error state", !faults.error.empty() ? faults.error
                          : faults.parity_error ? "memory parity error"
                                                : "no errors"},
      {"ipu utilisation", utilisation(reading.utilisation)},
      {"ipu utilisation (session)", utilisation(reading.session_utilisation)},
      {"ipuof host", identity_.data_ip},
      {"ipuof server version", kIpuofServerVersion},
      {"link correctable error count", absl::StrCat(link_errors)},
      {"link correctable error count (session)",
       absl::StrCat(link_errors -
                    std::min<uint64_t>(link_errors, ipus_[number]->link_errors_before_session))},
      {"link speed", "16.0 GT/s"},
      {"link width", "8"},
      {"pci id", ipu_number},
      {"pcie physical slot", ipu_number},
      {"remote buffers supported", "1"},
  };
  for (const auto& [name, value] : SensorAttributes(number)) all[name] = monitored ? value : "N/A";
  if (partition != nullptr) {
    all["ipuof partition id"] = partition->id;
    all["ipuof routing id"] = absl::StrCat(partition->routing_id);
    all["ipuof routing type"] = partition->routing_type;
    all["number of replicas"] = absl::StrCat(partition->num_replicas);
    all["partition sync type"] = partition->sync_type;
    all["reconfigurable partition"] = partition->reconfigurable ? "true" : "false";
  }
  if (holder != nullptr) {
    all["process start time"] = UtcTime(holder->start_time_unix);
    all["user executable"] = holder->executable;
    all["user name"] = holder->user;
    all["user process id"] = absl::StrCat(holder->pid);
  }
  return all;
}

std::map<std::string, std::string> Machine::Facts() const {
  return {
      {"Platform", "ipum-p2"},
      {"Manufacturer", "Graphcore (emulated)"},
      {"Discovery Mode", "DM_GCDA"},
      {"Virm version", base::kVersion},
      {"Runtime version", kDriverVersion},
      {"Board serial number",
       absl::StrFormat("%07d-%04d", 8204521 + identity_.index, 100 + identity_.index / 100)},
      {"Part number", "GC-VIRTUAL-00 Rev. A"},
      {"GWSW Version", kGatewaySoftwareVersion},
      {"IPUoF server version", absl::StrCat("v", kIpuofServerVersion)},
      {"HDF Version", "1.0.1"},
      {"HDF Hash", "0000000000000000000000000000000000000000"},
      {"Num of IPUs", absl::StrCat(arch::kIpusPerMachine)},
  };
}

}  // namespace vpod::machine
