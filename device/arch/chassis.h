// The chassis of an IPU-Machine: fans and the air that they move. Nothing is published of them but
// that they are there; the figures are ours, and follow spec/hardware.md F21.
#pragma once

#include <cstdint>

namespace vpod::arch {

inline constexpr uint32_t kChassisFans = 5;
inline constexpr double kInletCelsius = 18;  // F21: what boards have without power

// By the power of the machine with its IPUs. A machine at rest takes about 450 W, one at work 800
// W.
inline constexpr double FanRpm(double machine_watts) { return 3000 + 10 * machine_watts; }
inline constexpr double OutletCelsius(double machine_watts) {
  return kInletCelsius + 0.02 * machine_watts;
}

}  // namespace vpod::arch
