// The text of IPUoF files (docs/formats.md).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/vipu/v1/vipuuser.pb.h"

namespace vpod::vipu {

// Attribute of a configuration with fewer devices than its GCD has IPUs: the number of those.
inline constexpr char kGcdIpus[] = "Number of IPUs";

// The value of an attribute; empty: there is none of that name.
std::string Attribute(const vipuuser::PartitionConfig& config, const char* key);

// The JSON text of one GCD's configuration. Each device also says which partition it is of, with
// the fabric key if there is one, so that container managers can pass some devices on.
std::string IpuofJson(const vipuuser::PartitionConfig& config);

// And back, devices by their position in the GCD. Takes some of the devices, without attributes or
// as a plain array; attributes and key are then those that the devices name. InvalidArgument says
// what is wrong with the text.
absl::StatusOr<vipuuser::PartitionConfig> ParseIpuofJson(absl::string_view text);

}  // namespace vpod::vipu
