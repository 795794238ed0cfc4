#include "server/rpc/write_queue.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace vpod::rpc {
namespace {

// Logs the calls on the stream.
class WriteQueueTest : public testing::Test {
 protected:
  using Log = std::vector<std::string>;
  Log log_;
  WriteQueue<std::string> queue_{
      [this](const std::string* message) { log_.push_back(*message); },
      [this](const grpc::Status& status) { log_.push_back("end: " + status.error_message()); }};
};

TEST_F(WriteQueueTest, MessagesAreWrittenOneAtATimeInTheirOrder) {
  queue_.Send("a");
  queue_.Send("b");
  EXPECT_EQ(log_, (Log{"a"}));
  queue_.Written(true);
  queue_.Written(true);
  queue_.Send("c");
  EXPECT_EQ(log_, (Log{"a", "b", "c"}));
}

TEST_F(WriteQueueTest, TheFirstEndComesOnceAndBehindTheMessages) {
  queue_.Send("a");
  queue_.End({grpc::StatusCode::ABORTED, "first"});
  queue_.End({grpc::StatusCode::ABORTED, "second"});
  queue_.Send("too late");
  EXPECT_EQ(log_, (Log{"a"}));
  queue_.Written(true);
  queue_.End(grpc::Status::OK);
  EXPECT_EQ(log_, (Log{"a", "end: first"}));
}

TEST_F(WriteQueueTest, BrokenStreamTakesNoMore) {
  queue_.Send("a");
  queue_.Send("b");
  queue_.Written(false);
  EXPECT_EQ(log_, (Log{"a"}));
  queue_.End(grpc::Status::OK);
  EXPECT_EQ(log_, (Log{"a", "end: "}));
}

TEST_F(WriteQueueTest, AReaderThatDoesNotReadIsNoticed) {
  const std::string half(WriteQueue<std::string>::kMostBytes / 2, 'h');
  EXPECT_TRUE(queue_.Send(half));
  EXPECT_TRUE(queue_.Send(half));
  EXPECT_FALSE(queue_.Send("one too many"));
  queue_.Written(true);
  EXPECT_TRUE(queue_.Send("there is room again"));
  queue_.Written(true);
  EXPECT_EQ(log_.back(), "there is room again");
}

}  // namespace
}  // namespace vpod::rpc
