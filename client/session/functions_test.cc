// Control and exchanges of executables, on the IPUModel: what no compiled program has yet.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"
#include "device/program/control_program.h"
#include "device/program/executable.h"

namespace vpod::session {
namespace {

using program::kControlProgram;
using testing::HasSubstr;

std::unique_ptr<Device> Load(const std::string& text, uint32_t ipus = 1, uint32_t replicas = 1) {
  program::v1::Executable executable;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &executable));
  auto device =
      CreateIpuModel({.replicas = replicas, .ipus_per_replica = ipus, .compute_threads = 2});
  EXPECT_TRUE(device.ok()) << device.status();
  const auto valid = program::Executable::Make(std::move(executable));
  EXPECT_TRUE(valid.ok()) << valid.status();
  const absl::Status loaded = (*device)->Load(*valid, {});
  EXPECT_TRUE(loaded.ok()) << loaded;
  return *std::move(device);
}

int32_t Read(Device& device, const std::string& variable, uint32_t replica = 0) {
  const auto bytes = device.ReadVariable(variable, replica);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  int32_t value = 0;
  if (bytes.ok()) std::memcpy(&value, bytes->data(), sizeof(value));
  return value;
}

void Write(Device& device, const std::string& variable, int32_t value) {
  const std::string bytes(reinterpret_cast<const char*>(&value), sizeof(value));
  EXPECT_TRUE(device.WriteVariable(variable, bytes).ok());
}

TEST(FunctionsTest, ARepeatCountsItsRounds) {
  const auto device = Load(kControlProgram);
  Write(*device, "sum", 100);
  ASSERT_TRUE(device->Run(0, 0).ok());
  EXPECT_EQ(Read(*device, "sum"), 100 + 0 + 1 + 2 + 3 + 4);
  EXPECT_EQ(Read(*device, "counter"), 4);
}

TEST(FunctionsTest, AWhileEndsWithItsCondition) {
  const auto device = Load(kControlProgram);
  Write(*device, "sum", 3);
  Write(*device, "limit", 1000);
  ASSERT_TRUE(device->Run(1, 0).ok());
  EXPECT_EQ(Read(*device, "sum"), 3 << 9);
  // Not a single round.
  ASSERT_TRUE(device->Run(1, 0).ok());
  EXPECT_EQ(Read(*device, "sum"), 3 << 9);
  // Exactly as many as it may take.
  Write(*device, "sum", 1);
  Write(*device, "limit", 1 << 20);
  ASSERT_TRUE(device->Run(1, 0).ok());
  EXPECT_EQ(Read(*device, "sum"), 1 << 20);
}

TEST(FunctionsTest, AWhileThatDoesNotEndFailsTheRun) {
  const auto device = Load(kControlProgram);
  Write(*device, "limit", 1000);  // the sum stays 0
  const auto result = device->Run(1, 0);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("still holds after 20 rounds"));
}

TEST(FunctionsTest, AnIfTakesOneBranch) {
  const auto device = Load(kControlProgram);
  const auto run = [&](uint32_t program, bool more) {
    Write(*device, "sum", 5);
    Write(*device, "limit", 7);
    EXPECT_TRUE(device->WriteVariable("more", std::string(1, more ? '\1' : '\0')).ok());
    EXPECT_TRUE(device->Run(program, 0).ok());
    return Read(*device, "sum");
  };
  EXPECT_EQ(run(2, true), 12);
  EXPECT_EQ(run(2, false), 0);
  EXPECT_EQ(run(3, true), 12);
  EXPECT_EQ(run(3, false), 5);
}

// Four IPUs pass their tensors around a ring at once, three times; the first IPU comes late.
TEST(FunctionsTest, AnExchangeMovesTensorsOfAllItsIpus) {
  std::string text = "ipus_per_replica: 4 exchanges { ";
  for (int ipu = 0; ipu < 4; ++ipu) {
    absl::StrAppend(&text, "moves { from_ipu: ", ipu, " to_ipu: ", (ipu + 1) % 4,
                    " to_tensor: 1 } ");
  }
  absl::StrAppend(&text, "} ");
  for (int ipu = 0; ipu < 4; ++ipu) {
    absl::StrAppend(
        &text,
        "ipus { arena_bytes: 4160 tensors { type: INT32 } tensors { type: INT32 offset: 64 }",
        " tensors { type: FLOAT32 dims: 1000 offset: 128 } functions {",
        " instructions { exchange {} inputs: 0 outputs: 1 }",
        " instructions { copy {} inputs: 1 outputs: 0 } } functions { ",
        ipu == 0 ? "instructions { fill { value: 1 } outputs: 2 } " : "",
        "instructions { repeat { count: 3 } } } } variables { name: 'x", ipu, "' ipu: ", ipu,
        " } ");
  }
  absl::StrAppend(&text, "programs { name: 'ring' functions: [1, 1, 1, 1] }");
  const auto device = Load(text, 4, 2);
  for (int ipu = 0; ipu < 4; ++ipu) Write(*device, absl::StrCat("x", ipu), 10 + ipu);
  ASSERT_TRUE(device->Run(0, 0).ok());
  for (uint32_t replica = 0; replica < 2; ++replica) {
    for (int ipu = 0; ipu < 4; ++ipu)
      EXPECT_EQ(Read(*device, absl::StrCat("x", ipu), replica), 10 + (ipu + 4 - 3) % 4);
  }
}

}  // namespace
}  // namespace vpod::session
