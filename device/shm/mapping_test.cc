#include "device/shm/mapping.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "device/shm/segment.h"

namespace vpod::shm {
namespace {

constexpr size_t kPage = 4096;

void Touch(std::byte* place) { *static_cast<volatile std::byte*>(place) = std::byte{1}; }

TEST(MappingTest, PrivateMemoryIsZeroAndMoves) {
  auto created = Mapping::Private(3 * kPage + 100);
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_EQ(created->size(), 3 * kPage + 100);
  const std::byte* const data = created->data();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
  EXPECT_TRUE(std::all_of(data, data + created->size(), [](auto b) { return b == std::byte{}; }));
  Touch(created->data() + 3 * kPage + 99);
  const Mapping moved = *std::move(created);
  EXPECT_EQ(moved.data(), data);
  EXPECT_EQ(moved.data()[3 * kPage + 99], std::byte{1});
}

TEST(MappingTest, NothingIsMappedForNoBytes) {
  const auto nothing = Mapping::Private(0);
  ASSERT_TRUE(nothing.ok()) << nothing.status();
  EXPECT_EQ(nothing->data(), nullptr);
  EXPECT_EQ(nothing->size(), 0u);
}

TEST(MappingTest, MoreThanTheKernelGivesIsRefused) {
  EXPECT_TRUE(absl::IsResourceExhausted(Mapping::Private(size_t{1} << 60).status()));
}

// Arenas of different partitions are mapped one after the other.
TEST(MappingTest, WhatRunsPastEitherEndFaults) {
  const auto memory = Mapping::Private(2 * kPage);
  const auto segment = Segment::Create(2 * kPage);
  ASSERT_TRUE(memory.ok() && segment.ok());
  for (std::byte* data : {memory->data(), segment->data()}) {
    Touch(data);
    Touch(data + 2 * kPage - 1);
    EXPECT_DEATH(Touch(data - 1), "");
    EXPECT_DEATH(Touch(data + 2 * kPage), "");
  }
}

TEST(MappingTest, AFileTakesThePlaceOfWholePages) {
  const auto own = Segment::Create(3 * kPage), other = Segment::Create(3 * kPage);
  ASSERT_TRUE(own.ok() && other.ok());
  auto mapping = Mapping::Shared(own->fd(), 3 * kPage);
  ASSERT_TRUE(mapping.ok());
  ASSERT_TRUE(mapping->MapFile(other->fd(), kPage, kPage).ok());
  for (size_t page = 0; page < 3; ++page) Touch(mapping->data() + page * kPage);
  EXPECT_EQ(own->data()[0], std::byte{1});
  EXPECT_EQ(own->data()[kPage], std::byte{0});
  EXPECT_EQ(other->data()[kPage], std::byte{1});
  EXPECT_EQ(own->data()[2 * kPage], std::byte{1});
}

}  // namespace
}  // namespace vpod::shm
