// Test of all tile memory that a program can use for data (spec/gc-tools.md 7): each word of 36 of
// the 39 memory elements of a tile; two elements hold code and state, the last the loader's
// reserve.
//
// Every word gets a value of its own, then its complement: each bit was 0 and 1, and a word that
// answers to another's address is found. All is written before anything is read.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "client/session/device.h"
#include "tools/device_check/tile_check.h"

namespace vpod::tools {

inline constexpr uint32_t kTestableElements = 36;

// Tests `elements` (1 to 36) memory elements of each tile of a device of one IPU, which takes up to
// 830 MiB of the emulating host; `ipu` is its number for the report of a fault. Returns the
// modelled and the host's seconds and the fault, without details.
absl::StatusOr<TileTestReport> TestMemory(std::unique_ptr<session::Device> device, uint32_t ipu,
                                          uint32_t elements);

}  // namespace vpod::tools
