// The errors of wrong graphs: they name the operation, its place in the model, the value given and
// the values allowed. Each message is compared as a whole.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "client/compiler/compiler.h"
#include "client/nn/builder.h"

namespace vpod::compiler {
namespace {

namespace v1 = program::v1;
using graph::Graph;
using graph::Tensor;
using v1::BOOL;
using v1::FLOAT16;
using v1::FLOAT32;
using v1::INT32;
using v1::UINT8;

// A sound graph, and a scope in which something wrong is added.
struct Model {
  Graph graph;
  Tensor x = graph.Input("x", {FLOAT32, {2, 3}});
  Tensor image = graph.Input("image", {FLOAT32, {1, 4, 5, 5}});
  Tensor numbers = graph.Input("numbers", {INT32, {2}});
  Tensor flags = graph.Input("flags", {BOOL, {2, 3}});
  Graph::Scope scope{graph, "layer1.0"};

  Tensor Of(v1::DataType type, program::Dims dims) { return graph.Constant({type, dims}, 1); }
  Tensor Add(const std::function<void(v1::Instruction&)>& set, std::vector<Tensor> inputs) {
    v1::Instruction instruction;
    set(instruction);
    const auto outputs = graph.AddOperation(std::move(instruction), std::move(inputs));
    return outputs.empty() ? Tensor{} : outputs[0];
  }
};

struct BadGraph {
  const char* message;
  std::function<void(Model& m)> build;
};

v1::ReplicaGroup Consecutive(uint32_t size) {
  v1::ReplicaGroup group;
  group.set_kind(v1::ReplicaGroup::CONSECUTIVE);
  group.set_size(size);
  return group;
}

std::vector<BadGraph> ElementwiseGraphs() {
  return {
      {"add 'layer1.0': shapes [2,3] and [2] do not broadcast: 3 and 2 must be equal, or one of "
       "them 1 (elementwise_c5)",
       [](Model& m) { m.graph.Add(m.x, m.Of(FLOAT32, {2})); }},
      {"multiply 'layer1.0': MULTIPLY does not take float32[2,3] and float16[2,3], must be two of "
       "one type of numbers (elementwise_c3)",
       [](Model& m) { m.graph.Multiply(m.x, m.graph.Cast(m.x, FLOAT16)); }},
      {"logical_and 'layer1.0': LOGICAL_AND does not take float32[2,3] and bool[2,3], must be two "
       "of bool (elementwise_c3)",
       [](Model& m) { m.graph.Binary(v1::LOGICAL_AND, m.x, m.flags); }},
      {"relu_gradient 'layer1.0': RELU_GRADIENT does not take float32[2,3] and float32[3], must be "
       "two of one float type and shape (elementwise_c3)",
       [](Model& m) { m.graph.Binary(v1::RELU_GRADIENT, m.x, m.Of(FLOAT32, {3})); }},
      {"exponent 'layer1.0': EXPONENT does not take int32[2], must be floats (elementwise_c2)",
       [](Model& m) { m.graph.Unary(v1::EXPONENT, m.numbers); }},
      {"relu 'layer1.0': RELU does not take bool[2,3], must be floats or integers (elementwise_c2)",
       [](Model& m) { m.graph.Relu(m.flags); }},
      {"logical_not 'layer1.0': LOGICAL_NOT does not take float32[2,3], must be bool "
       "(elementwise_c2)",
       [](Model& m) { m.graph.Unary(v1::LOGICAL_NOT, m.x); }},
      {"select 'layer1.0': select does not take float32[2,3], float32[2,3] and float32[2,3], must "
       "be bool and two of one type (elementwise_c4)",
       [](Model& m) { m.graph.Select(m.x, m.x, m.x); }},
      {"select 'layer1.0': shapes [2,3] and [4] do not broadcast: 3 and 4 must be equal, or one of "
       "them 1 (elementwise_c5)",
       [](Model& m) { m.graph.Select(m.flags, m.Of(FLOAT32, {4}), m.Of(FLOAT32, {4})); }},
      {"cast 'layer1.0': unknown element type 12, must be 1 to 9",
       [](Model& m) { m.graph.Cast(m.x, static_cast<v1::DataType>(12)); }},
      {"map 'layer1.0': a map has 1 to 32 steps, not 0 (map_c1)",
       [](Model& m) { m.Add([](auto& i) { i.mutable_map(); }, {m.x}); }},
      {"dropout 'layer1.0': the probability is 1.5, must be 0 to 1",
       [](Model& m) { m.graph.Dropout(m.x, 1.5f); }},
  };
}

std::vector<BadGraph> ShapeGraphs() {
  return {
      {"reshape 'layer1.0': cannot reshape float32[2,3] to float32[4,2], must have 6 elements",
       [](Model& m) {
         m.graph.Reshape(m.x, {4, 2});
       }},
      {"transpose 'layer1.0': [0,0] is not a permutation of the dimensions of float32[2,3], 0 to 1 "
       "(view_c1)",
       [](Model& m) {
         m.graph.Transpose(m.x, {0, 0});
       }},
      {"slice 'layer1.0': a slice of 3 elements from 1 in steps of 1 leaves dimension 1 of "
       "float32[2,3], elements 0 to 2 (view_c3)",
       [](Model& m) {
         m.graph.Slice(m.x, {0, 1}, {2, 3});
       }},
      {"slice 'layer1.0': a slice of float32[2,3] needs 2 entries in each field, one for each "
       "dimension (view_c2)",
       [](Model& m) { m.graph.Slice(m.x, {0}, {2}); }},
      {"expand 'layer1.0': float32[2,3] does not expand to [2,4]: dimensions stay or were 1 "
       "(view_c4)",
       [](Model& m) {
         m.graph.Expand(m.x, {2, 4});
       }},
      {"pad 'layer1.0': padding -1 is outside 0 to 2147483648 (data_movement_c3)",
       [](Model& m) {
         m.graph.Pad(m.x, {0, -1}, {0, 0});
       }},
      {"pad 'layer1.0': padding of float32[2,3] needs 2 entries before and after, one for each "
       "dimension (data_movement_c2)",
       [](Model& m) { m.graph.Pad(m.x, {0}, {0}); }},
      {"concat 'layer1.0': float32[2,3] has no axis 2 to concatenate along, must be 0 to 1 "
       "(data_movement_c4)",
       [](Model& m) {
         m.graph.Concat({m.x, m.x}, 2);
       }},
      {"concat 'layer1.0': float32[2,3] and float32[2,4] do not concatenate along axis 0: all else "
       "must be equal (data_movement_c5)",
       [](Model& m) {
         m.graph.Concat({m.x, m.Of(FLOAT32, {2, 4})}, 0);
       }},
      {"sum 'layer1.0': axes [0,2] of float32[2,3] must be 0 to 1 in ascending order, without "
       "repetition (reduce_c3)",
       [](Model& m) {
         m.graph.Reduce(v1::SUM, m.x, {0, 2});
       }},
      {"mean 'layer1.0': MEAN does not reduce int32[2], must be floats (reduce_c2)",
       [](Model& m) { m.graph.Reduce(v1::MEAN, m.numbers, {0}); }},
      {"max 'layer1.0': MAX does not reduce bool[2,3], must be floats or int32 (reduce_c2)",
       [](Model& m) { m.graph.Reduce(v1::MAX, m.flags, {0}); }},
      {"arg_max 'layer1.0': arg-max does not take int32[2], must be floats of one dimension or "
       "more (reduce_c5)",
       [](Model& m) { m.graph.ArgMax(m.numbers); }},
      {"constant 'layer1.0': dimensions [2,-1] are outside 0 to 2147483648 elements",
       [](Model& m) {
         m.Of(FLOAT32, {2, -1});
       }},
      {"constant 'layer1.0': rank 9 is outside 0 to 8",
       [](Model& m) { m.Of(FLOAT32, program::Dims(9, 1)); }},
  };
}

std::vector<BadGraph> LayerGraphs() {
  return {
      {"mat_mul 'layer1.0': matmul does not take float32[2,3] and float32[2,3], must be floats "
       "[…,m,k] and […,k,n] with equal dimensions before these (matmul_c1)",
       [](Model& m) { m.graph.MatMul(m.x, m.x); }},
      {"mat_mul 'layer1.0': matmul does not take float32[2,3] and float32[3,4] transposed, must be "
       "floats […,m,k] and […,k,n] with equal dimensions before these (matmul_c1)",
       [](Model& m) {
         m.graph.MatMul(m.x, m.Of(FLOAT32, {3, 4}), false, true);
       }},
      {"convolution 'layer1.0': the image is float32[2,3], must be floats [batch, channels, one to "
       "three spatial dimensions] (conv_c3)",
       [](Model& m) { m.graph.Convolution(m.x, m.x, Graph::Sliding(2, 3)); }},
      {"mat_mul 'layer1.0': shapes [2] and [3] do not broadcast: 2 and 3 must be equal, or one of "
       "them 1",
       [](Model& m) {
         m.graph.MatMul(m.Of(FLOAT32, {2, 4, 4}), m.Of(FLOAT32, {3, 4, 4}));
       }},
      {"softmax 'layer1.0': axis 2 does not exist in float32[2,3]",
       [](Model& m) { m.graph.Softmax(m.x, 2); }},
      {"softmax 'layer1.0': softmax does not take int32[2], must be floats with a last dimension "
       "above 0 (softmax_c1)",
       [](Model& m) { m.graph.LogSoftmax(m.numbers, 0); }},
      {"layer_norm 'layer1.0': the scale is float32[2], must be float32[3] (layer_norm_c5)",
       [](Model& m) { m.graph.LayerNorm(m.x, m.Of(FLOAT32, {2}), m.Of(FLOAT32, {3}), 1e-5f); }},
      {"layer_norm 'layer1.0': epsilon is -1, must be 0 or more and finite (layer_norm_c6)",
       [](Model& m) { m.graph.LayerNorm(m.x, {}, {}, -1); }},
      {"gather 'layer1.0': axis 2 does not exist in float32[2,3] (gather_c1)",
       [](Model& m) { m.graph.Gather(m.x, m.numbers, 2); }},
      {"gather 'layer1.0': the indices are float32[2,3], must be int32 (gather_c2)",
       [](Model& m) { m.graph.Gather(m.x, m.x, 0); }},
      {"gather 'layer1.0': the indices are int32[2], must have the shape of float32[2,3] but along "
       "axis 1 (gather_c3)",
       [](Model& m) { m.graph.Gather(m.x, m.numbers, 1, true); }},
      {"scatter 'layer1.0': the update is float32[2,3], must be float32[2,2] (gather_c4)",
       [](Model& m) { m.graph.Scatter(v1::Scatter::SET, m.x, m.numbers, m.x, 1); }},
      {"scatter 'layer1.0': cannot combine bool[2,3], must be numbers (gather_c6)",
       [](Model& m) { m.graph.Scatter(v1::Scatter::ADD, m.flags, m.numbers, m.flags, 0); }},
      {"iota 'layer1.0': iota does not make uint8[4], must be int32 or float32 (gather_c9)",
       [](Model& m) {
         m.graph.Iota({UINT8, {4}}, 0);
       }},
      {"convolution 'layer1.0': groups is 3, must divide the 4 channels (conv_c5)",
       [](Model& m) {
         m.graph.Convolution(m.image, m.Of(FLOAT32, {3, 1, 3, 3}), Graph::Sliding(2, 3), 3);
       }},
      {"convolution 'layer1.0': groups is 2, must divide the 3 outputs (conv_c5)",
       [](Model& m) {
         m.graph.Convolution(m.image, m.Of(FLOAT32, {3, 2, 3, 3}), Graph::Sliding(2, 3), 2);
       }},
      {"convolution 'layer1.0': the weight tensor is float32[8,3,3,3], must be float32[8,4,3,3] "
       "(conv_c6)",
       [](Model& m) {
         m.graph.Convolution(m.image, m.Of(FLOAT32, {8, 3, 3, 3}), Graph::Sliding(2, 3));
       }},
      {"convolution 'layer1.0': a window of extent 7 does not fit spatial dimension 0 of 5 with "
       "its padding; an image is [batch, channels, spatial dimensions] (conv_c7)",
       [](Model& m) {
         m.graph.Convolution(m.image, m.Of(FLOAT32, {8, 4, 7, 7}), Graph::Sliding(2, 7));
       }},
      {"max_pool 'layer1.0': the window's stride along spatial dimension 0 is 0, must be 1 to "
       "2147483648 (pool_c5)",
       [](Model& m) { m.graph.MaxPool(m.image, Graph::Sliding(2, 2, 0)); }},
      {"max_pool 'layer1.0': the padding of spatial dimension 0 is 2+2, must be 0 to 1, below the "
       "extent of a window (pool_c5)",
       [](Model& m) { m.graph.MaxPool(m.image, Graph::Sliding(2, 2, 1, 2)); }},
      {"average_pool 'layer1.0': the window needs 2 entries in each field, one for each spatial "
       "dimension, and has 3 (pool_c5)",
       [](Model& m) { m.graph.AveragePool(m.image, Graph::Sliding(3, 2)); }},
      {"batch_norm 'layer1.0': the scale is float32[5], must be float32[4] (batch_norm_c7)",
       [](Model& m) { m.graph.BatchNorm(m.image, m.Of(FLOAT32, {5}), m.Of(FLOAT32, {4}), 1e-5f); }},
      {"batch_norm 'layer1.0': epsilon is 0, must be above 0 (batch_norm_c4)",
       [](Model& m) { m.graph.BatchNorm(m.image, m.Of(FLOAT32, {4}), m.Of(FLOAT32, {4}), 0); }},
      {"batch_norm_inference 'layer1.0': x is float32[2], must be floats [batch, channels, …] "
       "(batch_norm_c3)",
       [](Model& m) {
         const Tensor c = m.Of(FLOAT32, {2});
         m.graph.BatchNormInference(c, c, c, c, c, 1e-5f);
       }},
      {"softmax_cross_entropy 'layer1.0': cross-entropy does not take logits float32[2,3] and "
       "labels float32[2], must be floats [rows, classes] and int32 [rows] (loss_c2)",
       [](Model& m) { m.graph.SoftmaxCrossEntropy(m.x, m.Of(FLOAT32, {2})); }},
      {"softmax_cross_entropy 'layer1.0': label smoothing of -0.5 is outside 0 to 1 (loss_c1)",
       [](Model& m) { m.graph.SoftmaxCrossEntropy(m.x, m.numbers, {.label_smoothing = -0.5f}); }},
      {"random 'layer1.0': UNIFORM does not make int32[4], must be floats (random_c3)",
       [](Model& m) {
         m.graph.Random(v1::Random::UNIFORM, {INT32, {4}});
       }},
      {"softmax_cross_entropy 'layer1.0': softmax_cross_entropy takes 2 inputs, not 1",
       [](Model& m) { m.Add([](auto& i) { i.mutable_softmax_cross_entropy(); }, {m.x}); }},
  };
}

std::vector<BadGraph> CollectiveGraphs() {
  return {
      {"all_reduce 'layer1.0': cannot all-reduce bool[2,3], must be floats or int32 "
       "(collective_c7)",
       [](Model& m) { m.graph.AllReduce(v1::SUM, m.flags); }},
      {"reduce_scatter 'layer1.0': the first dimension of float32[2,3] is not a multiple of the "
       "group's 4 replicas",
       [](Model& m) { m.graph.ReduceScatter(v1::SUM, m.x, 4); }},
      {"broadcast 'layer1.0': root 2 is not a position in a group of 2 replicas, must be 0 to 1 "
       "(collective_c4)",
       [](Model& m) { m.graph.Broadcast(2, m.x, Consecutive(2)); }},
      {"all_gather 'layer1.0': a replica group needs a size of 1 or more (collective_c3)",
       [](Model& m) { m.graph.AllGather(m.x, 2, Consecutive(0)); }},
  };
}

// Mistakes in models that are made of layers.
std::vector<BadGraph> ModelGraphs() {
  return {
      {"add 'layer1.0': operand 1 is not a value of this graph",
       [](Model& m) { m.graph.Add(m.x, Tensor{1000}); }},
      {"assign 'layer1.0': operand 0 must be a buffer or variable",
       [](Model& m) { m.graph.Assign(m.x, m.x); }},
      {"assign 'layer1.0': the value for 'layer1.0.average' is float32[2,3], must be "
       "float32[3]",
       [](Model& m) {
         m.graph.Assign(m.graph.Buffer("average", {FLOAT32, {3}}, {0, 0, 0}), m.x);
       }},
      {"variable 'layer1.0.w' of type int32[2] cannot be trained, must be floats",
       [](Model& m) {
         m.graph.Variable("w", {INT32, {2}}, {1, 2});
       }},
      {"variable 'layer1.0.w' of type float32[2] has 3 initial values, must have 2",
       [](Model& m) {
         m.graph.Variable("w", {FLOAT32, {2}}, {1, 2, 3});
       }},
      {"buffer 'layer1.0.b' of type uint8[1] has an initial value that uint8 cannot hold",
       [](Model& m) {
         m.graph.Buffer("b", {UINT8, {1}}, {256});
       }},
      {"variable 'layer1.0.w' of type float32[2] has random initial values with a deviation of -1, "
       "must be 0 or more and finite",
       [](Model& m) {
         m.graph.Variable("w", {FLOAT32, {2}}, graph::InitialValue::Normal(-1, 1));
       }},
      {"linear 'layer1.0.fc' needs [batch, …, features] and has float32[3]",
       [](Model& m) { nn::Builder(m.graph, {}).Linear("fc", m.Of(FLOAT32, {3}), 10); }},
      {"layer_norm 'layer1.0.norm' needs [batch, …, features] and has float32[]",
       [](Model& m) { nn::Builder(m.graph, {}).LayerNorm("norm", m.Of(FLOAT32, {})); }},
      {"embedding 'layer1.0.table' cannot have weights float32[0,4]",
       [](Model& m) { nn::Builder(m.graph, {}).Embedding("table", m.numbers, 0, 4); }},
      {"self_attention 'layer1.0.attention' needs [batch, tokens, width] and heads that divide the "
       "width, and has float32[2,3,8] and 3 heads",
       [](Model& m) {
         nn::Builder(m.graph, {}).SelfAttention("attention", m.Of(FLOAT32, {2, 3, 8}), 3);
       }},
      {"convolution 'layer1.0.conv1' needs an image [batch, channels, height, width] and groups, "
       "and has float32[2,3] and 1 groups",
       [](Model& m) { nn::Builder(m.graph, {}).Convolution("conv1", m.x, 8, {}); }},
      {"gradients 'layer1.0': the loss is int32[2], must be floats",
       [](Model& m) { m.graph.Gradients(m.numbers, {m.x}); }},
  };
}

TEST(BadGraphsTest, ErrorsNameOperationOriginAndRange) {
  size_t count = 0;
  for (const auto& graphs :
       {ElementwiseGraphs(), ShapeGraphs(), LayerGraphs(), CollectiveGraphs(), ModelGraphs()}) {
    for (const auto& [message, build] : graphs) {
      Model model;
      ASSERT_TRUE(model.graph.status().ok());
      build(model);
      EXPECT_EQ(model.graph.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(std::string(model.graph.status().message()), message);
      EXPECT_EQ(Compile(model.graph, {.programs = {{.name = "main"}}}).status(),
                model.graph.status());
      ++count;
    }
  }
  EXPECT_GE(count, 40u);
}

// Such a graph is right for a larger replica.
TEST(BadGraphsTest, IpusOutsideTheReplicaAreNamed) {
  const auto message = [](const std::function<void(Model&)>& build) {
    Model model;
    model.graph.SetIpu(3);
    build(model);
    EXPECT_TRUE(model.graph.status().ok()) << model.graph.status();
    return std::string(Compile(model.graph, {.ipus_per_replica = 2, .programs = {{.name = "main"}}})
                           .status()
                           .message());
  };
  EXPECT_EQ(message([](Model& m) { m.graph.Relu(m.x); }),
            "relu 'layer1.0' is on IPU 3, a replica has IPUs 0 to 1");
  EXPECT_EQ(message([](Model& m) {
              m.graph.Variable("w", {FLOAT32, {1}}, {1});
            }),
            "'layer1.0.w' is on IPU 3, a replica has IPUs 0 to 1");
}

}  // namespace
}  // namespace vpod::compiler
