#include "device/fabric/ucx_transport.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <vector>

#include "device/base/mutex.h"

namespace vpod::fabric {
namespace {

// A process's side: keeps what arrives.
struct Side {
  struct Message {
    std::string header;
    std::vector<std::byte> payload;
  };

  Landing Receive(absl::string_view header, size_t bytes) {
    auto message = std::make_shared<Message>();
    message->header = std::string(header);
    message->payload.resize(bytes);
    return {message->payload.data(), [this, message](absl::Status status) {
              base::MutexLock lock(mutex);
              if (status.ok()) messages.push_back(message);
              changed.notify_all();
            }};
  }
  std::shared_ptr<Message> Await(size_t number) {
    base::MutexLock lock(mutex);
    lock.Wait(changed, [&] { return messages.size() > number; });
    return messages[number];
  }

  base::Mutex mutex;
  std::condition_variable changed;
  std::vector<std::shared_ptr<Message>> messages ABSL_GUARDED_BY(mutex);
  // Last, so that its thread ends before what it touches.
  std::unique_ptr<Transport> transport;

  Side() {
    auto created = CreateUcxTransport(
        {.host = "127.0.0.1", .tcp_only = true},
        [this](absl::string_view header, size_t bytes) { return Receive(header, bytes); });
    EXPECT_TRUE(created.ok()) << created.status();
    if (created.ok()) transport = *std::move(created);
  }

  // Sends and waits until the payload is no longer needed.
  absl::Status Send(const std::string& to, const std::string& header,
                    const std::vector<std::byte>& payload) {
    std::optional<absl::Status> result;
    transport->Send(to, header, payload, [&](absl::Status status) {
      base::MutexLock lock(mutex);
      result = status;
      changed.notify_all();
    });
    base::MutexLock lock(mutex);
    lock.Wait(changed, [&] { return result.has_value(); });
    return *result;
  }
};

std::vector<std::byte> Pattern(size_t bytes) {
  std::vector<std::byte> pattern(bytes);
  for (size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<std::byte>(i * 7 + i / 251);
  return pattern;
}

TEST(UcxTransportTest, CarriesMessagesOfAllSizes) {
  Side a, b;
  size_t number = 0;
  for (size_t bytes : {0ul, 1ul, 1000ul, 100'000ul, 20'000'000ul}) {
    const auto payload = Pattern(bytes);
    ASSERT_TRUE(a.Send(b.transport->address(), "header " + std::to_string(bytes), payload).ok());
    const auto message = b.Await(number++);
    EXPECT_EQ(message->header, "header " + std::to_string(bytes));
    EXPECT_EQ(message->payload, payload);
  }
}

TEST(UcxTransportTest, BothWaysAtOnce) {
  Side a, b;
  const auto payload = Pattern(3'000'000);
  std::atomic<int> sent = 0;
  for (int i = 0; i < 8; ++i) {
    a.transport->Send(b.transport->address(), "a", payload,
                      [&](absl::Status s) { sent += s.ok(); });
    b.transport->Send(a.transport->address(), "b", payload,
                      [&](absl::Status s) { sent += s.ok(); });
  }
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(a.Await(i)->payload, payload);
    EXPECT_EQ(b.Await(i)->payload, payload);
  }
  // The last `sent` may come after the payload's arrival; an empty message each way follows it.
  EXPECT_TRUE(a.Send(b.transport->address(), "end", {}).ok());
  EXPECT_TRUE(b.Send(a.transport->address(), "end", {}).ok());
  a.transport.reset();
  b.transport.reset();
  EXPECT_EQ(sent, 16);
}

TEST(UcxTransportTest, ALostPeerIsAnErrorOfTheSend) {
  Side a;
  auto b = std::make_unique<Side>();
  const std::string address = b->transport->address();
  ASSERT_TRUE(a.Send(address, "hello", Pattern(10)).ok());
  b->Await(0);
  b.reset();
  // A small message may still be buffered; one that needs the peer's hand cannot.
  const auto payload = Pattern(20'000'000);
  EXPECT_FALSE(a.Send(address, "anybody there?", payload).ok());
  EXPECT_FALSE(a.Send(address, "again", payload).ok());
}

TEST(UcxTransportTest, AnAddressThatIsNoneIsAnErrorOfTheSend) {
  Side a;
  EXPECT_FALSE(a.Send("not an address", "x", Pattern(10)).ok());
}

}  // namespace
}  // namespace vpod::fabric
