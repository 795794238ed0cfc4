#include "device/program/executable.h"

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "device/base/sha256.h"

namespace vpod::program {
namespace {

using testing::HasSubstr;

// Two IPUs that compute, exchange, stream and reduce: every kind of message occurs.
v1::Executable Example() {
  constexpr char kText[] = R"(
    ipus_per_replica: 2
    ipus {
      arena_bytes: 896
      tensors { type: FLOAT32 dims: 2 dims: 3 }
      tensors { type: FLOAT32 dims: 3 dims: 2 offset: 64 }
      tensors { type: FLOAT32 dims: 2 dims: 2 offset: 128 }
      tensors { type: FLOAT32 dims: 2 dims: 3 offset: 192 wide_accumulator: true }
      tensors { type: INT32 dims: 2 offset: 256 }
      tensors { type: FLOAT32 dims: 1 dims: 1 dims: 4 dims: 4 offset: 320 }
      tensors { type: FLOAT32 dims: 1 dims: 1 dims: 2 dims: 2 offset: 384 }
      tensors { type: FLOAT32 offset: 448 }
      tensors { type: FLOAT32 dims: 2 offset: 512 }
      tensors { type: FLOAT16 dims: 2 dims: 3 offset: 576 }
      tensors { type: BOOL offset: 640 }
      tensors { type: INT32 offset: 704 }
      tensors { type: FLOAT32 dims: 4 offset: 768 }
      tensors { type: FLOAT32 dims: 2 dims: 2 offset: 832 }
      functions {
        instructions { stream_in { stream: 0 } outputs: 0 }
        instructions { mat_mul {} inputs: 0 inputs: 1 outputs: 2 }
        instructions { exchange { exchange: 0 } inputs: 2 }
        instructions { softmax_cross_entropy {} inputs: 2 inputs: 4 outputs: 8 outputs: 13 }
        instructions { accumulate {} inputs: 3 inputs: 0 outputs: 3 }
      }
      functions { instructions { fill { value: 1 } outputs: 7 } }
      functions {
        instructions { fill {} outputs: 3 }
        instructions { repeat { function: 0 count: 4 } outputs: 11 }
        instructions { all_reduce { operator: SUM } inputs: 3 outputs: 0 }
        instructions { cast { type: FLOAT16 } inputs: 0 outputs: 9 }
        instructions { reduce { operator: MEAN axes: 1 } inputs: 0 outputs: 8 }
        instructions { average_pool { window { kernel: [ 2, 2 ] stride: [ 2, 2 ] dilation: [ 1, 1 ]
                                               pad_before: [ 0, 0 ] pad_after: [ 0, 0 ] } }
                       inputs: 5 outputs: 6 }
        instructions { sgd { gradient_scale: 0.5 } inputs: [ 9, 0, 12, 7 ] outputs: 9 }
        instructions { if { then_function: 1 } inputs: 10 }
        instructions { while { function: 1 max_rounds: 3 } inputs: 10 }
        instructions { call { function: 1 } }
      }
      functions { instructions { copy {} inputs: 2 outputs: 13 } }
    }
    ipus {
      arena_bytes: 64
      tensors { type: FLOAT32 dims: 2 dims: 2 }
      functions {
        instructions { exchange { exchange: 0 } outputs: 0 }
        instructions { stream_out { stream: 1 } inputs: 0 }
      }
      functions { instructions { repeat { function: 0 count: 4 } } }
      functions {}
    }
    exchanges { moves { from_tensor: 2 to_ipu: 1 } }
    streams { name: "x" to_device: true type: FLOAT32 dims: 2 dims: 3 transfers_per_run: 4 }
    streams { name: "y" ipu: 1 type: FLOAT32 dims: 2 dims: 2 transfers_per_run: 4 }
    variables { name: "w" tensor: 1 }
    programs { name: "main" functions: 2 functions: 1 }
    programs { name: "rest" functions: 3 functions: 2 }
  )";
  v1::Executable executable;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kText, &executable));
  return executable;
}

void ExpectRefused(const std::string& bytes, const std::string& part, const Limits& limits = {}) {
  const auto parsed = Executable::Parse(bytes, limits);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(part));
}

TEST(ExecutableTest, ParsesWhatWasSerialized) {
  const std::string bytes = Serialize(Example());
  const auto executable = Executable::Parse(bytes);
  ASSERT_TRUE(executable.ok()) << executable.status();
  EXPECT_EQ(Serialize((*executable)->proto()), bytes);
  EXPECT_EQ((*executable)->ipus_per_replica(), 2u);
  EXPECT_TRUE((*executable)->has_collectives(0));
  EXPECT_FALSE((*executable)->has_collectives(1));
  EXPECT_EQ((*executable)->streams(0), (std::set<uint32_t>{0, 1}));
  EXPECT_TRUE((*executable)->streams(1).empty());
}

// Nothing says it in executables of earlier versions.
TEST(ExecutableTest, TheNumberOfReplicasBelongsToIt) {
  v1::Executable executable = Example();
  const auto any = *Executable::Parse(Serialize(executable));
  EXPECT_EQ(any->total_replicas(), 0u);
  executable.set_total_replicas(4);
  const auto four = Executable::Parse(Serialize(executable));
  ASSERT_TRUE(four.ok()) << four.status();
  EXPECT_EQ((*four)->total_replicas(), 4u);
  EXPECT_NE((*four)->hash(), any->hash());
}

TEST(ExecutableTest, FindsByNameAndListsWhatThereIs) {
  const auto executable = *Executable::Parse(Serialize(Example()));
  EXPECT_EQ(*executable->FindProgram("rest"), 1u);
  EXPECT_EQ(*executable->FindStream("y"), 1u);
  EXPECT_EQ((*executable->FindVariable("w"))->type.ToString(), "float32[3,2]");
  EXPECT_EQ(executable->FindProgram("mian").status().message(),
            "no program 'mian'; there are main, rest");
  EXPECT_EQ(executable->FindStream("").status().message(), "no stream ''; there are x, y");
  EXPECT_EQ(executable->FindVariable("v").status().code(), absl::StatusCode::kNotFound);
}

TEST(ExecutableTest, CollectivesInsideRepeatsAreFound) {
  v1::Executable executable = Example();
  v1::Ipu* ipu = executable.mutable_ipus(0);
  *ipu->add_functions()->add_instructions() = ipu->functions(2).instructions(2);
  v1::Repeat* repeat = ipu->add_functions()->add_instructions()->mutable_repeat();
  repeat->set_function(4);
  repeat->set_count(2);
  executable.mutable_programs(1)->set_functions(0, 5);
  const auto parsed = Executable::Parse(Serialize(executable));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE((*parsed)->has_collectives(1));
}

TEST(ExecutableTest, CountsExecutionsOfFunctions) {
  const v1::Executable executable = Example();
  EXPECT_EQ(Executions(executable.ipus(0), 2), (std::vector<uint64_t>{4, 1 + 3 + 1, 1}));
  EXPECT_EQ(Executions(executable.ipus(0), 1), (std::vector<uint64_t>{0, 1}));
  uint64_t instructions = 0, executions = 0;
  ForEachInstruction(executable.ipus(0), 2, [&](const v1::Instruction&, uint64_t times) {
    ++instructions;
    executions += times;
  });
  EXPECT_EQ(instructions, 10u + 1 + 5);
  EXPECT_EQ(executions, 10u + 5 + 4 * 5);
}

TEST(ExecutableTest, APlannedRunTakesTheFirstSideOfAnIf) {
  v1::Ipu ipu;
  for (int side = 0; side < 2; ++side) ipu.add_functions()->add_instructions()->mutable_fill();
  v1::If* branch = ipu.add_functions()->add_instructions()->mutable_if_();
  branch->set_then_function(0);
  branch->set_else_function(1);
  EXPECT_EQ(Executions(ipu, 2), (std::vector<uint64_t>{1, 1, 1}));
  EXPECT_EQ(PlannedExecutions(ipu, 2), (std::vector<uint64_t>{1, 0, 1}));
  branch->clear_then_function();
  EXPECT_EQ(Executions(ipu, 2), (std::vector<uint64_t>{0, 1, 1}));
  EXPECT_EQ(PlannedExecutions(ipu, 2), (std::vector<uint64_t>{0, 0, 1}));
}

TEST(ExecutableTest, CountsOfExecutionsDoNotOverflow) {
  v1::Ipu ipu;
  ipu.add_functions()->add_instructions()->mutable_fill();
  for (uint32_t f = 0; f < 3; ++f) {
    for (int twice = 0; twice < 2; ++twice) {
      v1::Repeat* repeat = ipu.add_functions()->add_instructions()->mutable_repeat();
      repeat->set_function(2 * f + (twice == 0 ? 0 : 1));
      repeat->set_count(0xffffffff);
    }
  }
  EXPECT_EQ(Executions(ipu, 6)[0], UINT64_MAX);
}

TEST(ExecutableTest, HashIsThatOfTheCanonicalEncoding) {
  const std::string bytes = Serialize(Example());
  const auto first = Executable::Parse(bytes), second = Executable::Parse(Serialize(Example()));
  EXPECT_EQ((*first)->hash(), (*second)->hash());
  EXPECT_EQ((*first)->hash(), base::Sha256Hex(absl::string_view(bytes).substr(8)));
  v1::Executable other = Example();
  other.mutable_streams(0)->set_name("z");
  EXPECT_NE((*Executable::Parse(Serialize(other)))->hash(), (*first)->hash());
}

// Instances on different hosts and of different builds compare these hashes. Should this test fail,
// the encoding changed: raise the format version.
TEST(ExecutableTest, HashStaysTheSameFromBuildToBuild) {
  EXPECT_EQ((*Executable::Parse(Serialize(Example())))->hash(),
            "4eb6c1d55177906b8ab55a235d46a370456bda27aadab0d52352dae71c117805");
}

TEST(ExecutableTest, RefusesOtherMagicAndVersions) {
  const std::string bytes = Serialize(Example());
  EXPECT_EQ(bytes.substr(0, 8), std::string("VIPUEXE\x02"));
  for (size_t i = 0; i < 8; ++i) {
    std::string other = bytes;
    other[i] ^= 4;
    ExpectRefused(other, "not an executable of format 2");
    ExpectRefused(bytes.substr(0, i), "not an executable of format 2");
  }
  ExpectRefused(bytes.substr(8), "not an executable of format 2");
  ExpectRefused(bytes.substr(0, 8), "ipus_per_replica is 0");
}

TEST(ExecutableTest, RefusesTooManyBytes) {
  const std::string bytes = Serialize(Example());
  ExpectRefused(bytes, "at most 64 are accepted", {.executable_bytes = 64});
  EXPECT_TRUE(Executable::Parse(bytes, {.executable_bytes = bytes.size()}).ok());
}

// Two encodings of the same program would have two hashes.
TEST(ExecutableTest, RefusesOtherEncodingsOfTheSameProgram) {
  const std::string bytes = Serialize(Example());
  const std::string text = "not in canonical form";
  ASSERT_EQ(bytes.substr(8, 2), std::string("\x08\x02"));  // ipus_per_replica: 2
  // A varint longer than need be, a field twice, the first field last.
  ExpectRefused(bytes.substr(0, 9) + std::string("\x82\x00", 2) + bytes.substr(10), text);
  ExpectRefused(bytes.substr(0, 8) + std::string("\x08\x01") + bytes.substr(8), text);
  ExpectRefused(bytes.substr(0, 8) + bytes.substr(10) + std::string("\x08\x02"), text);
  // A third program `q` that is idle; then with a name that is written twice.
  const std::string implied("\x32\x07\x0a\x01q\x12\x02\x03\x02", 9);
  const std::string written("\x32\x0a\x0a\x01q\x0a\x01q\x12\x02\x03\x02", 12);
  EXPECT_TRUE(Executable::Parse(bytes + implied).ok());
  ExpectRefused(bytes + written, text);
}

// A field of a newer version would be executed without its meaning.
TEST(ExecutableTest, RefusesUnknownFieldsAnywhere) {
  const auto refused = [](const auto& message_of) {
    v1::Executable executable = Example();
    google::protobuf::Message* message = message_of(executable);
    message->GetReflection()->MutableUnknownFields(message)->AddVarint(1000, 1);
    EXPECT_FALSE(Executable::Parse(Serialize(executable)).ok()) << message->GetTypeName();
  };
  refused([](v1::Executable& e) { return &e; });
  refused([](v1::Executable& e) { return e.mutable_ipus(0); });
  refused([](v1::Executable& e) { return e.mutable_ipus(0)->mutable_tensors(1); });
  refused([](v1::Executable& e) { return e.mutable_streams(0); });
  refused([](v1::Executable& e) { return e.mutable_variables(0); });
  refused([](v1::Executable& e) { return e.mutable_programs(0); });
  refused([](v1::Executable& e) { return e.mutable_exchanges(0)->mutable_moves(0); });
  refused([](v1::Executable& e) { return e.mutable_ipus(1)->mutable_functions(1); });
  const auto step = [](v1::Executable& e, int i) {
    return e.mutable_ipus(0)->mutable_functions(2)->mutable_instructions(i);
  };
  refused([&](v1::Executable& e) { return step(e, 0); });
  refused([&](v1::Executable& e) { return step(e, 0)->mutable_fill(); });
  refused([&](v1::Executable& e) { return step(e, 1)->mutable_repeat(); });
  refused([&](v1::Executable& e) { return step(e, 5)->mutable_average_pool()->mutable_window(); });
  refused([&](v1::Executable& e) { return step(e, 7)->mutable_if_(); });
  refused([&](v1::Executable& e) { return step(e, 8)->mutable_while_(); });
  refused([&](v1::Executable& e) { return step(e, 9)->mutable_call(); });
  refused([](v1::Executable& e) { return e.mutable_exchanges(0); });
  refused([](v1::Executable& e) {
    return e.mutable_ipus(1)->mutable_functions(0)->mutable_instructions(0)->mutable_exchange();
  });
}

TEST(ExecutableTest, RefusesNamesThatAreNotText) {
  v1::Executable executable = Example();
  executable.mutable_variables(0)->set_name("\xff\xfe");
  ExpectRefused(Serialize(executable), "truncated or corrupt");
}

// --- Bytes that nobody meant: each is refused, or is an executable that keeps all of Parse's
// promises. ---

void ExpectRefusedOrSound(const std::string& bytes) {
  const google::protobuf::LogSilencer silencer;  // of names that are no UTF-8
  const auto parsed = Executable::Parse(bytes);
  if (!parsed.ok()) {
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_FALSE(parsed.status().message().empty());
    return;
  }
  EXPECT_TRUE(Validate((*parsed)->proto(), {}).ok());
  EXPECT_EQ((*parsed)->Bytes(), bytes);
  EXPECT_EQ((*parsed)->hash(), base::Sha256Hex(absl::string_view(bytes).substr(8)));
}

TEST(ExecutableFuzzTest, EveryTruncationIsRefused) {
  const std::string bytes = Serialize(Example());
  v1::Executable shorter = Example();
  shorter.mutable_programs()->RemoveLast();
  const size_t whole = Serialize(shorter).size();  // what is left there is an executable again
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(Executable::Parse(bytes.substr(0, length)).ok(), length == whole) << length;
  }
}

TEST(ExecutableFuzzTest, EveryBitFlipIsRefusedOrSound) {
  const std::string bytes = Serialize(Example());
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    SCOPED_TRACE(bit);
    std::string flipped = bytes;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    ExpectRefusedOrSound(flipped);
  }
}

TEST(ExecutableFuzzTest, RandomBytesAreRefusedOrSound) {
  std::mt19937 random(1);
  for (int seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    std::string bytes = Serialize(v1::Executable());  // the magic
    for (size_t n = random() % 200; n > 0; --n) bytes.push_back(static_cast<char>(random()));
    ExpectRefusedOrSound(bytes);
  }
}

// Sets a random field somewhere below `message` to a random value, adds to it or drops it.
void ChangeOneField(google::protobuf::Message* message, std::mt19937& random) {
  using google::protobuf::FieldDescriptor;
  const auto* reflection = message->GetReflection();
  if (message->GetDescriptor()->field_count() == 0) return;
  const FieldDescriptor* field =
      message->GetDescriptor()->field(random() % message->GetDescriptor()->field_count());
  const uint64_t value = random() % 4 != 0 ? random() % 12 : random();
  if (field->type() == FieldDescriptor::TYPE_MESSAGE) {
    if (!field->is_repeated()) {
      // An instruction keeps its kind most of the time, or little of the program would be left.
      const bool keep = field->containing_oneof() == nullptr || random() % 8 == 0;
      if (keep || reflection->HasField(*message, field)) {
        ChangeOneField(reflection->MutableMessage(message, field), random);
      } else {
        ChangeOneField(message, random);
      }
    } else if (const int size = reflection->FieldSize(*message, field);
               size > 0 && random() % 8 != 0) {
      ChangeOneField(reflection->MutableRepeatedMessage(message, field, random() % size), random);
    } else if (size > 0 && random() % 2 == 0) {
      reflection->RemoveLast(message, field);
    } else {
      reflection->AddMessage(message, field);
    }
    return;
  }
  if (field->is_repeated() && reflection->FieldSize(*message, field) > 0 && random() % 2 == 0) {
    reflection->RemoveLast(message, field);
    return;
  }
  // An operand goes wrong while their number stays right.
  if (field->is_repeated() && field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32 &&
      reflection->FieldSize(*message, field) > 0 && random() % 2 == 0) {
    const int at = static_cast<int>(random() % reflection->FieldSize(*message, field));
    return reflection->SetRepeatedUInt32(message, field, at, static_cast<uint32_t>(value));
  }
  const bool add = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return add ? reflection->AddInt32(message, field, static_cast<int32_t>(value))
                 : reflection->SetInt32(message, field, static_cast<int32_t>(value));
    case FieldDescriptor::CPPTYPE_INT64:
      return add ? reflection->AddInt64(message, field, static_cast<int64_t>(value))
                 : reflection->SetInt64(message, field, static_cast<int64_t>(value));
    case FieldDescriptor::CPPTYPE_UINT32:
      return add ? reflection->AddUInt32(message, field, static_cast<uint32_t>(value))
                 : reflection->SetUInt32(message, field, static_cast<uint32_t>(value));
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection->SetUInt64(message, field, value * 64);
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection->SetEnumValue(message, field, static_cast<int>(value));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->SetBool(message, field, value % 2 != 0);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection->SetDouble(message, field, static_cast<double>(value) / 2);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return reflection->SetFloat(message, field, static_cast<float>(value) / 2);
    default:
      return reflection->SetString(message, field, std::string(value % 3, 'x'));
  }
}

TEST(ExecutableFuzzTest, RandomFieldsAreRefusedOrSound) {
  std::mt19937 random(3);
  int sound = 0;
  for (int seed = 0; seed < 6000; ++seed) {
    SCOPED_TRACE(seed);
    v1::Executable executable = Example();
    for (size_t changes = 1 + random() % 3; changes > 0; --changes) {
      ChangeOneField(&executable, random);
    }
    ExpectRefusedOrSound(Serialize(executable));
    sound += Validate(executable, {}).ok();
  }
  // Neither everything nor nothing: the changes reach the rules.
  EXPECT_GT(sound, 300);
  EXPECT_LT(sound, 5000);
}

TEST(ExecutableFuzzTest, ManglingIsRefusedOrSound) {
  const std::string original = Serialize(Example());
  std::mt19937 random(2);
  for (int seed = 0; seed < 6000; ++seed) {
    SCOPED_TRACE(seed);
    std::string bytes = original;
    for (size_t changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t at = 8 + random() % (bytes.size() - 8);
      const size_t length = 1 + random() % 16;
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, length);
          break;
        case 2:  // a piece from elsewhere
          bytes.insert(at, original.substr(8 + random() % (original.size() - 8), length));
          break;
        default:  // the largest varints
          bytes.insert(at, std::string(length, '\xff'));
      }
      if (bytes.size() < 9) bytes = original;
    }
    ExpectRefusedOrSound(bytes);
  }
}

}  // namespace
}  // namespace vpod::program
