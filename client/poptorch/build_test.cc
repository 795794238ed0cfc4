// Tapes as graphs: what is refused, which loss is trained, and where operators are put.
#include "client/poptorch/build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <utility>

#include "client/poptorch/losses.h"
#include "client/poptorch/options.h"
#include "client/poptorch/tape_writer.h"

namespace vpod::poptorch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

OptimizerOptions Sgd(std::vector<std::string> parameters) {
  return {.groups = {{std::move(parameters), compiler::SgdOptions{}}}};
}

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST(FindLoss, WantsOneFinalLoss) {
  TapeWriter writer;
  const ValueId x = writer.Input("x", {4});
  const ValueId first = writer.Op("sum.default", {Use{x}, {}}, {});
  const ValueId second = writer.Op("mean.default", {Use{x}, {}}, {});
  EXPECT_THAT(MessageOf(FindLoss(writer.tape()).status()),
              HasSubstr("Couldn't find a loss in graph!"));
  writer.Loss(first);
  EXPECT_EQ(*FindLoss(writer.tape()), first);
  writer.Loss(second);
  EXPECT_THAT(MessageOf(FindLoss(writer.tape()).status()),
              HasSubstr("Multiple independent losses found in graph."));
  const ValueId both = writer.Op("add.Tensor", {Use{first}, Use{second}, int64_t{1}}, {});
  const ValueId final = writer.Op("poptorch::identity_loss.default", {Use{both}, int64_t{0}}, {});
  writer.Loss(final, "identity_loss");
  EXPECT_EQ(*FindLoss(writer.tape()), final);
}

TEST(BuildGraph, ListsAllOperatorsThatAreNotKnown) {
  TapeWriter writer;
  const ValueId x = writer.Input("x", {4});
  writer.SetScope("layer1.0");
  const ValueId y = writer.Op("strange.default", {Use{x}}, {4});
  const ValueId z = writer.Op("relu.default", {Use{y}}, {4});
  writer.SetScope("");
  writer.Result(writer.Op("odd.Tensor", {Use{z}, 2.0}, {2}));
  const absl::Status status =
      BuildGraph(writer.tape(), {.strategy = Strategy::kSharded}, {}).status();
  EXPECT_TRUE(absl::IsUnimplemented(status));
  EXPECT_THAT(MessageOf(status),
              HasSubstr("Unsupported ops found in compiled model: [aten::strange, aten::odd]"));
  EXPECT_THAT(MessageOf(status), HasSubstr("aten::strange in module 'layer1.0' (model.py:1)"));
}

TEST(BuildGraph, NamesTheModuleOfAMistake) {
  TapeWriter writer;
  const ValueId x = writer.Input("x", {4});
  writer.SetScope("fc");
  writer.Result(writer.Op("mm.default", {Use{x}, Use{x}}, {4}));
  const absl::Status status = BuildGraph(writer.tape(), {}, {}).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(MessageOf(status), HasSubstr("module 'fc' (model.py:1)"));
}

TEST(BuildGraph, RefusesADamagedTape) {
  TapeWriter writer;
  const ValueId x = writer.Input("x", {4});
  const ValueId y = writer.Op("relu.default", {Use{x}}, {4});
  writer.Result(y);
  Tape tape = writer.tape();
  tape.records[0].arguments[0] = Use{17};
  EXPECT_THAT(MessageOf(BuildGraph(tape, {}, {}).status()), HasSubstr("does not exist"));
  tape.records[0].arguments[0] = Use{y};
  EXPECT_THAT(MessageOf(BuildGraph(tape, {}, {}).status()), HasSubstr("before it is made"));
  tape = writer.tape();
  tape.values[static_cast<size_t>(y)].dims = {3};
  EXPECT_THAT(MessageOf(BuildGraph(tape, {}, {}).status()), HasSubstr("on the tape"));
  tape.results = {x};  // nothing reads y
  EXPECT_TRUE(BuildGraph(tape, {}, {}).ok());
}

TEST(BuildGraph, TakesAllArgumentsOfACast) {
  TapeWriter writer;
  const ValueId x = writer.Input("x", {4});
  writer.Result(writer.Op("_to_copy.default",
                          {Use{x}, int64_t{kHostFloat16}, {}, {}, {}, false, {}}, {4},
                          kHostFloat16));
  const auto built = BuildGraph(writer.tape(), {}, {});
  EXPECT_TRUE(built.ok()) << built.status();
}

TEST(BuildGraph, PutsStateWhereItIsFirstUsed) {
  TapeWriter writer;
  const ValueId x = writer.Input("x", {2, 2});
  const ValueId v = writer.Parameter("v", {2, 2});
  const ValueId w = writer.Parameter("w", {2, 2});
  writer.SetBlock({.stage = 0, .ipu = 0});
  const ValueId y = writer.Op("mm.default", {Use{x}, Use{w}}, {2, 2});
  writer.SetBlock({.stage = 1, .ipu = 1});
  const ValueId z = writer.Op("mm.default", {Use{y}, Use{v}}, {2, 2});
  writer.Result(z);
  const auto built = BuildGraph(writer.tape(), {}, {});
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->ipus, 2u);
  EXPECT_EQ(built->stages, 2u);
  std::map<std::string, uint32_t> ipus;
  for (graph::Tensor variable : built->graph.variables()) {
    const graph::Value& value = built->graph.values()[variable.id];
    ipus[value.name] = value.ipu;
  }
  EXPECT_THAT(ipus, ElementsAre(std::pair("v", 1u), std::pair("w", 0u)));

  writer.Result(writer.Op("mm.default", {Use{z}, Use{w}}, {2, 2}));
  EXPECT_THAT(MessageOf(BuildGraph(writer.tape(), {}, {}).status()),
              HasSubstr("parameter 'w' is used on IPU 0 and on IPU 1"));
  EXPECT_TRUE(BuildGraph(writer.tape(), {.strategy = Strategy::kSharded}, {}).ok());
}

// --- Gradients of the program's own ---

// A hook of a tensor that doubles its gradient.
ValueId Doubled(TapeWriter& writer, ValueId value, const program::Dims& dims) {
  return writer.Region({value}, {value}, [&](const std::vector<ValueId>& cotangents) {
    return std::vector{writer.Op("mul.Scalar", {Use{cotangents[0], true}, 2.0}, dims)};
  })[0];
}

absl::StatusOr<BuiltGraph> BuildTrained(TapeWriter& writer, ValueId loss,
                                        std::vector<std::string> parameters,
                                        Strategy strategy = Strategy::kPipelined) {
  writer.Loss(loss);
  return BuildGraph(writer.tape(), {.training = true, .strategy = strategy},
                    Sgd(std::move(parameters)));
}

TEST(BuildRegion, PutsItsOperationsBesideTheGraph) {
  TapeWriter writer;
  const ValueId x = writer.Input("x", {2, 2});
  const ValueId w = writer.Parameter("w", {2, 2});
  const ValueId y = writer.Op("mm.default", {Use{x}, Use{w}}, {2, 2});
  const ValueId scaled = Doubled(writer, y, {2, 2});
  const ValueId loss = writer.Op("sum.default", {Use{scaled}, {}}, {});
  const auto built = BuildTrained(writer, loss, {"w"});
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->graph.nodes().size(), 2u);
  ASSERT_EQ(built->graph.regions().size(), 1u);
  EXPECT_EQ(built->graph.regions()[0].nodes.size(), 1u);
}

TEST(BuildRegion, IsWhatItIsGivenWhereNoGradientComes) {
  for (const bool training : {false, true}) {
    TapeWriter writer;
    const ValueId x = writer.Input("x", {2, 2});
    const ValueId frozen = writer.Parameter("w", {2, 2}, /*requires_grad=*/false);
    const ValueId y = writer.Op("mm.default", {Use{x}, Use{frozen}}, {2, 2});
    const ValueId loss = writer.Op("sum.default", {Use{Doubled(writer, y, {2, 2})}, {}}, {});
    writer.Loss(loss);
    const auto built = BuildGraph(writer.tape(), {.training = training}, {});
    ASSERT_TRUE(built.ok()) << built.status();
    EXPECT_TRUE(built->graph.regions().empty());
    EXPECT_EQ(built->graph.nodes().size(), 2u);
  }
}

// Hooks are registered and functions finished in later blocks; hooks of parameters come first.
TEST(BuildRegion, BelongsToTheStageOfItsValues) {
  TapeWriter writer;
  const ValueId x = writer.Input("x", {2, 2});
  const ValueId w = Doubled(writer, writer.Parameter("w", {2, 2}), {2, 2});
  const ValueId v = Doubled(writer, Doubled(writer, writer.Parameter("v", {2, 2}), {2, 2}), {2, 2});
  writer.SetBlock({.stage = 0, .ipu = 0});
  const ValueId y = writer.Op("mm.default", {Use{x}, Use{w}}, {2, 2});
  writer.SetBlock({.stage = 1, .ipu = 1});
  const ValueId hooked = Doubled(writer, y, {2, 2});
  writer.SetBlock({.stage = 0, .ipu = 0});
  const ValueId same_stage = writer.Op("relu.default", {Use{hooked}}, {2, 2});
  writer.SetBlock({.stage = 1, .ipu = 1});
  const ValueId z = writer.Op("mm.default", {Use{same_stage}, Use{v}}, {2, 2});
  const ValueId loss = writer.Op("sum.default", {Use{z}, {}}, {});
  const auto built = BuildTrained(writer, loss, {"v", "w"});
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->stages, 2u);
  std::vector<uint32_t> stages, ipus;
  for (const graph::GradientRegion& region : built->graph.regions()) {
    stages.push_back(built->graph.origins().at(region.origin).stage());
    ipus.push_back(region.ipu);
  }
  EXPECT_THAT(stages, ElementsAre(0u, 0u, 1u, 1u));
  EXPECT_THAT(ipus, ElementsAre(0u, 0u, 1u, 1u));

  writer.SetBlock({.stage = 2, .ipu = 2});
  writer.Result(writer.Op("mm.default", {Use{z}, Use{v}}, {2, 2}));
  EXPECT_THAT(MessageOf(BuildTrained(writer, loss, {"v", "w"}).status()),
              HasSubstr("parameter 'v' is used on IPU 1 and on IPU 2"));
}

TEST(BuildRegion, ReadsValuesThatAreMadeLater) {
  TapeWriter writer;
  const ValueId x = writer.Input("x", {2, 2});
  const ValueId y = writer.Op("mm.default", {Use{x}, Use{writer.Parameter("w", {2, 2})}}, {2, 2});
  ValueId product = kNoValue;
  const ValueId hooked = writer.Region({y}, {y}, [&](const std::vector<ValueId>& cotangents) {
    return std::vector{product =
                           writer.Op("mul.Tensor", {Use{cotangents[0], true}, Use{}}, {2, 2})};
  })[0];
  const ValueId later = writer.Op("exp.default", {Use{hooked}}, {2, 2});
  writer.tape().regions[0].records[0].arguments[1] = Use{later, true};
  const ValueId loss = writer.Op("sum.default", {Use{later}, {}}, {});
  const auto built = BuildTrained(writer, loss, {"w"});
  ASSERT_TRUE(built.ok()) << built.status();
  graph::Graph graph = built->graph;
  EXPECT_TRUE(graph.Gradients(*built->loss, graph.variables())[0].valid());
  EXPECT_TRUE(graph.status().ok()) << graph.status();

  writer.Result(product);  // which is made backward only
  EXPECT_THAT(MessageOf(BuildTrained(writer, loss, {"w"}).status()),
              HasSubstr("belongs to a gradient region"));
}

TEST(BuildRegion, NamesTheFunctionOfAMistake) {
  TapeWriter writer;
  const ValueId x = writer.Input("x", {2, 2});
  const ValueId w = writer.Parameter("w", {2, 2});
  const ValueId y = writer.Op("mm.default", {Use{x}, Use{w}}, {2, 2});
  const ValueId hooked = Doubled(writer, y, {2, 2});
  const ValueId loss = writer.Op("sum.default", {Use{hooked}, {}}, {});
  const Tape right = writer.tape();
  Tape& tape = writer.tape();
  tape.regions[0].gradients = {loss};
  EXPECT_THAT(MessageOf(BuildTrained(writer, loss, {"w"}).status()),
              HasSubstr("the gradient of input 0 is float32[], must be float32[2,2], in the "
                        "gradient of Function"));
  tape = right;
  tape.operators.push_back("strange.default");
  tape.regions[0].records[0].op = static_cast<uint32_t>(tape.operators.size() - 1);
  EXPECT_THAT(MessageOf(BuildTrained(writer, loss, {"w"}).status()),
              HasSubstr("Unsupported ops found in compiled model: [aten::strange]"));
  for (const auto& [damage, text] :
       std::initializer_list<std::pair<std::function<void(Region&)>, const char*>>{
           {[](Region& region) { region.cotangents[0] = 1000; }, "a cotangent has a number"},
           {[](Region& region) { region.gradients[0] = 1000; }, "a gradient has a number"},
           {[](Region& region) { region.records[0].outputs[0] = 1000; }, "an output of a record"},
           {[](Region& region) { region.gradients.clear(); }, "the arguments of a region"},
           {[](Region& region) { region.cotangents.push_back(0); }, "the arguments of a region"}}) {
    tape = right;
    damage(tape.regions[0]);
    EXPECT_THAT(MessageOf(BuildTrained(writer, loss, {"w"}).status()), HasSubstr(text));
  }
  tape = right;
  for (const Argument& wrong : {Argument(int64_t{1}), Argument(int64_t{-1}), Argument(0.5)}) {
    for (Record& record : tape.records) {
      if (record.arguments.size() == 3) record.arguments[2] = wrong;
    }
    EXPECT_THAT(MessageOf(BuildTrained(writer, loss, {"w"}).status()),
                HasSubstr("the arguments of a region"));
  }
}

// A pipeline of as many IPUs as given.
TapeProgram Pipeline(uint32_t ipus, ModelOptions options) {
  TapeWriter writer;
  ValueId x = writer.Input("x", {2, 2});
  std::vector<std::string> names;
  for (uint32_t i = 0; i < ipus; ++i) {
    writer.SetBlock({.stage = i, .ipu = i});
    names.push_back("w" + std::to_string(i));
    x = writer.Op("mm.default", {Use{x}, Use{writer.Parameter(names.back(), {2, 2})}}, {2, 2});
  }
  const ValueId loss = writer.Op("mean.default", {Use{x}, {}}, {});
  writer.Loss(loss);
  writer.Result(loss);
  return {writer.tape(), options, Sgd(names)};
}

absl::Status CheckOptions(const TapeProgram& program) {
  const auto built = BuildGraph(program.tape, program.options, program.optimizer);
  if (!built.ok()) return built.status();
  return CompileOptionsFor(program, *built).status();
}

TEST(CompileOptionsFor, WantsAPowerOfTwoOfIpus) {
  ModelOptions options{.training = true, .gradient_accumulation = 8};
  EXPECT_THAT(MessageOf(CheckOptions(Pipeline(3, options))),
              HasSubstr("The model specifies the use of 3 IPUs, however PopTorch must reserve a "
                        "minimum of 4 in order to allow the model to run"));
  options.round_ipus_up = true;
  EXPECT_TRUE(CheckOptions(Pipeline(3, options)).ok());
  options.replicas = 64;
  EXPECT_THAT(MessageOf(CheckOptions(Pipeline(2, options))),
              HasSubstr("Too many IPUs requested (128)."));
}

TEST(CompileOptionsFor, WantsAMicroBatchForEachStage) {
  ModelOptions options{.training = true, .gradient_accumulation = 6};
  EXPECT_THAT(MessageOf(CheckOptions(Pipeline(4, options))),
              HasSubstr("must be greater than or equal to the number of pipeline stages (7)"));
  options.gradient_accumulation = 7;
  EXPECT_TRUE(CheckOptions(Pipeline(4, options)).ok());
  ModelOptions inference{.device_iterations = 3};
  EXPECT_THAT(MessageOf(CheckOptions(Pipeline(4, inference))),
              HasSubstr("poptorch.Options().deviceIterations must be greater than or equal to"));
  inference.strategy = Strategy::kSharded;
  EXPECT_TRUE(CheckOptions(Pipeline(4, inference)).ok());
}

TEST(CompileOptionsFor, WantsSomethingToTrain) {
  TapeProgram program = Pipeline(1, {.training = true});
  program.optimizer.groups[0].variables = {"another"};
  EXPECT_THAT(MessageOf(CheckOptions(program)), HasSubstr("the loss depends on no parameter"));
}

}  // namespace
}  // namespace vpod::poptorch
