// Slices and normalised images are written over their input where nobody needs what was there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/compiler/compiler.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"

namespace vpod::compiler {
namespace {

namespace v1 = program::v1;
using graph::Graph;
using graph::Tensor;
using testing::ElementsAre;
using v1::FLOAT32;
using v1::INT32;

// Updates whose destination is copied first, and copies as such.
int Copies(const v1::Executable& executable) {
  int copies = 0;
  for (const v1::Function& function : executable.ipus(0).functions()) {
    for (const v1::Instruction& instruction : function.instructions()) {
      copies += instruction.has_copy();
      copies += instruction.has_dynamic_update() && instruction.inputs(0) != instruction.outputs(0);
    }
  }
  return copies;
}

int Normalizations(const v1::Executable& executable, bool in_place) {
  int count = 0;
  for (const v1::Function& function : executable.ipus(0).functions()) {
    for (const v1::Instruction& instruction : function.instructions()) {
      count += instruction.has_batch_norm_inference() &&
               (instruction.inputs(0) == instruction.outputs(0)) == in_place;
    }
  }
  return count;
}

Tensor Place(Graph& g, int start) { return g.Constant({INT32, {1}}, start); }

// x is [1, 2, 3, 4] and u [10, 20]; `make` gives outputs, by name "0", "1" …
struct Results {
  int copies = 0;
  int normalized_in_place = 0, normalized_elsewhere = 0;
  std::vector<std::vector<float>> outputs;
};
Results RunModel(const std::function<std::vector<Tensor>(Graph&, Tensor x, Tensor u)>& make) {
  Graph graph;
  const Tensor x = graph.Input("x", {FLOAT32, {4}}), u = graph.Input("u", {FLOAT32, {2}});
  const std::vector<Tensor> outputs = make(graph, x, u);
  for (size_t i = 0; i < outputs.size(); ++i) graph.Output(std::to_string(i), outputs[i]);
  const auto compiled = Compile(graph, {.programs = {{.name = "run", .device_iterations = 2}}});
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return {};
  const v1::Executable& executable = compiled->executable->proto();
  Results results{.copies = Copies(executable),
                  .normalized_in_place = Normalizations(executable, true),
                  .normalized_elsewhere = Normalizations(executable, false)};
  auto session = session::Session::Create(*session::CreateIpuModel({}), *compiled);
  EXPECT_TRUE(session.ok()) << session.status();
  // Twice: what one round leaves must not matter to the next.
  const std::vector<double> xs = {1, 2, 3, 4, 1, 2, 3, 4}, us = {10, 20, 10, 20};
  EXPECT_TRUE((*session)->WriteStream("x", 0, xs).ok());
  if ((*session)->Stream<float>("u", 0).ok()) {  // which not every model needs
    EXPECT_TRUE((*session)->WriteStream("u", 0, us).ok());
  }
  EXPECT_TRUE((*session)->Run("run").ok());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto stream = *(*session)->Stream<float>(std::to_string(i), 0);
    const auto second = stream.begin() + static_cast<int64_t>(stream.size() / 2);
    EXPECT_EQ(std::vector<float>(stream.begin(), second), std::vector<float>(second, stream.end()));
    results.outputs.emplace_back(second, stream.end());
  }
  return results;
}

TEST(InPlaceTest, UpdatesOfWhatNobodyElseNeeds) {
  const Results results = RunModel([](Graph& g, Tensor x, Tensor u) {
    Tensor y = g.Add(x, x);
    y = g.DynamicUpdate(y, u, Place(g, 1), {0});
    y = g.DynamicUpdate(y, g.Add(u, u), Place(g, 2), {0});
    return std::vector{y};
  });
  EXPECT_EQ(results.copies, 0);
  EXPECT_THAT(results.outputs, ElementsAre(ElementsAre(2, 10, 20, 40)));
}

TEST(InPlaceTest, ADestinationThatIsReadLaterIsCopied) {
  const Results results = RunModel([](Graph& g, Tensor x, Tensor u) {
    const Tensor y = g.Add(x, x), z = g.DynamicUpdate(y, u, Place(g, 0), {0});
    return std::vector{g.Multiply(z, y)};
  });
  EXPECT_EQ(results.copies, 1);
  EXPECT_THAT(results.outputs, ElementsAre(ElementsAre(20, 80, 6 * 6, 8 * 8)));
}

TEST(InPlaceTest, ADestinationOfWhichAPartOrAnotherShapeIsReadLaterIsCopied) {
  const Results results = RunModel([](Graph& g, Tensor x, Tensor u) {
    const Tensor y = g.Add(x, x), part = g.Slice(y, {1}, {2});
    const Tensor z = g.Add(x, x), square = g.Reshape(z, {2, 2});
    const Tensor a = g.DynamicUpdate(y, u, Place(g, 1), {0});
    const Tensor b = g.DynamicUpdate(z, u, Place(g, 1), {0});
    return std::vector{g.Multiply(a, a), g.Multiply(part, part), g.Multiply(b, b),
                       g.Multiply(square, square)};
  });
  EXPECT_EQ(results.copies, 2);
  EXPECT_THAT(results.outputs,
              ElementsAre(ElementsAre(4, 100, 400, 64), ElementsAre(16, 36),
                          ElementsAre(4, 100, 400, 64), ElementsAre(4, 16, 36, 64)));
}

TEST(InPlaceTest, ADestinationThatIsAlsoTheUpdateIsCopied) {
  const Results results = RunModel([](Graph& g, Tensor x, Tensor) {
    const Tensor y = g.Add(x, x);
    return std::vector{g.DynamicUpdate(y, g.Slice(y, {0}, {3}), Place(g, 1), {0})};
  });
  EXPECT_EQ(results.copies, 1);
  EXPECT_THAT(results.outputs, ElementsAre(ElementsAre(2, 2, 4, 6)));
}

TEST(InPlaceTest, WhatComesFromOutsideIsCopied) {
  const Results results = RunModel([](Graph& g, Tensor x, Tensor u) {
    const Tensor w = g.Variable("w", {FLOAT32, {4}}, {5, 6, 7, 8});
    const Tensor zeros = g.Constant({FLOAT32, {4}}, 0);
    std::vector<Tensor> outputs;
    for (Tensor destination : {x, w, zeros, g.Expand(zeros, {4}), g.Transpose(w, {0})})
      outputs.push_back(g.DynamicUpdate(destination, u, Place(g, 2), {0}));
    return outputs;
  });
  EXPECT_EQ(results.copies, 5);
  EXPECT_THAT(results.outputs, ElementsAre(ElementsAre(1, 2, 10, 20), ElementsAre(5, 6, 10, 20),
                                           ElementsAre(0, 0, 10, 20), ElementsAre(0, 0, 10, 20),
                                           ElementsAre(5, 6, 10, 20)));
}

// Normalises a column with statistics that give (x - 1) * 2 + 3.
Tensor Normalize(Graph& g, Tensor x) {
  const auto vector = [&](double value) { return g.Constant({FLOAT32, {1}}, value); };
  return g.BatchNormInference(g.Reshape(x, {4, 1}), vector(2), vector(3), vector(1), vector(0.75),
                              0.25f);
}

TEST(InPlaceTest, NormalizesWhatNobodyElseNeedsInItsPlace) {
  const Results results = RunModel([](Graph& g, Tensor x, Tensor) {
    const Tensor y = g.Add(x, x);       // in place
    const Tensor z = g.Multiply(x, x);  // read later
    return std::vector{Normalize(g, y), g.Add(g.Reshape(Normalize(g, z), {4}), z),
                       Normalize(g, x)};  // from outside
  });
  EXPECT_EQ(results.normalized_in_place, 1);
  EXPECT_EQ(results.normalized_elsewhere, 2);
  EXPECT_THAT(results.outputs, ElementsAre(ElementsAre(5, 9, 13, 17), ElementsAre(4, 13, 28, 49),
                                           ElementsAre(3, 5, 7, 9)));
}

// Buffers are row-major, normalised images are not.
TEST(InPlaceTest, ABufferTakesNormalizedImages) {
  Graph g;
  const Tensor x = g.Input("x", {FLOAT32, {1, 2, 1, 2}});
  const Tensor buffer = g.Buffer("buffer", {FLOAT32, {1, 2, 1, 2}}, std::vector<float>(4));
  const Tensor one = g.Constant({FLOAT32, {2}}, 1);
  g.Assign(buffer, g.BatchNormInference(x, one, one, one, g.Constant({FLOAT32, {2}}, 0.75), 0.25f));
  const Tensor w = g.Variable("w", {FLOAT32, {1, 2, 1, 2}}, {1, 1, 1, 1});
  const auto compiled = Compile(
      g, {.programs = {
              {.name = "train", .loss = g.Sum(g.Multiply(w, x)), .optimizer = SgdOptions{}}}});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  auto session = *session::Session::Create(*session::CreateIpuModel({}), *compiled);
  ASSERT_TRUE(session->WriteStream("x", 0, std::vector<double>{1, 2, 3, 4}).ok());
  ASSERT_TRUE(session->Run("train").ok());
  EXPECT_THAT(*session->ReadFloats("buffer"), ElementsAre(1, 2, 3, 4));
}

// A ring buffer: a place for each of the last three micro-batches.
TEST(InPlaceTest, ABufferTakesUpdatesInItsPlace) {
  for (bool read_later : {false, true}) {
    Graph g;
    const Tensor x = g.Input("x", {FLOAT32, {1, 2}});
    const Tensor ring = g.Buffer("ring", {FLOAT32, {3, 2}}, std::vector<float>(6));
    const Tensor place = g.Buffer("place", {INT32, {1}}, {0});
    const Tensor updated = g.DynamicUpdate(ring, x, place, {0});
    g.Assign(ring, updated);
    const Tensor next = g.Add(place, g.Constant({INT32, {1}}, 1));
    g.Assign(place, g.Select(g.Binary(v1::EQUAL, next, g.Constant({INT32, {1}}, 3)),
                             g.Constant({INT32, {1}}, 0), next));
    const Tensor w = g.Variable("w", {FLOAT32, {2}}, {1, 1});
    Tensor loss = g.Sum(g.Multiply(w, x));
    if (read_later) {
      loss = g.Sum(g.Multiply(w, g.Reduce(v1::SUM, g.Add(ring, updated), {0})));
      g.Output("loss", loss);
    }
    const auto compiled = Compile(
        g, {.programs = {
                {.name = "train", .accumulation = 4, .loss = loss, .optimizer = SgdOptions{}}}});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    EXPECT_EQ(Copies(compiled->executable->proto()), read_later ? 2 : 0);
    auto session = *session::Session::Create(*session::CreateIpuModel({}), *compiled);
    ASSERT_TRUE(session->WriteStream("x", 0, std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}).ok());
    ASSERT_TRUE(session->Run("train").ok());
    EXPECT_THAT(*session->ReadFloats("ring"), ElementsAre(7, 8, 3, 4, 5, 6));
    if (!read_later) continue;
    EXPECT_THAT(*session->Stream<float>("loss", 0),
                ElementsAre(3, 3 + 3 + 7, 3 + 7 + 3 + 7 + 11, 21 + 7 + 11 + 15));
  }
}

// Two micro-batches of a model that trains.
class BuffersTest : public testing::Test {
 protected:
  Tensor Buffer(const char* name, float initial) {
    return graph_.Buffer(name, {FLOAT32, {1}}, {initial});
  }
  void Train() {
    const Tensor x = graph_.Input("x", {FLOAT32, {1}});
    const Tensor w = graph_.Variable("w", {FLOAT32, {1}}, {1});
    const Tensor loss = graph_.Sum(graph_.Multiply(w, x));
    const auto compiled = Compile(
        graph_,
        {.programs = {
             {.name = "train", .accumulation = 2, .loss = loss, .optimizer = SgdOptions{}}}});
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    session_ = *session::Session::Create(*session::CreateIpuModel({}), *compiled);
    ASSERT_TRUE(session_->Run("train").ok());
  }
  float Read(const char* name) { return (*session_->ReadFloats(name))[0]; }

  Graph graph_;
  std::unique_ptr<session::Session> session_;
};

TEST_F(BuffersTest, ABufferTakesTheValueOfAnotherBefore) {
  const Tensor counter = Buffer("counter", 5), previous = Buffer("previous", 0);
  graph_.Assign(counter, graph_.Add(counter, graph_.Constant({FLOAT32, {1}}, 1)));
  graph_.Assign(previous, counter);
  Train();
  EXPECT_EQ(Read("counter"), 7);
  EXPECT_EQ(Read("previous"), 6);
}

TEST_F(BuffersTest, BuffersTakeEachOthersValues) {
  const Tensor a = Buffer("a", 1), b = Buffer("b", 2), c = Buffer("c", 3);
  graph_.Assign(a, b);
  graph_.Assign(b, c);
  graph_.Assign(c, a);
  Train();
  EXPECT_EQ(Read("a"), 3);
  EXPECT_EQ(Read("b"), 1);
  EXPECT_EQ(Read("c"), 2);
}

TEST_F(BuffersTest, AnOutputOfABufferHasTheValueBefore) {
  const Tensor counter = Buffer("counter", 5);
  graph_.Assign(counter, graph_.Add(counter, graph_.Constant({FLOAT32, {1}}, 1)));
  graph_.Output("sent", counter);
  Train();
  EXPECT_THAT(*session_->Stream<float>("sent", 0), ElementsAre(5, 6));
}

}  // namespace
}  // namespace vpod::compiler
