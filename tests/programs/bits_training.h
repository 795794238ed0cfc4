// Trains a model of bits_models.h and says with which bits: the same ones, however its
// micro-batches are dealt out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/compiler/compiler.h"
#include "client/session/device.h"
#include "client/session/npz.h"

namespace vpod::testing {

struct BitsOptions {
  uint32_t replicas = 1;  // of the job
  uint32_t offset = 0;    // first replica of this process
  // Micro-batches of an update.
  static constexpr uint32_t kMicroBatches = 16;
  uint32_t accumulation() const { return kMicroBatches / replicas; }
  static constexpr uint32_t kRuns = 2;
  uint32_t updates() const;  // in all runs

  std::string model = "small";
  program::v1::DataType type = program::v1::FLOAT32;  // FLOAT16 with a loss scale
  compiler::Rounding rounding = compiler::Rounding::kNearest;
  bool fusion = true;
  bool sharing = true;
};

// By name, as FLOAT32: losses by the number of their micro-batch in the job; weights and the
// optimiser's state; what belongs to a replica (running statistics, the state of random numbers),
// with kOfReplica and its number in front, and is equal only if it has had the same micro-batches.
using Bits = session::Arrays;
inline constexpr char kOfReplica[] = "replica ";

// Trains on the device's replicas. Internal if replicas end with different weights.
absl::StatusOr<Bits> TrainForBits(const BitsOptions& options,
                                  std::unique_ptr<session::Device> device);

}  // namespace vpod::testing
