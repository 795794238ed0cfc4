// Every op's plan fits an IPU.
#include "device/model/op_plans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <variant>

#include "device/arch/hardware.h"
#include "device/program/op.h"
#include "tests/support/small_ops.h"

namespace vpod::model {
namespace {

using google::protobuf::FieldDescriptor;
using program::TensorType;
using program::Types;
using program::v1::FLOAT16;
using program::v1::FLOAT32;
using program::v1::INT32;
using testing::SmallOp;
using testing::SmallOps;

// An executable with one instruction, and what else that needs.
struct Job {
  static constexpr Topology kTopology{.num_replicas = 4, .ipus_per_replica = 2};

  explicit Job(const SmallOp& op) {
    instruction = Attributes(op);
    Types outputs = op.outputs;
    if (program::FindOp(instruction.attributes_case())->infer != nullptr) {
      const auto inferred = program::InferTypes(instruction, op.inputs);
      EXPECT_TRUE(inferred.ok()) << inferred.status();
      if (inferred.ok()) outputs = *inferred;
    }
    program::v1::Ipu* ipu = executable.add_ipus();
    executable.add_ipus();
    for (const TensorType& type : op.inputs) instruction.add_inputs(Add(type, ipu));
    for (const TensorType& type : outputs) instruction.add_outputs(Add(type, ipu));
    program::v1::Stream* stream = executable.add_streams();
    stream->set_type(FLOAT32);
    stream->add_dims(8);
    if (instruction.inputs_size() > 0) executable.add_exchanges()->add_moves()->set_to_ipu(1);
  }

  static uint32_t Add(const TensorType& type, program::v1::Ipu* ipu) {
    program::v1::Tensor* tensor = ipu->add_tensors();
    tensor->set_type(type.type);
    for (int64_t dim : type.dims) tensor->add_dims(dim);
    return static_cast<uint32_t>(ipu->tensors_size() - 1);
  }

  TilePlan Plan() const { return model::Plan(instruction, PlanContext(executable, 0, kTopology)); }
  Cost Price() const { return model::Price(instruction, PlanContext(executable, 0, kTopology)); }

  program::v1::Executable executable;
  Instruction instruction;
};

template <class Class>
uint64_t Tiles(const std::vector<Class>& classes) {
  return std::accumulate(classes.begin(), classes.end(), uint64_t{0},
                         [](uint64_t sum, const Class& c) { return sum + c.tiles; });
}

// Tiles that take part in a step, and bytes that it brings to one of them.
struct Extent {
  uint64_t tiles = 1;
  uint64_t bytes = 0;
};
Extent ExtentOf(const ComputeSet& set) { return {Tiles(set.classes)}; }
Extent ExtentOf(const TileExchange& exchange) {
  Extent extent{Tiles(exchange.classes)};
  for (const TileTraffic& tile : exchange.classes)
    extent.bytes = std::max(extent.bytes, tile.bytes);
  return extent;
}
Extent ExtentOf(const StreamTransfer& transfer) {
  return {transfer.tiles, transfer.bytes / transfer.tiles};
}
Extent ExtentOf(const RemoteTransfer& transfer) {
  return {transfer.tiles, transfer.bytes / transfer.tiles};
}
Extent ExtentOf(const InterIpuExchange&) { return {}; }
Extent ExtentOf(const RingPhase&) { return {}; }

std::vector<const FieldDescriptor*> Ops() {
  const auto* oneof = Instruction::descriptor()->FindOneofByName("attributes");
  std::vector<const FieldDescriptor*> ops;
  for (int i = 0; i < oneof->field_count(); ++i) ops.push_back(oneof->field(i));
  return ops;
}

class OpPlansTest : public ::testing::TestWithParam<const FieldDescriptor*> {};

INSTANTIATE_TEST_SUITE_P(Ops, OpPlansTest, ::testing::ValuesIn(Ops()),
                         [](const auto& info) { return info.param->name(); });

TEST_P(OpPlansTest, FitsAnIpu) {
  const auto ops = SmallOps();
  const auto op = ops.find(GetParam()->name());
  ASSERT_NE(op, ops.end()) << "add a small instruction of this op to SmallOps";
  const Job job(op->second);
  ASSERT_EQ(job.instruction.attributes_case(), GetParam()->number());
  const TilePlan plan = job.Plan();
  uint64_t brought = 0;  // to one tile by the step that brings most
  for (const PlanStep& step : plan.steps) {
    EXPECT_GE(step.times, 1u);
    const Extent extent = std::visit([](const auto& work) { return ExtentOf(work); }, step.work);
    EXPECT_GE(extent.tiles, 1u);
    EXPECT_LE(extent.tiles, arch::kTilesPerIpu);
    brought = std::max(brought, extent.bytes);
  }
  EXPECT_LE(plan.result_tiles, arch::kTilesPerIpu);
  EXPECT_LE(plan.partial_bytes + brought + arch::kReservedTileBytes, arch::kTileMemory.value());
}

// Only control takes nothing but the control code around it.
TEST_P(OpPlansTest, TakesTimeUnlessItIsControl) {
  const Cost cost = Job(SmallOps().at(GetParam()->name())).Price();
  const auto kind = static_cast<program::OpKind>(GetParam()->number());
  EXPECT_EQ(cost.total().value() == arch::kControlCyclesPerStep,
            program::FindOp(kind)->role == program::Role::kControl);
}

TEST(OpPlans, CountFloatingPointOperations) {
  const auto flops = [](const SmallOp& op) { return Job(op).Price().flops; };
  const auto ops = SmallOps();
  EXPECT_EQ(flops(ops.at("mat_mul")), 2 * 4 * 8 * 4);
  // Each of 2 x 6 x 2 x 2 results takes the 4 x 2 x 2 weights of its filter.
  EXPECT_EQ(flops(ops.at("convolution")), 2 * 48 * 16);
  EXPECT_EQ(flops(ops.at("max_pool")), 64 * 4);
  EXPECT_EQ(flops(ops.at("binary")), 32);
  EXPECT_EQ(flops(ops.at("reduce")), 32);
  EXPECT_EQ(flops({"unary { operator: NEGATE }", {{INT32, {8}}}}), 0);
  EXPECT_EQ(flops(ops.at("transpose")), 0);
  EXPECT_EQ(flops(ops.at("all_reduce")), 0);
  EXPECT_EQ(flops(ops.at("stream_in")), 0);
}

// 7.3 and 7.4: of a vector, for float16 and float32, and of an element.
TEST(OpPlans, ListedFunctionsHaveTheirCycles) {
  using namespace program::v1;  // the operators
  const std::tuple<UnaryOperator, double, double> unary[] = {
      {EXPONENT, 4, 6}, {TANH, 4, 12},         {SIGMOID, 6, 12},     {LOGARITHM, 4, 12},
      {RELU, 3, 3},     {SQUARE_ROOT, 23, 10}, {RECIPROCAL, 21, 10}, {RECIPROCAL_ROOT, 19, 8}};
  for (const auto& [op, half, single] : unary) {
    EXPECT_EQ(UnaryCycles(op, FLOAT16), (WorkerCycles{half, 4})) << UnaryOperator_Name(op);
    EXPECT_EQ(UnaryCycles(op, FLOAT32), (WorkerCycles{single, 2})) << UnaryOperator_Name(op);
  }
  for (const auto& [op, cycles] : {std::pair(SIN, 2300), {COS, 2300}, {TAN, 5100}})
    EXPECT_EQ(UnaryCycles(op, FLOAT32), (WorkerCycles{static_cast<double>(cycles), 1}));
  const std::tuple<BinaryOperator, double, double, WorkerCycles> binary[] = {
      {ADD, 3, 3, {7, 1}},
      {MULTIPLY, 3, 3, {7, 1}},
      {DIVIDE, 21, 10, {277, 1}},
      {MAXIMUM, 4, 3, {3, 2}}};
  for (const auto& [op, half, single, whole] : binary) {
    EXPECT_EQ(BinaryCycles(op, FLOAT16), (WorkerCycles{half, 4})) << BinaryOperator_Name(op);
    EXPECT_EQ(BinaryCycles(op, FLOAT32), (WorkerCycles{single, 2})) << BinaryOperator_Name(op);
    EXPECT_EQ(BinaryCycles(op, INT32), whole) << BinaryOperator_Name(op);
  }
  for (const auto& [type, listed] : {std::pair(FLOAT16, 4 * 16), std::pair(FLOAT32, 2 * 22)}) {
    const double gelu = UnaryCycles(ERF, type).cycles + 3 * BinaryCycles(MULTIPLY, type).cycles +
                        BinaryCycles(ADD, type).cycles;
    EXPECT_EQ(gelu, listed);
  }
}

// A tile receives all of a bias, but only its part of a mask of megabytes.
TEST(OpPlans, TilesReceiveTheirPartsOfBroadcastOperands) {
  const auto received = [](const TensorType& operand) {
    const Job job({"binary { operator: ADD }", {{FLOAT16, {16, 1024, 1024}}, operand}});
    return ExtentOf(std::get<TileExchange>(job.Plan().steps[0].work)).bytes;
  };
  const uint64_t of_a_tile = (16 * 1024 * 1024 + arch::kTilesPerIpu - 1) / arch::kTilesPerIpu;
  EXPECT_EQ(received({FLOAT16, {1024, 1024}}), of_a_tile * 2);
  EXPECT_EQ(received({FLOAT16, {1024}}), 1024u * 2);
}

// A worker that has one whole number divides one.
TEST(OpPlans, FunctionsOfElementsDoNotTakeVectors) {
  const auto compute = [](int64_t elements) {
    return Job({"binary { operator: DIVIDE }", {{INT32, {elements}}, {INT32, {elements}}}})
        .Price()
        .compute.value();
  };
  EXPECT_EQ(compute(1), 6 * (20 + 277) + 11 + 50);
  EXPECT_EQ(compute(1472 * 6 * 7), 6 * (20 + 7 * 277) + 11 + 50);
}

// State and gradients of float32 make an update of weights of float16 as long as one of float32.
TEST(OpPlans, UpdatesTakeTheirWidestType) {
  const auto compute = [](program::v1::DataType weights) {
    const TensorType all{FLOAT32, {1 << 20}}, hyper{FLOAT32, {5}}, scalar{FLOAT32, {}};
    return Job({"adam {}", {{weights, {1 << 20}}, all, hyper, scalar, scalar, all, all}})
        .Price()
        .compute.value();
  };
  EXPECT_EQ(compute(FLOAT16), compute(FLOAT32));
}

// 7.4: tanh of two floats takes 12 cycles; a vertex is called with 20 for each worker, and 11.
TEST(OpPlans, UnaryOn32ElementsATile) {
  const Job job({"unary { operator: TANH }", {{FLOAT32, {1472 * 32 - 5}}}});
  EXPECT_EQ(job.Price().compute.value(), 6 * (20 + 3 * 12) + 11 + 50);
  EXPECT_EQ(std::get<ComputeSet>(job.Plan().steps[0].work).classes[0].tiles, 1472u);
}

// Adds an instruction to a function and gives its place there.
const Instruction& AddTo(Job& job) {
  auto* ipu = job.executable.mutable_ipus(0);
  if (ipu->functions_size() == 0) ipu->add_functions();
  return *ipu->mutable_functions(0)->add_instructions() = job.instruction;
}

uint64_t ReceivedBytes(const TilePlan& plan) {
  uint64_t bytes = 0;
  for (const PlanStep& step : plan.steps) {
    if (const auto* exchange = std::get_if<TileExchange>(&step.work))
      bytes += exchange->classes[0].bytes;
  }
  return bytes;
}

// The steps of a map in terms of its inputs and the steps before them.
struct Chain {
  Types inputs;
  std::vector<Instruction> steps;

  Instruction& Step(std::initializer_list<uint32_t> operands) {
    Instruction& step = steps.emplace_back();
    step.mutable_inputs()->Assign(operands.begin(), operands.end());
    return step;
  }
  void Unary(program::v1::UnaryOperator op, uint32_t x) {
    Step({x}).mutable_unary()->set_operator_(op);
  }
  void Binary(program::v1::BinaryOperator op, uint32_t a, uint32_t b) {
    Step({a, b}).mutable_binary()->set_operator_(op);
  }
  void Cast(program::v1::DataType type, uint32_t x) { Step({x}).mutable_cast()->set_type(type); }
};

// The price of the steps as one map or as operations of their own, and of operations that add the
// result to each input of its type.
Cost PriceOf(const Chain& chain, bool fused) {
  program::v1::Executable executable;
  program::v1::Ipu* ipu = executable.add_ipus();
  auto* instructions = ipu->add_functions()->mutable_instructions();
  Types values = chain.inputs;
  std::vector<uint32_t> tensors;
  for (const TensorType& type : values) tensors.push_back(Job::Add(type, ipu));
  Instruction map;
  for (uint32_t tensor : tensors) map.add_inputs(tensor);
  for (const Instruction& step : chain.steps) {
    Types operands;
    for (uint32_t operand : step.inputs()) operands.push_back(values[operand]);
    values.push_back(program::InferTypes(step, operands).value()[0]);
    *map.mutable_map()->add_steps() = step;
    tensors.push_back(Job::Add(values.back(), ipu));
    if (fused) continue;
    Instruction* alone = instructions->Add();
    *alone = step;
    for (uint32_t& operand : *alone->mutable_inputs()) operand = tensors[operand];
    alone->add_outputs(tensors.back());
  }
  const uint32_t result = tensors.back();
  map.add_outputs(result);
  if (fused) *instructions->Add() = map;
  for (size_t input = 0; input < chain.inputs.size(); ++input) {
    if (chain.inputs[input] != values.back()) continue;
    Instruction* reader = instructions->Add();
    reader->mutable_binary()->set_operator_(program::v1::ADD);
    reader->add_inputs(result);
    reader->add_inputs(tensors[input]);
    reader->add_outputs(Job::Add(values.back(), ipu));
  }
  const PlanContext context(executable, 0, Job::kTopology);
  Cost cost;
  for (const Instruction& instruction : *instructions) cost += Price(instruction, context);
  return cost;
}

void ExpectFusionChangesNoPrice(const Chain& chain) {
  const Cost fused = PriceOf(chain, true), alone = PriceOf(chain, false);
  EXPECT_EQ(fused.compute, alone.compute);
  EXPECT_EQ(fused.exchange, alone.exchange);
  EXPECT_EQ(fused.sync, alone.sync);
}

// Several types, an operand that is broadcast, one that lies elsewhere, and a scalar.
TEST(OpPlans, FusionChangesNoPrice) {
  const TensorType half{FLOAT16, {4096, 64}};
  Chain chain{.inputs = {half, {FLOAT16, {64}}, half, {FLOAT32, {}}}};
  chain.Binary(program::v1::MULTIPLY, 0, 1);
  chain.Binary(program::v1::DIVIDE, 4, 2);
  chain.Unary(program::v1::TANH, 5);
  chain.Cast(FLOAT32, 6);
  chain.Binary(program::v1::GREATER, 7, 3);
  ExpectFusionChangesNoPrice(chain);
}

// The result lies like the second input, and readers of it know.
TEST(OpPlans, MapsLieAsTheirStepsDo) {
  const TensorType half{FLOAT16, {4096, 64}};
  Chain silu{.inputs = {half, half}};
  silu.Unary(program::v1::SIGMOID, 0);
  silu.Binary(program::v1::MULTIPLY, 1, 2);
  ExpectFusionChangesNoPrice(silu);
}

// A value that lies like no input, which two steps read, a narrow first operand, and a selection.
TEST(OpPlans, ValuesOfMapsHavePlacesOfTheirOwn) {
  const TensorType x{FLOAT32, {2048, 64}};
  Chain chain{.inputs = {{FLOAT32, {2048, 1}}, {FLOAT32, {1, 64}}, x, {FLOAT32, {}}}};
  chain.Binary(program::v1::MULTIPLY, 0, 1);
  chain.Unary(program::v1::EXPONENT, 4);
  chain.Binary(program::v1::ADD, 4, 5);
  chain.Binary(program::v1::SUBTRACT, 3, 6);
  chain.Binary(program::v1::LESS, 7, 2);
  chain.Step({8, 7, 2}).mutable_select();
  ExpectFusionChangesNoPrice(chain);
}

// One product for each tile, of operands that only the host writes: nothing is exchanged.
TEST(OpPlans, MatMulOfOperandsInPlace) {
  Job job({"mat_mul { plan { partials: FLOAT16 } }",
           {{FLOAT16, {1472, 128, 16}}, {FLOAT16, {1472, 16, 16}}}});
  const Instruction& product = AddTo(job);
  const PlanContext context(job.executable, 0, Job::kTopology);
  EXPECT_EQ(ReceivedBytes(model::Plan(product, context)), 0u);
  // spec/hardware.md 2.2 has 845 for [128,16] x [16,16]; 50 are of control.
  EXPECT_NEAR(static_cast<double>(model::Price(product, context).total().value()), 845 + 50, 2);
}

// An operand that another instruction makes has to be brought to the tiles.
TEST(OpPlans, MatMulOfAnOperandThatIsMade) {
  Job job({"mat_mul {}", {{FLOAT16, {1472, 128, 16}}, {FLOAT16, {1472, 16, 16}}}});
  const Instruction& product = AddTo(job);
  const PlanContext in_place(job.executable, 0, Job::kTopology);
  auto* function = job.executable.mutable_ipus(0)->add_functions();
  Instruction* transpose = function->add_instructions();
  transpose->mutable_transpose();
  transpose->add_inputs(product.inputs(1));
  transpose->add_outputs(product.inputs(0));
  const PlanContext made(job.executable, 0, Job::kTopology);
  EXPECT_EQ(ReceivedBytes(model::Plan(product, in_place)), 0u);
  EXPECT_EQ(ReceivedBytes(model::Plan(product, made)), 128 * 16 * 2u);
}

// Replicas of one machine stream at the same time, each with its IPUs that do.
TEST(OpPlans, StreamsKnowWhoElseStreams) {
  const auto sharing = [](uint32_t replicas, uint32_t ipus, bool all) {
    Job job({"stream_in {}", {}, {{FLOAT32, {8}}}});
    for (int ipu = 0; ipu < (all ? 2 : 1); ++ipu) {
      *job.executable.mutable_ipus(ipu)->add_functions()->add_instructions() = job.instruction;
    }
    const Topology topology{.num_replicas = replicas, .ipus_per_replica = ipus};
    return PlanContext(job.executable, 0, topology).streaming_ipus();
  };
  EXPECT_EQ(sharing(1, 1, false), 1u);
  EXPECT_EQ(sharing(2, 1, false), 2u);
  EXPECT_EQ(sharing(16, 1, false), 4u);
  EXPECT_EQ(sharing(16, 2, false), 2u);
  EXPECT_EQ(sharing(16, 2, true), 4u);
}

// Half of the convolution units work if partial results are float32.
TEST(OpPlans, PartialsOfAMatMul) {
  const auto compute = [](const char* attributes) {
    const Job job({attributes, {{FLOAT16, {4096, 1024}}, {FLOAT16, {1024, 1024}}}});
    return static_cast<double>(job.Price().compute.value());
  };
  const double half = compute("mat_mul { plan { partials: FLOAT16 } }");
  EXPECT_GT(compute("mat_mul {}"), 1.5 * half);
  EXPECT_GT(compute("mat_mul { plan { partials: FLOAT16 memory_proportion: 0.02 } }"), half);
}

// Narrow groups do not take the AMP as wide ones do, with one of its 16 inputs.
TEST(OpPlans, DepthwiseConvolution) {
  constexpr const char* kWindow =
      "window { kernel: [3,3] stride: [1,1] dilation: [1,1] pad_before: [1,1] pad_after: [1,1] }";
  const auto compute = [&](const std::string& attributes, int64_t channels_of_group) {
    const std::string text = "convolution { " + attributes + " " + kWindow + " }";
    return Job({text.c_str(),
                {{FLOAT16, {16, 192, 28, 28}}, {FLOAT16, {192, channels_of_group, 3, 3}}}})
        .Price()
        .compute.value();
  };
  const uint64_t depthwise = compute("pass: FORWARD groups: 192", 1);
  EXPECT_LT(depthwise, compute("pass: FORWARD groups: 24", 8));
  // 16 * 28 * 28 pixels of 192 channels and nine weights are 14,724 products on each of 1472 tiles.
  // In its mode for narrow groups the AMP does three columns of four channels in two cycles.
  EXPECT_GT(depthwise, 14724u / 6);
  EXPECT_LT(depthwise, 14724u / 2);
}

}  // namespace
}  // namespace vpod::model
