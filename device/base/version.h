// Version of all programs of the POD, as `--version` prints it.
#pragma once

namespace vpod::base {

inline constexpr char kVersion[] = "1.18.0";
// The SDK whose tools and interfaces these are.
inline constexpr char kSdkVersion[] = "3.2.0";

}  // namespace vpod::base
