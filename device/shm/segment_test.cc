#include "device/shm/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
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

// A file of a disk can be truncated by the process that passed it.
TEST(SegmentTest, RefusesFilesThatKnowNoSeals) {
  char path[] = "./segment_testXXXXXX";
  base::UniqueFd file(mkstemp(path));
  unlink(path);
  ASSERT_EQ(ftruncate(file.get(), 4096), 0);
  if (fcntl(file.get(), F_GET_SEALS) >= 0) GTEST_SKIP() << "this file system seals files";
  EXPECT_FALSE(Segment::Map(std::move(file), 4096).ok());
}

// Their pages may not be there when they are touched.
TEST(SegmentTest, RefusesHugePages) {
  constexpr size_t kBytes = 2 << 20;
  base::UniqueFd huge(memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!huge.valid() || ftruncate(huge.get(), kBytes) != 0) GTEST_SKIP() << "no huge pages here";
  ASSERT_EQ(fcntl(huge.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_FALSE(Segment::Map(std::move(huge), kBytes).ok());
}

TEST(SegmentTest, TwoDescriptorsAreRefusedAndClosed) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  base::UniqueFd left(sockets[0]), right(sockets[1]);
  int pipes[2];
  ASSERT_EQ(pipe2(pipes, O_CLOEXEC), 0);
  base::UniqueFd reader(pipes[0]), writer(pipes[1]);
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(2 * sizeof(int));
  const int both[2] = {writer.get(), writer.get()};
  std::memcpy(CMSG_DATA(header), both, sizeof(both));
  ASSERT_EQ(sendmsg(left.get(), &message, 0), 1);
  EXPECT_EQ(ReceiveFd(right.get(), &byte, 1).status().code(), absl::StatusCode::kInvalidArgument);
  writer.Reset();
  EXPECT_EQ(read(reader.get(), &byte, 1), 0);  // the end: no copy of the writer is left
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
