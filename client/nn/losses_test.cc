// Each loss against its formula in float64: the elements, their mean and sum, and the gradient of
// the mean against central differences of the formula.
#include "client/nn/losses.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"

namespace vpod::nn {
namespace {

using program::v1::FLOAT32;
using program::v1::INT32;
using Values = std::vector<double>;

struct Operand {
  graph::Dims dims;
  Values values;
  program::v1::DataType type = FLOAT32;
};

using Build = std::function<Tensor(Graph&, const std::vector<Tensor>&, Reduction)>;
// The elements of the loss from the values of the operands.
using Formula = std::function<Values(const std::vector<Values>&)>;

struct Evaluated {
  std::vector<float> none, mean, sum, gradient;  // of the first operand
};

Evaluated Evaluate(const std::vector<Operand>& operands, const Build& build) {
  Graph graph;
  std::vector<Tensor> inputs;
  for (const Operand& operand : operands) {
    inputs.push_back(
        graph.Input(absl::StrCat("input", inputs.size()), {operand.type, operand.dims}));
  }
  graph.Output("none", build(graph, inputs, Reduction::kNone));
  const Tensor mean = build(graph, inputs, Reduction::kMean);
  graph.Output("mean", mean);
  graph.Output("sum", build(graph, inputs, Reduction::kSum));
  graph.Output("gradient", graph.Gradients(mean, {inputs[0]})[0]);
  const auto compiled = compiler::Compile(graph, {.programs = {{.name = "infer"}}});
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return {};
  auto session = *session::Session::Create(*session::CreateIpuModel({}), *compiled);
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::string name = absl::StrCat("input", i);
    const Values& values = operands[i].values;
    const auto written =
        operands[i].type == INT32
            ? session->WriteStream(name, 0, std::vector<int64_t>(values.begin(), values.end()))
            : session->WriteStream(name, 0, absl::MakeConstSpan(values));
    EXPECT_TRUE(written.ok()) << written;
  }
  const auto run = session->Run("infer");
  EXPECT_TRUE(run.ok()) << run.status();
  const auto read = [&](const char* name) {
    const auto stream = *session->Stream<float>(name, 0);
    return std::vector<float>(stream.begin(), stream.end());
  };
  return {read("none"), read("mean"), read("sum"), read("gradient")};
}

double Sum(const Values& values) { return std::accumulate(values.begin(), values.end(), 0.0); }
double Mean(const Values& values) { return Sum(values) / static_cast<double>(values.size()); }

void ExpectNear(const std::vector<float>& actual, const Values& expected, const char* what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], 2e-6 * (1 + std::abs(expected[i]))) << what << " " << i;
}

void Check(const std::vector<Operand>& operands, const Build& build, const Formula& formula,
           const std::function<double(const std::vector<Values>&)>& mean_formula) {
  const Evaluated actual = Evaluate(operands, build);
  std::vector<Values> values;
  for (const Operand& operand : operands) values.push_back(operand.values);
  const Values none = formula(values);
  ExpectNear(actual.none, none, "element");
  ExpectNear(actual.sum, {Sum(none)}, "sum");
  ExpectNear(actual.mean, {mean_formula(values)}, "mean");
  Values gradient;
  constexpr double kStep = 1e-6;
  for (double& value : values[0]) {
    const double middle = value;
    value = middle + kStep;
    const double above = mean_formula(values);
    value = middle - kStep;
    gradient.push_back((above - mean_formula(values)) / (2 * kStep));
    value = middle;
  }
  ExpectNear(actual.gradient, gradient, "gradient");
}

void Check(const std::vector<Operand>& operands, const Build& build, const Formula& formula) {
  Check(operands, build, formula,
        [&](const std::vector<Values>& values) { return Mean(formula(values)); });
}

// A formula of the elements at the same place of two or three operands.
Formula ByElement(const std::function<double(double, double)>& function) {
  return [=](const std::vector<Values>& values) {
    Values result;
    for (size_t i = 0; i < values[0].size(); ++i)
      result.push_back(function(values[0][i], values[1][i]));
    return result;
  };
}
Formula ByElement(const std::function<double(double, double, double)>& function) {
  return [=](const std::vector<Values>& values) {
    Values result;
    for (size_t i = 0; i < values[0].size(); ++i)
      result.push_back(function(values[0][i], values[1][i], values[2][i]));
    return result;
  };
}

const Operand kInput{{2, 4}, {-3, 1.5, 0.25, 2, -0.75, 0.5, 40, -50}};
const Operand kTarget{{2, 4}, {-1, 1, 0.5, -2, 1.25, 2.5, 39.5, 1}};
const Operand kProbabilities{{2, 3}, {0.25, 0.5, 0.9, 0.01, 0.75, 0.99}};
const Operand kShares{{2, 3}, {1, 0, 0.5, 0.125, 1, 0.75}};
const Operand kSigns{{2, 4}, {1, -1, -1, 1, 1, -1, -1, 1}};

double Softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

TEST(LossesTest, Distances) {
  using T = std::vector<Tensor>;
  Check(
      {kInput, kTarget},
      [](Graph& g, const T& x, Reduction r) { return MseLoss(g, x[0], x[1], r); },
      ByElement([](double x, double y) { return (x - y) * (x - y); }));
  Check(
      {kInput, kTarget}, [](Graph& g, const T& x, Reduction r) { return L1Loss(g, x[0], x[1], r); },
      ByElement([](double x, double y) { return std::abs(x - y); }));
  for (double beta : {0.4, 1.0, 3.0}) {
    const auto huber = [=](double x, double y) {
      const double d = std::abs(x - y);
      return d < beta ? d * d / 2 : beta * (d - beta / 2);
    };
    Check(
        {kInput, kTarget},
        [=](Graph& g, const T& x, Reduction r) { return HuberLoss(g, x[0], x[1], r, beta); },
        ByElement(huber));
    Check(
        {kInput, kTarget},
        [=](Graph& g, const T& x, Reduction r) { return SmoothL1Loss(g, x[0], x[1], r, beta); },
        ByElement([=](double x, double y) { return huber(x, y) / beta; }));
  }
  Check(
      {kInput, kTarget},
      [](Graph& g, const T& x, Reduction r) { return SmoothL1Loss(g, x[0], x[1], r, 0); },
      ByElement([](double x, double y) { return std::abs(x - y); }));
}

TEST(LossesTest, BinaryCrossEntropies) {
  using T = std::vector<Tensor>;
  const Operand weights{{2, 3}, {1, 2, 0.5, 3, 0, 1}};
  Check(
      {kProbabilities, kShares, weights},
      [](Graph& g, const T& x, Reduction r) { return BinaryCrossEntropy(g, x[0], x[1], r, x[2]); },
      ByElement([](double p, double y, double w) {
        return -w * (y * std::log(p) + (1 - y) * std::log1p(-p));
      }));
  const Operand targets{{2, 4}, {0, 1, 0.5, 0.25, 1, 0, 1, 1}};
  Check(
      {kInput, targets},
      [](Graph& g, const T& x, Reduction r) {
        return BinaryCrossEntropyWithLogits(g, x[0], x[1], r);
      },
      ByElement([](double x, double y) { return (1 - y) * x + Softplus(-x); }));
  const Operand positive{{4}, {2, 1, 0.5, 3}};
  Check(
      {kInput, targets, positive},
      [](Graph& g, const T& x, Reduction r) {
        return BinaryCrossEntropyWithLogits(g, x[0], x[1], r, {.positive_weight = x[2]});
      },
      [](const std::vector<Values>& v) {
        Values losses;
        for (size_t i = 0; i < 8; ++i) {
          const double x = v[0][i], y = v[1][i];
          losses.push_back((1 - y) * x + (1 + (v[2][i % 4] - 1) * y) * Softplus(-x));
        }
        return losses;
      });
  Check(
      {kInput, targets},
      [](Graph& g, const T& x, Reduction r) { return MultiLabelSoftMarginLoss(g, x[0], x[1], r); },
      [](const std::vector<Values>& v) {
        Values losses(2);
        for (size_t i = 0; i < 8; ++i)
          losses[i / 4] += ((1 - v[1][i]) * v[0][i] + Softplus(-v[0][i])) / 4;
        return losses;
      });
}

// A logit of 0 lies on the kinks of the stable form, whose slopes there make up the right one.
TEST(LossesTest, LogitsOfZeroHaveTheRightGradient) {
  const Evaluated actual = Evaluate({{{2}, {0, 0}}, {{2}, {1, 0}}},
                                    [](Graph& g, const std::vector<Tensor>& x, Reduction r) {
                                      return BinaryCrossEntropyWithLogits(g, x[0], x[1], r);
                                    });
  ExpectNear(actual.gradient, {-0.25, 0.25}, "gradient");
}

// PyTorch's values of probabilities that exclude their target.
TEST(LossesTest, LogarithmsOfProbabilitiesAreLimited) {
  const Evaluated actual = Evaluate({{{4}, {0, 1, 0, 1}}, {{4}, {1, 0, 0, 1}}},
                                    [](Graph& g, const std::vector<Tensor>& x, Reduction r) {
                                      return BinaryCrossEntropy(g, x[0], x[1], r);
                                    });
  ExpectNear(actual.none, {100, 100, 0, 0}, "element");
  ExpectNear(actual.gradient, {0, 0, 0.25, -0.25}, "gradient");
}

TEST(LossesTest, Likelihoods) {
  using T = std::vector<Tensor>;
  Operand log_probabilities = kProbabilities;
  for (double& value : log_probabilities.values) value = std::log(value);
  Check(
      {log_probabilities, kShares},
      [](Graph& g, const T& x, Reduction r) { return KlDivergence(g, x[0], x[1], r); },
      ByElement([](double x, double y) { return y == 0 ? 0 : y * (std::log(y) - x); }));
  Check(
      {log_probabilities, log_probabilities},
      [](Graph& g, const T& x, Reduction r) { return KlDivergence(g, x[0], x[1], r, true); },
      ByElement([](double x, double y) { return std::exp(y) * (y - x); }));
  const Operand expectations{{4}, {0.5, 1.5, 2, 0.25}}, counts{{4}, {0, 1, 3, 7}};
  const auto stirling = [](double y) {
    return y > 1 ? y * std::log(y) - y + std::log(2 * std::numbers::pi * y) / 2 : 0;
  };
  for (bool full : {false, true}) {
    Check(
        {expectations, counts},
        [=](Graph& g, const T& x, Reduction r) {
          return PoissonNllLoss(g, x[0], x[1], r, {.full = full});
        },
        ByElement(
            [=](double x, double y) { return std::exp(x) - y * x + (full ? stirling(y) : 0); }));
    Check(
        {expectations, counts},
        [=](Graph& g, const T& x, Reduction r) {
          return PoissonNllLoss(g, x[0], x[1], r, {.log_input = false, .full = full});
        },
        ByElement([=](double x, double y) {
          return x - y * std::log(x + 1e-8) + (full ? stirling(y) : 0);
        }));
    const Operand variances{{4}, {0.5, 2, 1e-9, 1}};
    Check(
        {expectations, {{4}, {0.25, -1, 2.25, 1}}, variances},
        [=](Graph& g, const T& x, Reduction r) {
          return GaussianNllLoss(g, x[0], x[1], x[2], r, {.full = full});
        },
        ByElement([=](double x, double y, double v) {
          v = std::max(v, 1e-6);
          return (std::log(v) + (x - y) * (x - y) / v) / 2 +
                 (full ? std::log(2 * std::numbers::pi) / 2 : 0);
        }));
  }
}

TEST(LossesTest, NllWithWeightsAndAnIgnoredLabel) {
  using T = std::vector<Tensor>;
  const Operand x{{3, 3}, {-1, -2, -0.5, -3, -0.25, -1, -2, -1.5, -0.75}};
  const Operand labels{{3}, {2, -100, 0}, INT32}, weights{{3}, {0.5, 1, 2}};
  const Formula formula = [](const std::vector<Values>& v) {
    return Values{-v[0][2] * v[2][2], 0, -v[0][6] * v[2][0]};
  };
  Check(
      {x, labels, weights},
      [](Graph& g, const T& t, Reduction r) { return NllLoss(g, t[0], t[1], r, {.weight = t[2]}); },
      formula, [&](const std::vector<Values>& v) { return Sum(formula(v)) / 2.5; });
  Graph graph;
  NllLoss(graph, graph.Input("x", {FLOAT32, {3, 3}}), graph.Input("labels", {INT32, {2}}));
  EXPECT_EQ(graph.status().message(),
            "nll_loss needs [n, classes] and INT32 labels [n], and has float32[3,3] and int32[2]");
}

TEST(LossesTest, Margins) {
  using T = std::vector<Tensor>;
  Check(
      {kInput, kSigns},
      [](Graph& g, const T& x, Reduction r) { return SoftMarginLoss(g, x[0], x[1], r); },
      ByElement([](double x, double y) { return Softplus(-y * x); }));
  Check(
      {kInput, kSigns},
      [](Graph& g, const T& x, Reduction r) { return HingeEmbeddingLoss(g, x[0], x[1], r, 1.75); },
      ByElement([](double x, double y) { return y == 1 ? x : std::max(0.0, 1.75 - x); }));
  Check(
      {kInput, kTarget, kSigns},
      [](Graph& g, const T& x, Reduction r) {
        return MarginRankingLoss(g, x[0], x[1], x[2], r, 0.3);
      },
      ByElement([](double a, double b, double y) { return std::max(0.0, -y * (a - b) + 0.3); }));
}

TEST(LossesTest, Vectors) {
  using T = std::vector<Tensor>;
  const Operand a{{3, 2}, {1, 2, -1, 0.5, 0.25, 3}}, b{{3, 2}, {0.5, 1.5, 2, 1, 0.5, -1}},
      c{{3, 2}, {1.5, 2, -1, 0.75, 2, 1}}, signs{{3}, {1, -1, -1}};
  const auto dot = [](const Values& u, const Values& v, size_t row) {
    return u[2 * row] * v[2 * row] + u[2 * row + 1] * v[2 * row + 1];
  };
  const Operand near_a{{3, 2}, {1, 2.5, -1, 0.25, 0.25, 2}};
  for (const Operand& second : {b, near_a}) {
    Check(
        {a, second, signs},
        [](Graph& g, const T& x, Reduction r) {
          return CosineEmbeddingLoss(g, x[0], x[1], x[2], r, 0.2);
        },
        [&](const std::vector<Values>& v) {
          Values losses;
          for (size_t i = 0; i < 3; ++i) {
            const double cosine =
                dot(v[0], v[1], i) / std::sqrt(dot(v[0], v[0], i) * dot(v[1], v[1], i));
            losses.push_back(v[2][i] == 1 ? 1 - cosine : std::max(0.0, cosine - 0.2));
          }
          return losses;
        });
  }
  const auto distance = [](const Values& u, const Values& v, size_t row) {
    return std::hypot(u[2 * row] - v[2 * row] + 1e-6, u[2 * row + 1] - v[2 * row + 1] + 1e-6);
  };
  for (bool swap : {false, true}) {
    Check(
        {a, b, c},
        [=](Graph& g, const T& x, Reduction r) {
          return TripletMarginLoss(g, x[0], x[1], x[2], r, {.margin = 0.5, .swap = swap});
        },
        [&](const std::vector<Values>& v) {
          Values losses;
          for (size_t i = 0; i < 3; ++i) {
            double negative = distance(v[0], v[2], i);
            if (swap) negative = std::min(negative, distance(v[1], v[2], i));
            losses.push_back(std::max(0.0, distance(v[0], v[1], i) - negative + 0.5));
          }
          return losses;
        });
  }
}

}  // namespace
}  // namespace vpod::nn
