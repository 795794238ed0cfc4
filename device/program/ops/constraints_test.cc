// Breaks every constraint of every op's type rule. A case begins with the small instruction of an
// op (tests/support/small_ops.h), which is valid, and says only what breaks it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/program/op.h"
#include "device/program/ops/constraints_test_util.h"

namespace vpod::program {
namespace {

// --- The cases ---

struct Case {
  std::string label;
  std::vector<std::string> ops;
  std::vector<Change> changes;
};

std::vector<Case> ElementCases() {
  return {
      {"elementwise_c1", {"unary", "binary"}, {With("operator: 99")}},
      {"elementwise_c2", {"unary"}, {Input(0, Int({8}))}},
      {"elementwise_c2", {"unary"}, {With("operator: RELU"), Input(0, Bool({8}))}},
      {"elementwise_c2", {"unary"}, {With("operator: BITWISE_NOT")}},
      {"elementwise_c2", {"unary"}, {With("operator: LOGICAL_NOT")}},
      {"elementwise_c3", {"binary"}, {Input(1, Half({8}))}},
      {"elementwise_c3", {"binary"}, {Input(0, Bool({4, 8})), Input(1, Bool({8}))}},
      {"elementwise_c3", {"binary"}, {With("operator: BITWISE_AND")}},
      {"elementwise_c3", {"binary"}, {With("operator: LOGICAL_AND")}},
      {"elementwise_c3", {"binary"}, {With("operator: RELU_GRADIENT")}},
      {"elementwise_c4", {"select"}, {Input(0, Int({}))}},
      {"elementwise_c4", {"select"}, {Input(2, Half({8}))}},
      {"elementwise_c5", {"binary"}, {Input(1, Float({7}))}},
      {"elementwise_c5", {"select"}, {Input(2, Float({7}))}},
      {"elementwise_c5", {"select"}, {Input(0, Bool({7}))}},
      {"map_c1", {"map"}, {Attributes("")}},
      {"map_c2", {"map"}, {With("steps { copy {} inputs: 3 }")}},
      {"map_c3", {"map"}, {With("steps { unary { operator: RELU } inputs: 3 outputs: 0 }")}},
      {"map_c3", {"map"}, {With("steps { unary { operator: RELU } inputs: 3 rounding {} }")}},
      {"map_c4", {"map"}, {With("steps { unary { operator: RELU } inputs: 4 }")}},
      {"map_c5", {"map"}, {With("steps { unary { operator: RELU } inputs: 2 }")}},
      {"line_c1", {"cumulate"}, {With("operator: MAX")}},
      {"line_c2", {"cumulate"}, {Input(0, Bool({4, 8}))}},
      {"line_c3", {"cumulate", "sort"}, {With("axis: 2")}},
      {"line_c4", {"sort"}, {Input(0, Int({1, (1 << 24) + 1}))}},
      {"line_c5", {"sort"}, {With("count: 9")}},
      {"line_c5", {"sort"}, {With("count: -1")}},
      {"random_c1", {"random"}, {Input(0, Word({3}))}},
      {"random_c1", {"random"}, {Input(1, Int({}))}},
      {"random_c1", {"random"}, {Input(2, Int({}))}},
      {"random_c2", {"random"}, {With("distribution: DISTRIBUTION_UNSPECIFIED")}},
      {"random_c3", {"random"}, {With("type: INT32")}},
      {"random_c3", {"random"}, {With("distribution: BITS")}},
      {"reduce_c1", {"reduce"}, {With("operator: SQUARE_ADD")}},
      {"reduce_c2", {"reduce"}, {Input(0, Bool({4, 8}))}},
      {"reduce_c2", {"reduce"}, {With("operator: MEAN"), Input(0, Int({4, 8}))}},
      {"reduce_c3", {"reduce"}, {With("axes: 0")}},
      {"reduce_c3", {"reduce"}, {With("axes: 2")}},
      {"reduce_c4", {"reduce"}, {With("operator: MAX"), Input(0, Float({0, 8}))}},
      {"reduce_c5", {"arg_max"}, {Input(0, Int({4, 8}))}},
      {"reduce_c5", {"arg_max"}, {Input(0, Float({}))}},
      {"reduce_c5", {"arg_max"}, {Input(0, Float({4, 0}))}},
  };
}

std::vector<Case> MovementCases() {
  return {
      {"data_movement_c1", {"fill"}, {With("value: 0.5"), Output(0, Int({8}))}},
      {"data_movement_c1", {"pad"}, {With("value: 0.5"), Input(0, Int({8}))}},
      {"data_movement_c11", {"fill"}, {Attributes("elements: '1234'")}},
      {"data_movement_c11",
       {"fill"},
       {Attributes("elements: '12341234' value: 1"), Output(0, Float({2}))}},
      {"data_movement_c11", {"fill"}, {Attributes("elements: '\\001\\002'"), Output(0, Bool({2}))}},
      {"data_movement_c2", {"pad"}, {With("before: 1")}},
      {"data_movement_c2", {"pad"}, {With("after: 1")}},
      {"data_movement_c3", {"pad"}, {Attributes("before: -1 after: 2")}},
      {"data_movement_c4", {"concat"}, {With("axis: 1")}},
      {"data_movement_c5", {"concat"}, {Input(1, Half({8}))}},
      {"data_movement_c5", {"concat"}, {Input(1, Float({1, 8}))}},
      {"data_movement_c6", {"dynamic_slice", "dynamic_update"}, {With("axes: 1")}},
      {"data_movement_c6", {"dynamic_slice", "dynamic_update"}, {With("axes: 2")}},
      {"data_movement_c6", {"dynamic_slice", "dynamic_update"}, {Attributes("")}},
      {"data_movement_c7", {"dynamic_slice"}, {Input(1, Int({2}))}},
      {"data_movement_c7", {"dynamic_update"}, {Input(2, Word({2}))}},
      {"data_movement_c8", {"dynamic_slice"}, {With("size: 3")}},
      {"data_movement_c9", {"dynamic_slice"}, {Input(0, Float({4, 2}))}},
      {"data_movement_c9", {"dynamic_update"}, {Input(1, Float({1, 9}))}},
      {"data_movement_c10", {"dynamic_update"}, {Input(1, Half({1, 3}))}},
      {"gather_c1", {"gather", "scatter"}, {With("axis: 2")}},
      {"gather_c2", {"gather", "scatter"}, {Input(1, Word({3}))}},
      {"gather_c3", {"gather", "scatter"}, {With("along: true")}},
      {"gather_c4", {"scatter"}, {Input(2, Float({4, 4}))}},
      {"gather_c5", {"scatter"}, {With("combine: COMBINE_UNSPECIFIED")}},
      {"gather_c6", {"scatter"}, {Input(0, Bool({4, 8})), Input(2, Bool({4, 3}))}},
      {"gather_c7", {"scatter"}, {Input(0, Half({4, 8})), Input(2, Half({4, 3}))}},
      {"gather_c8", {"iota"}, {With("axis: 2")}},
      {"gather_c9", {"iota"}, {With("type: UINT32")}},
      {"view_c1", {"transpose"}, {With("permutation: 0")}},
      {"view_c1", {"transpose"}, {Attributes("permutation: [1,1]")}},
      {"view_c2", {"slice"}, {With("step: 1")}},
      {"view_c3", {"slice"}, {Input(0, Float({5}))}},
      {"view_c4", {"expand"}, {Input(0, Float({7}))}},
  };
}

std::vector<Case> LayerCases() {
  const std::vector<std::string> batch_norms{"batch_norm", "batch_norm_inference",
                                             "batch_norm_gradient"};
  const std::vector<std::string> layer_norms{"layer_norm", "layer_norm_gradient"};
  const std::vector<std::string> softmaxes{"softmax", "softmax_gradient"};
  const std::vector<std::string> losses{"softmax_cross_entropy", "softmax_cross_entropy_gradient"};
  const TensorType half = Half({2, 8, 4, 4});
  return {
      {"batch_norm_c1", batch_norms, {With("add: true"), WithRounding}},
      {"batch_norm_c1", batch_norms, {With("activation: SILU"), WithRounding}},
      {"batch_norm_c1", {"batch_norm_gradient"}, {With("recompute: true"), WithRounding}},
      {"batch_norm_c2", batch_norms, {With("add: true")}},
      {"batch_norm_c2", {"batch_norm_gradient"}, {With("activation: RELU")}},
      {"batch_norm_c3", batch_norms, {Input(0, Int({2, 8, 4, 4}))}},
      {"batch_norm_c3", batch_norms, {Input(0, Float({8}))}},
      {"batch_norm_c3", batch_norms, {Input(0, Float({2, 0, 4, 4}))}},
      {"batch_norm_c4", batch_norms, {With("epsilon: 0")}},
      {"batch_norm_c5", {"batch_norm", "batch_norm_gradient"}, {Input(0, Float({0, 8, 4, 4}))}},
      {"batch_norm_c6", {"batch_norm_gradient"}, {Input(1, half)}},
      {"batch_norm_c7", batch_norms, {Input(2, Half({8}))}},
      {"batch_norm_c7", {"batch_norm", "batch_norm_inference"}, {Input(1, Float({7}))}},
      {"batch_norm_c7", {"batch_norm_inference", "batch_norm_gradient"}, {Input(4, Float({7}))}},
      {"batch_norm_c8", {"batch_norm"}, {With("add: true"), Input(3, half)}},
      {"batch_norm_c8",
       {"batch_norm_inference", "batch_norm_gradient"},
       {With("add: true"), Input(5, half)}},
      {"batch_norm_c7",
       {"batch_norm_gradient"},
       {With("activation: SILU recompute: true"), Input(5, Float({7}))}},
      {"batch_norm_c8", {"batch_norm_gradient"}, {With("activation: RELU"), Input(5, half)}},
      {"batch_norm_c9", batch_norms, {With("activation: TANH")}},
      {"batch_norm_c9", batch_norms, {With("activation: 99")}},
      {"batch_norm_c9", {"batch_norm_gradient"}, {With("activation: SILU")}},
      {"batch_norm_c9", {"batch_norm_gradient"}, {With("recompute: true")}},
      {"layer_norm_c1", layer_norms, {Input(0, Int({4, 8}))}},
      {"layer_norm_c1", layer_norms, {Input(0, Float({}))}},
      {"layer_norm_c1", layer_norms, {Input(0, Float({4, 0}))}},
      {"layer_norm_c2", {"layer_norm"}, {NoLastInput}},
      {"layer_norm_c3", {"layer_norm_gradient"}, {Input(1, Half({4, 8}))}},
      {"layer_norm_c4", {"layer_norm_gradient"}, {Input(2, Float({8}))}},
      {"layer_norm_c4", {"layer_norm_gradient"}, {Input(3, Half({4}))}},
      {"layer_norm_c5", {"layer_norm"}, {Input(1, Float({4}))}},
      {"layer_norm_c5", {"layer_norm"}, {Input(2, Half({8}))}},
      {"layer_norm_c5", {"layer_norm_gradient"}, {Input(4, Half({8}))}},
      {"layer_norm_c6", {"layer_norm"}, {With("epsilon: -1")}},
      {"layer_norm_c6", {"layer_norm"}, {With("epsilon: inf")}},
      {"loss_c1", losses, {With("label_smoothing: -0.5")}},
      {"loss_c1", losses, {With("label_smoothing: 1.5")}},
      {"loss_c2", losses, {Input(0, Int({4, 8}))}},
      {"loss_c2", losses, {Input(0, Float({4}))}},
      {"loss_c2", losses, {Input(0, Float({4, 0}))}},
      {"loss_c2", losses, {Input(1, Int({5}))}},
      {"loss_c2", losses, {Input(1, Word({4}))}},
      {"loss_c3", {"softmax_cross_entropy_gradient"}, {Input(2, Half({4}))}},
      {"matmul_c1", {"mat_mul"}, {With("transpose_a: true")}},
      {"matmul_c1", {"mat_mul"}, {Input(1, Half({4, 8}))}},
      {"matmul_c1", {"mat_mul"}, {Input(1, Float({1, 4, 8}))}},
      {"matmul_c1", {"mat_mul"}, {Input(0, Int({4, 8})), Input(1, Int({4, 8}))}},
      {"matmul_c1", {"mat_mul"}, {Input(0, Float({1, 4, 8})), Input(1, Float({2, 4, 8}))}},
      {"matmul_c2", {"mat_mul"}, {With("plan { partials: INT32 }")}},
      {"matmul_c2", {"mat_mul"}, {With("plan { partials: FLOAT16 }")}},
      {"matmul_c2", {"mat_mul"}, {With("plan { memory_proportion: 1.5 }")}},
      {"matmul_c2", {"mat_mul"}, {With("plan { memory_proportion: nan }")}},
      {"softmax_c1", softmaxes, {Input(0, Int({4, 8}))}},
      {"softmax_c1", softmaxes, {Input(0, Float({}))}},
      {"softmax_c1", softmaxes, {Input(0, Float({4, 0}))}},
      {"softmax_c2", {"softmax_gradient"}, {Input(1, Half({4, 8}))}},
  };
}

std::vector<Case> WindowCases() {
  const std::vector<std::string> conv{"convolution"}, forward{"max_pool", "average_pool"};
  const std::vector<std::string> backward{"max_pool_gradient", "average_pool_gradient"};
  const std::vector<std::string> pools{"max_pool", "average_pool", "max_pool_gradient",
                                       "average_pool_gradient"};
  const Change input_gradient = With("pass: INPUT_GRADIENT image_size: [4,4]");
  const Change weight_gradient = With("pass: WEIGHT_GRADIENT");
  return {
      {"conv_c1", conv, {With("image_size: 4")}},
      {"conv_c2", conv, {With("pass: PASS_UNSPECIFIED")}},
      {"conv_c3", conv, {Input(0, Int({2, 8, 4, 4}))}},
      {"conv_c3", conv, {Input(0, Float({2, 8}))}},
      {"conv_c3", conv, {Input(0, Float({2, 8, 1, 1, 1, 1}))}},
      {"conv_c3", conv, {Input(0, Float({2, 0, 4, 4}))}},
      {"conv_c3", conv, {input_gradient, Input(0, Float({2, 6, 0, 2}))}},
      {"conv_c3", conv, {weight_gradient, Input(1, Float({2, 6}))}},
      {"conv_c4", conv, {input_gradient, With("groups: 0")}},
      {"conv_c4", conv, {input_gradient, Input(1, Float({6}))}},
      {"conv_c4", conv, {input_gradient, Input(1, Float({1, int64_t{1} << 31}))}},
      {"conv_c5", conv, {With("groups: 0")}},
      {"conv_c5", conv, {With("groups: 3")}},
      {"conv_c5", conv, {With("groups: 4"), Input(1, Float({6, 2, 2, 2}))}},
      {"conv_c5", conv, {weight_gradient, With("groups: 0")}},
      {"conv_c6", conv, {Input(1, Half({6, 4, 2, 2}))}},
      {"conv_c6", conv, {Input(1, Float({6, 3, 2, 2}))}},
      {"conv_c6", conv, {Input(1, Float({6, 4, 2, 3}))}},
      {"conv_c6", conv, {Input(1, Float({0, 4, 2, 2}))}},
      {"conv_c7", conv, {With("window { stride: 1 }")}},
      {"conv_c7", conv, {Window("kernel", 0), Input(1, Float({6, 4, 0, 2}))}},
      {"conv_c7", conv, {Window("stride", 0)}},
      {"conv_c7", conv, {Window("dilation", 0)}},
      {"conv_c7", conv, {Window("dilation", 4)}},
      {"conv_c7", conv, {Window("pad_before", 2)}},
      {"conv_c7", conv, {Window("pad_after", 2)}},
      {"conv_c8", conv, {input_gradient}},
      {"conv_c8", conv, {weight_gradient}},
      {"conv_c9", conv, {With("plan { partials: FLOAT16 }")}},
      {"conv_c9", conv, {With("plan { memory_proportion: -0.5 }")}},
      {"pool_c1", {"max_pool_gradient"}, {Input(1, Word({2, 8, 2, 2}))}},
      {"pool_c2", forward, {With("output_size: [2,2]")}},
      {"pool_c3", pools, {Input(0, Int({2, 8, 2, 2}))}},
      {"pool_c3", {"max_pool", "average_pool", "average_pool_gradient"}, {Input(0, Float({2, 8}))}},
      {"pool_c3", {"max_pool", "average_pool"}, {Input(0, Float({2, 8, 0, 4}))}},
      {"pool_c4", forward, {Attributes("")}},
      {"pool_c4", forward, {Attributes("output_size: [2,0]")}},
      {"pool_c4", backward, {Attributes("image_size: 4")}},
      {"pool_c5", pools, {With("window { stride: 1 }")}},
      {"pool_c5", pools, {Window("kernel", 0)}},
      {"pool_c5", pools, {Window("stride", 0)}},
      {"pool_c5", pools, {Window("dilation", 4)}},
      {"pool_c5", pools, {Window("pad_before", 2)}},
      {"pool_c6",
       {"max_pool_gradient"},
       {Input(0, Float({2, 8, 2, 1})), Input(1, Int({2, 8, 2, 1}))}},
      {"pool_c6", {"average_pool_gradient"}, {Input(0, Float({2, 8, 2, 1}))}},
  };
}

std::vector<Case> OptimizerCases() {
  const std::vector<std::string> with_gradient{"sgd",  "adam", "rms_prop",
                                               "lamb", "lars", "lamb_moments"},
      optimizers{"sgd", "adam", "rms_prop", "lamb", "lars", "lamb_moments", "lamb_step"},
      scale{"update_loss_scale"};
  return {
      {"optimizer_c1", {"accumulate"}, {WideInput(false)}},
      {"optimizer_c1", {"accumulate"}, {Input(1, Float({7}))}},
      {"optimizer_c1", {"accumulate"}, {Input(1, Int({8}))}},
      {"optimizer_c2", optimizers, {Input(0, Int({8}))}},
      {"optimizer_c3", with_gradient, {Input(1, Int({8}))}},
      {"optimizer_c3", with_gradient, {Input(1, Half({7}))}},
      {"optimizer_c4", {"sgd"}, {Input(2, Float({5}))}},
      {"optimizer_c4", {"sgd"}, {With("combined: true")}},
      {"optimizer_c18",
       {"sgd"},
       {With("combined: true"), Input(2, Float({5})), Input(5, Half({8}))}},
      {"optimizer_c18", {"sgd"}, {With("combined: true nesterov: true"), Input(2, Float({5}))}},
      {"optimizer_c5", {"adam", "rms_prop", "lars"}, {Input(2, Float({4}))}},
      {"optimizer_c17", {"lamb", "lamb_moments", "lamb_step"}, {Input(2, Float({4}))}},
      {"optimizer_c16", {"lamb_step"}, {Input(1, Float({3}))}},
      {"optimizer_c6", optimizers, {Input(3, Float({1}))}},
      {"optimizer_c7", {"sgd"}, {NoLastInput}},
      {"optimizer_c8", optimizers, {Input(4, Int({}))}},
      {"optimizer_c9", optimizers, {Input(5, Int({8}))}},
      {"optimizer_c9", optimizers, {Input(5, Half({7}))}},
      {"optimizer_c10", {"all_finite", "norm"}, {Input(1, Int({8}))}},
      {"optimizer_c11", scale, {Input(0, Half({}))}},
      {"optimizer_c11", scale, {Input(1, Word({}))}},
      {"optimizer_c11", scale, {Input(2, Int({}))}},
      {"optimizer_c12", scale, {With("growth: 1")}},
      {"optimizer_c12", scale, {With("growth: inf")}},
      {"optimizer_c13", scale, {With("backoff: 0")}},
      {"optimizer_c13", scale, {With("backoff: 1")}},
      {"optimizer_c14", scale, {With("interval: 0")}},
      {"optimizer_c15", {"rms_prop"}, {With("centered: true")}},
      {"optimizer_c15", {"rms_prop"}, {With("with_momentum: true")}},
  };
}

std::vector<Case> StepCases() {
  const std::vector<std::string> reductions{"all_reduce", "reduce_scatter"};
  const std::vector<std::string> moves{"all_gather", "all_to_all", "broadcast"};
  const std::vector<std::string> all{"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                     "broadcast"};
  const std::vector<std::string> streams{"stream_in", "stream_out"};
  const std::vector<std::string> remote{"remote_load", "remote_store"};
  return {
      {"collective_c1", reductions, {With("operator: 99")}},
      {"collective_c2", all, {With("group { kind: 9 }")}},
      {"collective_c3", all, {With("group { size: 4 }")}},
      {"collective_c3", all, {With("group { kind: ORTHOGONAL }")}},
      {"collective_c4", {"broadcast"}, {With("root: 4 group { kind: CONSECUTIVE size: 4 }")}},
      {"collective_c5", all, {Output(1, Float({8}))}},
      {"collective_c6", all, {WideOutput}},
      {"collective_c6", moves, {WideInput(true)}},
      {"collective_c7", all, {Input(0, Bool({8}))}},
      {"collective_c7", reductions, {With("operator: MEAN"), Input(0, Int({8}))}},
      {"collective_c8", all, {Input(0, Float({0}))}},
      {"collective_c9", all, {Output(0, Half({8}))}},
      {"collective_c9", {"all_reduce", "all_to_all", "broadcast"}, {Output(0, Float({2, 4}))}},
      {"collective_c10",
       {"reduce_scatter", "all_gather", "all_to_all"},
       {With("group { kind: CONSECUTIVE size: 3 }")}},
      {"collective_c11", all, {OutputOnInput}},
      {"control_c1", {"repeat"}, {With("count: 0")}},
      {"control_c2", {"repeat"}, {Output(0, Word({}))}},
      {"control_c3", {"if"}, {Attributes("")}},
      {"control_c4", {"while"}, {With("max_rounds: 0")}},
      {"control_c5", {"if", "while"}, {Input(0, Int({}))}},
      {"transfer_c1", streams, {With("stream: 1")}},
      {"transfer_c2", streams, {[](Step& s) { s.executable.mutable_streams(0)->set_ipu(1); }}},
      {"transfer_c3", streams, {[](Step& s) {
         v1::Stream& stream = *s.executable.mutable_streams(0);
         stream.set_to_device(!stream.to_device());
       }}},
      {"transfer_c4", {"stream_in"}, {Output(0, Half({8}))}},
      {"transfer_c4", {"stream_out"}, {Input(0, Float({7}))}},
      {"transfer_c5", remote, {With("buffer: 1")}},
      {"transfer_c6", {"remote_load"}, {Input(0, Word({}))}},
      {"transfer_c6", {"remote_store"}, {Input(1, Word({}))}},
      {"transfer_c7", {"remote_load"}, {Output(0, Half({8}))}},
      {"transfer_c7", {"remote_store"}, {Input(0, Float({7})), WideInput(true)}},
      {"transfer_c7", remote, {[](Step& s) {
         v1::RemoteBuffer& buffer = *s.executable.mutable_ipus(0)->mutable_remote_buffers(0);
         buffer.set_scratch(true);
         buffer.set_wide_accumulator(true);
       }}},
      {"transfer_c8", {"exchange"}, {With("exchange: 1")}},
      {"transfer_c9", {"exchange"}, {[](Step& s) {
         s.executable.mutable_exchanges(0)->mutable_moves(0)->set_from_ipu(2);
       }}},
      {"transfer_c10", {"exchange"}, {NoLastInput}},
      {"transfer_c11", {"exchange"}, {Output(0, Float({8}))}},
  };
}

// --- The tests ---

// A case of one op. The name is unique: "conv_c3_convolution", "conv_c3_convolution_2" …
struct Violation {
  std::string name, label, op;
  std::vector<Change> changes;

  friend void PrintTo(const Violation& violation, std::ostream* out) { *out << violation.name; }
};

std::vector<Violation> Violations() {
  std::vector<Violation> violations;
  std::map<std::string, int> uses;
  for (const auto& cases : {ElementCases(), MovementCases(), LayerCases(), WindowCases(),
                            OptimizerCases(), StepCases()}) {
    for (const Case& each : cases) {
      for (const std::string& op : each.ops) {
        std::string name = absl::StrCat(each.label, "_", op);
        if (const int use = ++uses[name]; use > 1) absl::StrAppend(&name, "_", use);
        violations.push_back({std::move(name), each.label, op, each.changes});
      }
    }
  }
  return violations;
}

class ConstraintsTest : public ::testing::TestWithParam<Violation> {};

INSTANTIATE_TEST_SUITE_P(Violations, ConstraintsTest, ::testing::ValuesIn(Violations()),
                         [](const auto& info) { return info.param.name; });

TEST_P(ConstraintsTest, IsNamedWhenItIsBroken) {
  Step step(GetParam().op);
  for (const Change& change : GetParam().changes) change(step);
  const absl::Status status = step.Check();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              ::testing::EndsWith(absl::StrCat(" (", GetParam().label, ")")));
}

std::vector<const OpDef*> Ops() {
  std::vector<const OpDef*> ops;
  const auto* oneof = v1::Instruction::descriptor()->FindOneofByName("attributes");
  for (int i = 0; i < oneof->field_count(); ++i)
    ops.push_back(FindOp(static_cast<OpKind>(oneof->field(i)->number())));
  return ops;
}

TEST(ConstraintsTableTest, SmallInstructionsAreValid) {
  for (const OpDef* op : Ops()) EXPECT_EQ(Step(OpName(op->kind)).Check(), absl::OkStatus());
}

TEST(ConstraintsTableTest, EachConstraintOfEachOpHasACase) {
  std::set<std::pair<std::string, std::string>> listed, broken;
  for (const OpDef* op : Ops()) {
    for (const Constraint& constraint : op->constraints)
      EXPECT_TRUE(listed.emplace(constraint.label, OpName(op->kind)).second) << constraint.label;
  }
  for (const Violation& violation : Violations()) broken.emplace(violation.label, violation.op);
  EXPECT_EQ(broken, listed);
}

TEST(ConstraintsTableTest, LabelsAreNumberedWithinFamiliesAndStandForOneText) {
  std::map<std::string, std::string> texts;
  std::map<std::string, std::set<int>> families;
  for (const OpDef* op : Ops()) {
    for (const Constraint& constraint : op->constraints) {
      const std::string label = constraint.label, text = constraint.text;
      ASSERT_THAT(label, ::testing::MatchesRegex("[a-z_]+_c[1-9][0-9]*"));
      EXPECT_THAT(text, ::testing::EndsWith("."));
      EXPECT_EQ(texts.emplace(label, text).first->second, text) << label;
      const size_t number = label.rfind("_c");
      families[label.substr(0, number)].insert(std::stoi(label.substr(number + 2)));
    }
  }
  for (const auto& [family, numbers] : families)
    EXPECT_EQ(*numbers.rbegin(), static_cast<int>(numbers.size())) << family << " has a gap";
}

}  // namespace
}  // namespace vpod::program
