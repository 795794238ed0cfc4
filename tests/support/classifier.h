// Networks that learn random labels: what a test says of one, and what it gets to train it.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "client/nn/builder.h"

namespace vpod::testing {

struct Classifier {
  // A stream that the network reads, beside the labels.
  struct Input {
    graph::Dims dims;   // of one element of the batch
    int32_t limit = 0;  // INT32 below it, or, at 0, normal floats
  };
  std::vector<Input> inputs;
  graph::Tensor (*logits)(const nn::Builder& net, const std::vector<graph::Tensor>& inputs);
  graph::Dims labels = {};  // of one element of the batch
  int32_t classes = 10;     // the last dimension of the logits
};

// A stream of the program that trains it.
struct RandomStream {
  std::string name;
  graph::TensorType type;
  int32_t limit;  // as that of its input
};

struct TrainedClassifier {
  std::vector<RandomStream> streams;  // "input0", "input1" … and "labels"
  graph::Tensor loss;                 // the mean over the batch, which is also the output "loss"
};

// Adds a classifier to the graph of `net`. Floats that it reads are cast to `type`, which its
// weights then have, too.
TrainedClassifier AddClassifier(const nn::Builder& net, const Classifier& classifier, int64_t batch,
                                program::v1::DataType type = program::v1::FLOAT32);

// Draws elements of a stream.
void Draw(const RandomStream& stream, std::mt19937_64& random, absl::Span<uint32_t> elements);

}  // namespace vpod::testing
