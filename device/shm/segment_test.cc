#include "device/shm/segment.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cstring>

namespace vpod::shm {
namespace {

TEST(SegmentTest, PassesBetweenTwoMappings) {
  auto segment = Segment::Create(8192);
  ASSERT_TRUE(segment.ok());
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  base::UniqueFd left(sockets[0]), right(sockets[1]);
  const uint64_t size = 8192;
  ASSERT_TRUE(SendFd(left.get(), segment->fd(), &size, sizeof(size)).ok());
  uint64_t received = 0;
  auto fd = ReceiveFd(right.get(), &received, sizeof(received));
  ASSERT_TRUE(fd.ok());
  EXPECT_EQ(received, size);
  auto mapped = Segment::Map(*std::move(fd), received);
  ASSERT_TRUE(mapped.ok());
  std::memcpy(segment->data() + 100, "hello", 5);
  EXPECT_EQ(std::memcmp(mapped->data() + 100, "hello", 5), 0);
}

TEST(SegmentTest, CannotBeShrunkByAnyone) {
  auto segment = Segment::Create(4096);
  ASSERT_TRUE(segment.ok());
  EXPECT_NE(ftruncate(segment->fd(), 0), 0);
}

TEST(SegmentTest, RefusesUnsealedAndShortDescriptors) {
  base::UniqueFd unsealed(memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 4096), 0);
  EXPECT_FALSE(Segment::Map(std::move(unsealed), 4096).ok());
  auto segment = Segment::Create(4096);
  EXPECT_FALSE(Segment::Map(base::UniqueFd(dup(segment->fd())), 8192).ok());
}

TEST(SegmentTest, ReceiveReportsAClosedPeer) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  base::UniqueFd left(sockets[0]), right(sockets[1]);
  left.Reset();
  char byte;
  EXPECT_EQ(ReceiveFd(right.get(), &byte, 1).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace vpod::shm
