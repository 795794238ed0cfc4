#include "device/shm/local_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <string>

#include "device/base/random_id.h"
#include "device/shm/segment.h"

namespace vpod::shm {
namespace {

constexpr std::chrono::milliseconds kPatience(100);

// Listens, and accepts when told to.
class Listener {
 public:
  explicit Listener(int backlog = 4) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(fd_.get(), backlog), 0);
  }
  base::UniqueFd Accept() const { return base::UniqueFd(accept(fd_.get(), nullptr, nullptr)); }

  const std::string name = base::RandomId();

 private:
  const base::UniqueFd fd_;
};

TEST(SendRequestTest, DeliversTheRequestAndTakesTheAnswer) {
  const Listener listener;
  const auto connection = SendRequest(listener.name, "Brequest", kPatience);
  ASSERT_TRUE(connection.ok()) << connection.status();
  const base::UniqueFd peer = listener.Accept();
  char text[16] = {};
  EXPECT_EQ(read(peer.get(), text, sizeof(text)), 8);
  EXPECT_STREQ(text, "Brequest");
  EXPECT_EQ(write(peer.get(), "k", 1), 1);
  EXPECT_EQ(read(connection->get(), text, 1), 1);
}

TEST(SendRequestTest, NamesOfNobodyAreNotFound) {
  for (const std::string& name : {std::string(), base::RandomId(), std::string(107, 'x'),
                                  std::string(108, 'x'), std::string(500, 'x')}) {
    EXPECT_TRUE(absl::IsNotFound(SendRequest(name, "B", kPatience).status())) << name;
  }
}

TEST(SendRequestTest, APeerThatDoesNotAnswerIsNotWaitedForForEver) {
  const Listener listener;
  const auto connection = SendRequest(listener.name, "B", kPatience);
  ASSERT_TRUE(connection.ok()) << connection.status();
  char answer = 0;
  EXPECT_TRUE(absl::IsUnavailable(ReceiveFd(connection->get(), &answer, 1).status()));
}

TEST(SendRequestTest, APeerThatDoesNotAcceptIsNotWaitedForForEver) {
  const Listener listener(/*backlog=*/0);
  std::vector<base::UniqueFd> waiting;
  absl::Status refused;
  while (refused.ok()) {
    auto connection = SendRequest(listener.name, "B", kPatience);
    refused = connection.status();
    if (connection.ok()) waiting.push_back(*std::move(connection));
    ASSERT_LT(waiting.size(), 16u);
  }
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
}

TEST(SendRequestTest, SignalsDoNotEndTheWait) {
  const Listener listener;
  const auto connection = SendRequest(listener.name, "B", std::chrono::minutes(1));
  ASSERT_TRUE(connection.ok()) << connection.status();
  const base::UniqueFd peer = listener.Accept();
  static int answer_to = -1;
  answer_to = peer.get();
  struct sigaction action {};
  action.sa_handler = [](int) { (void)!write(answer_to, "k", 1); };
  ASSERT_EQ(sigaction(SIGALRM, &action, nullptr), 0);
  ualarm(100000, 0);
  char answer = 0;
  const auto received = ReceiveFd(connection->get(), &answer, 1);
  EXPECT_TRUE(received.ok()) << received.status();
  EXPECT_EQ(answer, 'k');
}

}  // namespace
}  // namespace vpod::shm
