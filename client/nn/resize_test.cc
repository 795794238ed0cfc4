// Known results; tests/conformance compares random ones, and gradients, with PyTorch.
#include "client/nn/resize.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "client/session/ipu_model.h"
#include "client/session/session.h"

namespace vpod::nn {
namespace {

using graph::Dims;
using graph::Graph;
using program::v1::FLOAT32;
using program::v1::INT32;

std::vector<float> Resized(const Dims& dims, const std::vector<float>& pixels, const Dims& size,
                           const ResizeOptions& options) {
  Graph graph;
  graph.Output("y", Resize(graph, graph.Input("x", {FLOAT32, dims}), size, options));
  const auto compiled = compiler::Compile(graph, {.programs = {{.name = "infer"}}});
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return {};
  auto session = *session::Session::Create(*session::CreateIpuModel({}), *compiled);
  std::copy(pixels.begin(), pixels.end(), session->Stream<float>("x", 0)->begin());
  EXPECT_TRUE(session->Run("infer").ok());
  const auto y = *session->Stream<float>("y", 0);
  return {y.begin(), y.end()};
}

TEST(ResizeTest, RepeatsAndLeavesOutPixels) {
  EXPECT_EQ(Resized({1, 1, 2}, {1, 2}, {5}, {}), (std::vector<float>{1, 1, 1, 2, 2}));
  EXPECT_EQ(Resized({1, 1, 5}, {1, 2, 3, 4, 5}, {2}, {}), (std::vector<float>{1, 3}));
  EXPECT_EQ(
      Resized({1, 1, 5}, {1, 2, 3, 4, 5}, {2}, {.interpolation = Interpolation::kNearestExact}),
      (std::vector<float>{2, 4}));
}

TEST(ResizeTest, BlendsPixels) {
  const ResizeOptions linear{.interpolation = Interpolation::kLinear};
  EXPECT_EQ(Resized({1, 1, 2}, {0, 4}, {4}, linear), (std::vector<float>{0, 1, 3, 4}));
  EXPECT_EQ(Resized({1, 1, 2}, {0, 4}, {5}, {Interpolation::kLinear, true}),
            (std::vector<float>{0, 1, 2, 3, 4}));
  EXPECT_EQ(Resized({1, 1, 2, 2}, {0, 2, 4, 6}, {1, 1}, linear), (std::vector<float>{3}));
  // The four weights between two pixels are -3/32, 19/32, 19/32 and -3/32.
  EXPECT_EQ(Resized({1, 1, 4}, {0, 32, 0, 0}, {2}, {Interpolation::kCubic}),
            (std::vector<float>{19, -3}));
}

// The quotient of the lengths is another scale: PyTorch rounds lengths down.
TEST(ResizeTest, TakesAScaleThatIsNotTheQuotientOfTheLengths) {
  const std::vector<float> pixels = {0, 8, 16, 24, 32};
  ResizeOptions options{.interpolation = Interpolation::kLinear, .scales = {1.6}};
  // The places are (i + 1/2) / 1.6 - 1/2.
  EXPECT_EQ(Resized({1, 1, 5}, pixels, {7}, options),
            (std::vector<float>{0, 3.5, 8.5, 13.5, 18.5, 23.5, 28.5}));
  options.interpolation = Interpolation::kNearest;
  options.scales = {2};
  EXPECT_EQ(Resized({1, 1, 5}, pixels, {7}, options), (std::vector<float>{0, 0, 8, 8, 16, 16, 24}));
}

// A pixel of the result is a mean of the pixels that it covers, with the weights (3 3 1) / 7.
TEST(ResizeTest, SmallerImagesAreAntialiased) {
  ResizeOptions options{.interpolation = Interpolation::kLinear, .antialias = true};
  const auto expect = [&](const Dims& dims, const Dims& size, const std::vector<float>& wanted) {
    const std::vector<float> got = Resized(dims, {7, 14, 21, 28}, size, options);
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-5f) << i;
  };
  expect({1, 1, 4}, {2}, {12, 23});
  expect({1, 1, 4, 1}, {2, 1}, {12, 23});
  expect({1, 1, 2, 2}, {1, 2}, {14, 21});
  // PyTorch aligns no corners here, but takes the step of 3 pixels: the centres are 1.5 and 4.5.
  options.align_corners = true;
  expect({1, 1, 4}, {2}, {15.75f, 77.0f / 3});
  // The weights are (111 111 29 -9) / 242.
  options = {.interpolation = Interpolation::kCubic, .antialias = true};
  expect({1, 1, 4}, {2}, {2688.0f / 242, 35 - 2688.0f / 242});
}

std::string Refusal(const graph::TensorType& type, const Dims& size, const ResizeOptions& options) {
  Graph graph;
  Resize(graph, graph.Input("x", type), size, options);
  return std::string(graph.status().message());
}

TEST(ResizeTest, RefusesOtherShapesAndOptions) {
  EXPECT_EQ(Refusal({FLOAT32, {1, 2, 3}}, {4, 4}, {}),
            "resize needs floats [n, channels, spatial…] and as many lengths of 1 or more, and has "
            "float32[1,2,3] and [4,4]");
  EXPECT_NE(Refusal({INT32, {1, 2, 3}}, {4}, {}), "");
  EXPECT_NE(Refusal({FLOAT32, {1, 2, 3}}, {0}, {}), "");
  EXPECT_NE(Refusal({FLOAT32, {1, 2, 0}}, {2}, {}), "");
  EXPECT_EQ(Refusal({FLOAT32, {1, 2, 3}}, {4}, {.align_corners = true}),
            "resize takes align_corners with linear and cubic interpolation only");
  EXPECT_EQ(Refusal({FLOAT32, {1, 2, 3}}, {4}, {.antialias = true}),
            "resize takes antialias with linear and cubic interpolation only");
  EXPECT_EQ(
      Refusal({FLOAT32, {1, 1, 1 << 14}}, {1 << 13},
              {.interpolation = Interpolation::kLinear, .antialias = true}),
      "resize with antialias from 16384 to 8192 pixels has a weight for each pair of them, must "
      "have at most 67108864");
  EXPECT_EQ(Refusal({FLOAT32, {1, 2, 3}}, {4}, {.scales = {1, 2}}),
            "resize has the scales [1,2], must have 1 above 0");
  EXPECT_NE(Refusal({FLOAT32, {1, 2, 3}}, {4}, {.scales = {0}}), "");
}

}  // namespace
}  // namespace vpod::nn
