#include "device/fabric/socket_transport.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <future>
#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "device/base/mutex.h"
#include "device/base/unique_fd.h"

namespace vpod::fabric {
namespace {

const std::string kToken(SocketTransport::kTokenBytes, 't');
const std::string kOther(SocketTransport::kTokenBytes, 'o');

// A process's side: keeps what arrives.
struct Side {
  struct Message {
    std::string header;
    std::vector<std::byte> payload;
  };

  Landing Receive(absl::string_view header, size_t bytes) {
    ++received;
    if (bytes > 64 << 20) return {};  // as receivers do with what they did not expect
    auto message = std::make_shared<Message>();
    message->header = std::string(header.substr(SocketTransport::kTokenBytes));
    message->payload.resize(bytes);
    return {message->payload.data(), [this, message](absl::Status status) {
              base::MutexLock lock(mutex);
              (status.ok() ? messages : torn).push_back(message);
              changed.notify_all();
            }};
  }
  std::shared_ptr<Message> Await(size_t number) {
    base::MutexLock lock(mutex);
    lock.Wait(changed, [&] { return messages.size() > number; });
    return messages[number];
  }
  void AwaitTorn(size_t number) {
    base::MutexLock lock(mutex);
    lock.Wait(changed, [&] { return torn.size() == number; });
  }

  base::Mutex mutex;
  std::condition_variable changed;
  std::vector<std::shared_ptr<Message>> messages ABSL_GUARDED_BY(mutex);
  std::vector<std::shared_ptr<Message>> torn ABSL_GUARDED_BY(mutex);
  std::atomic<int> received = 0;
  std::string address;
  std::shared_ptr<void> binding;
  // Last, so that its thread ends before what it touches.
  std::unique_ptr<SocketTransport> transport;

  explicit Side(Reach reach, const std::string& token = kToken) {
    auto created = SocketTransport::Create(
        "127.0.0.1",
        [this](absl::string_view header, size_t bytes) { return Receive(header, bytes); });
    EXPECT_TRUE(created.ok()) << created.status();
    transport = *std::move(created);
    Open(reach, token);
  }
  void Open(Reach reach, const std::string& token = kToken) {
    auto opened = transport->Open(token, reach);
    ASSERT_TRUE(opened.ok()) << opened.status();
    address = opened->address;
    binding = opened->open;
  }

  // Sends and waits until the payload is no longer needed; whether it went well.
  bool Send(const std::string& to, const std::string& header, const std::vector<std::byte>& payload,
            const std::string& token = kToken) {
    std::optional<bool> result;
    transport->Send(to, token + header, payload, [&](const absl::Status& status) {
      base::MutexLock lock(mutex);
      result = status.ok();
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

// A connection of an unknown process to a TCP address of the transport; invalid when nobody
// listens.
base::UniqueFd ConnectTo(const std::string& address) {
  uint32_t port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) << address;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  base::UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) fd.Reset();
  return fd;
}

std::string Hello(const std::string& token) { return "vpodfab1" + token; }
std::string Frame(uint64_t payload_bytes, uint32_t header_bytes) {
  std::string frame(16, '\0');
  std::memcpy(frame.data(), &payload_bytes, 8);
  std::memcpy(frame.data() + 8, &header_bytes, 4);
  return frame;
}

// Sends, and waits until the other side has closed the connection.
void SayAndBeClosed(const std::string& address, const std::string& bytes) {
  const base::UniqueFd fd = ConnectTo(address);
  ASSERT_TRUE(fd.valid());
  EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
  char byte;
  EXPECT_LE(recv(fd.get(), &byte, 1, 0), 0);
}

class SocketTransportTest : public ::testing::TestWithParam<Reach> {};
INSTANTIATE_TEST_SUITE_P(Reach, SocketTransportTest,
                         ::testing::Values(Reach::kThisHost, Reach::kOtherHosts),
                         [](const auto& info) {
                           return info.param == Reach::kThisHost ? "ThisHost" : "OtherHosts";
                         });

TEST_P(SocketTransportTest, CarriesMessagesOfAllSizes) {
  Side a(GetParam()), b(GetParam());
  size_t number = 0;
  for (size_t bytes : {0ul, 1ul, 1000ul, 65'535ul, 65'536ul, 100'000ul, 20'000'000ul}) {
    const auto payload = Pattern(bytes);
    ASSERT_TRUE(a.Send(b.address, "header " + std::to_string(bytes), payload));
    const auto message = b.Await(number++);
    EXPECT_EQ(message->header, "header " + std::to_string(bytes));
    EXPECT_EQ(message->payload, payload);
  }
}

TEST_P(SocketTransportTest, BothWaysAtOnce) {
  Side a(GetParam()), b(GetParam());
  const auto payload = Pattern(3'000'000);
  std::atomic<int> sent = 0;
  for (int i = 0; i < 40; ++i) {
    a.transport->Send(b.address, kToken + "a", payload, [&](absl::Status s) { sent += s.ok(); });
    b.transport->Send(a.address, kToken + "b", {}, [&](absl::Status s) { sent += s.ok(); });
    b.transport->Send(a.address, kToken + "b", payload, [&](absl::Status s) { sent += s.ok(); });
  }
  for (size_t i = 0; i < 40; ++i) EXPECT_EQ(a.Await(2 * i + 1)->payload, payload);
  for (size_t i = 0; i < 40; ++i) EXPECT_EQ(b.Await(i)->payload, payload);
  a.transport.reset();
  b.transport.reset();
  EXPECT_EQ(sent, 120);
}

TEST_P(SocketTransportTest, ALostPeerIsAnErrorOfTheSend) {
  Side a(GetParam());
  auto b = std::make_unique<Side>(GetParam());
  ASSERT_TRUE(a.Send(b->address, "hello", Pattern(10)));
  b->Await(0);
  const std::string address = b->address;
  b.reset();
  // A small message may still be buffered; one that needs the peer's hand cannot.
  const auto payload = Pattern(20'000'000);
  EXPECT_FALSE(a.Send(address, "anybody there?", payload));
  EXPECT_FALSE(a.Send(address, "again", payload));
}

TEST_P(SocketTransportTest, NobodyListensWithoutABinding) {
  Side a(GetParam()), b(GetParam());
  ASSERT_TRUE(a.Send(b.address, "x", {}));
  b.Await(0);
  const std::string address = b.address;
  b.binding.reset();
  // Open connections are closed, and no others are accepted.
  while (a.Send(address, "x", {})) std::this_thread::yield();
  EXPECT_TRUE(b.Send(a.address, "x", {}));
  b.Open(GetParam());
  EXPECT_NE(b.address, address);
  EXPECT_TRUE(a.Send(b.address, "again", {}));
}

TEST_P(SocketTransportTest, OneConnectionOfTwoKeepsTheListener) {
  Side a(GetParam(), kToken), b(GetParam(), kToken);
  auto other = b.transport->Open(kOther, GetParam());
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->address, b.address);
  b.binding.reset();
  ASSERT_TRUE(a.Send(other->address, "x", {}, kOther));
  EXPECT_EQ(b.Await(0)->header, "x");
}

TEST_P(SocketTransportTest, AnAddressThatIsNoneIsAnErrorOfTheSend) {
  Side a(GetParam());
  for (const char* none : {"", "not an address", "tcp:", "tcp:127.0.0.1", "tcp:127.0.0.1:x",
                           "tcp:127.0.0.1:70000", "tcp::1", "unix:", "unix:nobody"})
    EXPECT_FALSE(a.Send(none, "x", Pattern(10))) << none;
}

// The listener's queue is full, so packets are dropped as on a host that is cut off: the system
// alone would try for two minutes, and its error would be "Connection timed out".
TEST(SocketTransportTest, APeerThatDoesNotAnswerIsAnErrorOfTheSend) {
  const base::UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(listener.get(), generic, size), 0);
  ASSERT_EQ(listen(listener.get(), 0), 0);
  ASSERT_EQ(getsockname(listener.get(), generic, &size), 0);
  const base::UniqueFd queued(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(queued.get(), generic, size), 0);

  Side a(Reach::kOtherHosts);
  std::promise<absl::Status> sent;
  a.transport->Send(absl::StrCat("tcp:127.0.0.1:", ntohs(address.sin_port)), kToken + "x", {},
                    [&](const absl::Status& status) { sent.set_value(status); });
  EXPECT_EQ(sent.get_future().get().message(), "a peer does not answer");
}

// A sender that knows no token of a job here says nothing that anybody hears.
TEST(SocketTransportUnauthenticated, AreRefused) {
  Side a(Reach::kOtherHosts), b(Reach::kOtherHosts);
  SayAndBeClosed(b.address, std::string(40, 'x'));
  SayAndBeClosed(b.address, Hello(kOther) + Frame(0, 32) + kOther);
  SayAndBeClosed(b.address, "GET / HTTP/1.1\r\nHost: some.where.example\r\n\r\n");
  EXPECT_FALSE(a.Send(b.address, "x", Pattern(20'000'000), kOther));
  EXPECT_EQ(b.received, 0);
  EXPECT_TRUE(a.Send(b.address, "x", {}));
}

// UCX's TCP took such a message (magic, PUT request) and wrote to the address in it.
TEST(SocketTransportUnauthenticated, CannotNameAnAddress) {
  Side b(Reach::kOtherHosts);
  static char word[] = "untouched";
  std::string put(8 + 5 + 20, '\0');
  const uint64_t magic = 0xCAFEBABE12345678, length = sizeof(word),
                 address = reinterpret_cast<uint64_t>(word);
  std::memcpy(put.data(), &magic, 8);
  put[8] = 33;
  put[9] = 20;
  std::memcpy(put.data() + 13, &address, 8);
  std::memcpy(put.data() + 21, &length, 8);
  SayAndBeClosed(b.address, put + std::string(64, 'w'));
  EXPECT_STREQ(word, "untouched");
  EXPECT_EQ(b.received, 0);
}

// One that knows the token is held to the form of messages and to its own job.
TEST(SocketTransportUnauthenticated, AreHeldToTheForm) {
  Side b(Reach::kOtherHosts);
  auto other = b.transport->Open(kOther, Reach::kOtherHosts);
  ASSERT_TRUE(other.ok());
  const std::string hello = Hello(kToken);
  SayAndBeClosed(b.address, hello + Frame(0, 31) + std::string(31, 't'));
  SayAndBeClosed(b.address, hello + Frame(0, 257) + std::string(257, 't'));
  SayAndBeClosed(b.address, hello + Frame(0, ~0u));
  SayAndBeClosed(b.address, hello + Frame(0, 32) + kOther);
  EXPECT_EQ(b.received, 0);
  // A payload that the receiver does not want goes nowhere, however long it claims to be.
  {
    const base::UniqueFd fd = ConnectTo(b.address);
    const std::string bytes = hello + Frame(~0ull, 32) + kToken + std::string(100'000, 'x');
    ASSERT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    while (b.received == 0) std::this_thread::yield();
  }
  Side a(Reach::kOtherHosts);
  EXPECT_TRUE(a.Send(b.address, "x", {}));
  b.Await(0);
}

TEST(SocketTransportUnauthenticated, AMessageThatBreaksOffIsTold) {
  Side b(Reach::kOtherHosts);
  for (const size_t announced : {100ul, 1'000'000ul}) {
    const base::UniqueFd fd = ConnectTo(b.address);
    const std::string bytes = Hello(kToken) + Frame(announced, 32) + kToken + std::string(50, 'x');
    ASSERT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  b.AwaitTorn(2);
}

TEST(SocketTransportUnauthenticated, ASilentConnectionHoldsNobodyUp) {
  Side a(Reach::kOtherHosts), b(Reach::kOtherHosts);
  std::vector<base::UniqueFd> silent;
  for (int i = 0; i < 400; ++i) silent.push_back(ConnectTo(b.address));
  EXPECT_TRUE(a.Send(b.address, "x", Pattern(1000)));
  EXPECT_EQ(b.Await(0)->payload, Pattern(1000));
}

TEST(SocketTransportTest, AHostThatIsNotOursIsRefused) {
  auto transport =
      SocketTransport::Create("192.0.2.1", [](absl::string_view, size_t) { return Landing{}; });
  ASSERT_TRUE(transport.ok());
  EXPECT_EQ((*transport)->Open(kToken, Reach::kOtherHosts).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_TRUE((*transport)->Open(kToken, Reach::kThisHost).ok());
  EXPECT_FALSE(SocketTransport::Create("no.such.host.invalid", nullptr).ok());
}

}  // namespace
}  // namespace vpod::fabric
