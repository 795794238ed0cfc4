#include "device/model/tile_memory.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "device/arch/hardware.h"
#include "device/model/plan_context.h"

namespace vpod::model {
namespace {

using enum MemoryCategory;
using testing::AllOf;
using testing::HasSubstr;

program::v1::Executable Parse(const std::string& text) {
  program::v1::Executable executable;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &executable));
  return executable;
}

// A program that adds a variable of `elements` float32 to itself, times over.
std::string Doubling(uint64_t elements, int times = 1) {
  std::string text = absl::StrCat("ipus_per_replica: 1 ipus { arena_bytes: ", elements * 8,
                                  " tensors { type: FLOAT32 dims: ", elements,
                                  " } tensors { type: FLOAT32 dims: ", elements,
                                  " offset: ", elements * 4, " } functions {");
  for (int i = 0; i < times; ++i) {
    text +=
        " instructions { binary { operator: ADD } inputs: 0 inputs: 0 outputs: 1 }"
        " instructions { copy {} inputs: 1 outputs: 0 }";
  }
  return text + " } } variables { name: 'w' } programs { name: 'double' functions: 0 }";
}

TEST(TileMemoryTest, CategoriesOfATile) {
  const IpuMemory memory = PlanMemory(Parse(Doubling(1472 * 64)), 0, {});
  ASSERT_EQ(memory.tiles.size(), 1472u);
  for (const TileMemory& tile : memory.tiles) {
    EXPECT_EQ(tile[kAlwaysLive], 64 * 4u);
    EXPECT_EQ(tile[kNotAlwaysLive], 64 * 4u);
    EXPECT_EQ(tile[kVertexCode], 2 * 400u);  // F5: an addition and a copy
    EXPECT_EQ(tile[kVertexState], 2 * 32u);  // F6
    EXPECT_EQ(tile[kExchangeCode], 0u);
    EXPECT_EQ(tile[kControlCode], 2 * 48u);  // F7
    EXPECT_EQ(tile[kStack], arch::kReservedTileBytes);
  }
  EXPECT_EQ(memory.total(), 1472 * (2 * 64 * 4 + 2 * 480 + arch::kReservedTileBytes));
}

// Instructions that are planned alike, as those of equal layers, share their code.
TEST(TileMemoryTest, EqualInstructionsShareTheirCode) {
  const auto total = [](int times) {
    return PlanMemory(Parse(Doubling(1472 * 64, times)), 0, {}).total();
  };
  EXPECT_EQ(total(1), total(10));
}

// 128 bytes are on one tile, and those of several variables on different ones.
TEST(TileMemoryTest, SmallVariablesAreSpread) {
  std::string text = "ipus_per_replica: 1 ipus { arena_bytes: 8192";
  std::string variables;
  for (int i = 0; i < 64; ++i) {
    text += absl::StrCat(" tensors { type: FLOAT32 dims: 32 offset: ", 128 * i, " }");
    variables += absl::StrCat(" variables { name: 'w", i, "' tensor: ", i, " }");
  }
  const IpuMemory memory = PlanMemory(Parse(text + " }" + variables), 0, {});
  int occupied = 0;
  for (const TileMemory& tile : memory.tiles) {
    EXPECT_THAT(tile[kAlwaysLive], testing::AnyOf(0u, 128u));
    occupied += tile[kAlwaysLive] > 0;
  }
  EXPECT_EQ(occupied, 64);
}

// A product has what it receives and adds up while it runs.
TEST(TileMemoryTest, ProductsNeedMemoryForOperandsAndPartialResults) {
  const auto not_always_live = [](const std::string& plan) {
    const IpuMemory memory = PlanMemory(
        Parse(absl::StrCat(
            "ipus_per_replica: 1 ipus { arena_bytes: 6291456 "
            "tensors { type: FLOAT16 dims: [1024, 1024] } "
            "tensors { type: FLOAT16 dims: [1024, 1024] offset: 2097152 } "
            "tensors { type: FLOAT16 dims: [1024, 1024] offset: 4194304 } "
            "functions { instructions { mat_mul { plan { ",
            plan,
            " } } inputs: 0 inputs: 1 outputs: 2 } } } variables { name: 'a' } "
            "variables { name: 'b' tensor: 1 } programs { name: 'multiply' functions: 0 }")),
        0, {});
    return memory.tiles[memory.fullest][kNotAlwaysLive];
  };
  const uint64_t result = 1024 * 1024 * 2 / 1472;
  EXPECT_GT(not_always_live("partials: FLOAT32"), 3 * result);
  EXPECT_LT(not_always_live("partials: FLOAT32 memory_proportion: 0.01"),
            not_always_live("partials: FLOAT32"));
}

// A result lies as the operand of its shape does, not on the tile of the one that is broadcast.
TEST(TileMemoryTest, BroadcastOperandsDoNotDecideWhereAResultLies) {
  const IpuMemory memory = PlanMemory(
      Parse("ipus_per_replica: 1 ipus { arena_bytes: 376896 tensors { type: FLOAT32 } "
            "tensors { type: FLOAT32 dims: 47104 offset: 64 } "
            "tensors { type: FLOAT32 dims: 47104 offset: 188480 } functions { instructions { "
            "binary { operator: MULTIPLY } inputs: 0 inputs: 1 outputs: 2 } } } "
            "variables { name: 'scale' } variables { name: 'x' tensor: 1 } "
            "programs { name: 'scale' functions: 0 }"),
      0, {});
  EXPECT_EQ(memory.tiles[memory.fullest][kNotAlwaysLive], 47104 / 1472 * 4u);
}

TEST(TileMemoryTest, OutOfMemorySaysWhereAndWhatToTry) {
  const uint64_t fits = uint64_t{1472} * 78000, too_many = uint64_t{1472} * 80000;
  std::vector<Bytes> use;
  program::v1::Origins origins;
  const auto check = [&](uint64_t elements) {
    const auto executable = program::Executable::Make(Parse(Doubling(elements)), {}, origins);
    EXPECT_TRUE(executable.ok()) << executable.status();
    return CheckMemory(**executable, {}, &use);
  };
  EXPECT_TRUE(check(fits).ok());
  const absl::Status status = check(too_many);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("Out of memory: Cannot fit all variable data onto one or more tiles."),
            HasSubstr("On IPU 0, 1472 of 1472 tiles need more than their 638976 bytes, by "
                      "up to 6088 bytes. Fullest tiles: 0 (645064), 1 (645064), "),
            HasSubstr("'w' (320000 bytes)"), HasSubstr("the result of add (320000 bytes)"),
            HasSubstr("of program 'double'"),
            HasSubstr("To try: float16 (types of inputs and variables), ")));
  EXPECT_THAT(std::string(status.message()),
              testing::EndsWith("None of this was tried, because only compiling the program tries "
                                "it."));
  // In the words of the front that compiled it.
  origins.add_memory_options("--half");
  EXPECT_THAT(std::string(check(too_many).message()), HasSubstr("To try: float16 (--half), "));
  ASSERT_EQ(use.size(), 3u);
  EXPECT_LT(use[0], arch::kIpuMemory);
  EXPECT_GT(use[1], arch::kIpuMemory);
}

}  // namespace
}  // namespace vpod::model
