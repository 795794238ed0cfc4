// Attributes of an IPU as tools show them (spec/gc-tools.md 4).
#pragma once

#include <string>

#include "proto/telemetry/v1/telemetry.pb.h"

namespace vpod::ipuof {

// The value of a name; empty when the agent does not tell it.
inline std::string Attribute(const telemetry::v1::IpuTelemetry& ipu, const std::string& name) {
  const auto it = ipu.attributes().find(name);
  return it == ipu.attributes().end() ? "" : it->second;
}

// The attribute that LookAtPartitions adds to an IPU whose process is on another host or in another
// PID namespace than the reader's: its id means nothing here. Scripts read the id itself as a
// number.
inline constexpr char kProcessNamespace[] = "user process namespace";
inline constexpr char kOtherNamespace[] = "other";

}  // namespace vpod::ipuof
