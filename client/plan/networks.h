// The models of client/models by name, with a loss, for plans: without data and without weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/graph/graph.h"

namespace vpod::plan {

struct NetworkRequest {
  std::string name;               // NetworkNames
  int64_t micro_batch = 1;        // images or sequences
  int64_t image_size = 224;       // pixels of an edge
  int64_t sequence_length = 128;  // tokens
  int64_t predictions = 0;        // of BERT: tokens of a sequence that are predicted; 0: all
  std::optional<float> attention_dropout;                   // of BERT
  int64_t classes = 1000;                                   // of images, for residual networks
  program::v1::DataType type = program::v1::FLOAT16;        // of operations and weights
  program::v1::DataType image_type = program::v1::FLOAT16;  // as they come from the host
  uint32_t ipus = 1;                                        // of a replica
  // Of residual networks and EfficientNet: blocks with which an IPU begins; of BERT: half layers of
  // each IPU (models::BertOptions).
  std::vector<std::string> stages;
  std::vector<std::string> checkpoints;  // of residual networks: blocks whose outputs are kept
};

struct Network {
  graph::Graph graph;
  graph::Tensor loss;
};

std::vector<std::string> NetworkNames();

// InvalidArgument: an unknown name, which lists the known ones, sizes that do not fit, or several
// IPUs for a model that is not split.
absl::StatusOr<Network> BuildNetwork(const NetworkRequest& request);

}  // namespace vpod::plan
