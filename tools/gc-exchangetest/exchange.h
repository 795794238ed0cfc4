// Tests of the exchange between the tiles of an IPU (spec/gc-tools.md 7), on all IPUs of a device
// at once. Every word that arrives is compared.
//
// TestExchange: every tile sends the words of its block to other tiles and receives as many, round
// after round. TestExchangeWrite: one block is written to all tiles at once (a broadcast); each
// tile adds a word of its own, so that what comes back shows that it was this tile that received
// it.
//
// Exchange cycles are measured: a second program does the same with data that stay on their tiles,
// and what the counters of the two differ by are the exchanges and the syncs before them.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "client/session/device.h"
#include "tools/device_check/tile_check.h"

namespace vpod::tools {

absl::StatusOr<TileTestReport> TestExchange(std::unique_ptr<session::Device> device);
absl::StatusOr<TileTestReport> TestExchangeWrite(std::unique_ptr<session::Device> device);

}  // namespace vpod::tools
