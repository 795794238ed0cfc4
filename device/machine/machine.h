// An IPU-Machine: four IPUs on two boards, a gateway, an identity, and the attributes that the
// tools show.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/arch/hardware.h"
#include "device/ipu/faults.h"
#include "device/ipu/sensors.h"
#include "device/machine/links.h"

namespace vpod::machine {

// Software versions that the emulated set reports (spec/gc-tools.md 1.1).
inline constexpr char kDriverVersion[] = "1.3.0";
inline constexpr char kGatewaySoftwareVersion[] = "2.6.0";
inline constexpr char kIpuofServerVersion[] = "1.11.0";
inline constexpr char kFirmwareVersion[] = "2.5.9";

// Names by which the cluster knows a machine.
struct Identity {
  uint32_t index = 0;         // in its POD, or of its host; board serials follow from it
  std::string management_ip;  // as in `create agent --host`
  uint32_t management_port = 8080;
  std::string data_ip;  // "IPU-M host" of the tools
};

// One IPU of a machine. The counters may be touched from any thread.
struct Ipu {
  explicit Ipu(double power_scale) : sensors(power_scale, ipu::WallClock::now()) {}
  ipu::Sensors sensors;
  ipu::Faults faults;
  std::atomic<uint64_t> cycles = 0;  // virtual cycles of all runs since the last reset
  std::atomic<uint64_t> host_rx_bytes = 0, host_tx_bytes = 0;  // of streams, since the start
  // Correctable errors of its links when the present session began.
  std::atomic<uint64_t> link_errors_before_session = 0;
};

// Facts about an IPU's partition that become its attributes.
struct PartitionFacts {
  std::string id;
  uint32_t routing_id = 0;
  std::string routing_type;  // DNC …
  uint32_t num_replicas = 1;
  std::string sync_type;  // c2-compatible, pod-native-default
  bool reconfigurable = false;
};

// The process that holds an IPU.
struct Holder {
  std::string executable;
  std::string user;
  uint32_t pid = 0;
  int64_t start_time_unix = 0;
  bool monitoring = false;  // GCDA_MONITOR=1: temperature and power are shown
  bool utilisation = true;  // unless it asked that it be not
};

// Sensor readings of one IPU and its board, whether or not its holder lets the tools see them.
struct SensorValues {
  double utilisation = 0;  // 0 to 1, over the last second
  double die_celsius = 0;
  double board_celsius = 0;  // of both IPUs of the board
  double power_watts = 0;
  double clock_hz = 0;  // throttled when too hot
};

class Machine {
 public:
  Machine(Identity identity, arch::MachineType type);

  const Identity& identity() const { return identity_; }
  const arch::MachineType& type() const { return type_; }
  Ipu& ipu(uint32_t number) { return *ipus_[number]; }
  Links& links() { return links_; }

  // A program attaches to IPU `number`.
  void BeginSession(uint32_t number);
  // Restarts the machine: all counters, faults and errors are gone.
  void Reset();

  SensorValues ReadSensors(uint32_t number, ipu::WallClock::time_point now);
  // Temperature and power of an IPU and its board as attributes, whether or not its holder lets the
  // tools see them.
  std::map<std::string, std::string> SensorAttributes(uint32_t number);
  // Attributes of IPU `number` (0-3) by their public names, without "id" and "target", which belong
  // to a device. `partition` and `holder` may be null.
  std::map<std::string, std::string> Attributes(uint32_t number, const PartitionFacts* partition,
                                                const Holder* holder);
  // Rows of `vipu-admin get agent` that the machine itself knows, by their titles.
  std::map<std::string, std::string> Facts() const;

 private:
  const Identity identity_;
  const arch::MachineType type_;
  std::vector<std::unique_ptr<Ipu>> ipus_;
  Links links_;
};

}  // namespace vpod::machine
