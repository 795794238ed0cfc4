// Checks a derivative against central finite differences: the model is compiled once, run on the
// IPUModel, and run again with each element of each input moved up and down.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "client/graph/gradients/gradients.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"

namespace vpod::graph {

using v1::FLOAT16;
using v1::FLOAT32;
using v1::INT32;

// An input of the function under test. Its values are distinct and evenly spread over the range, so
// that no step of the finite differences crosses a kink or exchanges the places of two elements.
struct Operand {
  Dims dims;
  float low = -2, high = 2;
};

using Function = std::function<Tensor(Graph&, const std::vector<Tensor>&)>;

inline std::vector<std::vector<float>> Spread(const std::vector<Operand>& operands) {
  std::vector<size_t> ranks(1);
  for (const Operand& operand : operands) {
    ranks.resize(ranks.size() + TensorType{FLOAT32, operand.dims}.elements());
  }
  ranks.pop_back();
  std::iota(ranks.begin(), ranks.end(), 0);
  std::shuffle(ranks.begin(), ranks.end(), std::mt19937(1));
  const auto total = static_cast<float>(ranks.size());
  std::vector<std::vector<float>> values;
  for (const Operand& operand : operands) {
    std::vector<float>& own = values.emplace_back();
    while (own.size() < static_cast<size_t>(TensorType{FLOAT32, operand.dims}.elements())) {
      const float place = (static_cast<float>(ranks.back()) + 0.5f) / total;
      own.push_back(operand.low + place * (operand.high - operand.low));
      ranks.pop_back();
    }
  }
  return values;
}

// A function of float32 inputs, compiled with the gradients of the sum of its product with random
// weights. With all weights equal, mistakes that only exchange elements would not show.
class Compiled {
 public:
  Compiled(const std::vector<Operand>& operands, const Function& function) {
    Graph graph;
    std::vector<Tensor> inputs;
    for (const Operand& operand : operands) {
      inputs.push_back(graph.Input(absl::StrCat("x", inputs.size()), {FLOAT32, operand.dims}));
    }
    const Tensor y = graph.Cast(function(graph, inputs), FLOAT32);
    EXPECT_TRUE(graph.status().ok()) << graph.status();
    if (!graph.status().ok()) return;
    std::mt19937 random(2);
    std::uniform_real_distribution<float> uniform(-1, 1);
    weights_.resize(graph.TypeOf(y).elements());
    for (float& weight : weights_) weight = uniform(random);
    const Tensor weights = graph.Variable("weights", graph.TypeOf(y), weights_);
    const auto gradients = graph.Gradients(graph.Sum(graph.Multiply(y, weights)), inputs);
    graph.Output("y", y);
    for (size_t i = 0; i < gradients.size(); ++i) {
      const Tensor zeros = graph.Constant(graph.TypeOf(inputs[i]), 0);
      graph.Output(absl::StrCat("dx", i), gradients[i].valid() ? gradients[i] : zeros);
    }
    draws_ = absl::c_any_of(
        graph.buffers(), [&](Tensor buffer) { return graph.values()[buffer.id].name == kCounter; });
    auto compiled = compiler::Compile(graph, {.programs = {{.name = "run"}}});
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    if (!compiled.ok()) return;
    auto session =
        session::Session::Create(*session::CreateIpuModel({.compute_threads = 1}), *compiled);
    EXPECT_TRUE(session.ok()) << session.status();
    if (session.ok()) session_ = *std::move(session);
  }

  bool ok() const { return session_ != nullptr; }

  void Set(size_t input, const std::vector<float>& values) {
    // An input that influences nothing has no stream.
    auto stream = session_->Stream<float>(absl::StrCat("x", input), 0);
    if (stream.ok()) std::copy(values.begin(), values.end(), stream->begin());
  }
  void Run() {
    // The same random elements in each run, or its loss would be that of another function.
    if (draws_) {
      ASSERT_TRUE(session_->WriteFloats(kCounter, std::vector<float>{0}).ok());
    }
    const auto cycles = session_->Run("run");
    ASSERT_TRUE(cycles.ok()) << cycles.status();
  }
  std::vector<float> Output(const std::string& name) {
    const auto stream = *session_->Stream<float>(name, 0);
    return {stream.begin(), stream.end()};
  }
  // The weighted sum of the last outputs, added up in double.
  double Loss() {
    const std::vector<float> y = Output("y");
    return std::inner_product(y.begin(), y.end(), weights_.begin(), 0.0);
  }
  const std::vector<float>& weights() const { return weights_; }

 private:
  static constexpr char kCounter[] = "random/counter";
  bool draws_ = false;
  std::vector<float> weights_;
  std::unique_ptr<session::Session> session_;
};

inline void CheckGradients(const std::vector<Operand>& operands, const Function& function) {
  constexpr float kStep = 1.0f / 128;
  Compiled compiled(operands, function);
  if (!compiled.ok()) return;
  std::vector<std::vector<float>> values = Spread(operands);
  for (size_t i = 0; i < values.size(); ++i) compiled.Set(i, values[i]);
  for (size_t i = 0; i < values.size(); ++i) {
    compiled.Run();
    const std::vector<float> gradient = compiled.Output(absl::StrCat("dx", i));
    for (size_t e = 0; e < values[i].size(); ++e) {
      const float middle = values[i][e];
      double loss[2];
      for (int side = 0; side < 2; ++side) {
        values[i][e] = side == 0 ? middle - kStep : middle + kStep;
        compiled.Set(i, values[i]);
        compiled.Run();
        loss[side] = compiled.Loss();
      }
      const double slope = (loss[1] - loss[0]) / (2 * kStep);
      EXPECT_NEAR(gradient[e], slope, 1e-3 + 1e-3 * std::abs(slope))
          << "input " << i << " element " << e;
      values[i][e] = middle;
      compiled.Set(i, values[i]);
    }
  }
}

}  // namespace vpod::graph
