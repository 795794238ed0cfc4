// Models that are written as tapes, on the IPUModel: their values and training by hand.
#include "client/poptorch/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "client/poptorch/loaded_model.h"
#include "client/poptorch/tape_writer.h"

namespace vpod::poptorch {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// --- A network of two layers, and the same by hand ---

constexpr int kBatch = 4, kInputs = 3, kHidden = 5;
using Vector = std::vector<float>;

// y = relu(x w1^T + b1) w2^T + b2, loss = mean((y - t)^2)
struct Network {
  Vector w1, b1, w2, b2;

  static Network Initial() {
    Network network;
    const auto fill = [](int size, float step) {
      Vector values;
      for (int i = 0; i < size; ++i) values.push_back(std::sin(step * static_cast<float>(i + 1)));
      return values;
    };
    network.w1 = fill(kHidden * kInputs, 0.7f);
    network.b1 = fill(kHidden, 1.3f);
    network.w2 = fill(kHidden, 2.1f);
    network.b2 = fill(1, 0.4f);
    return network;
  }

  // One step of SGD; the loss before it.
  double Step(const Vector& x, const Vector& t, double rate) {
    std::array<double, kHidden * kInputs> g1{};
    std::array<double, kHidden> gb1{}, g2{};
    double gb2 = 0, loss = 0;
    for (int n = 0; n < kBatch; ++n) {
      std::array<double, kHidden> h{};
      double y = b2[0];
      for (int i = 0; i < kHidden; ++i) {
        h[i] = b1[i];
        for (int k = 0; k < kInputs; ++k) h[i] += w1[i * kInputs + k] * x[n * kInputs + k];
        y += std::max(h[i], 0.0) * w2[i];
      }
      loss += (y - t[n]) * (y - t[n]) / kBatch;
      const double gy = 2 * (y - t[n]) / kBatch;
      gb2 += gy;
      for (int i = 0; i < kHidden; ++i) {
        g2[i] += gy * std::max(h[i], 0.0);
        const double gh = h[i] > 0 ? gy * w2[i] : 0;
        gb1[i] += gh;
        for (int k = 0; k < kInputs; ++k) g1[i * kInputs + k] += gh * x[n * kInputs + k];
      }
    }
    const auto update = [&](Vector& values, const auto& gradient) {
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(values[i] - rate * gradient[i]);
    };
    update(w1, g1);
    update(b1, gb1);
    update(w2, g2);
    update(b2, std::array{gb2});
    return loss;
  }
};

TapeProgram NetworkTape(ModelOptions options, bool two_ipus = false) {
  TapeWriter writer;
  const ValueId x = writer.Input("x", {kBatch, kInputs});
  const ValueId t = writer.Input("t", {kBatch, 1});
  const auto layer = [&](const std::string& name, ValueId from, int inputs, int outputs) {
    writer.SetScope(name);
    const ValueId w = writer.Parameter(name + ".weight", {outputs, inputs});
    const ValueId b = writer.Parameter(name + ".bias", {outputs});
    const ValueId wt = writer.Op("t.default", {Use{w}}, {inputs, outputs});
    return writer.Op("addmm.default",
                     {Use{b}, Use{from, /*stop=*/from == x}, Use{wt}, int64_t{1}, int64_t{1}},
                     {kBatch, outputs});
  };
  if (two_ipus) writer.SetBlock({.stage = 0, .ipu = 0});
  const ValueId h =
      writer.Op("relu.default", {Use{layer("fc1", x, kInputs, kHidden)}}, {kBatch, kHidden});
  if (two_ipus) writer.SetBlock({.stage = 1, .ipu = 1});
  const ValueId y = layer("fc2", h, kHidden, 1);
  writer.SetScope("");
  const ValueId loss = writer.Op("mse_loss.default", {Use{y}, Use{t, true}, int64_t{1}}, {});
  writer.Loss(loss);
  writer.Result(y);
  writer.Result(loss);
  return {writer.tape(), options, Sgd({"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}, 0.1f)};
}

std::vector<ConstState> StateOf(const Network& network) {
  return {{"fc1.weight", In(network.w1)},
          {"fc1.bias", In(network.b1)},
          {"fc2.weight", In(network.w2)},
          {"fc2.bias", In(network.b2)}};
}

// The micro-batch of a step.
Vector Points(int step) {
  Vector points;
  for (int i = 0; i < kBatch * kInputs; ++i)
    points.push_back(std::cos(static_cast<float>(i + 7 * step)));
  return points;
}
Vector Targets(int step) {
  Vector targets;
  for (int i = 0; i < kBatch; ++i) targets.push_back(std::sin(static_cast<float>(i * 3 + step)));
  return targets;
}

TEST(Model, TrainsAsByHand) {
  const auto model = Loaded(NetworkTape({.training = true}));
  ASSERT_NE(model, nullptr);
  Network network = Network::Initial();
  ASSERT_TRUE(model->WriteState(StateOf(network)).ok());
  for (int step = 0; step < 5; ++step) {
    const Vector x = Points(step), t = Targets(step);
    Vector y(kBatch), loss(1);
    const absl::Status run = model->Run({{In(x), In(t)}}, {{Out(y), Out(loss)}});
    ASSERT_TRUE(run.ok()) << run;
    EXPECT_NEAR(loss[0], network.Step(x, t, 0.1), 1e-5) << step;
  }
  Vector weights(kHidden * kInputs);
  ASSERT_TRUE(model->ReadState({{{"fc1.weight", Out(weights)}}}).ok());
  EXPECT_THAT(weights, Pointwise(FloatNear(1e-5f), network.w1));
  EXPECT_GT(model->cycles()->value(), 0u);
}

TEST(Model, TakesMicroBatchesInTheOrderOfPopTorch) {
  // All iterations of one call against one call each.
  ModelOptions options{.training = true, .device_iterations = 3};
  const auto model = Loaded(NetworkTape(options));
  ASSERT_NE(model, nullptr);
  Network network = Network::Initial();
  ASSERT_TRUE(model->WriteState(StateOf(network)).ok());
  Vector x, t, y(3 * kBatch), loss(3);
  std::vector<double> expected;
  for (int step = 0; step < 3; ++step) {
    const Vector points = Points(step), targets = Targets(step);
    x.insert(x.end(), points.begin(), points.end());
    t.insert(t.end(), targets.begin(), targets.end());
    expected.push_back(network.Step(points, targets, 0.1));
  }
  ASSERT_TRUE(model->Run({{In(x), In(t)}}, {{Out(y), Out(loss)}}).ok());
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(loss[i], expected[i], 1e-5) << i;
}

TEST(Model, ReplicasAccumulationAndPipelinesTrainTheSame) {
  const auto weights = [](ModelOptions options, bool two_ipus) {
    options.training = true;
    options.output_mode = compiler::OutputMode::kFinal;
    const auto model = Loaded(NetworkTape(options, two_ipus));
    if (model == nullptr) return Vector();
    EXPECT_TRUE(model->WriteState(StateOf(Network::Initial())).ok());
    Vector x, t;
    for (int i = 0; i < 4; ++i) {
      const Vector points = Points(i), targets = Targets(i);
      x.insert(x.end(), points.begin(), points.end());
      t.insert(t.end(), targets.begin(), targets.end());
    }
    Vector y(options.replicas * kBatch), loss(options.replicas);
    const absl::Status run = model->Run({{In(x), In(t)}}, {{Out(y), Out(loss)}});
    EXPECT_TRUE(run.ok()) << run;
    Vector result(kHidden * kInputs);
    EXPECT_TRUE(model->ReadState({{{"fc1.weight", Out(result)}}}).ok());
    return result;
  };
  const Vector accumulated = weights({.gradient_accumulation = 4}, false);
  ASSERT_FALSE(accumulated.empty());
  EXPECT_EQ(accumulated, weights({.gradient_accumulation = 2, .replicas = 2}, false));
  EXPECT_EQ(accumulated, weights({.gradient_accumulation = 4}, true));
}

TEST(Model, ChangesHyperParameters) {
  const auto model = Loaded(NetworkTape({.training = true}));
  ASSERT_NE(model, nullptr);
  Network network = Network::Initial();
  ASSERT_TRUE(model->WriteState(StateOf(network)).ok());
  const std::vector<std::string> all = {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"};
  const absl::Status set = model->SetHyperParameters(Sgd(all, 0.25f));
  ASSERT_TRUE(set.ok()) << set;
  for (int step = 0; step < 2; ++step) {
    const Vector x = Points(step), t = Targets(step);
    Vector y(kBatch), loss(1);
    ASSERT_TRUE(model->Run({{In(x), In(t)}}, {{Out(y), Out(loss)}}).ok());
    EXPECT_NEAR(loss[0], network.Step(x, t, 0.25), 1e-5) << step;
  }
  OptimizerOptions two = Sgd(all, 0.1f);
  two.groups.push_back(two.groups[0]);
  EXPECT_THAT(std::string(model->SetHyperParameters(two).message()),
              HasSubstr("2 parameter groups, and the model was compiled with 1"));
}

TEST(Model, KeepsWhatItHasBetweenDevices) {
  const auto model = Loaded(NetworkTape({.training = true}));
  ASSERT_NE(model, nullptr);
  const Vector x = Points(0), t = Targets(0);
  Vector y(kBatch), loss(1);
  model->Detach();
  EXPECT_THAT(std::string(model->Run({{In(x), In(t)}}, {{Out(y), Out(loss)}}).message()),
              HasSubstr("Device is not attached"));
  ASSERT_TRUE(model->Load({.ipu_model = true}).ok());
  EXPECT_FALSE(model->Load({.ipu_model = true}).ok());
  EXPECT_TRUE(model->Run({{In(x), In(t)}}, {{Out(y), Out(loss)}}).ok());
}

// --- Anchors, executables and the times of transfers ---

// The value of the hidden layer's ReLU, and the parameter fc2.weight, on the tape of NetworkTape.
ValueId HiddenOf(const Tape& tape) {
  for (const Record& record : tape.records) {
    if (tape.operators[record.op] == "relu.default") return record.outputs[0];
  }
  return kNoValue;
}
ValueId SecondWeights(const Tape& tape) { return tape.parameters[2].value; }

TEST(Model, ReturnsAnchors) {
  using compiler::OutputMode;
  for (bool two_ipus : {false, true}) {
    TapeProgram program = NetworkTape({.training = true,
                                       .device_iterations = 2,
                                       .gradient_accumulation = 4,
                                       .output_mode = OutputMode::kFinal},
                                      two_ipus);
    const ValueId hidden = HiddenOf(program.tape), w2 = SecondWeights(program.tape);
    program.options.anchors = {{hidden, false, OutputMode::kAll},
                               {w2, true, OutputMode::kSum},
                               {w2, true, OutputMode::kEveryN, 2},
                               {w2, false, OutputMode::kFinal}};
    const auto model = Loaded(program);
    ASSERT_NE(model, nullptr);
    std::vector<uint32_t> copies;
    for (size_t i = 0; i < model->output_types().size(); ++i)
      copies.push_back(model->output_copies(i));
    EXPECT_THAT(copies, ElementsAre(1u, 1u, 8u, 1u, 4u, 1u));
    Network network = Network::Initial();
    ASSERT_TRUE(model->WriteState(StateOf(network)).ok());
    Vector x, t;
    for (int step = 0; step < 8; ++step) {
      const Vector points = Points(step), targets = Targets(step);
      x.insert(x.end(), points.begin(), points.end());
      t.insert(t.end(), targets.begin(), targets.end());
    }
    Vector y(kBatch), loss(1), all_hidden(8 * kBatch * kHidden), sum(kHidden), second(4 * kHidden),
        weights(kHidden);
    const absl::Status run =
        model->Run({{In(x), In(t)}},
                   {{Out(y), Out(loss), Out(all_hidden), Out(sum), Out(second), Out(weights)}});
    ASSERT_TRUE(run.ok()) << run;
    // The first micro-batch sees the first weights.
    for (int n = 0; n < kBatch; ++n) {
      for (int i = 0; i < kHidden; ++i) {
        double h = network.b1[i];
        for (int k = 0; k < kInputs; ++k) h += network.w1[i * kInputs + k] * x[n * kInputs + k];
        EXPECT_NEAR(all_hidden[n * kHidden + i], std::max(h, 0.0), 1e-5);
      }
    }
    // The weights of the second iteration are those after the first update, which took away the
    // mean of the gradients of the first one, times the rate of 0.1.
    for (int i = 0; i < kHidden; ++i) {
      float of_second = 0;
      for (int step = 0; step < 4; ++step) of_second += second[step * kHidden + i];
      EXPECT_NEAR(weights[i], network.w2[i] - 0.1f * (sum[i] - of_second) / 4, 1e-5);
      EXPECT_NE(sum[i], of_second);
    }
  }
}

TEST(Model, RefusesWrongAnchors) {
  const auto refused = [](const Anchor& anchor, bool training, const std::string& message) {
    TapeProgram program = NetworkTape({.training = training, .device_iterations = 2});
    program.options.anchors = {anchor};
    EXPECT_THAT(std::string(Model::Create(program).status().message()), HasSubstr(message));
  };
  const ValueId w2 = SecondWeights(NetworkTape({}).tape);
  refused({.value = 1000}, true, "an anchor has a number that does not exist");
  refused({.value = w2, .gradient = true}, false,
          "an anchor is a gradient, and the model does not");
  refused({w2, false, compiler::OutputMode::kEveryN, 3}, true,
          "the return period of an anchor is 3, must divide the 2 device iterations");
  refused({w2, false, compiler::OutputMode::kEveryN, 0}, true,
          "the return period of an anchor is 0");
}

TEST(Model, TakesTheExecutableOfAnEqualModel) {
  const TapeProgram program = NetworkTape({.training = true});
  auto first = Model::Create(program), second = Model::Create(program);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_THAT(std::string((*first)->ExecutableBytes().status().message()),
              HasSubstr("the model is not compiled"));
  ASSERT_TRUE((*first)->Compile().ok());
  const auto bytes = (*first)->ExecutableBytes();
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto taken = (*second)->TakeExecutable(*bytes);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_TRUE(*taken);
  EXPECT_TRUE((*second)->is_compiled());
  const Vector x = Points(0), t = Targets(0);
  std::vector<Vector> losses;
  for (auto* model : {&first, &second}) {
    ASSERT_TRUE((**model)->Load({.ipu_model = true}).ok());
    ASSERT_TRUE((**model)->WriteState(StateOf(Network::Initial())).ok());
    Vector y(kBatch), loss(1);
    ASSERT_TRUE((**model)->Run({{In(x), In(t)}}, {{Out(y), Out(loss)}}).ok());
    losses.push_back(loss);
  }
  EXPECT_EQ(losses[0], losses[1]);

  auto other = Model::Create(NetworkTape({.training = true, .device_iterations = 2}));
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(*(*other)->TakeExecutable(*bytes));
  EXPECT_FALSE((*other)->is_compiled());
  EXPECT_THAT(std::string((*other)->TakeExecutable("nothing").status().message()),
              HasSubstr("not a compiled executable"));
  EXPECT_THAT(
      std::string((*other)->TakeExecutable(bytes->substr(0, bytes->size() - 1)).status().message()),
      HasSubstr("truncated or damaged"));
}

TEST(Model, KnowsWhenARunMovesWhat) {
  auto model = Model::Create(NetworkTape({.training = true,
                                          .device_iterations = 2,
                                          .gradient_accumulation = 3,
                                          .output_mode = compiler::OutputMode::kFinal}));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_FALSE((*model)->PlannedTransfers().ok());
  ASSERT_TRUE((*model)->Compile().ok());
  const auto transfers = (*model)->PlannedTransfers();
  ASSERT_TRUE(transfers.ok()) << transfers.status();
  ASSERT_EQ(transfers->inputs.size(), 2u);
  ASSERT_EQ(transfers->outputs.size(), 2u);
  EXPECT_EQ(transfers->inputs[0].size(), 6u);
  EXPECT_EQ(transfers->outputs[1].size(), 1u);
  double last = 0;
  for (size_t i = 0; i < 6; ++i) {
    for (const auto& input : transfers->inputs) {
      EXPECT_GE(input[i].begin, last);
      EXPECT_LT(input[i].begin, input[i].end);
      last = input[i].end;
    }
  }
  EXPECT_GT(transfers->outputs[0][0].begin, last);
  // The clock of the device tells the cycles of the run from the seconds.
  ASSERT_TRUE((*model)->Load({.ipu_model = true}).ok());
  Vector x, t, y(kBatch), loss(1);
  for (int step = 0; step < 6; ++step) {
    const Vector points = Points(step), targets = Targets(step);
    x.insert(x.end(), points.begin(), points.end());
    t.insert(t.end(), targets.begin(), targets.end());
  }
  ASSERT_TRUE((*model)->Run({{In(x), In(t)}}, {{Out(y), Out(loss)}}).ok());
  const double seconds = static_cast<double>((*model)->cycles()->value()) / 1.33e9;
  EXPECT_LE((*model)->PlannedTransfers()->outputs[1][0].end, seconds * (1 + 1e-9));
}

// --- Gradients that are stopped or passed by ---

// The parameter w, [3], after one step with rate 1 for the loss that is built of it.
template <class Build>
Vector AfterOneStep(const Vector& w, const Build& build) {
  TapeWriter writer;
  const ValueId parameter = writer.Parameter("w", {3});
  const ValueId loss = writer.Op("sum.default", {Use{build(writer, parameter)}, {}}, {});
  writer.Loss(loss);
  writer.Result(loss);
  const auto model = Loaded({writer.tape(), {.training = true}, Sgd({"w"}, 1)});
  if (model == nullptr) return {};
  EXPECT_TRUE(model->WriteState({{{"w", In(w)}}}).ok());
  Vector result(1), after(3);
  const absl::Status run = model->Run({}, {{Out(result)}});
  EXPECT_TRUE(run.ok()) << run;
  EXPECT_TRUE(model->ReadState({{{"w", Out(after)}}}).ok());
  return after;
}

TEST(Gradients, AUseCanStopThem) {
  // The gradient of w * w is 2 w, and w if one of the uses stops it.
  const Vector w = {1, -2, 0.5f};
  const auto square = [](bool stop) {
    return [stop](TapeWriter& writer, ValueId x) {
      return writer.Op("mul.Tensor", {Use{x}, Use{x, stop}}, {3});
    };
  };
  EXPECT_THAT(AfterOneStep(w, square(false)), ElementsAre(-1, 2, -0.5f));
  EXPECT_THAT(AfterOneStep(w, square(true)), ElementsAre(0, 0, 0));
}

TEST(Gradients, PassByAWrite) {
  // loss = sum(3 * round(w)), with the gradient of 3 * w.
  const auto rounded = [](TapeWriter& writer, ValueId x) {
    const ValueId whole = writer.Op("round.default", {Use{x, true}}, {3});
    const ValueId y = writer.Op("poptorch::pass_by.default", {Use{whole}, Use{x}}, {3});
    return writer.Op("mul.Scalar", {Use{y}, 3.0}, {3});
  };
  EXPECT_THAT(AfterOneStep({1.25f, -2, 0.5f}, rounded), ElementsAre(-1.75f, -5, -2.5f));
}

TEST(Gradients, FrozenParametersAreNotTrained) {
  TapeWriter writer;
  const ValueId w = writer.Parameter("w", {2});
  const ValueId frozen = writer.Parameter("frozen", {2}, /*requires_grad=*/false);
  const ValueId loss = writer.Op(
      "sum.default", {Use{writer.Op("mul.Tensor", {Use{w}, Use{frozen, true}}, {2})}, {}}, {});
  writer.Loss(loss);
  writer.Result(loss);
  const auto model = Loaded({writer.tape(), {.training = true}, Sgd({"w", "frozen"}, 1)});
  ASSERT_NE(model, nullptr);
  const Vector first = {1, 2}, second = {10, 20};
  ASSERT_TRUE(model->WriteState({{{"w", In(first)}, {"frozen", In(second)}}}).ok());
  Vector result(1), trained(2), kept(2);
  ASSERT_TRUE(model->Run({}, {{Out(result)}}).ok());
  EXPECT_THAT(result, ElementsAre(50));
  ASSERT_TRUE(model->ReadState({{{"w", Out(trained)}, {"frozen", Out(kept)}}}).ok());
  EXPECT_THAT(trained, ElementsAre(-9, -18));
  EXPECT_EQ(kept, second);
}

// --- State and values from outside ---

TEST(Model, UpdatesBuffersAndWritesInputsBack) {
  TapeWriter writer;
  const ValueId x = writer.Input("x", {2});
  const ValueId count = writer.Buffer("count", {}, kHostInt64);
  const ValueId sum = writer.Buffer("sum", {2});
  writer.Write(count,
               writer.Op("add.Tensor", {Use{count}, int64_t{1}, int64_t{1}}, {}, kHostInt64));
  const ValueId total = writer.Op("add.Tensor", {Use{sum}, Use{x}, int64_t{1}}, {2});
  writer.Write(sum, total);
  writer.Write(x, writer.Op("mul.Scalar", {Use{x}, 2.0}, {2}));
  writer.Result(total);
  const auto model = Loaded({writer.tape(), {.name = "inference"}, {}});
  ASSERT_NE(model, nullptr);
  EXPECT_THAT(model->written_inputs(), ElementsAre(0u));
  const std::vector<int64_t> counted = {40};
  const Vector summed = {1, 1}, in = {3, 4};
  ASSERT_TRUE(model->WriteState({{{"count", In(counted)}, {"sum", In(summed)}}}).ok());
  Vector result(2), written(2);
  for (int i = 0; i < 2; ++i) {
    const absl::Status run = model->Run({{In(in)}}, {{Out(result), Out(written)}});
    ASSERT_TRUE(run.ok()) << run;
  }
  EXPECT_THAT(result, ElementsAre(7, 9));
  EXPECT_THAT(written, ElementsAre(6, 8));
  std::vector<int64_t> now(1);
  Vector sums(2);
  ASSERT_TRUE(model->ReadState({{{"count", Out(now)}, {"sum", Out(sums)}}}).ok());
  EXPECT_THAT(now, ElementsAre(42));
  EXPECT_THAT(sums, ElementsAre(7, 9));
}

TEST(Model, NarrowsHostDataAndConstants) {
  TapeWriter writer;
  const ValueId x = writer.Input("x", {2}, kHostInt64);
  const ValueId d = writer.Input("d", {2}, kHostFloat64);
  const int64_t numbers[] = {10, -20};
  const ValueId constant =
      writer.Constant({2}, kHostInt64, std::string(reinterpret_cast<const char*>(numbers), 16));
  writer.Result(writer.Op("add.Tensor", {Use{x}, Use{constant}, int64_t{1}}, {2}, kHostInt64));
  writer.Result(writer.Op("mul.Scalar", {Use{d}, 2.0}, {2}, kHostFloat64));
  const auto model = Loaded({writer.tape(), {.name = "inference"}, {}});
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->output_types()[0].type, kHostInt32);
  EXPECT_EQ(model->output_types()[1].type, kHostFloat32);
  const std::vector<int64_t> in = {1, 2};
  const std::vector<double> doubles = {0.5, 1e30};
  std::vector<int32_t> out(2);
  Vector floats(2);
  ASSERT_TRUE(model->Run({{In(in), In(doubles)}}, {{Out(out), Out(floats)}}).ok());
  EXPECT_THAT(out, ElementsAre(11, -18));
  EXPECT_THAT(floats, ElementsAre(1, FloatEq(2e30f)));
  const std::vector<int64_t> large = {1, int64_t{1} << 40};
  EXPECT_THAT(
      std::string(model->Run({{In(large), In(doubles)}}, {{Out(out), Out(floats)}}).message()),
      HasSubstr("input 'x'"));
  EXPECT_THAT(std::string(model->Run({{In(in), In(in)}}, {{Out(out)}}).message()),
              HasSubstr("2 inputs and 2 outputs"));
}

TEST(Model, DealsSlicesToReplicas) {
  TapeWriter writer;
  const ValueId x = writer.Input("x", {1});
  writer.Result(x);
  writer.Result(writer.Op("mul.Scalar", {Use{x}, 2.0}, {1}));
  ModelOptions options{.name = "inference", .device_iterations = 2, .replicas = 2};
  const auto all = Loaded({writer.tape(), options, {}});
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(all->input_copies(), 4u);
  const Vector in = {1, 2, 3, 4};
  Vector same(4), doubled(4);
  ASSERT_TRUE(all->Run({{In(in)}}, {{Out(same), Out(doubled)}}).ok());
  EXPECT_EQ(same, in);
  EXPECT_THAT(doubled, ElementsAre(2, 4, 6, 8));
  options.output_mode = compiler::OutputMode::kFinal;
  const auto last = Loaded({writer.tape(), options, {}});
  ASSERT_NE(last, nullptr);
  same.resize(2);
  doubled.resize(2);
  ASSERT_TRUE(last->Run({{In(in)}}, {{Out(same), Out(doubled)}}).ok());
  EXPECT_THAT(doubled, ElementsAre(6, 8));
}

TEST(Model, GroupsOfReplicasReadTheSame) {
  TapeWriter writer;
  const ValueId x = writer.Input("x", {1});
  writer.Result(writer.Op("mul.Scalar", {Use{x}, 2.0}, {1}));
  ModelOptions options{.name = "inference", .replicas = 4, .input_group_size = 2};
  const Vector in = {1, 2};
  Vector doubled(4);
  const auto consecutive = Loaded({writer.tape(), options, {}});
  ASSERT_NE(consecutive, nullptr);
  ASSERT_TRUE(consecutive->Run({{In(in)}}, {{Out(doubled)}}).ok());
  EXPECT_THAT(doubled, ElementsAre(2, 2, 4, 4));
  options.orthogonal_input_groups = true;
  const auto orthogonal = Loaded({writer.tape(), options, {}});
  ASSERT_NE(orthogonal, nullptr);
  ASSERT_TRUE(orthogonal->Run({{In(in)}}, {{Out(doubled)}}).ok());
  EXPECT_THAT(doubled, ElementsAre(2, 4, 2, 4));
  options.input_group_size = 3;
  EXPECT_FALSE(Model::Create({writer.tape(), options, {}}).ok());
}

TEST(Model, SyntheticDataIsZero) {
  TapeWriter writer;
  const ValueId x = writer.Input("x", {2});
  writer.Result(writer.Op("mul.Scalar", {Use{x}, 2.0}, {2}));
  const auto model = Loaded({writer.tape(), {.name = "inference", .synthetic_data = true}, {}});
  ASSERT_NE(model, nullptr);
  const Vector in = {1, 2};
  Vector out = {3, 4};
  ASSERT_TRUE(model->Run({{In(in)}}, {{Out(out)}}).ok());
  EXPECT_THAT(out, ElementsAre(0, 0));
}

TEST(Model, PassesOverStateThatTheProgramDoesNotUse) {
  TapeWriter writer;
  const ValueId x = writer.Input("x", {1});
  writer.Parameter("unused", {2});
  writer.Input("spare", {1});
  writer.Result(writer.Op("relu.default", {Use{x}}, {1}));
  const auto model = Loaded({writer.tape(), {.name = "inference"}, {}});
  ASSERT_NE(model, nullptr);
  const Vector two = {1, 2}, one = {3};
  EXPECT_TRUE(model->WriteState({{{"unused", In(two)}}}).ok());
  EXPECT_TRUE(absl::IsNotFound(model->WriteState({{{"other", In(two)}}})));
  Vector result(1), kept = {5, 6};
  ASSERT_TRUE(model->Run({{In(one), In(one)}}, {{Out(result)}}).ok());
  EXPECT_THAT(result, ElementsAre(3));
  ASSERT_TRUE(model->ReadState({{{"unused", Out(kept)}}}).ok());
  EXPECT_THAT(kept, ElementsAre(5, 6));
}

}  // namespace
}  // namespace vpod::poptorch
