#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/program/executable.h"

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
    {v1::FLOAT32, {2, 8, 8, 3}},  // 9: image
    {v1::FLOAT32, {3, 3, 3, 4}},  // 10: weights
    {v1::FLOAT32, {2, 8, 8, 4}},  // 11: their convolution with a padding of 1
    {v1::FLOAT32, {2, 4, 4, 3}},  // 12: the image pooled by 2
    {v1::UINT8, {4}},             // 13
    {v1::UINT32, {4}},            // 14
    {v1::FLOAT32, {24}},          // 15
    {v1::FLOAT32, {4, 6}},        // 16
    {v1::FLOAT16, {4, 6}},        // 17
    {v1::FLOAT32, {4, 6}},        // 18
};
constexpr char kPadded[] =
    "window{stride_h:1 stride_w:1 pad_top:1 pad_bottom:1 pad_left:1 pad_right:1}";
constexpr char kPooled[] = "window{stride_h:2 stride_w:2 kernel_h:2 kernel_w:2}";

void AddTensors(v1::Ipu* ipu) {
  for (const TensorType& type : kTensors) {
    v1::Tensor* tensor = ipu->add_tensors();
    tensor->set_type(type.type);
    tensor->mutable_dims()->Add(type.dims.begin(), type.dims.end());
    tensor->set_wide_accumulator(ipu->tensors_size() == 7);
    tensor->set_offset(ipu->arena_bytes());
    ipu->set_arena_bytes(ipu->arena_bytes() + (ArenaBytes(*tensor) + 63) / 64 * 64);
  }
}

// One block an IPU, each in protobuf's text format.
v1::Executable WithBlocks(const std::vector<std::string>& blocks) {
  v1::Executable executable;
  executable.set_ipus_per_replica(static_cast<uint32_t>(blocks.size()));
  v1::Program* program = executable.add_programs();
  program->set_name("main");
  for (const std::string& block : blocks) {
    AddTensors(executable.add_ipus());
    *program->add_blocks() = FromText<v1::Block>(block);
  }
  *executable.add_streams() = FromText<v1::Stream>(
      "name:'in' to_device:true type:FLOAT32 dims:4 dims:6 transfers_per_run:6");
  *executable.add_streams() =
      FromText<v1::Stream>("name:'out' type:INT32 dims:4 transfers_per_run:1");
  *executable.add_variables() = FromText<v1::Variable>("name:'w' tensor:16");
  return executable;
}

v1::Executable WithSteps(const std::string& steps) { return WithBlocks({steps}); }

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
      "fill{output:0 value:1.5}",
      "fill{output:3 value:-2147483648}",
      "fill{output:14 value:4294967295}",
      "fill{output:13 value:255}",
      "fill{output:8 value:1}",
      "fill{output:6 value:0}",
      "copy{input:0 output:16}",
      "copy{input:0 output:15}",
      "cast{input:0 output:5}",
      "cast{input:3 output:4}",
      "cast{input:0 output:0}",
      "unary{operator:TANH input:0 output:16}",
      "unary{operator:LOGICAL_NOT input:8 output:8}",
      "binary{operator:ADD a:0 b:7 output:16}",
      "binary{operator:LESS a:0 b:16 output:8}",
      "reduce{operator:SUM input:0 output:4 axes:1}",
      "reduce{operator:MEAN input:0 output:7 axes:0 axes:1}",
      "arg_max{input:0 output:3}",
      "mat_mul{a:0 b:1 output:2}",
      "mat_mul{a:2 b:1 output:0 transpose_b:true}",
      absl::StrCat("conv2d{pass:FORWARD a:9 b:10 output:11 ", kPadded, "}"),
      absl::StrCat("conv2d{pass:INPUT_GRADIENT a:11 b:10 output:9 ", kPadded, "}"),
      absl::StrCat("conv2d{pass:WEIGHT_GRADIENT a:9 b:11 output:10 ", kPadded, "}"),
      absl::StrCat("max_pool2d{input:9 output:12 ", kPooled, "}"),
      absl::StrCat("max_pool2d_gradient{input:9 output_gradient:12 input_gradient:9 ", kPooled,
                   "}"),
      "softmax_cross_entropy{logits:0 labels:3 loss:4 probabilities:16}",
      "softmax_cross_entropy_gradient{probabilities:0 labels:3 loss_gradient:4 logits_gradient:16}",
      "accumulate{gradient:0 accumulator:6}",
      "accumulate{gradient:5 accumulator:6}",
      "sgd{weights:16 gradient:0 learning_rate:7}",
      "sgd{weights:5 gradient:17 learning_rate:7 weight_decay:0.1}",
      "sgd{weights:16 gradient:0 learning_rate:7 has_velocity:true velocity:0 momentum:0.9}",
      "all_reduce{operator:SUM inputs:6 inputs:5 outputs:0 outputs:5}",
      "all_reduce{operator:MEAN inputs:0 outputs:0}",
      "all_reduce{operator:SQUARE_ADD inputs:3 outputs:3 group{kind:CONSECUTIVE size:4}}",
      "reduce_scatter{operator:MIN inputs:0 outputs:4}",
      "all_gather{inputs:4 outputs:0 group{kind:ORTHOGONAL size:6}}",
      "all_to_all{inputs:0 outputs:16}",
      "broadcast{root:3 inputs:0 outputs:0}",
      "stream_in{stream:0 tensor:0}",
      "stream_out{stream:1 tensor:3}",
      "repeat{count:3 body{fill{output:0}} body{stream_in{stream:0 tensor:16}}}",
  };
}

TEST(ValidateTest, AcceptsEveryInstruction) {
  for (const std::string& step : ValidSteps()) {
    SCOPED_TRACE(step);
    ExpectValid(WithSteps(absl::StrCat("instructions{", step, "}")));
  }
}

TEST(ValidateTest, AcceptsAnEmptyProgram) { ExpectValid(WithSteps("")); }

// Every tensor field of every instruction is checked: an index outside the table is refused
// wherever it is.
TEST(ValidateTest, RefusesTensorsThatDoNotExistInEveryField) {
  using google::protobuf::FieldDescriptor;
  int fields = 0;
  for (const std::string& step : ValidSteps()) {
    const auto instruction = FromText<v1::Instruction>(step);
    const auto* oneof = v1::Instruction::descriptor()->oneof_decl(0);
    const FieldDescriptor* kind =
        instruction.GetReflection()->GetOneofFieldDescriptor(instruction, oneof);
    if (instruction.has_repeat()) continue;
    for (int i = 0; i < kind->message_type()->field_count(); ++i) {
      const FieldDescriptor* field = kind->message_type()->field(i);
      if (field->type() != FieldDescriptor::TYPE_UINT32 || field->name() == "stream" ||
          field->name() == "axes" || field->name() == "root" ||
          (field->name() == "velocity" && !instruction.sgd().has_velocity())) {
        continue;
      }
      SCOPED_TRACE(absl::StrCat(step, " ", field->name()));
      v1::Executable executable = WithSteps("");
      v1::Instruction* copy = executable.mutable_programs(0)->mutable_blocks(0)->add_instructions();
      *copy = instruction;
      google::protobuf::Message* op = copy->GetReflection()->MutableMessage(copy, kind);
      if (field->is_repeated()) {
        op->GetReflection()->SetRepeatedUInt32(op, field, 0, 19);
      } else {
        op->GetReflection()->SetUInt32(op, field, 19);
      }
      ExpectRefused(executable, "tensor 19 does not exist (there are 19)");
      ++fields;
    }
  }
  EXPECT_GT(fields, 60);
}

struct BadStep {
  std::string step;
  std::string message;
};

void ExpectRefusedSteps(const std::vector<BadStep>& steps) {
  for (const BadStep& bad : steps) {
    SCOPED_TRACE(bad.step);
    ExpectRefused(WithSteps(absl::StrCat("instructions{fill{}} instructions{", bad.step, "}")),
                  absl::StrCat("program 'main' IPU 0 instruction 1: ", bad.message));
  }
}

TEST(ValidateTest, RefusesWrongShapesAndTypes) {
  ExpectRefusedSteps({
      {"copy{input:0 output:2}", "cannot copy float32[4,6] to float32[4,5]"},
      {"copy{input:0 output:5}", "cannot copy float32[4,6] to float16[4,6]"},
      {"cast{input:0 output:15}", "tensor 15 is float32[24], must be float32[4,6]"},
      {"unary{operator:TANH input:0 output:5}", "tensor 5 is float16[4,6], must be float32[4,6]"},
      {"unary{operator:TANH input:3 output:3}", "TANH does not take int32[4]"},
      {"binary{operator:ADD a:0 b:1 output:0}", "shapes [4,6] and [6,5] do not broadcast"},
      {"binary{operator:ADD a:0 b:7 output:7}", "tensor 7 is float32[], must be float32[4,6]"},
      {"binary{operator:LESS a:0 b:7 output:0}", "tensor 0 is float32[4,6], must be bool[4,6]"},
      {"reduce{operator:SUM input:0 output:4 axes:0}",
       "tensor 4 is float32[4], must be float32[6]"},
      {"reduce{operator:SUM input:0 output:4 axes:2}", "axes [2]"},
      {"arg_max{input:0 output:4}", "tensor 4 is float32[4], must be int32[4]"},
      {"mat_mul{a:0 b:1 output:0}", "tensor 0 is float32[4,6], must be float32[4,5]"},
      {"mat_mul{a:0 b:0 output:0}", "matmul does not take"},
      {absl::StrCat("conv2d{pass:FORWARD a:9 b:10 output:9 ", kPadded, "}"), "tensor 9 is"},
      {absl::StrCat("conv2d{pass:INPUT_GRADIENT a:9 b:10 output:11 ", kPadded, "}"), "conv2d"},
      {absl::StrCat("conv2d{pass:WEIGHT_GRADIENT a:9 b:9 output:10 ", kPadded, "}"), "tensor 9 is"},
      {"conv2d{pass:FORWARD a:9 b:10 output:11}", "window of 3 with stride 0"},
      {absl::StrCat("max_pool2d{input:9 output:9 ", kPooled, "}"), "tensor 9 is"},
      {absl::StrCat("max_pool2d_gradient{input:9 output_gradient:9 input_gradient:9 ", kPooled,
                    "}"),
       "tensor 9 is"},
      {absl::StrCat("max_pool2d_gradient{input:9 output_gradient:12 input_gradient:12 ", kPooled,
                    "}"),
       "tensor 12 is"},
      {"softmax_cross_entropy{logits:0 labels:4 loss:4 probabilities:16}", "cross-entropy"},
      {"softmax_cross_entropy{logits:0 labels:3 loss:3 probabilities:16}", "tensor 3 is"},
      {"softmax_cross_entropy{logits:0 labels:3 loss:4 probabilities:5}", "tensor 5 is"},
      {"softmax_cross_entropy_gradient{probabilities:0 labels:3 loss_gradient:0 "
       "logits_gradient:16}",
       "tensor 0 is"},
      {"softmax_cross_entropy_gradient{probabilities:0 labels:3 loss_gradient:4 "
       "logits_gradient:2}",
       "tensor 2 is"},
      {"sgd{weights:3 gradient:3 learning_rate:7}", "SGD does not update int32[4]"},
      {"sgd{weights:0 gradient:2 learning_rate:7}", "tensor 2 is"},
      {"sgd{weights:0 gradient:16 learning_rate:4}", "tensor 4 is float32[4], must be float32[]"},
      {"sgd{weights:0 gradient:16 learning_rate:7 has_velocity:true velocity:5}", "tensor 5 is"},
      {"sgd{weights:0 gradient:16 learning_rate:7 momentum:0.5}", "momentum needs a velocity"},
      {"all_reduce{operator:MEAN inputs:3 outputs:3}", "cannot take the mean of int32[4]"},
      {"all_reduce{operator:SUM inputs:0 outputs:5}", "the all-reduce of"},
      {"all_reduce{operator:SUM inputs:0 inputs:5 outputs:0}",
       "an all-reduce needs as many outputs as inputs"},
      {"all_reduce{operator:SUM}", "an all-reduce needs as many outputs as inputs, at least one"},
      {"all_reduce{inputs:0 outputs:0}", "unknown reduce operator 0"},
      {"all_reduce{operator:SUM inputs:0 outputs:0 group{kind:CONSECUTIVE}}",
       "a replica group needs a size of 1 or more"},
      {"all_reduce{operator:SUM inputs:0 outputs:0 group{size:4}}",
       "a group of all replicas is given no size"},
      {"broadcast{root:4 inputs:0 outputs:0 group{kind:CONSECUTIVE size:4}}",
       "root 4 is not a position in a group of 4 replicas"},
      {"broadcast{inputs:6 outputs:0}", "tensor 6 is a wide accumulator"},
      {"all_gather{inputs:0 outputs:4}", "the all-gather over"},
      {"all_gather{inputs:4 outputs:0 group{kind:CONSECUTIVE size:2}}",
       "the all-gather over 2 replicas does not turn 4 elements into"},
      {"all_to_all{inputs:0 outputs:0}", "an output of the all-to-all shares bytes"},
      {"all_to_all{inputs:0 outputs:16 group{kind:CONSECUTIVE size:7}}",
       "the all-to-all over 7 replicas"},
  });
}

TEST(ValidateTest, RefusesAllReducesWhoseOutputsOverlap) {
  // The same input twice is fine, as a gradient that two variables share.
  ExpectValid(
      WithSteps("instructions{all_reduce{operator:SUM inputs:4 inputs:0 inputs:0 inputs:5 "
                "outputs:4 outputs:16 outputs:18 outputs:5}}"));
  const std::string text = "an output of the all-reduce shares bytes with another of its tensors";
  ExpectRefusedSteps({
      {"all_reduce{operator:SUM inputs:0 inputs:0 outputs:16 outputs:16}", text},
      {"all_reduce{operator:SUM inputs:0 inputs:0 outputs:0 outputs:16}", text},
      {"all_reduce{operator:SUM inputs:0 inputs:16 outputs:16 outputs:0}", text},
  });
  v1::Executable executable =
      WithSteps("instructions{all_reduce{operator:SUM inputs:0 outputs:16}}");
  ExpectValid(executable);
  v1::Ipu* ipu = executable.mutable_ipus(0);
  ipu->mutable_tensors(16)->set_offset(64);  // the second half of tensor 0
  ExpectRefused(executable, text);
}

TEST(ValidateTest, RefusesFillsThatTheTypeDoesNotHold) {
  ExpectRefusedSteps({
      {"fill{output:3 value:2147483648}", "fill value 2.14748e+09 is not of type int32"},
      {"fill{output:3 value:0.5}", "fill value 0.5 is not of type int32"},
      {"fill{output:3 value:nan}", "fill value nan is not of type int32"},
      {"fill{output:14 value:-1}", "fill value -1 is not of type uint32"},
      {"fill{output:14 value:inf}", "fill value inf is not of type uint32"},
      {"fill{output:13 value:256}", "fill value 256 is not of type uint8"},
      {"fill{output:8 value:2}", "fill value 2 is not of type bool"},
  });
}

TEST(ValidateTest, RefusesWideAccumulatorsInOrdinaryOperations) {
  ExpectRefusedSteps({
      {"copy{input:6 output:0}", "tensor 6 is a wide accumulator"},
      {"copy{input:0 output:6}", "tensor 6 is a wide accumulator"},
      {"cast{input:6 output:5}", "tensor 6 is a wide accumulator"},
      {"unary{operator:TANH input:0 output:6}", "tensor 6 is a wide accumulator"},
      {"binary{operator:ADD a:0 b:6 output:0}", "tensor 6 is a wide accumulator"},
      {"reduce{operator:SUM input:6 output:4 axes:1}", "tensor 6 is a wide accumulator"},
      {"mat_mul{a:6 b:1 output:2}", "tensor 6 is a wide accumulator"},
      {"sgd{weights:0 gradient:6 learning_rate:7}", "tensor 6 is a wide accumulator"},
      {"stream_in{stream:0 tensor:6}", "tensor 6 is a wide accumulator"},
      {"all_reduce{operator:SUM inputs:6 outputs:6}", "tensor 6 is a wide accumulator"},
      {"accumulate{gradient:6 accumulator:6}", "tensor 6 is a wide accumulator"},
      {"accumulate{gradient:0 accumulator:16}",
       "tensor 16 is not a wide accumulator for float32[4,6]"},
      {"accumulate{gradient:4 accumulator:6}", "tensor 6 is not a wide accumulator for float32[4]"},
      {"accumulate{gradient:8 accumulator:6}", "tensor 6 is not a wide accumulator for bool[4,6]"},
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
    change(executable.mutable_programs(0)->mutable_blocks(0)->add_instructions());
    return executable;
  };
  ExpectRefused(with([](v1::Instruction*) {}), "instruction 0: unknown instruction");
  ExpectRefused(with([](v1::Instruction* step) {
                  step->mutable_unary()->set_operator_(static_cast<v1::UnaryOperator>(77));
                }),
                "unknown unary operator 77");
  ExpectRefused(with([](v1::Instruction* step) { step->mutable_binary(); }),
                "unknown binary operator 0");
  ExpectRefused(with([](v1::Instruction* step) {
                  step->mutable_reduce()->set_operator_(static_cast<v1::ReduceOperator>(-3));
                }),
                "unknown reduce operator -3");
  ExpectRefused(with([](v1::Instruction* step) {
                  step->mutable_conv2d()->set_pass(static_cast<v1::Conv2d::Pass>(4));
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

TEST(ValidateTest, RefusesTensorsOutsideTheArena) {
  const auto with = [](const auto& change) {
    v1::Executable executable = WithSteps("");
    change(*executable.mutable_ipus(0));
    return executable;
  };
  ExpectRefused(with([](v1::Ipu& ipu) { ipu.mutable_tensors(3)->set_offset(32); }),
                "IPU 0: tensor 3 at offset 32 with 16 bytes does not fit the arena");
  ExpectRefused(with([](v1::Ipu& ipu) { ipu.mutable_tensors(3)->set_offset(ipu.arena_bytes()); }),
                "tensor 3 at offset");
  // The end of the tensor, computed carelessly, wraps to a small number.
  ExpectRefused(with([](v1::Ipu& ipu) { ipu.mutable_tensors(3)->set_offset(-uint64_t{64}); }),
                "tensor 3 at offset 18446744073709551552");
  ExpectRefused(with([](v1::Ipu& ipu) { ipu.mutable_tensors(0)->set_dims(0, int64_t{1} << 31); }),
                "IPU 0: tensor 0: dimensions");
  ExpectRefused(with([](v1::Ipu& ipu) { ipu.mutable_tensors(0)->set_dims(0, 0); }), "tensor 0");
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

}  // namespace
}  // namespace vpod::program
