// Tests of Validate for single instructions: which there are, how many operands they take, and what
// they refer to. Types are the subject of validate_types_test.cc.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/program/executable.h"
#include "device/program/op.h"
#include "device/program/ops/collective.h"
#include "device/program/validate_test_util.h"

namespace vpod::program {
namespace {

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
      "batch_norm{epsilon:1e-5} inputs:[9,20,20] outputs:[31,21,22]",
      "batch_norm_inference{epsilon:1e-5} inputs:[9,20,20,21,22] outputs:9",
      "batch_norm_gradient{epsilon:1e-5} inputs:[9,9,20,21,22] outputs:[31,32,33]",
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
      "random{distribution:BITS type:UINT32 dims:2 number:1} inputs:[27,26,26] outputs:34",
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

// One chunk would read what another has written.
TEST(ValidateTest, RefusesOutputsOverOperandsThatAreReadElsewhere) {
  const auto with = [](const std::string& step, int tensor, uint64_t offset) {
    v1::Executable executable = WithSteps(step);
    executable.mutable_ipus(0)->mutable_tensors(tensor)->set_offset(offset);
    return executable;
  };
  const auto offset = [](int tensor) { return WithSteps("").ipus(0).tensors(tensor).offset(); };
  const std::string add = "instructions{binary{operator:ADD} inputs:[0,7] outputs:0}";
  ExpectValid(WithSteps(add));
  ExpectRefused(with(add, 7, offset(0) + 4), "output 0 of binary shares bytes with its input 1");
  const std::string copy = "instructions{unary{operator:RELU} inputs:0 outputs:16}";
  ExpectValid(with(copy, 16, offset(0)));
  ExpectRefused(with(copy, 16, offset(0) + 64), "output 0 of unary shares bytes with its input 0");
  const std::string norm =
      "instructions{batch_norm{epsilon:1} inputs:[9,20,20] outputs:[31,21,22]}";
  ExpectRefused(with(norm, 31, offset(9)), "output 0 of batch_norm shares bytes with its input 0");
  ExpectRefused(with(norm, 22, offset(21)), "outputs 1 and 2 of batch_norm share bytes");
  const std::string load = "instructions{remote_load{buffer:0} inputs:25 outputs:0}";
  ExpectRefused(with(load, 25, offset(0)), "output 0 of remote_load shares bytes with its input 0");
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
          changed->Set(i, 35);
          ExpectRefused(executable, "tensor 35 does not exist (there are 35)");
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
  ExpectRefused(stream, "stream 'in': unknown element type 42");
}

TEST(ValidateTest, RemoteBuffers) {
  const auto with = [](const std::string& buffer) {
    v1::Executable executable = WithSteps("");
    *executable.mutable_ipus(0)->add_remote_buffers() = FromText<v1::RemoteBuffer>(buffer);
    return executable;
  };
  ExpectValid(with("name:'a' type:INT8 rows:1"));
  ExpectRefused(with("type:INT8 rows:1"), "IPU 0: remote buffer '': the name is empty");
  ExpectRefused(with("name:'w' type:INT8 rows:1"), "'w': the name is used twice");
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
  ExpectValid(with("name:'a' type:FLOAT32 dims:6 rows:1 scratch:true wide_accumulator:true"));
  for (const char* fields : {"type:FLOAT32", "type:FLOAT16 scratch:true"}) {
    ExpectRefused(with(absl::StrCat("name:'a' dims:6 rows:1 wide_accumulator:true ", fields)),
                  "'a' has wide accumulators, which only the program itself may use, as float32");
  }
  // The elements of all rows as the host sees them.
  const std::string six = "name:'a' type:FLOAT32 dims:6 rows:1 ";
  ExpectValid(with(six + "host_dims:[2,3]"));
  ExpectValid(with(six + "host_dims:[2,3] host_strides:[1,2]"));
  const std::string not_dense =
      "what the host sees of it must have the elements of its rows, densely";
  const std::string two_rows = "name:'a' type:FLOAT32 dims:6 rows:2 ";
  ExpectValid(with(two_rows + "host_dims:[4,3] host_strides:[1,4]"));
  ExpectRefused(with(two_rows + "host_dims:6"), not_dense);
  ExpectRefused(with("name:'a' type:INT8 dims:134217728 rows:4294967295 host_dims:6"), not_dense);
  ExpectRefused(with(six + "host_dims:[2,4]"), not_dense);
  ExpectRefused(with(six + "host_dims:[2,3] host_strides:[1,1]"), not_dense);
  ExpectRefused(with(six + "host_dims:[2,3] host_strides:[8,1]"), not_dense);
  ExpectRefused(with(six + "host_strides:[1]"), "what the host sees of it is wrong: strides [1]");
  ExpectRefused(with(six + "host_dims:[-2,-3]"), "what the host sees of it is wrong: ");
}

// Tensor 16, the variable 'w', is float32 [4, 6].
TEST(ValidateTest, PartsOfVariablesAndRemoteBuffers) {
  const auto variable = [](const std::string& fields) {
    v1::Executable executable = WithSteps("");
    executable.mutable_variables(0)->MergeFrom(FromText<v1::Variable>(fields));
    return executable;
  };
  ExpectValid(variable("shards:1"));
  ExpectValid(variable("shards:2 host_dims:[4,12]"));
  ExpectValid(variable("shards:2 host_dims:[4,12] host_strides:[1,4]"));
  ExpectRefused(variable("host_dims:[24]"), "'w' has no parts, but dimensions of a whole");
  ExpectRefused(variable("shards:1 host_strides:[1]"), "'w' has no parts, but dimensions");
  const std::string not_dense = "'w': what the host sees of it must have the elements of its parts";
  ExpectRefused(variable("shards:2"), not_dense);
  ExpectRefused(variable("shards:2 host_dims:[24]"), not_dense);
  ExpectRefused(variable("shards:4294967295 host_dims:[48]"), not_dense);
  ExpectRefused(variable("shards:2 host_dims:[4,12] host_strides:[1,1]"), not_dense);
  v1::Executable turned = variable("shards:2 host_dims:[48]");
  turned.mutable_ipus(0)->mutable_tensors(16)->add_strides(1);
  turned.mutable_ipus(0)->mutable_tensors(16)->add_strides(4);
  ExpectRefused(turned, "'w' has parts that are not row-major");

  const auto buffer = [](const std::string& fields) {
    v1::Executable executable = WithSteps("");
    *executable.mutable_ipus(0)->add_remote_buffers() =
        FromText<v1::RemoteBuffer>("name:'a' type:FLOAT32 dims:6 " + fields);
    return executable;
  };
  ExpectValid(buffer("rows:1 shards:3 host_dims:[2,9]"));
  ExpectRefused(buffer("rows:1 shards:3 host_dims:[2,3]"), "must have the elements of its parts");
  ExpectValid(buffer("rows:2 shards:3 host_dims:[2,18]"));
  ExpectRefused(buffer("rows:2 shards:3 host_dims:[2,9]"), "must have the elements of its parts");
  ExpectRefused(buffer("rows:2 shards:4294967295 host_dims:[12]"),
                "must have the elements of its parts");
}

TEST(ValidateTest, ReplicasShareOutPartsEvenly) {
  v1::Executable executable = WithSteps("");
  executable.mutable_variables(0)->MergeFrom(FromText<v1::Variable>("shards:2 host_dims:[4,12]"));
  EXPECT_TRUE(CheckReplicas(executable, 4).ok());
  EXPECT_EQ(CheckReplicas(executable, 3).message(),
            "'w' has 2 parts, which the 3 replicas of the job cannot share out evenly");
}

TEST(ValidateTest, AnExecutableIsForItsNumberOfReplicas) {
  v1::Executable executable = WithSteps("");
  for (uint32_t replicas : {1, 4}) EXPECT_TRUE(CheckReplicas(executable, replicas).ok());
  executable.set_total_replicas(4);
  EXPECT_TRUE(CheckReplicas(executable, 4).ok());
  EXPECT_EQ(CheckReplicas(executable, 2).message(),
            "the executable is for 4 replicas, and the job has 2: compile it with "
            "total_replicas=2");
  executable.set_total_replicas(1);
  EXPECT_EQ(CheckReplicas(executable, 2).message(),
            "the executable is for 1 replica, and the job has 2: compile it with total_replicas=2");
}

TEST(ValidateTest, RefusesTensorsOutsideTheArena) {
  const auto with = [](const auto& change) {
    v1::Executable executable = WithSteps("");
    change(*executable.mutable_ipus(0));
    return executable;
  };
  ExpectRefused(with([](v1::Ipu& ipu) { ipu.mutable_tensors(3)->set_offset(2); }),
                "IPU 0: tensor 3 at offset 2 must be at a multiple of 4 bytes");
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

// Tensors that move or stay have elements.
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

}  // namespace
}  // namespace vpod::program
