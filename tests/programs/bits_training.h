// Trains a small network of convolutions, batch norms, dropout and a linear layer, and says with
// which bits: the same ones, however its micro-batches are dealt out.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/compiler/compiler.h"
#include "client/session/device.h"

namespace vpod::testing {

struct BitsOptions {
  uint32_t replicas = 1;  // of the job
  uint32_t offset = 0;    // first replica of this process
  // Micro-batches of an update.
  static constexpr uint32_t kMicroBatches = 16;
  uint32_t accumulation() const { return kMicroBatches / replicas; }

  program::v1::DataType type = program::v1::FLOAT32;  // FLOAT16 with a loss scale
  bool dropout = false;
  compiler::Rounding rounding = compiler::Rounding::kNearest;
  bool fusion = true;
  bool sharing = true;
};

// By name: losses by the number of the micro-batch in the job; weights and the optimiser's state.
// The running statistics of batch norms are not among them: they belong to a replica.
using Bits = std::map<std::string, std::string>;

// Six updates in two runs on the device's replicas. Internal if replicas end with different
// weights.
absl::StatusOr<Bits> TrainForBits(const BitsOptions& options,
                                  std::unique_ptr<session::Device> device);

}  // namespace vpod::testing
