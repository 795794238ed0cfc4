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
  Cost Price() const { return model::Price(executable, 0, instruction, kTopology); }

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
  EXPECT_EQ(Tiles(plan.bytes), arch::kTilesPerIpu);
  for (const TileBytes& tile : plan.bytes) {
    EXPECT_GT(tile.vertex_code, 0u);
    EXPECT_LE(tile.total() + brought + arch::kReservedTileBytes, arch::kTileMemory.value());
  }
}

// Only control takes nothing but the control code around it.
TEST_P(OpPlansTest, TakesTimeUnlessItIsControl) {
  const Cost cost = Job(SmallOps().at(GetParam()->name())).Price();
  const auto kind = static_cast<program::OpKind>(GetParam()->number());
  EXPECT_EQ(cost.total().value() == arch::kControlCyclesPerStep,
            program::FindOp(kind)->role == program::Role::kControl);
}

// Memory follows from the plans: state and control code of each instruction, vertex code of each
// kind.
TEST(OpPlans, VertexCodeIsCountedOnceForEachKind) {
  Job job({"copy {}", {{FLOAT32, {8}}}});
  program::v1::Function* function = job.executable.mutable_ipus(0)->add_functions();
  const auto use = [&] { return MemoryUse(job.executable, 0, Job::kTopology).value(); };
  const uint64_t empty = use();
  EXPECT_EQ(empty, arch::kReservedTileBytes * arch::kTilesPerIpu);
  *function->add_instructions() = job.instruction;
  EXPECT_EQ(use() - empty, (400 + 6 * 32 + 48) * uint64_t{1472});
  *function->add_instructions() = job.instruction;
  EXPECT_EQ(use() - empty, (400 + 2 * (6 * 32 + 48)) * uint64_t{1472});
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

// By hand from spec/hardware.md 7.2: one 16x16 panel, whose 128 rows are dealt to as many tiles.
TEST(OpPlans, MatMulOfOnePanel) {
  const Cost cost = Job({"mat_mul {}", {{FLOAT16, {128, 16}}, {FLOAT16, {16, 16}}}}).Price();
  // One worker has the row: 32 - 7 cycles, 173 around the panel, 36 for the call; 50 of control.
  EXPECT_EQ(cost.compute.value(), 6 * 25 + 173 + 36 + 50);
  EXPECT_EQ(cost.exchange.value(), 40 + (16 + 16 * 16) * 2 / 4);
  EXPECT_EQ(cost.sync.value(), 126u);
}

// 7.2 and 7.5: three panels of eight inputs each, on tiles of their own for each of the four rows,
// whose partial results are added in float32.
TEST(OpPlans, MatMulOfThreePanelsAddsItsPartials) {
  const Job job({"mat_mul {}", {{FLOAT32, {4, 24}}, {FLOAT32, {24, 16}}}});
  const TilePlan plan = job.Plan();
  ASSERT_EQ(plan.steps.size(), 4u);
  const auto& product = std::get<ComputeSet>(plan.steps[1].work).classes;
  ASSERT_EQ(product.size(), 1u);
  EXPECT_EQ(product[0].vertex, Vertex::kAmp);
  EXPECT_EQ(product[0].tiles, 3 * 4u);
  EXPECT_EQ(plan.bytes[0].vertex_code, 4096u);
  const auto& sum = std::get<ComputeSet>(plan.steps[3].work).classes;
  EXPECT_EQ(sum[0].vertex, Vertex::kReduction);
  EXPECT_EQ(sum[0].tiles, 4 * 16 * 3u);
  const Cost cost = job.Price();
  EXPECT_EQ(cost.compute.value(), (6 * 32 + 173 + 36) + (33 + 6 * (20 + 1 * (1 + 8))) + 50);
  EXPECT_EQ(cost.exchange.value(), (40 + (8 + 8 * 16) * 4 / 4) + (40 + 4 / 4));
}

// 7.4: tanh of two floats takes 12 cycles; a vertex is called with 20 for each worker, and 11.
TEST(OpPlans, UnaryOnSixElementsATile) {
  const Job job({"unary { operator: TANH }", {{FLOAT32, {1472 * 6 - 5}}}});
  EXPECT_EQ(job.Price().compute.value(), 6 * (20 + 12) + 11 + 50);
  EXPECT_EQ(std::get<ComputeSet>(job.Plan().steps[0].work).classes[0].tiles, 1472u);
}

// The groups of a convolution are products one after the other.
TEST(OpPlans, ConvolutionOfGroups) {
  const auto steps = [](int groups) {
    const std::string attributes =
        "convolution { pass: FORWARD groups: " + std::to_string(groups) + " WINDOW }";
    return Job({attributes.c_str(),
                {{FLOAT32, {2, 4 * groups, 4, 4}}, {FLOAT32, {3 * groups, 4, 2, 2}}}})
        .Price();
  };
  EXPECT_EQ(steps(5).exchange, steps(1).exchange * 5);
  EXPECT_EQ(steps(5).compute.value() - 50, (steps(1).compute.value() - 50) * 5);
}

}  // namespace
}  // namespace vpod::model
