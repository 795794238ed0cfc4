#include "device/program/stream_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace vpod::program {
namespace {

void AddStream(v1::Executable& executable, v1::DataType type, Dims dims, uint32_t transfers) {
  v1::Stream* stream = executable.add_streams();
  stream->set_type(type);
  stream->mutable_dims()->Add(dims.begin(), dims.end());
  stream->set_transfers_per_run(transfers);
}

TEST(StreamLayoutTest, WithoutStreamsTakesNoMemory) {
  const StreamLayout layout(v1::Executable(), 16);
  EXPECT_EQ(layout.SlotBytes(), 0u);
  EXPECT_EQ(layout.TotalBytes(), 0u);
  EXPECT_EQ(layout.replicas(), 16u);
}

TEST(StreamLayoutTest, LiesReplicaAfterReplicaTransferAfterTransfer) {
  v1::Executable executable;
  AddStream(executable, v1::FLOAT32, {5}, 3);  // 20 bytes × 3 × 2 replicas = 120, padded to 128
  AddStream(executable, v1::UINT8, {7}, 1);
  const StreamLayout layout(executable, 2);
  EXPECT_EQ(layout.TransferBytes(0), 20u);
  EXPECT_EQ(layout.Transfers(0), 3u);
  EXPECT_EQ(layout.StreamBytes(0), 120u);
  EXPECT_EQ(layout.Offset(0, 0, 0), 0u);
  EXPECT_EQ(layout.Offset(0, 0, 2), 40u);
  EXPECT_EQ(layout.Offset(0, 1, 0), 60u);
  EXPECT_EQ(layout.Offset(1, 0, 0), 128u);
  EXPECT_EQ(layout.Offset(1, 1, 0), 135u);
  EXPECT_EQ(layout.SlotBytes(), 192u);
  EXPECT_EQ(layout.TotalBytes(), 384u);
}

TEST(StreamLayoutTest, StreamThatNoProgramUsesTakesNoMemory) {
  v1::Executable executable;
  AddStream(executable, v1::FLOAT32, {5}, 0);
  AddStream(executable, v1::FLOAT32, {}, 1);
  const StreamLayout layout(executable, 1);
  EXPECT_EQ(layout.StreamBytes(0), 0u);
  EXPECT_EQ(layout.Offset(1, 0, 0), 0u);
}

TEST(StreamLayoutTest, OffsetsDoNotWrapAtFourGigabytes) {
  v1::Executable executable;
  AddStream(executable, v1::FLOAT32, {1 << 20}, 1 << 10);
  const StreamLayout layout(executable, 64);
  EXPECT_EQ(layout.SlotBytes(), uint64_t{1} << 38);
  EXPECT_EQ(layout.Offset(0, 63, 1023), (uint64_t{1} << 38) - (uint64_t{4} << 20));
}

TEST(StreamLayoutTest, NoTwoTransfersOverlap) {
  std::mt19937 random(17);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE(round);
    v1::Executable executable;
    const uint32_t replicas = 1 + below(5);
    for (uint32_t i = 0, n = 1 + below(4); i < n; ++i) {
      AddStream(executable, below(2) ? v1::FLOAT16 : v1::BOOL, {1 + below(40), 1 + below(3)},
                below(4));
    }
    const StreamLayout layout(executable, replicas);
    std::vector<std::pair<uint64_t, uint64_t>> places;
    for (int stream = 0; stream < executable.streams_size(); ++stream) {
      EXPECT_EQ(layout.Offset(stream, 0, 0) % 64, 0u);
      for (uint32_t replica = 0; replica < replicas; ++replica) {
        for (uint32_t transfer = 0; transfer < layout.Transfers(stream); ++transfer) {
          const uint64_t at = layout.Offset(stream, replica, transfer);
          places.emplace_back(at, at + layout.TransferBytes(stream));
        }
      }
    }
    std::sort(places.begin(), places.end());
    for (size_t i = 1; i < places.size(); ++i) EXPECT_LE(places[i - 1].second, places[i].first);
    EXPECT_LE(places.empty() ? 0 : places.back().second, layout.SlotBytes());
  }
}

}  // namespace
}  // namespace vpod::program
