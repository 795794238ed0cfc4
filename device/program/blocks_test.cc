#include "device/program/blocks.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace vpod::program {
namespace {

// Tensors 0 to 3 are of 4 floats, 4 is of 2.
std::string Ipu(const std::string& block, const std::string& function) {
  std::string text = "ipus_per_replica: 1 ipus { arena_bytes: 320 ";
  for (int i = 0; i < 5; ++i)
    absl::StrAppend(&text, "tensors { type: FLOAT32 dims: ", i < 4 ? 4 : 2, " offset: ", 64 * i,
                    " } ");
  return absl::StrCat(text, "functions { ", function, " } blocks { ", block,
                      " } } variables { name: 'a' } programs { name: 'p' functions: 0 }");
}

constexpr char kBlock[] = R"(
  parameters { type: FLOAT32 dims: 4 } parameters { type: FLOAT32 dims: 4 }
  instructions { binary { operator: ADD } inputs: 0 inputs: 1 outputs: 1 }
  instructions { unary { operator: NEGATE } inputs: 1 outputs: 0 })";

v1::Executable Parsed(const std::string& text) {
  v1::Executable executable;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &executable)) << text;
  return executable;
}

std::string Call(const std::string& inputs) {
  return absl::StrCat("instructions { call { block: 0 } inputs: [", inputs, "] } ");
}

TEST(BlocksTest, EachCallIsTheBlockWithItsTensors) {
  const auto executable = Executable::Make(
      Parsed(Ipu(kBlock, absl::StrCat(Call("0, 1"), "instructions { fill {} outputs: 4 }",
                                      Call("2, 2"), Call("3, 1")))));
  ASSERT_TRUE(executable.ok()) << executable.status();
  const v1::Ipu& ipu = (*executable)->proto().ipus(0);
  EXPECT_EQ(ipu.blocks_size(), 0);
  ASSERT_EQ(ipu.functions(0).instructions_size(), 7);
  const auto text = [&](int i) { return ipu.functions(0).instructions(i).ShortDebugString(); };
  EXPECT_EQ(text(0), "inputs: 0 inputs: 1 outputs: 1 binary { operator: ADD }");
  EXPECT_EQ(text(1), "inputs: 1 outputs: 0 unary { operator: NEGATE }");
  EXPECT_EQ(text(3), "inputs: 2 inputs: 2 outputs: 2 binary { operator: ADD }");
  EXPECT_EQ(text(6), "inputs: 1 outputs: 3 unary { operator: NEGATE }");
  EXPECT_EQ((*executable)->source().ipus(0).functions(0).instructions_size(), 4);
}

TEST(BlocksTest, TravelAsTheyAre) {
  const auto made = Executable::Make(Parsed(Ipu(kBlock, Call("0, 1"))));
  ASSERT_TRUE(made.ok()) << made.status();
  const auto parsed = Executable::Parse((*made)->Bytes());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ((*parsed)->hash(), (*made)->hash());
  EXPECT_EQ((*parsed)->Bytes(), (*made)->Bytes());
  EXPECT_EQ((*parsed)->proto().ShortDebugString(), (*made)->proto().ShortDebugString());
}

TEST(BlocksTest, MistakesAreNamed) {
  const std::string good = Call("0, 1");
  const struct {
    std::string block, function, message;
  } cases[] = {
      {kBlock, "instructions { call { block: 1 } inputs: [0, 1] }",
       "IPU 0 function 0 instruction 0 (call): block 1 does not exist (there are 1)"},
      {kBlock, Call("0"), "block 0 takes 2 tensors as inputs"},
      {kBlock, "instructions { call { block: 0 } inputs: [0, 1] outputs: 2 }",
       "block 0 takes 2 tensors as inputs, and neither outputs, rounding nor a function"},
      {kBlock, Call("0, 9"), "tensor 9 does not exist"},
      {kBlock, Call("0, 4"), "tensor 4 is not as parameter 1 of block 0 in type, shape and layout"},
      {absl::StrCat(kBlock, "instructions { fill {} outputs: 2 }"), good,
       "IPU 0 block 0 instruction 2: the block has parameters below 2"},
      {absl::StrCat(kBlock, "instructions { call { block: 0 } inputs: [0, 1] }"), good,
       "IPU 0 block 0 instruction 2: a block has only instructions that compute"},
      {absl::StrCat(kBlock, "instructions { stream_in {} outputs: 0 }"), good,
       "IPU 0 block 0 instruction 2: a block has only instructions that compute"},
      {kBlock, "instructions { fill {} outputs: 4 }", "IPU 0 block 0 is never called"},
      {"parameters { type: FLOAT32 dims: 4 }", Call("0"), "IPU 0 block 0: it has no instructions"},
      {"parameters { type: FLOAT32 dims: 4 offset: 64 }", Call("0"),
       "IPU 0 block 0 parameter 0: it needs at most 8 dimensions, and no offset"},
      {"parameters { type: FLOAT32 dims: [1,1,1,1,1,1,1,1,1] }", Call("0"),
       "IPU 0 block 0 parameter 0: it needs at most 8 dimensions, and no offset"},
      {kBlock, "instructions { call { block: 0 } inputs: [0, 1] rounding { seed: 0 counter: 0 } }",
       "and neither outputs, rounding nor a function"},
      {"parameters { type: FLOAT32 dims: 4 } instructions { unary { operator: LOGICAL_NOT } "
       "inputs: "
       "0 outputs: 0 }",
       Call("0"),
       "IPU 0 function 0 instruction 0 (unary): LOGICAL_NOT does not take float32[4], must be bool "
       "(elementwise_c2) (blocks written out)"},
  };
  for (const auto& [block, function, message] : cases) {
    const auto made = Executable::Make(Parsed(Ipu(block, function)));
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_NE(made.status().message().find(message), std::string::npos) << made.status();
  }
}

TEST(BlocksTest, TheyAreLimitedAsTheyAreWrittenOut) {
  Limits limits;
  limits.instructions = 5;
  const v1::Executable three =
      Parsed(Ipu(kBlock, absl::StrCat(Call("0, 1"), Call("0, 1"), Call("0, 1"))));
  const auto made = Executable::Make(three, limits);
  EXPECT_NE(made.status().message().find("written out, blocks have more than 5 instructions"),
            std::string::npos)
      << made.status();
  limits.instructions = 6;
  EXPECT_TRUE(Executable::Make(three, limits).ok());
  // All IPUs together, before anything is written out.
  v1::Executable many = three;
  for (int i = 0; i < 1000; ++i) *many.add_ipus() = three.ipus(0);
  EXPECT_NE(Executable::Make(many).status().message().find("IPUs"), std::string::npos);
  limits.instructions = 100;
  EXPECT_NE(Executable::Make(many, limits).status().message().find("written out"),
            std::string::npos);
}

TEST(BlocksTest, MemoryIsReservedBeforeItIsTaken) {
  const auto made = Executable::Make(Parsed(Ipu(kBlock, Call("0, 1"))));
  ASSERT_TRUE(made.ok()) << made.status();
  uint64_t reserved = 0;
  const auto refuse = [&](uint64_t bytes) {
    reserved = bytes;
    return absl::ResourceExhaustedError("no memory");
  };
  EXPECT_EQ(Executable::Parse((*made)->Bytes(), {}, {}, refuse).status().message(), "no memory");
  EXPECT_GE(reserved, (*made)->proto().SpaceUsedLong());
}

}  // namespace
}  // namespace vpod::program
