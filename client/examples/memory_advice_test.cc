#include "client/examples/memory_advice.h"

#include <gtest/gtest.h>

namespace vpod::examples {
namespace {

using model::MemoryAdvice;

struct Arguments {
  uint32_t micro_batch = 4, accumulation = 1;
};

absl::Status Follow(MemoryAdvice advice, Arguments& arguments) {
  if (advice == MemoryAdvice::kMoreAccumulation)
    return AccumulateMore(arguments.micro_batch, arguments.accumulation);
  return absl::InvalidArgumentError("no argument does it");
}

// A model that tells of its arguments.
compiler::Model Build(const Arguments& arguments) {
  compiler::Model model;
  model.options.total_replicas = arguments.micro_batch;
  model.options.programs = {{.name = "train", .accumulation = arguments.accumulation}};
  return model;
}

TEST(MemoryAdviceTest, AModelIsBuiltAgainWithTheChangedArguments) {
  model::OptionNames names = model::NoOptions();
  names.accumulation = "--accumulation";
  const compiler::Front front = FrontOf(names, Arguments(), Follow, Build);
  EXPECT_EQ(front.names.accumulation, "--accumulation");
  EXPECT_EQ(front.names.float16, "");
  const auto half = front.rebuild({MemoryAdvice::kMoreAccumulation});
  ASSERT_TRUE(half.ok()) << half.status();
  EXPECT_EQ(half->options.total_replicas, 2u);
  EXPECT_EQ(half->options.programs[0].accumulation, 2u);
  // Each time from the arguments of the program.
  const auto same = front.rebuild({});
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->options.total_replicas, 4u);
}

TEST(MemoryAdviceTest, WhatNoArgumentDoesIsRefused) {
  const compiler::Front front =
      FrontOf(model::NoOptions(), Arguments{.micro_batch = 1}, Follow, Build);
  for (const MemoryAdvice advice : {MemoryAdvice::kFloat16, MemoryAdvice::kMoreAccumulation})
    EXPECT_EQ(front.rebuild({advice}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace vpod::examples
