// Host data of 64 bits, and images of one byte a channel, on their way to the device.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "client/session/ipu_model.h"
#include "client/session/session.h"

namespace vpod::session {
namespace {

using graph::Graph;
using graph::Tensor;
using namespace program::v1;

std::unique_ptr<Session> Open(const Graph& graph, compiler::ProgramSpec spec) {
  const auto compiled = compiler::Compile(graph, {.programs = {std::move(spec)}});
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return nullptr;
  auto session = Session::Create(*CreateIpuModel({.compute_threads = 2}), *compiled);
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : nullptr;
}

// A stream "x" and a variable "b" of three elements; both come back as they are.
std::unique_ptr<Session> OpenCopy(DataType type) {
  Graph graph;
  graph.Output("y", graph.Input("x", {type, {3}}));
  graph.Output("c", graph.Buffer("b", {type, {3}}, {0, 0, 0}));
  return Open(graph, {.name = "run"});
}

template <class T>
void ExpectIntegers(DataType type, int64_t low, int64_t high) {
  SCOPED_TRACE(DataType_Name(type));
  const auto session = OpenCopy(type);
  ASSERT_TRUE(session);
  const std::vector<int64_t> values = {low, high, 1};
  ASSERT_TRUE(session->WriteStream("x", 0, values).ok());
  ASSERT_TRUE(session->WriteVariable("b", values).ok());
  ASSERT_TRUE(session->Run("run").ok());
  for (const char* name : {"y", "c"}) {
    const auto got = *session->Stream<T>(name, 0);
    EXPECT_EQ(std::vector<int64_t>(got.begin(), got.end()), values) << name;
  }
  for (const int64_t wrong : {low - 1, high + 1, std::numeric_limits<int64_t>::min(),
                              std::numeric_limits<int64_t>::max()}) {
    const std::string message = "value " + std::to_string(wrong) + " at index 2 is outside " +
                                std::to_string(low) + " to " + std::to_string(high);
    EXPECT_EQ(session->WriteStream("x", 0, std::vector<int64_t>{0, 0, wrong}).message(),
              "stream 'x': " + message);
    EXPECT_EQ(session->WriteVariable("b", std::vector<int64_t>{0, 0, wrong}).message(),
              "variable 'b': " + message);
  }
  const auto x = *session->Stream<T>("x", 0);  // as it was
  EXPECT_EQ(std::vector<int64_t>(x.begin(), x.end()), values);
  EXPECT_EQ(session->WriteStream("x", 0, std::vector<double>{1, 2, 3}).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(NarrowingTest, IntegersKeepTheirValueOrAreRefused) {
  ExpectIntegers<int8_t>(INT8, -128, 127);
  ExpectIntegers<int16_t>(INT16, -32768, 32767);
  ExpectIntegers<int32_t>(INT32, -2147483648LL, 2147483647);
  ExpectIntegers<uint8_t>(UINT8, 0, 255);
  ExpectIntegers<uint16_t>(UINT16, 0, 65535);
  ExpectIntegers<uint32_t>(UINT32, 0, 4294967295LL);
  ExpectIntegers<uint8_t>(BOOL, 0, 1);
}

TEST(NarrowingTest, DoublesAreRoundedOnce) {
  const auto session = OpenCopy(FLOAT32);
  ASSERT_TRUE(session);
  // A tie, which goes to the even neighbour, and a double just above it.
  const double tie = 1 + std::ldexp(1.0, -24);
  ASSERT_TRUE(session->WriteStream("x", 0, std::vector<double>{tie, tie + 1e-15, -1e39}).ok());
  const auto x = *session->Stream<float>("x", 0);
  EXPECT_EQ(x[0], 1.0f);
  EXPECT_EQ(x[1], std::nextafter(1.0f, 2.0f));
  EXPECT_EQ(x[2], -INFINITY);
  ASSERT_TRUE(session->WriteVariable("b", std::vector<double>{NAN, INFINITY, 1e-50}).ok());
  const auto b = *session->ReadFloats("b");
  EXPECT_TRUE(std::isnan(b[0]));
  EXPECT_EQ(b[1], INFINITY);
  EXPECT_EQ(b[2], 0);
  EXPECT_EQ(session->WriteStream("x", 0, std::vector<int64_t>{1, 2, 3}).message(),
            "stream 'x' is of type float32; int64 values are given, which integer types take");
  EXPECT_EQ(session->WriteStream("x", 0, std::vector<double>{1}).message(),
            "stream 'x' moves 3 elements in a run; 1 values given");
}

TEST(NarrowingTest, DoublesBecomeHalvesWithoutAStopAtFloat32) {
  const auto session = OpenCopy(FLOAT16);
  ASSERT_TRUE(session);
  // Just above a tie of float16; as float32 it would be the tie.
  const double above = 1 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40);
  ASSERT_TRUE(session->WriteVariable("b", std::vector<double>{above, 65520, NAN}).ok());
  const auto b = *session->ReadFloats("b");
  EXPECT_EQ(b[0], 1 + std::ldexp(1.0f, -10));
  EXPECT_EQ(b[1], INFINITY);
  EXPECT_TRUE(std::isnan(b[2]));
}

// A training step of a small convolutional network on these images: the loss, then the weights.
std::vector<float> Train(DataType images_type, const std::vector<uint8_t>& pixels) {
  Graph graph;
  Tensor x = graph.Input("images", {images_type, {2, 3, 8, 8}});
  x = graph.Multiply(graph.Cast(x, FLOAT32), graph.Constant({FLOAT32, {}}, 1.0 / 255));
  std::vector<float> initial(8 * 3 * 3 * 3), dense(8 * 16 * 4);
  for (size_t i = 0; i < initial.size(); ++i) initial[i] = 0.1f * static_cast<float>(i % 7) - 0.3f;
  for (size_t i = 0; i < dense.size(); ++i) dense[i] = 0.1f * static_cast<float>(i % 5) - 0.2f;
  const Tensor weights = graph.Variable("conv", {FLOAT32, {8, 3, 3, 3}}, initial);
  x = graph.Relu(graph.Convolution(x, weights, Graph::Sliding(2, 3, 1, 1)));
  x = graph.Reshape(graph.MaxPool(x, Graph::Sliding(2, 2, 2)), {2, 8 * 16});
  const Tensor logits = graph.MatMul(x, graph.Variable("fc", {FLOAT32, {8 * 16, 4}}, dense));
  const Tensor loss =
      graph.Mean(graph.SoftmaxCrossEntropy(logits, graph.Input("labels", {INT32, {2}})));
  graph.Output("loss", loss);
  const auto session = Open(
      graph,
      {.name = "train", .loss = loss, .optimizer = compiler::SgdOptions{.learning_rate = 0.5f}});
  if (!session) return {};
  if (images_type == UINT8) {
    std::copy(pixels.begin(), pixels.end(), session->Stream<uint8_t>("images", 0)->begin());
  } else {
    std::copy(pixels.begin(), pixels.end(), session->Stream<float>("images", 0)->begin());
  }
  EXPECT_TRUE(session->WriteStream("labels", 0, std::vector<int64_t>{1, 3}).ok());
  const auto cycles = session->Run("train");
  EXPECT_TRUE(cycles.ok()) << cycles.status();
  std::vector<float> result = {(*session->Stream<float>("loss", 0))[0]};
  for (const char* name : {"conv", "fc"}) {
    const auto values = *session->ReadFloats(name);
    result.insert(result.end(), values.begin(), values.end());
  }
  EXPECT_NE(result[1], initial[0]);
  return result;
}

TEST(NarrowingTest, ATrainingStepOnBytesIsThatOnFloats) {
  std::vector<uint8_t> pixels(2 * 3 * 8 * 8);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 37 % 256);
  const std::vector<float> bytes = Train(UINT8, pixels);
  EXPECT_EQ(bytes, Train(FLOAT32, pixels));
  EXPECT_GT(bytes[0], 0.1f);
}

}  // namespace
}  // namespace vpod::session
