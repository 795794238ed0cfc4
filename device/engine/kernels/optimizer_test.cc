#include <functional>
#include <limits>

#include "absl/strings/str_join.h"
#include "device/engine/kernels/kernel_test_util.h"
#include "device/engine/kernels/operand.h"

namespace vpod::engine {
namespace {

using program::v1::DataType;

class OptimizerTest : public testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(All, OptimizerTest, testing::Values(FLOAT32, FLOAT16), FloatTypeName);

struct Sgd {
  double rate = 0.1, weight_decay = 0, momentum = 0, dampening = 0, gradient_scale = 1,
         loss_scale = 1;
  bool nesterov = false, maximize = false;

  std::string Text() const {
    return absl::StrCat("sgd{gradient_scale:", gradient_scale, " nesterov:", nesterov,
                        " maximize:", maximize, "}");
  }
  double Gradient(double g) const { return g * gradient_scale / loss_scale * (maximize ? -1 : 1); }
};

// The text of an instruction.
std::string Step(const std::string& op, const std::vector<uint32_t>& inputs,
                 const std::vector<uint32_t>& outputs) {
  return absl::StrCat(op, " inputs:[", absl::StrJoin(inputs, ","), "] outputs:[",
                      absl::StrJoin(outputs, ","), "]");
}

TEST_P(OptimizerTest, SgdWithoutVelocity) {
  for (const Sgd& k :
       {Sgd{}, Sgd{.weight_decay = 0.1}, Sgd{.weight_decay = 0.01, .gradient_scale = 0.25},
        Sgd{.loss_scale = 1024}, Sgd{.weight_decay = 0.01, .maximize = true}}) {
    SCOPED_TRACE(k.Text());
    TestIpu ipu;
    const Dims dims{9, 11};
    const uint32_t w = ipu.Add(GetParam(), dims, Random(dims, 1));
    const uint32_t g = ipu.Add(GetParam(), dims, Random(dims, 2));
    const uint32_t hyper = ipu.Add(FLOAT32, {4}, {k.rate, k.weight_decay, 0, 0});
    const uint32_t scale = ipu.Add(FLOAT32, {}, {k.loss_scale});
    Values expected = ipu.Read(w);
    const Values gradient = ipu.Read(g);
    ipu.Run(Step(k.Text(), {w, g, hyper, scale}, {w}));
    for (size_t i = 0; i < expected.size(); ++i)
      expected[i] -= k.rate * (k.Gradient(gradient[i]) + k.weight_decay * expected[i]);
    ExpectClose(ipu.Read(w), expected, GetParam(), 1e-6, 3e-7);
    EXPECT_EQ(ipu.Read(g), gradient);
  }
}

TEST_P(OptimizerTest, SgdWithVelocityOverSeveralSteps) {
  for (const Sgd& k :
       {Sgd{.momentum = 0.9}, Sgd{.momentum = 0.9, .nesterov = true},
        Sgd{.momentum = 0.5, .dampening = 0.25},
        Sgd{.weight_decay = 0.1, .momentum = 0.9, .gradient_scale = 0.125, .maximize = true},
        Sgd{.weight_decay = 0.01,
        .momentum = 0.8,
        .dampening = 0.5,
        .gradient_scale = 2,
        .loss_scale = 8,
        .nesterov = true}}) {
    SCOPED_TRACE(k.Text());
    TestIpu ipu;
    const Dims dims{70};
    const uint32_t w = ipu.Add(GetParam(), dims, Random(dims, 3)), g = ipu.Add(GetParam(), dims);
    const uint32_t v = ipu.Add(FLOAT32, dims, Values(70, 7));  // not read in the first step
    const uint32_t hyper = ipu.Add(FLOAT32, {4}, {k.rate, k.weight_decay, k.momentum, k.dampening});
    const uint32_t scale = ipu.Add(FLOAT32, {}, {k.loss_scale}), step = ipu.Add(FLOAT32, {});
    for (int round = 1; round <= 3; ++round) {
      ipu.Write(g, Random(dims, 10 + static_cast<uint32_t>(round)));
      ipu.Write(step, {static_cast<double>(round)});
      Values weights = ipu.Read(w), velocity = ipu.Read(v);
      const Values gradient = ipu.Read(g);
      ipu.Run(Step(k.Text(), {w, g, hyper, scale, step, v}, {w, v}));
      for (size_t i = 0; i < weights.size(); ++i) {
        const double u = k.Gradient(gradient[i]) + k.weight_decay * weights[i];
        velocity[i] = round == 1 ? u : k.momentum * velocity[i] + (1 - k.dampening) * u;
        weights[i] -= k.rate * (k.nesterov ? u + k.momentum * velocity[i] : velocity[i]);
      }
      ExpectClose(ipu.Read(w), weights, GetParam());
      ExpectClose(ipu.Read(v), velocity, FLOAT32);
    }
  }
}

// With constant hyper-parameters it is that of velocities apart, whatever their scale.
TEST_P(OptimizerTest, CombinedSgdOverSeveralSteps) {
  const double rate = 0.1, decay = 0.25, momentum = 0.75, dampening = 0.5, scale = 4;
  TestIpu ipu;
  const Dims dims{70};
  const uint32_t w = ipu.Add(GetParam(), dims, Random(dims, 3)), g = ipu.Add(GetParam(), dims),
                 v = ipu.Add(FLOAT32, dims, Values(70, 7)),  // not read in the first step
      hyper = ipu.Add(FLOAT32, {5}, {rate, decay, momentum, dampening, scale}),
                 loss_scale = ipu.Add(FLOAT32, {}, {2}), step = ipu.Add(FLOAT32, {});
  Values velocity(70), decayed = ipu.Read(w);  // the weights before they are rounded
  for (int round = 1; round <= 3; ++round) {
    ipu.Write(g, Random(dims, 10 + static_cast<uint32_t>(round)));
    ipu.Write(step, {static_cast<double>(round)});
    Values weights = ipu.Read(w);
    const Values gradient = ipu.Read(g);
    ipu.Run(
        Step("sgd{gradient_scale:1 combined:true}", {w, g, hyper, loss_scale, step, v}, {w, v}));
    for (size_t i = 0; i < weights.size(); ++i) {
      const double u = gradient[i] / 2 + decay * decayed[i];
      velocity[i] = momentum * velocity[i] + (1 - dampening) * u;
      weights[i] -= rate * velocity[i];
    }
    decayed = weights;
    ExpectClose(ipu.Read(w), weights, GetParam());
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i] = scale * (momentum * velocity[i] + (1 - dampening) * decay * weights[i]);
    ExpectClose(ipu.Read(v), weights, FLOAT32);
  }
}

TEST_P(OptimizerTest, AdamOverSeveralSteps) {
  for (const bool decoupled : {false, true}) {
    for (const bool amsgrad : {false, true}) {
      SCOPED_TRACE(absl::StrCat("decoupled ", decoupled, " amsgrad ", amsgrad));
      TestIpu ipu;
      const Dims dims{70};
      const Values none(70, 0);
      const double rate = 0.01, decay = 0.1, beta1 = 0.75, beta2 = 0.875, epsilon = 1e-3;
      const uint32_t w = ipu.Add(GetParam(), dims, Random(dims, 3)), g = ipu.Add(GetParam(), dims);
      const uint32_t hyper = ipu.Add(FLOAT32, {5}, {rate, decay, beta1, beta2, epsilon});
      const uint32_t scale = ipu.Add(FLOAT32, {}, {4}), step = ipu.Add(FLOAT32, {});
      std::vector<uint32_t> state = {ipu.Add(FLOAT32, dims, none), ipu.Add(FLOAT32, dims, none)};
      if (amsgrad) state.push_back(ipu.Add(FLOAT32, dims, none));
      std::vector<uint32_t> inputs = {w, g, hyper, scale, step}, outputs = {w};
      inputs.insert(inputs.end(), state.begin(), state.end());
      outputs.insert(outputs.end(), state.begin(), state.end());
      Values m(70), v(70), largest(70);
      for (int round = 1; round <= 4; ++round) {
        ipu.Write(g, Random(dims, 10 + static_cast<uint32_t>(round), -1.0 / round, 1.0 / round));
        ipu.Write(step, {static_cast<double>(round)});
        Values weights = ipu.Read(w);
        const Values gradient = ipu.Read(g);
        ipu.Run(Step(absl::StrCat("adam{gradient_scale:2 decoupled_weight_decay:", decoupled, "}"),
                     inputs, outputs));
        for (size_t i = 0; i < weights.size(); ++i) {
          double u = gradient[i] / 2;
          if (decoupled) {
            weights[i] *= 1 - rate * decay;
          } else {
            u += decay * weights[i];
          }
          m[i] = beta1 * m[i] + (1 - beta1) * u;
          v[i] = beta2 * v[i] + (1 - beta2) * u * u;
          largest[i] = amsgrad ? std::max(largest[i], v[i]) : v[i];
          const double denominator =
              std::sqrt(largest[i]) / std::sqrt(1 - std::pow(beta2, round)) + epsilon;
          weights[i] -= rate / (1 - std::pow(beta1, round)) * m[i] / denominator;
        }
        ExpectClose(ipu.Read(w), weights, GetParam());
        ExpectClose(ipu.Read(state[0]), m, FLOAT32);
        ExpectClose(ipu.Read(state[1]), v, FLOAT32);
      }
    }
  }
}

// Over several chunks: the norms are those of the whole variable.
TEST_P(OptimizerTest, LambScalesStepsToTheNormOfTheWeights) {
  constexpr int64_t kSize = 300'000;
  const Values none(kSize, 0);
  const double rate = 0.01, decay = 0.1, beta1 = 0.75, beta2 = 0.875, epsilon = 1e-3;
  TestIpu ipu;
  const uint32_t w = ipu.Add(GetParam(), {kSize}, Random({kSize}, 3)),
                 g = ipu.Add(GetParam(), {kSize}),
                 hyper = ipu.Add(FLOAT32, {5}, {rate, decay, beta1, beta2, epsilon}),
                 scale = ipu.Add(FLOAT32, {}, {4}), step = ipu.Add(FLOAT32, {}),
                 of_m = ipu.Add(FLOAT32, {kSize}, none), of_v = ipu.Add(FLOAT32, {kSize}, none);
  Values m(kSize), v(kSize);
  for (int round = 1; round <= 2; ++round) {
    ipu.Write(g, Random({kSize}, 10 + static_cast<uint32_t>(round)));
    ipu.Write(step, {static_cast<double>(round)});
    Values weights = ipu.Read(w), u(kSize);
    const Values gradient = ipu.Read(g);
    ipu.Run(
        Step("lamb{gradient_scale:2}", {w, g, hyper, scale, step, of_m, of_v}, {w, of_m, of_v}));
    double of_weights = 0, of_steps = 0;
    for (size_t i = 0; i < kSize; ++i) {
      m[i] = beta1 * m[i] + (1 - beta1) * gradient[i] / 2;
      v[i] = beta2 * v[i] + (1 - beta2) * gradient[i] * gradient[i] / 4;
      u[i] = m[i] / (1 - std::pow(beta1, round)) /
                 (std::sqrt(v[i] / (1 - std::pow(beta2, round))) + epsilon) +
             decay * weights[i];
      of_weights += weights[i] * weights[i];
      of_steps += u[i] * u[i];
    }
    for (size_t i = 0; i < kSize; ++i) weights[i] -= rate * std::sqrt(of_weights / of_steps) * u[i];
    ExpectClose(ipu.Read(w), weights, GetParam());
    ExpectClose(ipu.Read(of_m), m, FLOAT32);
  }
}

// The norm of the weights is 5.
TEST_P(OptimizerTest, LambCountsNoLargerNormThanItIsTold) {
  for (const auto& [largest, counted] : {std::pair(HUGE_VAL, 5.0), {6.0, 5.0}, {2.0, 2.0}}) {
    for (const bool in_two_steps : {false, true}) {
      TestIpu ipu;
      const uint32_t w = ipu.Add(GetParam(), {2}, {3, 4}), g = ipu.Add(GetParam(), {2}, {1, 0}),
                     hyper = ipu.Add(FLOAT32, {6}, {0.5, 0, 0, 0, 0.25, largest}),
                     scale = ipu.Add(FLOAT32, {}, {1}), step = ipu.Add(FLOAT32, {}, {1}),
                     m = ipu.Add(FLOAT32, {2}, {0, 0}), v = ipu.Add(FLOAT32, {2}, {0, 0}),
                     squares = ipu.Add(FLOAT32, {2});
      if (in_two_steps) {
        ipu.Run(Step("lamb_moments{gradient_scale:1}", {w, g, hyper, scale, step, m, v},
                     {squares, m, v}));
        ipu.Run(Step("lamb_step{}", {w, squares, hyper, scale, step, m, v}, {w}));
      } else {
        ipu.Run(Step("lamb{gradient_scale:1}", {w, g, hyper, scale, step, m, v}, {w, m, v}));
      }
      ExpectClose(ipu.Read(w), {3 - 0.5 * counted, 4}, GetParam());
    }
  }
}

// As replicas do it that share out the state: each has its part of the moments, and steps by the
// norms of all parts.
TEST_P(OptimizerTest, LambInTwoPartsIsThatOfTheWhole) {
  constexpr int64_t kSize = 300'000, kPart = kSize / 2;
  const auto part = [](const Values& all, int64_t at) {
    return Values(all.begin() + at * kPart, all.begin() + (at + 1) * kPart);
  };
  const Values weights = Random({kSize}, 3), gradient = Random({kSize}, 4);
  TestIpu ipu;
  struct State {
    uint32_t w, g, m, v, squares;
  };
  const auto add = [&](const Values& w, const Values& g) {
    const Dims dims{static_cast<int64_t>(w.size())};
    const Values none(w.size(), 0);
    return State{ipu.Add(GetParam(), dims, w), ipu.Add(GetParam(), dims, g),
                 ipu.Add(FLOAT32, dims, none), ipu.Add(FLOAT32, dims, none), ipu.Add(FLOAT32, {2})};
  };
  const State whole = add(weights, gradient);
  const State parts[] = {add(part(weights, 0), part(gradient, 0)),
                         add(part(weights, 1), part(gradient, 1))};
  const uint32_t hyper = ipu.Add(FLOAT32, {5}, {0.01, 0.1, 0.75, 0.875, 1e-3}),
                 scale = ipu.Add(FLOAT32, {}, {4}), step = ipu.Add(FLOAT32, {});
  for (int round = 1; round <= 2; ++round) {
    ipu.Write(step, {static_cast<double>(round)});
    ipu.Run(Step("lamb{gradient_scale:2}", {whole.w, whole.g, hyper, scale, step, whole.m, whole.v},
                 {whole.w, whole.m, whole.v}));
    Values squares(2, 0);
    for (const State& s : parts) {
      ipu.Run(Step("lamb_moments{gradient_scale:2}", {s.w, s.g, hyper, scale, step, s.m, s.v},
                   {s.squares, s.m, s.v}));
      for (size_t i = 0; i < 2; ++i) squares[i] += ipu.Read(s.squares)[i];
    }
    for (int i = 0; i < 2; ++i) {
      const State& s = parts[i];
      ipu.Write(s.squares, squares);
      ipu.Run(Step("lamb_step{}", {s.w, s.squares, hyper, scale, step, s.m, s.v}, {s.w}));
      ExpectClose(ipu.Read(s.w), part(ipu.Read(whole.w), i), GetParam());
      EXPECT_EQ(ipu.Read(s.m), part(ipu.Read(whole.m), i));
      EXPECT_EQ(ipu.Read(s.v), part(ipu.Read(whole.v), i));
    }
  }
}

TEST_P(OptimizerTest, StepsByNormsOfNothingAreNotScaled) {
  for (const std::string op : {"lamb", "lars"}) {
    TestIpu ipu;
    const uint32_t w = ipu.Add(GetParam(), {2}, {0, 0}), g = ipu.Add(GetParam(), {2}, {1, -1}),
                   hyper = ipu.Add(FLOAT32, {5}, {0.5, 0, 0, 0, 0}),
                   scale = ipu.Add(FLOAT32, {}, {1}), step = ipu.Add(FLOAT32, {}, {1}),
                   a = ipu.Add(FLOAT32, {2}, {0, 0}), b = ipu.Add(FLOAT32, {2}, {0, 0});
    const bool lamb = op == "lamb";
    ipu.Run(Step(op + "{gradient_scale:1}",
                 lamb ? std::vector{w, g, hyper, scale, step, a, b}
                      : std::vector{w, g, hyper, scale, step, a},
                 lamb ? std::vector{w, a, b} : std::vector{w, a}));
    EXPECT_EQ(ipu.Read(w), (Values{-0.5, 0.5})) << op;
  }
}

TEST_P(OptimizerTest, LarsTakesStepsRelativeToTheWeights) {
  // |w| = 5 and |g| = 10, so that r = 0.5 * 5 / (10 + 0.5 * 5).
  TestIpu ipu;
  const uint32_t w = ipu.Add(GetParam(), {2}, {3, 4}), g = ipu.Add(GetParam(), {2}, {-6, 8}),
                 hyper = ipu.Add(FLOAT32, {5}, {0.5, 0.5, 0.25, 0.5, 0}),
                 scale = ipu.Add(FLOAT32, {}, {1}), step = ipu.Add(FLOAT32, {}, {1}),
                 velocity = ipu.Add(FLOAT32, {2}, {1, 2});
  ipu.Run(Step("lars{gradient_scale:1}", {w, g, hyper, scale, step, velocity}, {w, velocity}));
  const Values v = {0.25 + 0.2 * (-6 + 1.5), 0.5 + 0.2 * (8 + 2)};
  ExpectClose(ipu.Read(velocity), v, FLOAT32);
  ExpectClose(ipu.Read(w), {3 - 0.5 * v[0], 4 - 0.5 * v[1]}, GetParam());
}

TEST_P(OptimizerTest, RmsPropWithEachState) {
  for (int flags = 0; flags < 8; ++flags) {
    const bool centered = flags & 1, momentum = flags & 2, tensorflow = flags & 4;
    SCOPED_TRACE(
        absl::StrCat("centered ", centered, " momentum ", momentum, " TensorFlow's ", tensorflow));
    TestIpu ipu;
    const uint32_t w = ipu.Add(GetParam(), {1}, {2}), g = ipu.Add(GetParam(), {1}, {0.5}),
                   hyper = ipu.Add(FLOAT32, {5}, {0.1, 0.25, 0.75, 0.125, 0.5}),
                   scale = ipu.Add(FLOAT32, {}, {1}), step = ipu.Add(FLOAT32, {}, {1});
    std::vector<uint32_t> inputs = {w, g, hyper, scale, step}, outputs = {w};
    for (int i = 0; i < 1 + centered + momentum; ++i) {
      inputs.push_back(ipu.Add(FLOAT32, {1}, {i == 0 ? 4.0 : 1.0}));
      outputs.push_back(inputs.back());
    }
    ipu.Run(Step(absl::StrCat("rms_prop{gradient_scale:1 centered:", centered,
                              " with_momentum:", momentum, " tensorflow:", tensorflow, "}"),
                 inputs, outputs));
    const double u = 0.5 + 0.25 * 2, squares = 0.75 * 4 + 0.25 * u * u, mean = 0.75 + 0.25 * u,
                 variance = squares - (centered ? mean * mean : 0),
                 moved =
                     u / (tensorflow ? std::sqrt(variance + 0.125) : std::sqrt(variance) + 0.125),
                 before = momentum ? 0.5 : 0,
                 change = tensorflow ? before + 0.1 * moved : 0.1 * (before + moved);
    ExpectClose(ipu.Read(w), {2 - change}, GetParam());
    if (momentum)
      ExpectClose(ipu.Read(outputs.back()), {tensorflow ? change : 10 * change}, FLOAT32);
    ExpectClose(ipu.Read(outputs[1]), {squares}, FLOAT32);
  }
}

// An optimiser whose step follows from its state.
struct Stepping {
  std::string op;
  Values hyper;
  size_t states;
  // The step of an element with this weight, gradient and state, before rate and norms.
  std::function<double(double, double, const std::vector<double>&)> step;
};

std::vector<Stepping> SteppingOptimizers() {
  const auto corrected = [](const std::vector<double>& s) {  // at the second update
    return s[0] / (1 - 0.75 * 0.75) / (std::sqrt(s[1] / (1 - 0.875 * 0.875)) + 0.01);
  };
  const auto first = [](double, double, const std::vector<double>& s) { return s[0]; };
  return {{"sgd{gradient_scale:1}", {0.5, 0, 0.5, 0.25}, 1, first},
          {"adam{gradient_scale:1}",
           {0.5, 0, 0.75, 0.875, 0.01},
           2,
           [=](double, double, const auto& s) { return corrected(s); }},
          {"rms_prop{gradient_scale:1}",
           {0.5, 0, 0.75, 0.01, 0},
           1,
           [](double, double g, const auto& s) { return g / (std::sqrt(s[0]) + 0.01); }},
          {"rms_prop{gradient_scale:1 centered:1 with_momentum:1}",
           {0.5, 0, 0.75, 0.01, 0.5},
           3,
           [](double, double, const auto& s) { return s[2]; }},
          {"lamb{gradient_scale:1}",
           {0.5, 0.25, 0.75, 0.875, 0.01},
           2,
           [=](double w, double, const auto& s) { return corrected(s) + 0.25 * w; }},
          {"lars{gradient_scale:1}", {0.5, 0, 0.5, 0.5, 0}, 1, first}};
}

// Over several blocks and chunks: state of float16 is that of float32, rounded once, and the
// weights move by what it is then.
TEST_P(OptimizerTest, StateOfFloat16IsRoundedBeforeTheWeightsMove) {
  constexpr int64_t kSize = 200'000;
  for (const Stepping& each : SteppingOptimizers()) {
    SCOPED_TRACE(each.op);
    const Values gradient = Random({kSize}, 4);
    TestIpu ipu;
    const auto update = [&](DataType state_type) {
      std::vector<uint32_t> inputs = {
          ipu.Add(GetParam(), {kSize}, Random({kSize}, 3)), ipu.Add(FLOAT32, {kSize}, gradient),
          ipu.Add(FLOAT32, {static_cast<int64_t>(each.hyper.size())}, each.hyper),
          ipu.Add(FLOAT32, {}, {1}), ipu.Add(FLOAT32, {}, {2})};
      std::vector<uint32_t> outputs = {inputs[0]};
      for (uint32_t i = 0; i < each.states; ++i) {
        Values before = Random({kSize}, 5 + i, 0.5, 1);
        for (double& value : before) value = static_cast<double>(static_cast<_Float16>(value));
        if (i == 1 && each.states == 3) std::fill(before.begin(), before.end(), 0.125);  // means
        inputs.push_back(ipu.Add(state_type, {kSize}, before));
        outputs.push_back(inputs.back());
      }
      ipu.Run(Step(each.op, inputs, outputs));
      return outputs;
    };
    const std::vector<uint32_t> exact = update(FLOAT32), rounded = update(FLOAT16);
    std::vector<Values> states;
    for (size_t i = 1; i < exact.size(); ++i) {
      Values expected = ipu.Read(exact[i]);
      for (double& value : expected) value = static_cast<double>(static_cast<_Float16>(value));
      states.push_back(ipu.Read(rounded[i]));
      EXPECT_EQ(states.back(), expected);
    }
    const uint32_t before = ipu.Add(GetParam(), {kSize}, Random({kSize}, 3));
    Values weights = ipu.Read(before), steps(kSize);
    double of_weights = 0, of_steps = 0;
    for (size_t i = 0; i < kSize; ++i) {
      std::vector<double> state;
      for (const Values& of_all : states) state.push_back(of_all[i]);
      steps[i] = each.step(weights[i], gradient[i], state);
      of_weights += weights[i] * weights[i];
      of_steps += steps[i] * steps[i];
    }
    const double ratio = each.op.find("lamb") == 0 ? std::sqrt(of_weights / of_steps) : 1;
    for (size_t i = 0; i < kSize; ++i) weights[i] -= 0.5 * ratio * steps[i];
    ExpectClose(ipu.Read(rounded[0]), weights, GetParam());
  }
}

TEST_P(OptimizerTest, AHugeStepLeavesOutWhatIsSpecialAboutTheFirst) {
  const Values g = {0.5, -0.25};
  const auto updated = [&](const std::string& op, const Values& hyper, size_t states) {
    TestIpu ipu;
    std::vector<uint32_t> inputs = {ipu.Add(GetParam(), {2}, {2, 1}), ipu.Add(GetParam(), {2}, g),
                                    ipu.Add(FLOAT32, {static_cast<int64_t>(hyper.size())}, hyper),
                                    ipu.Add(FLOAT32, {}, {1}),
                                    ipu.Add(FLOAT32, {}, {std::numeric_limits<float>::max()})};
    std::vector<uint32_t> outputs = {inputs[0]};
    for (size_t i = 0; i < states; ++i) {
      inputs.push_back(ipu.Add(FLOAT32, {2}, {0, 0}));
      outputs.push_back(inputs.back());
    }
    ipu.Run(Step(op, inputs, outputs));
    return ipu.Read(inputs[0]);
  };
  const auto step = [&](size_t i, double kept1, double kept2) {
    return (1 - kept1) * g[i] / (std::sqrt((1 - kept2) * g[i] * g[i]) + 0.125);
  };
  ExpectClose(updated("sgd{gradient_scale:1}", {0.5, 0, 0.9, 0.25}, 1),
              {2 - 0.5 * 0.75 * g[0], 1 - 0.5 * 0.75 * g[1]}, GetParam());
  for (const auto& [beta1, beta2] : {std::pair(0.75, 0.875), {0.0, 0.0}}) {
    const Values hyper = {0.5, 0, beta1, beta2, 0.125};
    const double a = step(0, beta1, beta2), b = step(1, beta1, beta2),
                 ratio = std::sqrt(5 / (a * a + b * b));
    ExpectClose(updated("adam{gradient_scale:1}", hyper, 2), {2 - 0.5 * a, 1 - 0.5 * b},
                GetParam());
    ExpectClose(updated("lamb{gradient_scale:1}", hyper, 2),
                {2 - 0.5 * ratio * a, 1 - 0.5 * ratio * b}, GetParam());
  }
}

TEST_P(OptimizerTest, NormOfSeveralTensors) {
  TestIpu ipu;
  const uint32_t a = ipu.Add(FLOAT32, {2}, {1e30, 0}),
                 b = ipu.Add(GetParam(), {300'000}, Values(300'000, 2)),
                 c = ipu.Add(GetParam(), {}, {0}), norm = ipu.Add(FLOAT32, {});
  ipu.Run(Step("norm{}", {b, c}, {norm}));
  ExpectClose(ipu.Read(norm), {2 * std::sqrt(300'000.0)}, FLOAT32);
  ipu.Run(Step("norm{}", {a, b}, {norm}));  // its square is beyond float32
  ExpectClose(ipu.Read(norm), {1e30}, FLOAT32);
}

TEST_P(OptimizerTest, HyperParametersAreReadInEachStep) {
  TestIpu ipu;
  const uint32_t w = ipu.Add(GetParam(), {1}, {1}), g = ipu.Add(GetParam(), {1}, {1});
  const uint32_t hyper = ipu.Add(FLOAT32, {4}, {0, 0, 0, 0}), scale = ipu.Add(FLOAT32, {}, {1});
  const std::string text = Step(Sgd{}.Text(), {w, g, hyper, scale}, {w});
  ipu.Run(text);
  EXPECT_EQ(ipu.Read(w), Values{1});
  ipu.Write(hyper, {0.25, 0, 0, 0});
  ipu.Run(text);
  EXPECT_EQ(ipu.Read(w), Values{0.75});
}

TEST_P(OptimizerTest, AllFinite) {
  for (const double bad : {0.0, std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    TestIpu ipu;
    Values values(300'000, 1);
    values[200'000] = bad;
    const uint32_t a = ipu.Add(FLOAT32, {3}, {1, 2, -3}),
                   b = ipu.Add(GetParam(), {300'000}, values), finite = ipu.Add(BOOL, {});
    ipu.Run(Step("all_finite{}", {a, b}, {finite}));
    EXPECT_EQ(ipu.Read(finite), Values{bad == 0 ? 1.0 : 0.0}) << bad;
  }
}

TEST(LossScaleTest, GrowsAfterAnIntervalAndShrinksAtOnce) {
  TestIpu ipu;
  const uint32_t scale = ipu.Add(FLOAT32, {}, {16}), count = ipu.Add(INT32, {}, {0}),
                 finite = ipu.Add(BOOL, {}, {1});
  const std::string text = Step("update_loss_scale{growth:2 backoff:0.25 interval:3}",
                                {scale, count, finite}, {scale, count});
  for (const double expected : {16.0, 16.0, 32.0, 32.0}) {
    ipu.Run(text);
    EXPECT_EQ(ipu.Read(scale), Values{expected});
  }
  ipu.Write(finite, {0});
  ipu.Run(text);
  EXPECT_EQ(ipu.Read(scale), Values{8});
  EXPECT_EQ(ipu.Read(count), Values{0});
}

TEST(LossScaleTest, CountsNoFurtherThanInt32) {
  constexpr double kMost = std::numeric_limits<int32_t>::max();
  TestIpu ipu;
  const uint32_t scale = ipu.Add(FLOAT32, {}, {16}), count = ipu.Add(INT32, {}, {kMost}),
                 finite = ipu.Add(BOOL, {}, {1});
  ipu.Run(Step("update_loss_scale{growth:2 backoff:0.25 interval:4294967295}",
               {scale, count, finite}, {scale, count}));
  EXPECT_EQ(ipu.Read(count), Values{kMost});
}

// Sums that depended on the chunks would differ in their last bits.
TEST(NormTest, ChunksAreWholeBlocks) {
  for (const size_t elements : {size_t{0}, size_t{1}, kNormBlock, kNormBlock + 1,
                                kElementsOfAChunk + 1, 5 * kElementsOfAChunk / 2}) {
    const Chunking chunks = ChunkNormBlocks(elements);
    EXPECT_EQ(chunks.items, elements);
    EXPECT_EQ(chunks.per_chunk % kNormBlock, 0u) << elements;
    EXPECT_LE(chunks.per_chunk, kElementsOfAChunk) << elements;
  }
}

TEST_P(OptimizerTest, AccumulatesInDouble) {
  TestIpu ipu;
  const Dims dims{3, 23};
  const uint32_t accumulator = ipu.Add(FLOAT32, dims, Random(dims, 4), /*wide=*/true);
  const uint32_t g = ipu.Add(GetParam(), dims);
  Values expected = ipu.Read(accumulator);
  for (uint32_t step = 0; step < 10; ++step) {
    ipu.Write(g, Random(dims, 20 + step, -1000, 1000));
    ipu.Run(
        absl::StrCat("accumulate{} inputs:", accumulator, " inputs:", g, " outputs:", accumulator));
    const Values gradient = ipu.Read(g);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += gradient[i];
  }
  EXPECT_EQ(ipu.Read(accumulator), expected);  // to the bit
}

TEST(AccumulateTest, SmallGradientsAreNotLostBesideLargeOnes) {
  TestIpu ipu;
  const uint32_t accumulator = ipu.Add(FLOAT32, {1}, {0}, /*wide=*/true);
  const uint32_t g = ipu.Add(FLOAT32, {1}, {1 << 30});
  const std::string text =
      absl::StrCat("accumulate{} inputs:", accumulator, " inputs:", g, " outputs:", accumulator);
  ipu.Run(text);
  ipu.Write(g, {0.125});
  for (int i = 0; i < 8; ++i) ipu.Run(text);
  EXPECT_EQ(ipu.Read(accumulator), Values{(1 << 30) + 1.0});
}

TEST(KernelTest, CommunicationStepsAndRepeatsAreNotKernels) {
  for (const char* text : {"", "repeat{count:1}", "stream_in{}", "stream_out{}", "exchange{}",
                           "call{}", "if{}", "while{}", "all_reduce{}"}) {
    program::v1::Instruction instruction;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &instruction));
    EXPECT_EQ(PrepareKernel({}, instruction).status().code(), absl::StatusCode::kInternal) << text;
  }
}

}  // namespace
}  // namespace vpod::engine
