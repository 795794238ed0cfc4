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
  std::optional<float> attention_dropout;                   // of BERT, below 1
  bool tanh_gelu = false;                                   // of BERT (models::BertOptions)
  int64_t classes = 1000;                                   // of images, for residual networks
  program::v1::DataType type = program::v1::FLOAT16;        // of operations and weights
  program::v1::DataType image_type = program::v1::FLOAT16;  // as they come from the host
  uint32_t ipus = 1;                                        // of a replica
  // Blocks with which the IPUs after the first begin; of BERT: half layers of each IPU
  // (models::BertOptions). BERT, GPT-2 and ViT are dealt to the IPUs evenly if it is empty.
  std::vector<std::string> stages;
  std::vector<std::string> checkpoints;  // of residual networks: blocks whose outputs are kept
};

struct Network {
  graph::Graph graph;
  graph::Tensor loss;
};

std::vector<std::string> NetworkNames();

// Options of a request that a model takes, beside micro-batch, types and IPUs.
struct NetworkOptions {
  bool images = false;             // their type
  bool image_size = false;         // else it is fixed
  bool tokens = false;             // the sequence length
  bool predictions = false;        // and the dropout of attention, and the form of GELU
  bool stages = false;             // it has blocks that can be dealt to several IPUs
  bool stages_are_counts = false;  // of the blocks of each IPU, instead of the first of them
  bool is_split = false;           // without stages, too
  bool last_is_first = false;      // what is behind the last block is on the first IPU
  bool checkpoints = false;
  bool classes = false;  // their number
};

// Where each of `shares` shares of some parts begins that have about as many parts each; from 0 on.
std::vector<size_t> EvenShares(size_t parts, size_t shares);

// InvalidArgument: an unknown name; the error lists those that are known.
absl::StatusOr<NetworkOptions> OptionsOf(const std::string& name);

// The block of a model to which a scope of its operations belongs, by the name that stages give it;
// half a layer of BERT. Empty: none, or the model has no blocks.
std::string BlockOf(const std::string& name, const std::string& scope);

// InvalidArgument: an unknown name, sizes that do not fit, what the model does not take of
// predictions, stages and checkpoints, or several IPUs for a model that is not split.
absl::StatusOr<Network> BuildNetwork(const NetworkRequest& request);

}  // namespace vpod::plan
