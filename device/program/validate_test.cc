#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/program/executable.h"
#include "device/program/op.h"
#include "device/program/ops/collective.h"

namespace vpod::program {
namespace {

using testing::HasSubstr;

template <class Message>
Message FromText(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

// The tensors that the instructions below refer to by index.
const TensorType kTensors[] = {
    {v1::FLOAT32, {4, 6}},        // 0
    {v1::FLOAT32, {6, 5}},        // 1
    {v1::FLOAT32, {4, 5}},        // 2
    {v1::INT32, {4}},             // 3
    {v1::FLOAT32, {4}},           // 4
    {v1::FLOAT16, {4, 6}},        // 5
    {v1::FLOAT32, {4, 6}},        // 6: the wide accumulator
    {v1::FLOAT32, {}},            // 7
    {v1::BOOL, {4, 6}},           // 8
    {v1::FLOAT32, {2, 3, 8, 8}},  // 9: image
    {v1::FLOAT32, {4, 3, 3, 3}},  // 10: weights
    {v1::FLOAT32, {2, 4, 8, 8}},  // 11: their convolution with a padding of 1
    {v1::FLOAT32, {2, 3, 4, 4}},  // 12: the image pooled by 2
    {v1::UINT8, {4}},             // 13
    {v1::UINT32, {4}},            // 14
    {v1::FLOAT32, {24}},          // 15
    {v1::FLOAT32, {4, 6}},        // 16
    {v1::FLOAT16, {4, 6}},        // 17
    {v1::FLOAT32, {4, 6}},        // 18
    {v1::INT32, {2, 3, 4, 4}},    // 19: places of the largest elements
    {v1::FLOAT32, {3}},           // 20: one for each channel
    {v1::FLOAT32, {3}},           // 21
    {v1::FLOAT32, {3}},           // 22
    {v1::FLOAT32, {5}},           // 23: hyper-parameters
    {v1::BOOL, {}},               // 24
    {v1::INT32, {}},              // 25
    {v1::UINT32, {}},             // 26
    {v1::UINT32, {2}},            // 27: seed
    {v1::FLOAT32, {6, 4}},        // 28
    {v1::FLOAT32, {2, 3}},        // 29
    {v1::FLOAT32, {4, 3}},        // 30
};
constexpr char kPadded[] =
    "groups:1 window{kernel:[3,3] stride:[1,1] dilation:[1,1] pad_before:[1,1] pad_after:[1,1]}";
constexpr char kPooled[] =
    "window{kernel:[2,2] stride:[2,2] dilation:[1,1] pad_before:[0,0] pad_after:[0,0]}";
// Of the gradients.
constexpr char kSize[] = " image_size:[8,8]";

void AddTensors(v1::Ipu* ipu) {
  for (const TensorType& type : kTensors) {
    v1::Tensor* tensor = ipu->add_tensors();
    tensor->set_type(type.type);
    tensor->mutable_dims()->Add(type.dims.begin(), type.dims.end());
    tensor->set_wide_accumulator(ipu->tensors_size() == 7);
    const Dims strides = ChannelsLastStrides(type.dims);
    const bool is_image = type.rank() == 4 && ipu->tensors_size() != 11;
    if (is_image) tensor->mutable_strides()->Add(strides.begin(), strides.end());
    tensor->set_offset(ipu->arena_bytes());
    ipu->set_arena_bytes(ipu->arena_bytes() + (ArenaBytes(*tensor) + 63) / 64 * 64);
  }
}

// One program, a function for each IPU in protobuf's text format.
v1::Executable WithFunctions(const std::vector<std::string>& functions) {
  v1::Executable executable;
  executable.set_ipus_per_replica(static_cast<uint32_t>(functions.size()));
  v1::Program* program = executable.add_programs();
  program->set_name("main");
  for (const std::string& function : functions) {
    v1::Ipu* ipu = executable.add_ipus();
    AddTensors(ipu);
    *ipu->add_functions() = FromText<v1::Function>(function);
    program->add_functions(0);
  }
  *executable.add_streams() = FromText<v1::Stream>(
      "name:'in' to_device:true type:FLOAT32 dims:4 dims:6 transfers_per_run:6");
  *executable.add_streams() =
      FromText<v1::Stream>("name:'out' type:INT32 dims:4 transfers_per_run:1");
  *executable.add_variables() = FromText<v1::Variable>("name:'w' tensor:16");
  *executable.mutable_ipus(0)->add_remote_buffers() =
      FromText<v1::RemoteBuffer>("name:'stash' type:FLOAT32 dims:4 dims:6 rows:3");
  return executable;
}

v1::Executable WithSteps(const std::string& steps) { return WithFunctions({steps}); }

void ExpectValid(const v1::Executable& executable) {
  const absl::Status status = Validate(executable, {});
  EXPECT_TRUE(status.ok()) << status;
}

void ExpectRefused(const v1::Executable& executable, const std::string& part,
                   const Limits& limits = {}) {
  const absl::Status status = Validate(executable, limits);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

// Instructions that a sound program may hold, one or more of each kind.
std::vector<std::string> ValidSteps() {
  return {
      "fill{value:1.5} outputs:0",
      "fill{value:-2147483648} outputs:3",
      "fill{value:4294967295} outputs:14",
      "fill{value:255} outputs:13",
      "fill{value:1} outputs:8",
      "fill{value:0} outputs:6",
      "copy{} inputs:0 outputs:16",
      "cast{type:FLOAT16} inputs:0 outputs:5",
      "cast{type:FLOAT32} inputs:3 outputs:4",
      "cast{type:FLOAT32} inputs:0 outputs:0",
      "unary{operator:TANH} inputs:0 outputs:16",
      "unary{operator:LOGICAL_NOT} inputs:8 outputs:8",
      "binary{operator:ADD} inputs:0 inputs:7 outputs:16",
      "binary{operator:LESS} inputs:0 inputs:16 outputs:8",
      "reduce{operator:SUM axes:1} inputs:0 outputs:4",
      "reduce{operator:MEAN axes:0 axes:1} inputs:0 outputs:7",
      "arg_max{} inputs:0 outputs:3",
      "mat_mul{} inputs:0 inputs:1 outputs:2",
      "mat_mul{transpose_b:true} inputs:2 inputs:1 outputs:0",
      absl::StrCat("convolution{pass:FORWARD ", kPadded, "} inputs:[9,10] outputs:11"),
      absl::StrCat("convolution{pass:INPUT_GRADIENT ", kPadded, kSize,
                   "} inputs:[11,10] outputs:9"),
      absl::StrCat("convolution{pass:WEIGHT_GRADIENT ", kPadded, "} inputs:[9,11] outputs:10"),
      absl::StrCat("max_pool{", kPooled, "} inputs:9 outputs:[12,19]"),
      absl::StrCat("max_pool_gradient{", kPooled, kSize, "} inputs:[12,19] outputs:9"),
      absl::StrCat("average_pool{", kPooled, "} inputs:9 outputs:12"),
      absl::StrCat("average_pool_gradient{", kPooled, kSize, "} inputs:12 outputs:9"),
      "max_pool{output_size:[4,4]} inputs:9 outputs:[12,19]",
      absl::StrCat("max_pool_gradient{", kSize, "} inputs:[12,19] outputs:9"),
      "average_pool{output_size:[4,4]} inputs:9 outputs:12",
      absl::StrCat("average_pool_gradient{", kSize, "} inputs:12 outputs:9"),
      "batch_norm{epsilon:1e-5} inputs:[9,20,20] outputs:[9,21,22]",
      "batch_norm_inference{epsilon:1e-5} inputs:[9,20,20,21,22] outputs:9",
      "batch_norm_gradient{epsilon:1e-5} inputs:[9,9,20,21,22] outputs:[9,21,22]",
      "softmax_cross_entropy{} inputs:0 inputs:3 outputs:4 outputs:16",
      "softmax_cross_entropy_gradient{} inputs:0 inputs:3 inputs:4 outputs:16",
      "accumulate{} inputs:6 inputs:0 outputs:6",
      "accumulate{} inputs:6 inputs:5 outputs:6",
      "sgd{} inputs:[16,0,4,7] outputs:16",
      "sgd{nesterov:true} inputs:[5,0,4,7] outputs:5",
      "sgd{} inputs:[16,5,4,7,7,0] outputs:[16,0]",
      "adam{} inputs:[5,17,23,7,7,0,16] outputs:[5,0,16]",
      "adam{} inputs:[5,17,23,7,7,0,16,18] outputs:[5,0,16,18]",
      "all_finite{} inputs:[0,5,7] outputs:24",
      "update_loss_scale{growth:2 backoff:0.5 interval:2000} inputs:[7,25,24] outputs:[7,25]",
      "replica_index{} outputs:26",
      "random{distribution:UNIFORM type:FLOAT16 dims:[4,6]} inputs:[27,26,26] outputs:5",
      "random{distribution:BITS type:UINT32 dims:2 number:1} inputs:[27,26,26] outputs:27",
      "select{} inputs:[24,0,7] outputs:16",
      "transpose{permutation:[1,0]} inputs:0 outputs:28",
      "slice{begin:[1,0] size:[2,3] step:[2,2]} inputs:0 outputs:29",
      "expand{dims:[4,6]} inputs:7 outputs:0",
      "pad{before:[1,0] after:[1,3] value:-1} inputs:29 outputs:0",
      "concat{axis:0} inputs:[29,29] outputs:30",
      "dynamic_slice{axes:[0,1,2,3] size:[2,3,4,4]} inputs:[9,3] outputs:12",
      "dynamic_update{axes:[0,1,2,3]} inputs:[9,12,3] outputs:9",
      "all_reduce{operator:SUM} inputs:6 inputs:5 outputs:0 outputs:5",
      "all_reduce{operator:MEAN} inputs:0 outputs:0",
      "all_reduce{operator:SQUARE_ADD group{kind:CONSECUTIVE size:4}} inputs:3 outputs:3",
      "reduce_scatter{operator:MIN} inputs:0 outputs:4",
      "all_gather{group{kind:ORTHOGONAL size:6}} inputs:4 outputs:0",
      "all_to_all{} inputs:0 outputs:16",
      "broadcast{root:3} inputs:0 outputs:0",
      "stream_in{stream:0} outputs:0",
      "remote_load{buffer:0} inputs:25 outputs:0",
      "remote_store{buffer:0} inputs:[0,25]",
      "stream_out{stream:1} inputs:3",
  };
}

TEST(ValidateTest, AcceptsEveryInstruction) {
  for (const std::string& step : ValidSteps()) {
    SCOPED_TRACE(step);
    ExpectValid(WithSteps(absl::StrCat("instructions{", step, "}")));
  }
}

TEST(ValidateTest, AcceptsAnEmptyProgram) { ExpectValid(WithSteps("")); }

// Every operand of every instruction is checked: an index outside the table is refused wherever it
// is, and so are more or fewer operands than the op takes.
TEST(ValidateTest, RefusesTensorsThatDoNotExistAndOtherNumbersOfThem) {
  int operands = 0;
  for (const std::string& step : ValidSteps()) {
    const auto instruction = FromText<v1::Instruction>(step);
    for (const bool inputs : {true, false}) {
      const int size = inputs ? instruction.inputs_size() : instruction.outputs_size();
      for (int i = 0; i <= size; ++i) {
        SCOPED_TRACE(absl::StrCat(step, inputs ? " input " : " output ", i));
        v1::Executable executable = WithSteps("");
        v1::Instruction* copy =
            executable.mutable_ipus(0)->mutable_functions(0)->add_instructions();
        *copy = instruction;
        auto* changed = inputs ? copy->mutable_inputs() : copy->mutable_outputs();
        if (i < size) {
          changed->Set(i, 31);
          ExpectRefused(executable, "tensor 31 does not exist (there are 31)");
          *copy = instruction;
          changed->RemoveLast();
          // One input fewer is another optimiser's, or as good for an op that takes any number.
          const bool collective = CollectiveOf(instruction).has_value() && size > 1;
          const char* side = inputs ? " input" : " output";
          if (!(inputs && instruction.has_all_finite()))
            ExpectRefused(executable,
                          collective ? "must have as many of both"
                          : inputs && (instruction.has_sgd() || instruction.has_adam() ||
                                       instruction.has_concat())
                              ? ""
                              : side);
          ++operands;
        } else if (CollectiveOf(instruction).has_value()) {
          changed->Add(0);
          ExpectRefused(executable, "must have as many of both");
        } else if (!(inputs && instruction.inputs_size() > 0 &&
                     FindOp(instruction.attributes_case())->inputs.most == kAnyNumber)) {
          for (int more = 0; more < 8; ++more) changed->Add(0);
          ExpectRefused(executable, absl::StrCat(inputs ? " input" : " output"));
        }
      }
    }
  }
  EXPECT_GT(operands, 60);
}

TEST(ValidateTest, NamesTheNumberOfOperandsAnOpTakes) {
  ExpectRefused(WithSteps("instructions{mat_mul{} inputs:0 inputs:1 inputs:2 outputs:0}"),
                "IPU 0 function 0 instruction 0 (mat_mul): mat_mul takes 2 inputs, not 3");
  ExpectRefused(WithSteps("instructions{fill{}}"), "fill takes 1 output, not 0");
  ExpectRefused(WithSteps("instructions{adam{} inputs:0 inputs:1 outputs:[0,0,0]}"),
                "adam takes 7 or 8 inputs, not 2");
  // As many as the rule gives for the inputs that there are.
  ExpectRefused(WithSteps("instructions{sgd{} inputs:[16,0,4,7] outputs:16 outputs:0}"),
                "sgd takes 1 output, not 2");
  ExpectRefused(WithSteps("instructions{sgd{} inputs:[16,0,4,7,7,18] outputs:16}"),
                "sgd takes 2 outputs, not 1");
  ExpectRefused(WithSteps("instructions{all_reduce{}}"),
                "all_reduce takes at least 1 input, not 0");
  ExpectRefused(WithSteps("instructions{fill{} outputs:0} instructions{}"),
                "IPU 0 function 0 instruction 1: unknown instruction");
}

TEST(ValidateTest, WhatIsUpdatedInPlaceIsInputAndOutput) {
  ExpectRefused(WithSteps("instructions{accumulate{} inputs:6 inputs:0 outputs:0}"),
                "output 0 of accumulate must be its input 0");
  ExpectRefused(WithSteps("instructions{sgd{} inputs:[16,0,4,7,7,18] outputs:[16,0]}"),
                "output 1 of sgd must be its input 5");
}

struct BadStep {
  std::string step;
  std::string message;
};

void ExpectRefusedSteps(const std::vector<BadStep>& steps) {
  for (const BadStep& bad : steps) {
    SCOPED_TRACE(bad.step);
    const v1::Executable executable =
        WithSteps(absl::StrCat("instructions{fill{} outputs:0} instructions{", bad.step, "}"));
    const std::string op = bad.step.substr(0, bad.step.find('{'));
    ExpectRefused(executable, absl::StrCat("IPU 0 function 0 instruction 1 (", op, "): "));
    ExpectRefused(executable, bad.message);
  }
}

TEST(ValidateTest, RefusesWrongShapesAndTypes) {
  ExpectRefusedSteps({
      {"copy{} inputs:0 outputs:15", "tensor 15 is float32[24], must be float32[4,6]"},
      {"copy{} inputs:0 outputs:5", "tensor 5 is float16[4,6], must be float32[4,6]"},
      {"cast{} inputs:0 outputs:5", "unknown element type 0"},
      {"cast{type:FLOAT16} inputs:0 outputs:16", "tensor 16 is float32[4,6], must be float16[4,6]"},
      {"cast{type:FLOAT32} inputs:0 outputs:15", "tensor 15 is float32[24], must be float32[4,6]"},
      {"unary{operator:TANH} inputs:0 outputs:5", "tensor 5 is float16[4,6], must be float32[4,6]"},
      {"unary{operator:TANH} inputs:3 outputs:3", "TANH does not take int32[4]"},
      {"binary{operator:ADD} inputs:0 inputs:1 outputs:0",
       "shapes [4,6] and [6,5] do not broadcast"},
      {"binary{operator:ADD} inputs:0 inputs:7 outputs:7",
       "tensor 7 is float32[], must be float32[4,6]"},
      {"binary{operator:LESS} inputs:0 inputs:7 outputs:0",
       "tensor 0 is float32[4,6], must be bool[4,6]"},
      {"reduce{operator:SUM axes:0} inputs:0 outputs:4",
       "tensor 4 is float32[4], must be float32[6]"},
      {"reduce{operator:SUM axes:2} inputs:0 outputs:4", "axes [2]"},
      {"arg_max{} inputs:0 outputs:4", "tensor 4 is float32[4], must be int32[4]"},
      {"mat_mul{} inputs:0 inputs:1 outputs:0", "tensor 0 is float32[4,6], must be float32[4,5]"},
      {"mat_mul{} inputs:0 inputs:0 outputs:0", "matmul does not take"},
      {absl::StrCat("convolution{pass:FORWARD ", kPadded, "} inputs:[9,10] outputs:9"),
       "tensor 9 is"},
      {absl::StrCat("convolution{pass:FORWARD ", kPadded, kSize, "} inputs:[9,10] outputs:11"),
       "only INPUT_GRADIENT has an image_size"},
      {absl::StrCat("convolution{pass:INPUT_GRADIENT ", kPadded, kSize,
                    "} inputs:[9,10] outputs:9"),
       "the result gradient is float32[2,3,8,8], must be float32[2,4,8,8]"},
      {absl::StrCat("convolution{pass:INPUT_GRADIENT ", kPadded, "} inputs:[11,10] outputs:9"),
       "the image is float32[2,3]"},
      {absl::StrCat("convolution{pass:WEIGHT_GRADIENT ", kPadded, "} inputs:[9,12] outputs:10"),
       "the result gradient is float32[2,3,4,4], must be float32[2,3,8,8]"},
      {absl::StrCat("convolution{", kPadded, "} inputs:[9,10] outputs:11"),
       "unknown convolution pass 0"},
      {"convolution{pass:FORWARD groups:1} inputs:[9,10] outputs:11", "must be float32[4,3]"},
      {"convolution{pass:WEIGHT_GRADIENT} inputs:[9,11] outputs:10", "groups is 0"},
      {absl::StrCat("max_pool{", kPooled, "} inputs:9 outputs:[9,19]"), "tensor 9 is"},
      {absl::StrCat("max_pool{", kPooled, "} inputs:9 outputs:[12,12]"), "tensor 12 is"},
      {absl::StrCat("max_pool_gradient{", kPooled, kSize, "} inputs:[12,12] outputs:9"),
       "the index tensor is float32[2,3,4,4], must be int32[2,3,4,4]"},
      {absl::StrCat("average_pool{", kPooled, "} inputs:0 outputs:12"), "the image is"},
      {absl::StrCat("average_pool_gradient{", kPooled, kSize, "} inputs:9 outputs:9"),
       "the output gradient is float32[2,3,8,8], must be float32[2,3,4,4]"},
      {absl::StrCat("average_pool{output_size:[4,4] ", kPooled, "} inputs:9 outputs:12"),
       "a pooling has a window or an output size, not both"},
      {"average_pool{output_size:[4,0]} inputs:9 outputs:12",
       "output size [4,0] of float32[2,3,8,8] needs an entry of 1 or more"},
      {"max_pool{output_size:4} inputs:9 outputs:[12,19]", "output size [4] of"},
      {"max_pool{output_size:[4,-4]} inputs:9 outputs:[12,19]", "output size [4,-4] of"},
      {"max_pool{output_size:[2147483648,2147483648]} inputs:9 outputs:[12,19]", "dimensions"},
      {"average_pool{} inputs:9 outputs:12", "output size [] of"},
      {"average_pool_gradient{image_size:8} inputs:12 outputs:9",
       "output size [4,4] of float32[2,3,8]"},
      {"batch_norm{} inputs:[9,20,20] outputs:[9,21,22]", "epsilon is 0, must be above 0"},
      {"batch_norm{epsilon:1} inputs:[4,20,20] outputs:[9,21,22]", "x is float32[4]"},
      {"batch_norm{epsilon:1} inputs:[9,4,20] outputs:[9,21,22]",
       "the scale is float32[4], must be float32[3]"},
      {"batch_norm_inference{epsilon:1} inputs:[9,20,20,4,22] outputs:9",
       "the mean is float32[4], must be float32[3]"},
      {"batch_norm_gradient{epsilon:1} inputs:[9,12,20,21,22] outputs:[9,21,22]",
       "the gradient is float32[2,3,4,4], must be float32[2,3,8,8]"},
      // Layouts.
      {"mat_mul{} inputs:[9,9] outputs:0", "input 0 of mat_mul, must be row-major"},
      {absl::StrCat("convolution{pass:FORWARD ", kPadded, "} inputs:[10,10] outputs:11"),
       "tensor 10, input 0 of convolution, must be densely packed with the channels innermost"},
      {"softmax_cross_entropy{} inputs:0 inputs:4 outputs:4 outputs:16", "cross-entropy"},
      {"softmax_cross_entropy{} inputs:0 inputs:3 outputs:3 outputs:16", "tensor 3 is"},
      {"softmax_cross_entropy{} inputs:0 inputs:3 outputs:4 outputs:5", "tensor 5 is"},
      {"softmax_cross_entropy_gradient{} inputs:0 inputs:3 inputs:0 outputs:16",
       "the loss gradient is float32[4,6], must be float32[4]"},
      {"softmax_cross_entropy_gradient{} inputs:0 inputs:3 inputs:4 outputs:2", "tensor 2 is"},
      {"sgd{} inputs:[3,3,4,7] outputs:3", "SGD does not update int32[4]"},
      {"sgd{} inputs:[0,2,4,7] outputs:0", "the gradient is float32[4,5]"},
      {"sgd{} inputs:[0,16,7,7] outputs:0",
       "the hyper-parameter vector is float32[], must be float32[4]"},
      {"sgd{} inputs:[0,16,4,4] outputs:0", "the loss scale is float32[4], must be float32[]"},
      {"sgd{} inputs:[0,16,4,7,7] outputs:0", "a step without state has no use"},
      {"sgd{} inputs:[0,16,4,7,4,18] outputs:[0,18]", "the step is float32[4]"},
      {"sgd{} inputs:[0,16,4,7,7,5] outputs:[0,5]", "the state is float16[4,6]"},
      {"adam{} inputs:[0,16,4,7,7,16,18] outputs:[0,16,18]",
       "the hyper-parameter vector is float32[4], must be float32[5]"},
      {"all_finite{} inputs:[0,3] outputs:24", "all-finite does not take int32[4]"},
      {"update_loss_scale{growth:1 backoff:0.5 interval:1} inputs:[7,25,24] outputs:[7,25]",
       "growth is 1, must be above 1"},
      {"update_loss_scale{growth:2 backoff:1 interval:1} inputs:[7,25,24] outputs:[7,25]",
       "backoff is 1, must be above 0 and below 1"},
      {"update_loss_scale{growth:2 backoff:0.5} inputs:[7,25,24] outputs:[7,25]",
       "interval is 0, must be 1 or more"},
      {"random{type:UINT32 dims:2} inputs:[27,26,26] outputs:27", "unknown random distribution 0"},
      {"random{distribution:NORMAL type:UINT32 dims:2} inputs:[27,26,26] outputs:27",
       "NORMAL does not make uint32[2]"},
      {"random{distribution:BITS type:UINT32 dims:2} inputs:[26,26,26] outputs:27",
       "the seed is uint32[], must be uint32[2]"},
      {"select{} inputs:[0,0,7] outputs:16", "select does not take float32[4,6]"},
      {"transpose{permutation:[1,1]} inputs:0 outputs:28",
       "[1,1] is not a permutation of the dimensions of float32[4,6]"},
      {"slice{begin:[1,0] size:[2,3]} inputs:0 outputs:29",
       "a slice of float32[4,6] needs 2 entries in each field"},
      {"slice{begin:[2,0] size:[2,3] step:[2,2]} inputs:0 outputs:29",
       "a slice of 2 elements from 2 in steps of 2 leaves dimension 0 of float32[4,6]"},
      {"slice{begin:[0,0] size:[9223372036854775807,3] step:[9223372036854775807,2]} inputs:0 "
       "outputs:29",
       "leaves dimension 0"},
      {"expand{dims:[4,5]} inputs:0 outputs:2", "float32[4,6] does not expand to [4,5]"},
      {"pad{before:1 after:[1,3]} inputs:29 outputs:0", "needs 2 entries before and after"},
      {"pad{before:[-1,0] after:[1,3]} inputs:29 outputs:0", "padding -1 is outside 0 to"},
      {"concat{axis:2} inputs:[29,29] outputs:30", "has no axis 2 to concatenate along"},
      {"concat{axis:0} inputs:[29,0] outputs:30",
       "float32[2,3] and float32[4,6] do not concatenate along axis 0"},
      {"dynamic_slice{axes:[0,1,2,3] size:[2,3,4]} inputs:[9,3] outputs:12",
       "there are 3 sizes for 4 axes"},
      {"dynamic_slice{axes:[0,1,2,3] size:[2,3,4,9]} inputs:[9,3] outputs:12",
       "a slice of 9 elements of axis 3 of float32[2,3,8,8] is outside 0 to 8"},
      {"dynamic_slice{axes:[0,1,2,3] size:[2,3,4,-1]} inputs:[9,3] outputs:12",
       "a slice of -1 elements of axis 3"},
      {"dynamic_slice{axes:[0,1,3,2] size:[2,3,4,4]} inputs:[9,3] outputs:12", "axes [0,1,3,2]"},
      {"dynamic_slice{axes:[0,1,2,4] size:[2,3,4,4]} inputs:[9,3] outputs:12", "axes [0,1,2,4]"},
      {"dynamic_slice{} inputs:[9,3] outputs:9", "axes []"},
      {"dynamic_slice{axes:[0,1] size:[2,3]} inputs:[9,3] outputs:9",
       "the start is int32[4], must be int32[2]"},
      {"dynamic_slice{axes:[0,1,2,3] size:[2,3,4,4]} inputs:[9,4] outputs:12",
       "the start is float32[4], must be int32[4]"},
      {"dynamic_slice{axes:[0,1,2,3] size:[2,3,8,8]} inputs:[9,3] outputs:9",
       "the output shares bytes with input 0"},
      {"dynamic_update{axes:[0,1,2,3]} inputs:[9,11,3] outputs:9",
       "a slice of 4 elements of axis 1 of float32[2,3,8,8] is outside 0 to 3"},
      {"dynamic_update{axes:[0,1,2,3]} inputs:[9,0,3] outputs:9",
       "a slice of 4 elements of axis 0"},
      {"dynamic_update{axes:[0,1,2,3]} inputs:[9,29,3] outputs:9",
       "the update is float32[2,3], must be float32[2,3,8,8]"},
      {"dynamic_update{axes:[0,1,2,3]} inputs:[9,19,3] outputs:9",
       "the update is int32[2,3,4,4], must be float32[2,3,4,4]"},
      {"dynamic_update{axes:[0,1,2,3]} inputs:[9,9,3] outputs:9",
       "the output shares bytes with input 1"},
      {"softmax_cross_entropy{label_smoothing:1.5} inputs:0 inputs:3 outputs:4 outputs:16",
       "label smoothing of 1.5 is outside 0 to 1"},
      {"all_reduce{operator:MEAN} inputs:3 outputs:3", "cannot take the mean of int32[4]"},
      {"all_reduce{operator:SUM} inputs:0 outputs:5", "the all-reduce of"},
      {"all_reduce{operator:SUM} inputs:0 inputs:5 outputs:0",
       "the all-reduce has 2 inputs and 1 outputs, must have as many of both"},
      {"all_reduce{} inputs:0 outputs:0", "unknown reduce operator 0"},
      {"all_reduce{operator:SUM group{kind:CONSECUTIVE}} inputs:0 outputs:0",
       "a replica group needs a size of 1 or more"},
      {"all_reduce{operator:SUM group{size:4}} inputs:0 outputs:0",
       "a group of all replicas is given no size"},
      {"broadcast{root:4 group{kind:CONSECUTIVE size:4}} inputs:0 outputs:0",
       "root 4 is not a position in a group of 4 replicas"},
      {"broadcast{} inputs:6 outputs:0", "tensor 6 is a wide accumulator"},
      {"all_gather{} inputs:0 outputs:4", "the all-gather over"},
      {"all_gather{group{kind:CONSECUTIVE size:2}} inputs:4 outputs:0",
       "the all-gather over 2 replicas does not turn 4 elements into"},
      {"all_to_all{} inputs:0 outputs:0", "an output of the all-to-all shares bytes"},
      {"all_to_all{group{kind:CONSECUTIVE size:7}} inputs:0 outputs:16",
       "the all-to-all over 7 replicas"},
  });
}

TEST(ValidateTest, RefusesAllReducesWhoseOutputsOverlap) {
  // The same input twice is fine, as a gradient that two variables share.
  ExpectValid(
      WithSteps("instructions{all_reduce{operator:SUM} inputs:4 inputs:0 inputs:0 inputs:5 "
                "outputs:4 outputs:16 outputs:18 outputs:5}"));
  const std::string text = "an output of the all-reduce shares bytes with another of its tensors";
  ExpectRefusedSteps({
      {"all_reduce{operator:SUM} inputs:0 inputs:0 outputs:16 outputs:16", text},
      {"all_reduce{operator:SUM} inputs:0 inputs:0 outputs:0 outputs:16", text},
      {"all_reduce{operator:SUM} inputs:0 inputs:16 outputs:16 outputs:0", text},
  });
  v1::Executable executable =
      WithSteps("instructions{all_reduce{operator:SUM} inputs:0 outputs:16}");
  ExpectValid(executable);
  v1::Ipu* ipu = executable.mutable_ipus(0);
  ipu->mutable_tensors(16)->set_offset(64);  // the second half of tensor 0
  ExpectRefused(executable, text);
}

TEST(ValidateTest, RefusesFillsThatTheTypeDoesNotHold) {
  ExpectRefusedSteps({
      {"fill{value:2147483648} outputs:3", "value 2.14748e+09 is not of type int32"},
      {"fill{value:0.5} outputs:3", "value 0.5 is not of type int32"},
      {"fill{value:nan} outputs:3", "value nan is not of type int32"},
      {"fill{value:-1} outputs:14", "value -1 is not of type uint32"},
      {"fill{value:inf} outputs:14", "value inf is not of type uint32"},
      {"fill{value:256} outputs:13", "value 256 is not of type uint8"},
      {"fill{value:2} outputs:8", "value 2 is not of type bool"},
  });
}

TEST(ValidateTest, RefusesWideAccumulatorsInOrdinaryOperations) {
  ExpectRefusedSteps({
      {"copy{} inputs:6 outputs:0", "tensor 6 is a wide accumulator"},
      {"copy{} inputs:0 outputs:6", "tensor 6 is a wide accumulator"},
      {"cast{type:FLOAT16} inputs:6 outputs:5", "tensor 6 is a wide accumulator"},
      {"unary{operator:TANH} inputs:0 outputs:6", "tensor 6 is a wide accumulator"},
      {"binary{operator:ADD} inputs:0 inputs:6 outputs:0", "tensor 6 is a wide accumulator"},
      {"reduce{operator:SUM axes:1} inputs:6 outputs:4", "tensor 6 is a wide accumulator"},
      {"mat_mul{} inputs:6 inputs:1 outputs:2", "tensor 6 is a wide accumulator"},
      {"sgd{} inputs:[16,6,4,7] outputs:16", "tensor 6 is a wide accumulator"},
      {"stream_in{stream:0} outputs:6", "tensor 6 is a wide accumulator"},
      {"remote_load{buffer:1} inputs:25 outputs:0", "remote buffer 1 does not exist (there are 1)"},
      {"remote_load{buffer:0} inputs:26 outputs:0", "tensor 26 is uint32[], must be int32[]"},
      {"remote_load{buffer:0} inputs:25 outputs:1",
       "tensor 1 is float32[6,5], must be float32[4,6]"},
      {"remote_store{buffer:0} inputs:[5,25]", "tensor 5 is float16[4,6], must be float32[4,6]"},
      {"all_reduce{operator:SUM} inputs:6 outputs:6", "tensor 6 is a wide accumulator"},
      {"accumulate{} inputs:6 inputs:6 outputs:6", "tensor 6 is a wide accumulator"},
      {"accumulate{} inputs:16 inputs:0 outputs:16",
       "tensor 16 is not a wide accumulator for float32[4,6]"},
      {"accumulate{} inputs:6 inputs:4 outputs:6",
       "tensor 6 is not a wide accumulator for float32[4]"},
      {"accumulate{} inputs:6 inputs:8 outputs:6",
       "tensor 6 is not a wide accumulator for bool[4,6]"},
  });
  v1::Executable half = WithSteps("");
  half.mutable_ipus(0)->mutable_tensors(5)->set_wide_accumulator(true);
  half.mutable_ipus(0)->mutable_tensors(5)->set_offset(0);
  ExpectRefused(half, "IPU 0: tensor 5: a wide accumulator must be float32");
  v1::Executable variable = WithSteps("");
  variable.mutable_variables(0)->set_tensor(6);
  ExpectRefused(variable, "variable 'w': bad name, IPU or tensor");
}

TEST(ValidateTest, RefusesUnknownEnumValuesAndInstructions) {
  const auto with = [](const auto& change) {
    v1::Executable executable = WithSteps("");
    v1::Instruction* step = executable.mutable_ipus(0)->mutable_functions(0)->add_instructions();
    step->add_inputs(0);
    step->add_outputs(0);
    change(step);
    return executable;
  };
  ExpectRefused(with([](v1::Instruction*) {}), "instruction 0: unknown instruction");
  ExpectRefused(with([](v1::Instruction* step) {
                  step->mutable_unary()->set_operator_(static_cast<v1::UnaryOperator>(77));
                }),
                "unknown unary operator 77");
  ExpectRefused(with([](v1::Instruction* step) {
                  step->mutable_binary();
                  step->add_inputs(0);
                }),
                "unknown binary operator 0");
  ExpectRefused(with([](v1::Instruction* step) {
                  step->mutable_reduce()->set_operator_(static_cast<v1::ReduceOperator>(-3));
                }),
                "unknown reduce operator -3");
  ExpectRefused(with([](v1::Instruction* step) {
                  step->mutable_convolution()->set_pass(static_cast<v1::Convolution::Pass>(4));
                  step->add_inputs(0);
                }),
                "unknown convolution pass 4");
  ExpectRefused(with([](v1::Instruction* step) {
                  step->mutable_all_reduce()->set_operator_(static_cast<v1::ReduceOperator>(9));
                }),
                "unknown reduce operator 9");
  v1::Executable tensor = WithSteps("");
  tensor.mutable_ipus(0)->mutable_tensors(2)->set_type(static_cast<v1::DataType>(42));
  ExpectRefused(tensor, "IPU 0: tensor 2: unknown element type 42");
  v1::Executable stream = WithSteps("");
  stream.mutable_streams(0)->set_type(static_cast<v1::DataType>(42));
  ExpectRefused(stream, "stream 'in': bad name, IPU or shape");
}

TEST(ValidateTest, RemoteBuffers) {
  const auto with = [](const std::string& buffer) {
    v1::Executable executable = WithSteps("");
    *executable.mutable_ipus(0)->add_remote_buffers() = FromText<v1::RemoteBuffer>(buffer);
    return executable;
  };
  ExpectValid(with("name:'a' type:INT8 rows:1"));
  ExpectRefused(with("type:INT8 rows:1"),
                "IPU 0: remote buffer '': the name is empty or used twice");
  ExpectRefused(with("name:'w' type:INT8 rows:1"), "'w': the name is empty or used twice");
  ExpectRefused(with("name:'a' type:INT8 rows:0"), "'a' has no rows, must be 1 or more");
  ExpectRefused(with("name:'a' rows:1"), "remote buffer 'a': unknown element type 0");
  ExpectValid(with("name:'a' type:INT8 dims:134217728 rows:4"));
  ExpectRefused(with("name:'a' type:INT8 dims:134217729 rows:4"),
                "a row has 134217729 bytes, must be 1 to 134217728");
  ExpectRefused(with("name:'a' type:INT8 dims:0 rows:4"), "a row has 0 bytes, must be 1 to");
  ExpectRefused(with("name:'a' type:INT8 dims:134217728 rows:4294967295"),
                "remote buffers exceed 34359738368 bytes");
  ExpectRefused(with("name:'a' type:INT8 rows:1"), "more than 1 remote buffers",
                {.remote_buffers = 1});
}

TEST(ValidateTest, RefusesTensorsOutsideTheArena) {
  const auto with = [](const auto& change) {
    v1::Executable executable = WithSteps("");
    change(*executable.mutable_ipus(0));
    return executable;
  };
  ExpectRefused(with([](v1::Ipu& ipu) { ipu.mutable_tensors(3)->set_offset(2); }),
                "IPU 0: tensor 3 at offset 2 with 16 bytes does not fit the arena");
  ExpectRefused(with([](v1::Ipu& ipu) { ipu.mutable_tensors(3)->set_offset(ipu.arena_bytes()); }),
                "tensor 3 at offset");
  // The end of the tensor, computed carelessly, wraps to a small number.
  ExpectRefused(with([](v1::Ipu& ipu) { ipu.mutable_tensors(3)->set_offset(-uint64_t{64}); }),
                "tensor 3 at offset 18446744073709551552");
  ExpectRefused(with([](v1::Ipu& ipu) { ipu.mutable_tensors(0)->set_dims(0, int64_t{1} << 31); }),
                "IPU 0: tensor 0: dimensions");
  ExpectRefused(with([](v1::Ipu& ipu) { ipu.mutable_tensors(0)->set_dims(0, -1); }), "tensor 0");
  // No elements fit anywhere but behind the end.
  const auto empty = [&](uint64_t offset) {
    return with([offset](v1::Ipu& ipu) {
      ipu.mutable_tensors(0)->set_dims(0, 0);
      ipu.mutable_tensors(0)->set_offset(offset);
    });
  };
  const uint64_t end = WithSteps("").ipus(0).arena_bytes();
  ExpectValid(empty(end));
  ExpectRefused(empty(end + 4), "tensor 0 at offset");
  ExpectRefused(with([](v1::Ipu& ipu) { ipu.set_arena_bytes(0); }), "the arena of 0 bytes");
  ExpectRefused(with([](v1::Ipu& ipu) { ipu.set_arena_bytes((2ull << 30) + 1); }),
                "arena of 2147483649 bytes exceeds 2147483648");
  // A wide accumulator takes eight bytes an element.
  const auto last = [](bool wide) {
    v1::Executable executable = WithSteps("");
    v1::Ipu& ipu = *executable.mutable_ipus(0);
    ipu.mutable_tensors(16)->set_wide_accumulator(wide);
    ipu.mutable_tensors(16)->set_offset(ipu.arena_bytes() - 128);
    executable.clear_variables();
    return executable;
  };
  ExpectValid(last(false));
  ExpectRefused(last(true), "tensor 16 at offset");
}

// What moves or stays has elements.
TEST(ValidateTest, RefusesToMoveOrKeepNoElements) {
  v1::Executable stream = WithSteps("");
  stream.mutable_streams(0)->set_dims(0, 0);
  ExpectRefused(stream, "stream 'in' of float32[0,6] moves no elements");
  v1::Executable variable = WithSteps("");
  variable.mutable_ipus(0)->mutable_tensors(16)->set_dims(1, 0);
  ExpectRefused(variable, "variable 'w' has no elements");
  v1::Executable exchange = WithFunctions({"", ""});
  exchange.mutable_ipus(0)->mutable_tensors(0)->set_dims(0, 0);
  exchange.mutable_ipus(1)->mutable_tensors(0)->set_dims(0, 0);
  *exchange.add_exchanges() = FromText<v1::Exchange>("moves{to_ipu:1}");
  ExpectRefused(exchange, "exchange 0: tensor 0 of IPU 0 has no elements");
  for (const char* step :
       {"all_reduce{operator:SUM} inputs:0 outputs:0", "all_gather{} inputs:4 outputs:0",
        "all_gather{} inputs:0 outputs:15", "reduce_scatter{operator:SUM} inputs:0 outputs:4"}) {
    v1::Executable collective = WithSteps(absl::StrCat("instructions{", step, "}"));
    collective.mutable_ipus(0)->mutable_tensors(0)->set_dims(0, 0);
    ExpectRefused(collective, "moves no elements");
  }
}

TEST(ValidateTest, RefusesMomentsOfNoElements) {
  for (const char* step :
       {"batch_norm{epsilon:1} inputs:[9,20,20] outputs:[9,21,22]",
        "batch_norm_gradient{epsilon:1} inputs:[9,9,20,21,22] outputs:[9,21,22]"}) {
    v1::Executable executable = WithSteps(absl::StrCat("instructions{", step, "}"));
    v1::Tensor* image = executable.mutable_ipus(0)->mutable_tensors(9);
    image->set_dims(0, 0);
    image->clear_strides();
    ExpectRefused(executable,
                  "x is float32[0,3,8,8] and has no elements, of which the mean is taken");
  }
}

}  // namespace
}  // namespace vpod::program
