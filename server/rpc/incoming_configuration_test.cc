#include "server/rpc/incoming_configuration.h"

#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace vpod::rpc {
namespace {

constexpr char kBootId[] = "0123456789abcdef";

grpc::ByteBuffer Bytes(const std::string& text) {
  const grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}
grpc::ByteBuffer Bytes(const vipuagent::ConfigureRequest& portion) {
  return Bytes(portion.SerializeAsString());
}

vipuagent::ConfigureRequest First(bool more_follow) {
  vipuagent::ConfigureRequest portion;
  portion.set_agent_boot_id(kBootId);
  portion.set_sequence(7);
  portion.set_more_follow(more_follow);
  return portion;
}

vipuagent::ConfigureRequest More(const std::string& id, bool more_follow) {
  vipuagent::ConfigureRequest portion;
  portion.add_partitions()->set_id(id);
  portion.set_more_follow(more_follow);
  return portion;
}

// Field 31, empty, again and again: three bytes each, of which protobuf makes objects.
std::string Unknown(size_t bytes) {
  std::string text;
  text.reserve(bytes);
  while (text.size() + 3 <= bytes) text.append("\xfa\x01\x00", 3);
  return text;
}

TEST(IncomingConfigurationTest, PortionsMakeOneConfiguration) {
  IncomingConfiguration incoming(kBootId);
  EXPECT_EQ(incoming.Add(Bytes(First(true))), absl::OkStatus());
  EXPECT_EQ(incoming.Add(Bytes(More("a", true))), absl::OkStatus());
  EXPECT_FALSE(incoming.IsWhole());
  EXPECT_EQ(incoming.Add(Bytes(More("b", false))), absl::OkStatus());
  EXPECT_TRUE(incoming.IsWhole());
  const auto whole = incoming.Take();
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->sequence(), 7u);
  ASSERT_EQ(whole->partitions_size(), 2);
  EXPECT_EQ(whole->partitions(1).id(), "b");
}

TEST(IncomingConfigurationTest, WhatBreaksOffIsNone) {
  EXPECT_TRUE(absl::IsAborted(IncomingConfiguration(kBootId).Take().status()));
  IncomingConfiguration incoming(kBootId);
  EXPECT_EQ(incoming.Add(Bytes(First(true))), absl::OkStatus());
  EXPECT_TRUE(absl::IsAborted(incoming.Take().status()));
}

TEST(IncomingConfigurationTest, TheFirstPortionShowsTheBootId) {
  for (const std::string& shown :
       {std::string(), std::string("guess"), std::string(16, '0'), absl::StrCat(kBootId, "0")}) {
    vipuagent::ConfigureRequest portion = First(false);
    portion.set_agent_boot_id(shown);
    IncomingConfiguration incoming(kBootId);
    EXPECT_TRUE(absl::IsFailedPrecondition(incoming.Add(Bytes(portion)))) << shown;
  }
  IncomingConfiguration late(kBootId);
  EXPECT_TRUE(absl::IsFailedPrecondition(late.Add(Bytes(More("a", true)))));
}

TEST(IncomingConfigurationTest, AStrangerHasNothingOfSizeParsed) {
  const std::string shown = First(true).SerializeAsString();
  for (const size_t bytes : {size_t{64} << 10, size_t{1} << 20}) {
    IncomingConfiguration incoming(kBootId);
    // The boot id is right; even so the first message is small.
    EXPECT_TRUE(absl::IsResourceExhausted(incoming.Add(Bytes(shown + Unknown(bytes))))) << bytes;
  }
  IncomingConfiguration incoming(kBootId);
  EXPECT_TRUE(absl::IsInvalidArgument(incoming.Add(Bytes(std::string("\x0a")))));
}

TEST(IncomingConfigurationTest, AllPortionsTogetherAreBounded) {
  constexpr size_t kPortion = 4 << 20;
  const std::string partition = More(std::string(kPortion, 'x'), true).SerializeAsString();
  IncomingConfiguration incoming(kBootId);
  ASSERT_EQ(incoming.Add(Bytes(First(true))), absl::OkStatus());
  for (size_t i = 0; i + 1 < IncomingConfiguration::kMostBytes / kPortion; ++i)
    EXPECT_EQ(incoming.Add(Bytes(partition)), absl::OkStatus()) << i;
  EXPECT_TRUE(absl::IsResourceExhausted(incoming.Add(Bytes(partition))));
}

TEST(IncomingConfigurationTest, MemoryIsBoundedWhereBytesAreFew) {
  const std::string unknown = Unknown(4 << 20);
  IncomingConfiguration incoming(kBootId);
  ASSERT_EQ(incoming.Add(Bytes(First(true))), absl::OkStatus());
  absl::Status status;
  size_t bytes = 0;
  for (; status.ok() && bytes < IncomingConfiguration::kMostBytes; bytes += unknown.size())
    status = incoming.Add(Bytes(unknown));
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_LT(bytes, IncomingConfiguration::kMostBytes);
}

}  // namespace
}  // namespace vpod::rpc
