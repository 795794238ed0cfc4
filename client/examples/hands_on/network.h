// The networks of the hands-on session, dealt to the IPUs of a replica.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client/graph/graph.h"

namespace vpod::examples {

struct NetworkOptions {
  std::string name = "resnet50";  // resnet18, resnet50, resnet101 or mnist
  uint32_t ipus = 1;              // of a replica: 1 or 2; of mnist 1 or 4
  std::string split;              // the block with which IPU 1 begins; empty: one in the middle
  int64_t micro_batch = 4;
  int64_t image_size = 64;  // pixels of an edge; of mnist 28
  program::v1::DataType type = program::v1::FLOAT32;
  bool byte_images = false;  // from the host, instead of elements of the type
};

// With streams "images" and "labels" from the host, and "loss" to it.
struct Network {
  graph::Graph graph;
  graph::Tensor loss;
};

inline constexpr int64_t kClasses = 10;

// InvalidArgument: an unknown network or block, or a number of IPUs that it is not dealt to.
absl::StatusOr<Network> BuildNetwork(const NetworkOptions& options);

}  // namespace vpod::examples
