// Tests of the exchange between the tiles of an IPU (spec/gc-tools.md 7), on all IPUs of a device
// at once. Every word that arrives is compared.
//
// TestExchange: every tile sends its block to another tile and receives one, round after round. The
// move is a product with a permutation matrix, the operation that takes data from tile to tile.
// TestExchangeWrite: one block is written to all tiles at once (a broadcast); each tile adds a word
// of its own, so that what comes back shows that it was this tile that received it.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "client/session/device.h"
#include "tools/device_check/tile_check.h"

namespace vpod::tools {

absl::StatusOr<TileTestReport> TestExchange(std::unique_ptr<session::Device> device);
absl::StatusOr<TileTestReport> TestExchangeWrite(std::unique_ptr<session::Device> device);

}  // namespace vpod::tools
