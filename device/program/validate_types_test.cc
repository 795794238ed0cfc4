// Tests of Validate for single instructions: shapes, types, layouts, attributes, memory that
// operands share.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "device/program/executable.h"
#include "device/program/validate_test_util.h"

namespace vpod::program {
namespace {

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
      {"sgd{} inputs:[0,16,4,7,7] outputs:0", "or a step and state behind them, not a step alone"},
      {"sgd{} inputs:[0,16,4,7,4,18] outputs:[0,18]", "the step is float32[4]"},
      {"sgd{} inputs:[0,16,4,7,7,8] outputs:[0,8]", "the state is bool[4,6]"},
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
      {"softmax{} inputs:3 outputs:3",
       "softmax does not take int32[4], must be floats with a last dimension above 0"},
      {"softmax{} inputs:7 outputs:7", "softmax does not take float32[]"},
      {"softmax_gradient{} inputs:[0,1] outputs:16",
       "the output gradient is float32[6,5], must be float32[4,6]"},
      {"layer_norm{epsilon:1} inputs:3 outputs:[3,4,4]", "layer norm does not take int32[4]"},
      {"layer_norm{epsilon:1} inputs:[30,20] outputs:[30,4,4]",
       "layer norm takes a scale and an offset, or neither of them"},
      {"layer_norm{epsilon:1} inputs:[30,4,20] outputs:[30,4,4]",
       "the scale is float32[4], must be float32[3]"},
      {"layer_norm{epsilon:1} inputs:[30,20,4] outputs:[30,4,4]",
       "the offset is float32[4], must be float32[3]"},
      {"layer_norm{epsilon:-1} inputs:30 outputs:[30,4,4]",
       "epsilon is -1, must be 0 or more and finite"},
      {"layer_norm_gradient{} inputs:[0,1,4,4] outputs:16",
       "the output gradient is float32[6,5], must be float32[4,6]"},
      {"layer_norm_gradient{} inputs:[0,16,20,4] outputs:18",
       "the mean is float32[3], must be float32[4]"},
      {"layer_norm_gradient{} inputs:[0,16,4,20] outputs:18",
       "the inverse deviation is float32[3], must be float32[4]"},
      {"layer_norm_gradient{} inputs:[0,16,4,4,20] outputs:18",
       "the scale is float32[3], must be float32[6]"},
      {"gather{axis:2} inputs:[0,3] outputs:16", "axis 2 does not exist in float32[4,6]"},
      {"gather{axis:0} inputs:[0,4] outputs:16", "the indices are float32[4], must be int32"},
      {"gather{axis:0 along:true} inputs:[0,3] outputs:16",
       "the indices are int32[4], must have the shape of float32[4,6] but along axis 0"},
      {"gather{axis:0} inputs:[0,3] outputs:28", "tensor 28 is float32[6,4], must be float32[4,6]"},
      {"scatter{combine:SET axis:0} inputs:[0,3,1] outputs:16",
       "the update is float32[6,5], must be float32[4,6]"},
      {"scatter{axis:0} inputs:[0,3,16] outputs:18", "unknown way to combine 0"},
      {"scatter{combine:ADD axis:0} inputs:[5,3,17] outputs:5",
       "cannot add or multiply float16[4,6] one by one, must be float32 or integers"},
      {"scatter{combine:MAX axis:0} inputs:[8,3,8] outputs:8",
       "cannot combine bool[4,6], must be numbers"},
      {"iota{type:INT32 dims:4 axis:1} outputs:3", "axis 1 does not exist in int32[4]"},
      {"iota{type:UINT8 dims:4 axis:0} outputs:13",
       "iota does not make uint8[4], must be int32 or float32"},
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
       "output 0 of dynamic_slice shares bytes with its input 0"},
      {"dynamic_update{axes:[0,1,2,3]} inputs:[9,11,3] outputs:9",
       "a slice of 4 elements of axis 1 of float32[2,3,8,8] is outside 0 to 3"},
      {"dynamic_update{axes:[0,1,2,3]} inputs:[9,0,3] outputs:9",
       "a slice of 4 elements of axis 0"},
      {"dynamic_update{axes:[0,1,2,3]} inputs:[9,29,3] outputs:9",
       "the update is float32[2,3], must be float32[2,3,8,8]"},
      {"dynamic_update{axes:[0,1,2,3]} inputs:[9,19,3] outputs:9",
       "the update is int32[2,3,4,4], must be float32[2,3,4,4]"},
      {"dynamic_update{axes:[0,1,2,3]} inputs:[9,9,3] outputs:9",
       "output 0 of dynamic_update shares bytes with its input 1"},
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
  ExpectRefused(variable, "variable 'w' is a wide accumulator");
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
