#include "device/program/origins.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "device/program/executable.h"

namespace vpod::program {
namespace {

template <class Message>
Message FromText(const char* text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

v1::Executable Example() {
  return FromText<v1::Executable>(R"(
    ipus_per_replica: 1
    ipus {
      tensors { type: FLOAT32 dims: 16 }
      arena_bytes: 64
      functions {
        instructions { fill { value: 1 } outputs: 0 }
        instructions { unary { operator: RELU } inputs: 0 outputs: 0 }
      }
    }
    programs { name: "main" functions: 0 })");
}

v1::Origins Table() {
  return FromText<v1::Origins>(R"(
    origins { scope: "layer1.0" op: "relu" }
    ipus { functions { instructions: [0, 1] } })");
}

std::string Name(const char* instruction, const char* origin) {
  const auto parsed = FromText<v1::Origin>(origin);
  return NameOf(FromText<v1::Instruction>(instruction), &parsed);
}

TEST(Origins, NameInstructions) {
  EXPECT_EQ(Name("unary { operator: RELU }", "scope: 'layer1.0' op: 'relu'"), "relu 'layer1.0'");
  EXPECT_EQ(Name("unary { operator: RELU }", "op: 'relu'"), "relu");
  EXPECT_EQ(Name("binary { operator: ADD }", "scope: 'a' op: 'add'"), "add 'a'");
  EXPECT_EQ(Name("reduce { operator: MEAN }", "scope: 'a' op: 'mean'"), "mean 'a'");
  // The instruction is named beside the operation if they differ, except in gradients.
  EXPECT_EQ(Name("map {}", "scope: 'a' op: 'add'"), "add 'a' (map)");
  EXPECT_EQ(Name("mat_mul {}", "scope: 'fc' op: 'mat_mul' phase: BACKWARD"),
            "mat_mul 'fc' (backward)");
  EXPECT_EQ(Name("reduce {}", "scope: 'fc' op: 'add' phase: BACKWARD"), "add 'fc' (backward)");
  EXPECT_EQ(NameOf(FromText<v1::Instruction>("mat_mul {}"), nullptr), "mat_mul");
}

TEST(Origins, HaveAKnownPhase) {
  v1::Origins origins = Table();
  origins.mutable_origins(0)->set_phase(static_cast<v1::Origin::Phase>(7));
  EXPECT_EQ(CheckOrigins(origins, Example()).message(),
            "origins: origin 1 has the unknown phase 7");
}

TEST(Origins, CountersHaveNoPhase) {
  auto origin = FromText<v1::Origin>("scope: 'pipeline' op: 'add' phase: UPDATE");
  EXPECT_EQ(PhaseOf(&origin), v1::Origin::UPDATE);
  origin.set_op(kCounterOp);
  EXPECT_EQ(PhaseOf(&origin), std::nullopt);
  EXPECT_EQ(PhaseOf(nullptr), std::nullopt);
}

// Equal programs are the same one, whatever their parts are called.
TEST(Origins, AreOutsideTheHash) {
  v1::Origins renamed = Table();
  renamed.mutable_origins(0)->set_scope("other");
  const auto plain = *Executable::Make(Example());
  const auto named = *Executable::Make(Example(), {}, Table());
  const auto other = *Executable::Make(Example(), {}, renamed);
  EXPECT_EQ(named->hash(), plain->hash());
  EXPECT_EQ(named->hash(), other->hash());
  EXPECT_EQ(named->Bytes(), plain->Bytes());
  EXPECT_EQ(plain->OriginOf(0, 0, 1), nullptr);
  EXPECT_EQ(named->OriginOf(0, 0, 0), nullptr);
  EXPECT_EQ(named->OriginOf(0, 0, 1)->scope(), "layer1.0");
  EXPECT_EQ(other->OriginOf(0, 0, 1)->scope(), "other");
}

TEST(Origins, TravelBesideTheExecutable) {
  const auto named = *Executable::Make(Example(), {}, Table());
  const auto parsed = Executable::Parse(named->Bytes(), {}, named->OriginBytes());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ((*parsed)->OriginOf(0, 0, 1)->op(), "relu");
  EXPECT_EQ((*parsed)->OriginBytes(), named->OriginBytes());
}

TEST(Origins, AreChecked) {
  const struct {
    const char* table;
    const char* message;
  } cases[] = {
      {"ipus {} ipus {}", "origins: 2 IPUs named, the executable has 1"},
      {"origins { op: 'relu' }", "origins: 0 IPUs named, the executable has 1"},
      {"ipus {}", "origins: 0 functions named, an IPU has 1"},
      {"ipus { functions { instructions: 0 } }", "origins: 1 instructions named, function 0 has 2"},
      {"ipus { functions { instructions: [0, 1] } }",
       "origins: an instruction of function 0 has origin 1, there are 0"},
      {"origins { scope: 'two\\nlines' }",
       "origins: 'two\\nlines' of origin 1 is not one line of UTF-8 text"},
      {"memory_options: ['--half', 'two\\nlines']",
       "origins: 'two\\nlines' of memory option 2 is not one line of UTF-8 text"},
      {"memory_advice: 'two\\nlines'",
       "origins: the advice on memory is not one line of UTF-8 text of at most 16384 bytes"},
  };
  for (const auto& [table, message] : cases) {
    const std::string bytes = FromText<v1::Origins>(table).SerializeAsString();
    EXPECT_EQ(Executable::Parse(Serialize(Example()), {}, bytes).status().message(), message);
  }
  v1::Origins long_text = Table();
  long_text.mutable_origins(0)->set_op(std::string(513, 'x'));
  EXPECT_EQ(Executable::Make(Example(), {}, long_text).status().message(),
            "origins: a text of origin 1 has 513 bytes, at most 512 are accepted");
}

TEST(Origins, NameTheOptionsOfTheFront) {
  v1::Origins origins = Table();
  EXPECT_TRUE((*Executable::Make(Example(), {}, origins))->memory_options().empty());
  origins.add_memory_options("--half");
  origins.add_memory_options("");
  const auto named = *Executable::Make(Example(), {}, origins);
  const auto parsed = Executable::Parse(named->Bytes(), {}, named->OriginBytes());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ((*parsed)->memory_options(), (std::vector<std::string>{"--half", ""}));
  EXPECT_EQ(named->hash(), (*Executable::Make(Example()))->hash());
  // Without the origins of instructions, too.
  origins.clear_origins();
  origins.clear_ipus();
  EXPECT_EQ((*Executable::Make(Example(), {}, origins))->memory_options().size(), 2u);
  for (int i = 0; i < kMostMemoryOptions; ++i) origins.add_memory_options("");
  EXPECT_EQ(Executable::Make(Example(), {}, origins).status().message(),
            "origins: 66 memory options named, at most 64 are accepted");
}

TEST(Origins, MayHaveAdviceOnMemory) {
  const auto named = *Executable::Make(Example(), {}, Table());
  const auto advised = named->WithMemoryAdvice("To try: float16: fits.");
  EXPECT_EQ(named->memory_advice(), "");
  EXPECT_EQ(advised->memory_advice(), "To try: float16: fits.");
  EXPECT_EQ(advised->hash(), named->hash());
  EXPECT_EQ(advised->Bytes(), named->Bytes());
  EXPECT_EQ(advised->OriginOf(0, 0, 1)->scope(), "layer1.0");
  const auto parsed = Executable::Parse(advised->Bytes(), {}, advised->OriginBytes());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ((*parsed)->memory_advice(), advised->memory_advice());
}

TEST(Origins, AreLimitedInSize) {
  const std::string bytes = Table().SerializeAsString();
  EXPECT_TRUE(Executable::Parse(Serialize(Example()), {.origin_bytes = bytes.size()}, bytes).ok());
  EXPECT_EQ(Executable::Parse(Serialize(Example()), {.origin_bytes = 10}, bytes).status().message(),
            "the table of origins has " + std::to_string(bytes.size()) +
                " bytes, at most 10 are accepted");
  EXPECT_EQ(Executable::Parse(Serialize(Example()), {}, "\x0a\xff").status().message(),
            "the table of origins is truncated or corrupt");
  // A byte or two on the wire make an object in memory.
  std::string swarm;
  for (int i = 0; i < 1 << 22; ++i) swarm.append("\x0a\x00", 2);
  EXPECT_EQ(Executable::Parse(Serialize(Example()), {}, swarm).status().message(),
            "the table of origins would take more than 256 MiB of host memory");
}

}  // namespace
}  // namespace vpod::program
