#include "device/model/liveness.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

namespace vpod::model {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// An IPU with `tensors` scalars, each with 64 bytes, and the functions in protobuf's text format.
Liveness Of(int tensors, const std::vector<std::string>& functions, const std::string& more = "") {
  program::v1::Executable executable;
  program::v1::Ipu* ipu = executable.add_ipus();
  for (int i = 0; i < tensors; ++i) {
    program::v1::Tensor* tensor = ipu->add_tensors();
    tensor->set_type(program::v1::FLOAT32);
    tensor->set_offset(64 * static_cast<uint64_t>(i));
  }
  for (const std::string& function : functions) {
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(function, ipu->add_functions()));
  }
  executable.add_programs()->add_functions(static_cast<uint32_t>(functions.size() - 1));
  EXPECT_TRUE(google::protobuf::TextFormat::MergeFromString(more, &executable));
  return LivenessOf(executable, 0);
}

// (tensor, first step, last step)
std::vector<std::tuple<uint32_t, uint32_t, uint32_t>> Values(const ProgramLiveness& program) {
  std::vector<std::tuple<uint32_t, uint32_t, uint32_t>> values;
  for (const LiveValue& value : program.values)
    values.emplace_back(value.tensor, value.first, value.last);
  return values;
}

std::string Fill(int output) {
  return "instructions { fill {} outputs: " + std::to_string(output) + " }";
}
std::string Add(int a, int b, int output) {
  return "instructions { binary { operator: ADD } inputs: " + std::to_string(a) +
         " inputs: " + std::to_string(b) + " outputs: " + std::to_string(output) + " }";
}
std::string Repeat(int function, int count) {
  return "instructions { repeat { function: " + std::to_string(function) +
         " count: " + std::to_string(count) + " } }";
}

std::string AllReduce(int input, int output) {
  return "instructions { all_reduce { operator: SUM } inputs: " + std::to_string(input) +
         " outputs: " + std::to_string(output) + " }";
}

TEST(LivenessTest, SumsOfReplicasTakeThePlaceOfTheirSummands) {
  EXPECT_THAT(Values(Of(3, {Fill(0) + Fill(1) + AllReduce(0, 2) + Add(1, 2, 2)}).programs[0]),
              ElementsAre(std::tuple(0, 0, 1), std::tuple(1, 1, 3), std::tuple(2, 2, 3)));
  // The summand is read later.
  EXPECT_THAT(Values(Of(2, {Fill(0) + AllReduce(0, 1) + Add(0, 1, 1)}).programs[0]),
              ElementsAre(std::tuple(0, 0, 2), std::tuple(1, 1, 2)));
}

// A value lives from the first step of a loop that hands it on, but another step makes it.
TEST(LivenessTest, ValuesKnowTheirMakers) {
  const std::string body = Add(0, 2, 1) + Add(1, 0, 2);
  const Liveness liveness = Of(3, {body, Fill(0) + Fill(2) + Repeat(0, 5)});
  for (const LiveValue& value : liveness.programs[0].values)
    EXPECT_EQ(value.maker, value.tensor == 2 && value.first == 3 ? 4 : value.first);
}

TEST(LivenessTest, FromWritingToTheLastUse) {
  const Liveness liveness = Of(3, {Fill(0) + Fill(1) + Add(0, 1, 2) + Add(2, 0, 1)});
  EXPECT_THAT(Values(liveness.programs[0]), ElementsAre(std::tuple(0, 0, 3), std::tuple(1, 1, 2),
                                                        std::tuple(2, 2, 3), std::tuple(1, 3, 3)));
  EXPECT_THAT(liveness.always_live, IsEmpty());
}

TEST(LivenessTest, ResultsInPlaceAreTheSameValue) {
  const Liveness liveness = Of(2, {Fill(0) + Fill(1) + Add(0, 1, 0) + Add(0, 0, 1)});
  EXPECT_THAT(Values(liveness.programs[0]),
              ElementsAre(std::tuple(0, 0, 3), std::tuple(1, 1, 2), std::tuple(1, 3, 3)));
}

// Tensor 0 is before the loop, 1 is written and read in a round, 2 goes from one round to the next.
TEST(LivenessTest, LoopsKeepWhatTheNextRoundReads) {
  const std::string body = Add(0, 2, 1) + Add(1, 0, 2);
  const std::string before = Fill(0) + Fill(2) + Fill(3);
  EXPECT_THAT(Values(Of(4, {body, before + Repeat(0, 5) + Fill(3)}).programs[0]),
              ElementsAre(std::tuple(0, 0, 5), std::tuple(2, 1, 3), std::tuple(3, 2, 2),
                          std::tuple(1, 4, 5), std::tuple(2, 4, 5), std::tuple(3, 6, 6)));
  // Once is no loop.
  EXPECT_THAT(Values(Of(4, {body, before + Repeat(0, 1)}).programs[0]),
              ElementsAre(std::tuple(0, 0, 5), std::tuple(2, 1, 4), std::tuple(3, 2, 2),
                          std::tuple(1, 4, 5), std::tuple(2, 5, 5)));
}

TEST(LivenessTest, VariablesAndWhatProgramsHandOverAreThereAlways) {
  const Liveness liveness =
      Of(4, {Fill(1) + Fill(3), Add(0, 1, 2)}, "variables { name: 'x' } programs { functions: 0 }");
  EXPECT_THAT(liveness.always_live, ElementsAre(0, 1));
  EXPECT_THAT(Values(liveness.programs[0]), ElementsAre(std::tuple(2, 0, 0)));
  EXPECT_THAT(Values(liveness.programs[1]), ElementsAre(std::tuple(3, 1, 1)));
}

TEST(LivenessTest, ViewsKeepTheirValue) {
  program::v1::Executable executable;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "ipus { tensors { type: FLOAT32 dims: [4, 4] } tensors { type: FLOAT32 dims: 4 offset: 16 } "
      "tensors { type: FLOAT32 dims: 4 offset: 64 } functions { " +
          Fill(0) + Fill(2) + Add(1, 2, 2) + " } } programs { functions: 0 }",
      &executable));
  EXPECT_THAT(Values(LivenessOf(executable, 0).programs[0]),
              ElementsAre(std::tuple(0, 0, 2), std::tuple(2, 1, 2)));
}

// A ring that a loop fills place by place needs no value before.
TEST(LivenessTest, WhatIsMadeInPartsBeginsWithTheFirst) {
  const auto update = [](int ring) {
    const std::string tensor = std::to_string(ring);
    return "instructions { dynamic_update { axes: 0 } inputs: " + tensor +
           " inputs: 0 inputs: 1 outputs: " + tensor + " }";
  };
  const Liveness liveness = Of(4, {update(2) + Add(2, 2, 3), Fill(0) + Fill(1) + Repeat(0, 4)});
  EXPECT_THAT(liveness.always_live, IsEmpty());
  EXPECT_THAT(Values(liveness.programs[0]), ElementsAre(std::tuple(0, 0, 4), std::tuple(1, 1, 4),
                                                        std::tuple(2, 3, 4), std::tuple(3, 4, 4)));
}

TEST(LivenessTest, ExchangesReadAndWrite) {
  const Liveness liveness =
      Of(2, {Fill(0) + "instructions { exchange {} }" + Fill(0)},
         "ipus {} exchanges { moves { to_ipu: 1 } moves { from_ipu: 1 to_tensor: 1 } }");
  EXPECT_THAT(Values(liveness.programs[0]),
              ElementsAre(std::tuple(0, 0, 1), std::tuple(1, 1, 1), std::tuple(0, 2, 2)));
}

// Ten functions, of which each calls the one before it twice per level: far too often to follow.
TEST(LivenessTest, ProgramsThatCallWithoutEndAreTakenToNeedAll) {
  std::vector<std::string> functions = {Fill(0) + Fill(1)};
  for (int level = 0; level < 7; ++level) {
    std::string calls;
    for (int i = 0; i < 10; ++i)
      calls += "instructions { call { function: " + std::to_string(level) + " } }";
    functions.push_back(calls);
  }
  const Liveness liveness = Of(2, functions);
  EXPECT_THAT(liveness.always_live, ElementsAre(0, 1));
  EXPECT_THAT(Values(liveness.programs[0]), IsEmpty());
}

}  // namespace
}  // namespace vpod::model
