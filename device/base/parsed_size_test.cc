#include "device/base/parsed_size.h"

#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <random>

#include "proto/program/v1/program.pb.h"
#include "proto/vipu/v1/vipuagent.pb.h"

namespace vpod::base {
namespace {

using program::v1::Executable;
using vipuagent::ConfigureRequest;

std::string Repeat(absl::string_view unit, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) text.append(unit.data(), unit.size());
  return text;
}

// A field of bytes: tag, length, contents.
std::string Field(int number, const std::string& contents) {
  std::string text;
  for (uint64_t value : {uint64_t(number) << 3 | 2, uint64_t(contents.size())}) {
    for (; value >= 128; value >>= 7) text += static_cast<char>(value | 128);
    text += static_cast<char>(value);
  }
  return text + contents;
}

// Heap that parsing takes, by the allocator's own account.
template <class Message>
size_t HeapOf(const std::string& bytes) {
  const size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
  Message message;
  EXPECT_TRUE(message.ParseFromString(bytes));
  return mallinfo2().uordblks + mallinfo2().hblkhd - before;
}

template <class Message>
void ExpectBound(const std::string& name, const std::string& bytes) {
  const auto size = ParsedSize(*Message::descriptor(), bytes, UINT64_MAX);
  ASSERT_TRUE(size.ok()) << name << ": " << size.status();
#ifndef __SANITIZE_ADDRESS__
  EXPECT_LE(HeapOf<Message>(bytes), *size) << name;
#endif
  EXPECT_TRUE(ParsedSize(*Message::descriptor(), bytes, *size).ok()) << name;
  if (*size > 0) {
    EXPECT_EQ(ParsedSize(*Message::descriptor(), bytes, *size - 1).status().code(),
              absl::StatusCode::kResourceExhausted)
        << name;
  }
}

TEST(ParsedSizeTest, BoundsWhatParsingTakes) {
  const size_t kMany = 20000;
  const auto program = [](const std::string& instructions) {
    return Field(2, Field(3, instructions));
  };
  const std::pair<const char*, std::string> executables[] = {
      {"nothing", ""},
      {"empty instructions", program(Repeat(Field(1, ""), kMany))},
      {"empty steps", program(Repeat(Field(1, Field(19, "")), kMany))},
      {"empty windows", program(Repeat(Field(1, Field(12, Field(2, ""))), kMany))},
      {"empty tensors", Field(2, Repeat(Field(1, ""), kMany))},
      {"empty names", Repeat(Field(5, Field(1, "")), kMany)},
      {"long names", Repeat(Field(5, Field(1, std::string(100, 'n'))), kMany)},
      {"packed numbers", Field(2, Field(1, Field(2, std::string(kMany, '\x01'))))},
      {"single numbers", Field(2, Field(1, Repeat(std::string("\x10\x01", 2), kMany)))},
      {"unknown numbers", Repeat(std::string("\x78\x01", 2), kMany)},
      {"unknown texts", Repeat(Field(15, ""), kMany)},
      {"unknown groups", Repeat(std::string("\x7b\x7c", 2), kMany)},
      {"unknown numbers in instructions",
       program(Repeat(Field(1, std::string("\xf8\x07\x01", 3)), kMany))},
  };
  for (const auto& [name, bytes] : executables) ExpectBound<Executable>(name, bytes);
  const std::pair<const char*, std::string> configurations[] = {
      {"empty partitions", Repeat(Field(2, ""), kMany)},
      {"empty names", Repeat(Field(3, ""), kMany)},
      {"empty options", Field(2, Repeat(Field(10, ""), kMany))},
      {"empty peers", Field(2, Repeat(Field(12, ""), kMany))},
  };
  for (const auto& [name, bytes] : configurations) ExpectBound<ConfigureRequest>(name, bytes);
}

TEST(ParsedSizeTest, IsSmallForWhatIsSmall) {
  Executable executable;
  for (int i = 0; i < 100; ++i) {
    auto* instruction = executable.add_ipus()->add_functions()->add_instructions();
    instruction->mutable_mat_mul();
    instruction->add_outputs(i);
  }
  const std::string bytes = executable.SerializeAsString();
  EXPECT_LT(*ParsedSize(*Executable::descriptor(), bytes, UINT64_MAX), 100000);
}

TEST(ParsedSizeTest, BytesThatAreNotAMessageAreRefused) {
  // Groups of unknown fields are the only thing that nests without end.
  const std::string deep = std::string(300, '\x7b') + std::string(300, '\x7c');
  for (const std::string& bytes :
       {std::string("\x0a"), std::string("\x0a\x05x"), std::string("\x07"), std::string("\x00", 1),
        std::string("\x7b"), std::string("\x7c"), std::string(11, '\xff'), std::string("\x09\x01"),
        deep}) {
    EXPECT_EQ(ParsedSize(*Executable::descriptor(), bytes, UINT64_MAX).status().code(),
              absl::StatusCode::kInvalidArgument)
        << absl::string_view(bytes).substr(0, 20);
  }
}

// Everything that protobuf parses is measured, and noise ends in a status.
TEST(ParsedSizeTest, SurvivesNoise) {
  google::protobuf::LogSilencer silencer;  // of names that are no UTF-8
  std::mt19937_64 random(2026);
  Executable example;
  for (int i = 0; i < 20; ++i) {
    auto* instruction = example.add_ipus()->add_functions()->add_instructions();
    instruction->mutable_fill()->set_value(i);
    instruction->add_outputs(static_cast<uint32_t>(i));
    example.add_variables()->set_name("v" + std::to_string(i));
  }
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = example.SerializeAsString();
    for (uint64_t flips = random() % 5; flips > 0; --flips)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    const auto size = ParsedSize(*Executable::descriptor(), bytes, 1 << 20);
    Executable parsed;
    if (parsed.ParseFromString(bytes)) {
      ASSERT_TRUE(size.ok()) << size.status();
      ASSERT_LE(parsed.SpaceUsedLong() - sizeof(parsed), *size);
    }
  }
}

}  // namespace
}  // namespace vpod::base
