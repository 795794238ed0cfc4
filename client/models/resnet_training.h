// For tests: ResNet-18 trains on images of 32 × 32 pixels. How its work is shared out among IPUs
// changes no bit of the losses.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/compiler/compiler.h"
#include "client/session/device.h"

namespace vpod::models {

struct ResNetTraining {
  static constexpr uint32_t kUpdates = 5;

  uint32_t ipus = 1;  // of a replica: at most 8, each a stage of one block or more
  compiler::Schedule schedule = compiler::Schedule::kSharded;
  compiler::Recomputation recomputation = compiler::Recomputation::kNone;
  bool off_chip_optimizer_state = false;
  bool off_chip_activations = false;
  bool off_chip_weights = false;
  bool off_chip_accumulators = false;
  uint32_t replicas = 1;  // all of them in this process
  uint32_t tensor_shards = 1;
  uint32_t accumulation = 7;  // micro-batches, of one image each
};

// The losses of all micro-batches: update by update, in each replica by replica. Replicas have the
// micro-batches of an update one after the other. The device has the replicas and IPUs of
// `training`. Errors are those of Compile and Session.
absl::StatusOr<std::vector<float>> TrainResNet18(program::v1::DataType type,
                                                 const ResNetTraining& training,
                                                 std::unique_ptr<session::Device> device);

}  // namespace vpod::models
