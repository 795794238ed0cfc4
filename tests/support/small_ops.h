// A small valid instruction of each op, for tests that go through all of them.
#pragma once

#include <google/protobuf/text_format.h>

#include <cstdlib>
#include <map>
#include <string>

#include "device/program/op.h"

namespace vpod::testing {

struct SmallOp {
  const char* attributes;  // as text
  program::Types inputs;
  program::Types outputs = {};  // of an op without a type rule from inputs to outputs
};

inline constexpr char kWindow[] =
    "window { kernel: [2,2] stride: [2,2] dilation: [1,1] pad_before: [0,0] pad_after: [0,0] }";

// A small valid instruction of each op, by name.
inline std::map<std::string, SmallOp> SmallOps() {
  using program::TensorType;
  using enum program::v1::DataType;
  const TensorType scalar{FLOAT32, {}}, vector{FLOAT32, {8}}, matrix{FLOAT32, {4, 8}};
  const TensorType image{FLOAT32, {2, 8, 4, 4}}, pooled{FLOAT32, {2, 8, 2, 2}};
  const TensorType indices{INT32, pooled.dims}, labels{INT32, {4}}, loss{FLOAT32, {4}};
  const TensorType condition{BOOL, {}}, count{INT32, {}}, word{UINT32, {}};
  return {
      {"fill", {"fill { value: 1 }", {}, {vector}}},
      {"copy", {"copy {}", {vector}}},
      {"cast", {"cast { type: FLOAT16 }", {vector}}},
      {"unary", {"unary { operator: TANH }", {vector}}},
      {"binary", {"binary { operator: ADD }", {matrix, vector}}},
      {"select", {"select {}", {condition, matrix, vector}}},
      {"map",
       {"map { steps { binary { operator: ADD } inputs: [0,1] } steps { unary { operator: RELU } "
        "inputs: 2 } }",
        {matrix, vector}}},
      {"transpose", {"transpose { permutation: [1,0] }", {matrix}}},
      {"slice", {"slice { begin: 1 size: 3 step: 2 }", {vector}}},
      {"expand", {"expand { dims: [4,8] }", {vector}}},
      {"pad", {"pad { before: 1 after: 2 }", {vector}}},
      {"concat", {"concat { axis: 0 }", {vector, vector}}},
      {"dynamic_slice", {"dynamic_slice { axes: 1 size: 3 }", {matrix, {INT32, {1}}}}},
      {"dynamic_update",
       {"dynamic_update { axes: [0,1] }", {matrix, {FLOAT32, {1, 3}}, {INT32, {2}}}}},
      {"reduce", {"reduce { operator: SUM axes: 0 }", {matrix}}},
      {"arg_max", {"arg_max {}", {matrix}}},
      {"mat_mul", {"mat_mul { transpose_b: true }", {matrix, matrix}}},
      {"softmax", {"softmax {}", {matrix}}},
      {"softmax_gradient", {"softmax_gradient {}", {matrix, matrix}}},
      {"layer_norm", {"layer_norm { epsilon: 1 }", {matrix, vector, vector}}},
      {"layer_norm_gradient", {"layer_norm_gradient {}", {matrix, matrix, loss, loss, vector}}},
      {"gather", {"gather { axis: 1 }", {matrix, {INT32, {3}}}}},
      {"scatter", {"scatter { combine: ADD axis: 1 }", {matrix, {INT32, {3}}, {FLOAT32, {4, 3}}}}},
      {"iota", {"iota { type: INT32 dims: [4,8] axis: 1 }", {}}},
      {"convolution",
       {"convolution { pass: FORWARD groups: 2 WINDOW }", {image, {FLOAT32, {6, 4, 2, 2}}}}},
      {"max_pool", {"max_pool { WINDOW }", {image}}},
      {"max_pool_gradient", {"max_pool_gradient { image_size: [4,4] WINDOW }", {pooled, indices}}},
      {"average_pool", {"average_pool { WINDOW }", {image}}},
      {"average_pool_gradient", {"average_pool_gradient { image_size: [4,4] WINDOW }", {pooled}}},
      {"batch_norm", {"batch_norm { epsilon: 1 }", {image, vector, vector}}},
      {"batch_norm_inference",
       {"batch_norm_inference { epsilon: 1 }", {image, vector, vector, vector, vector}}},
      {"batch_norm_gradient",
       {"batch_norm_gradient { epsilon: 1 }", {image, image, vector, vector, vector}}},
      {"softmax_cross_entropy", {"softmax_cross_entropy {}", {matrix, labels}}},
      {"softmax_cross_entropy_gradient",
       {"softmax_cross_entropy_gradient {}", {matrix, labels, loss}}},
      {"accumulate", {"accumulate {}", {vector, vector}, {vector}}},
      {"sgd", {"sgd {}", {vector, vector, {FLOAT32, {4}}, scalar, scalar, vector}}},
      {"adam", {"adam {}", {vector, vector, {FLOAT32, {5}}, scalar, scalar, vector, vector}}},
      {"all_finite", {"all_finite {}", {matrix, vector}}},
      {"norm", {"norm {}", {matrix, vector}}},
      {"rms_prop",
       {"rms_prop { gradient_scale: 1 }",
        {vector, vector, {FLOAT32, {5}}, scalar, scalar, vector}}},
      {"lamb",
       {"lamb { gradient_scale: 1 }",
        {vector, vector, {FLOAT32, {6}}, scalar, scalar, vector, vector}}},
      {"lamb_moments",
       {"lamb_moments { gradient_scale: 1 }",
        {vector, vector, {FLOAT32, {6}}, scalar, scalar, vector, vector}}},
      {"lamb_step",
       {"lamb_step {}", {vector, {FLOAT32, {2}}, {FLOAT32, {6}}, scalar, scalar, vector, vector}}},
      {"lars",
       {"lars { gradient_scale: 1 }", {vector, vector, {FLOAT32, {5}}, scalar, scalar, vector}}},
      {"cumulate", {"cumulate { operator: SUM axis: 1 }", {matrix}}},
      {"sort", {"sort { axis: 1 count: 3 }", {matrix}}},
      {"update_loss_scale",
       {"update_loss_scale { growth: 2 backoff: 0.5 interval: 1 }", {scalar, count, condition}}},
      {"replica_index", {"replica_index {}", {}}},
      {"random",
       {"random { distribution: NORMAL type: FLOAT32 dims: 8 }", {{UINT32, {2}}, word, word}}},
      {"all_reduce", {"all_reduce { operator: SUM }", {vector}, {vector}}},
      {"reduce_scatter", {"reduce_scatter { operator: SUM }", {vector}, {{FLOAT32, {2}}}}},
      {"all_gather", {"all_gather {}", {vector}, {{FLOAT32, {32}}}}},
      {"all_to_all", {"all_to_all {}", {vector}, {vector}}},
      {"broadcast", {"broadcast {}", {vector}, {vector}}},
      {"stream_in", {"stream_in {}", {}, {vector}}},
      {"stream_out", {"stream_out {}", {vector}, {}}},
      {"remote_load", {"remote_load {}", {count}, {vector}}},
      {"remote_store", {"remote_store {}", {vector, count}, {}}},
      {"exchange", {"exchange {}", {vector}, {}}},
      {"call", {"call {}", {}, {}}},
      {"repeat", {"repeat { count: 1 }", {}, {count}}},
      {"if", {"if { then_function: 0 }", {condition}, {}}},
      {"while", {"while { max_rounds: 1 }", {condition}, {}}},
  };
}

// The instruction without its operands; ends the process if its text is wrong.
inline program::v1::Instruction Attributes(const SmallOp& op) {
  std::string attributes = op.attributes;
  if (const size_t at = attributes.find("WINDOW"); at != std::string::npos)
    attributes.replace(at, 6, kWindow);
  program::v1::Instruction instruction;
  if (!google::protobuf::TextFormat::ParseFromString(attributes, &instruction)) std::abort();
  return instruction;
}

}  // namespace vpod::testing
