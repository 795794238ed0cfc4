// Runs over the connection that the local listener hands over.
#include "server/agent/run_channels.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <optional>
#include <string>

#include "device/shm/local_socket.h"
#include "device/shm/run_messages.h"
#include "server/agent/agent_test_util.h"
#include "server/agent/local_listener.h"

namespace vpod::agent {
namespace {

constexpr uint32_t kSum = 0, kRest = 1, kLong = 2, kNoProgram = 3;  // of SumExecutable
constexpr std::chrono::seconds kPatience{30};

// The client's end of a channel.
class Client {
 public:
  Client(const std::string& local_socket, const std::string& lease) {
    auto connection = shm::SendRequest(local_socket, "R" + lease, kPatience);
    char answer = 0;
    if (connection.ok() && recv(connection->get(), &answer, 1, 0) == 1 && answer == 'k')
      connection_ = *std::move(connection);
  }

  bool open() const { return connection_.valid(); }
  void Send(uint32_t program, uint32_t slot = 0, size_t bytes = sizeof(shm::RunRequest)) {
    const shm::RunRequest request{program, slot};
    EXPECT_EQ(send(connection_.get(), &request, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }
  // False: the agent has ended the channel. A socket that is full makes it wait.
  bool TrySend(uint32_t program) {
    const shm::RunRequest request{program, 0};
    return send(connection_.get(), &request, sizeof(request), MSG_NOSIGNAL) == sizeof(request);
  }
  // Whether there is something to read; waits for nothing.
  bool Answered() const {
    char byte;
    return recv(connection_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
  }
  // Nothing: the agent closed the connection.
  std::optional<absl::Status> Answer() {
    shm::RunAnswer answer;
    if (recv(connection_.get(), &answer, sizeof(answer), MSG_WAITALL) != sizeof(answer))
      return std::nullopt;
    std::string message(answer.message_bytes, '\0');
    if (!message.empty()) {
      EXPECT_EQ(recv(connection_.get(), message.data(), message.size(), MSG_WAITALL),
                static_cast<ssize_t>(message.size()));
    }
    return absl::Status(static_cast<absl::StatusCode>(answer.code), message);
  }
  std::optional<absl::Status> Run(uint32_t program, uint32_t slot = 0) {
    Send(program, slot);
    return Answer();
  }
  void HangUp() { connection_.Reset(); }

 private:
  base::UniqueFd connection_;
};

class RunChannelsTest : public AgentTest {
 protected:
  RunChannelsTest() : listener_(*LocalListener::Open(*agent_)) {
    const auto attached = Attach(Open(0));
    EXPECT_TRUE(attached.ok()) << attached.status();
    lease_ = attached->lease_id();
    local_socket_ = attached->local_socket();
    EXPECT_TRUE(agent_->Load(lease_, SumExecutable()).ok());
  }
  ~RunChannelsTest() override {
    agent_->Release(lease_, /*lost=*/false);
    agent_->Stop();
  }

  std::unique_ptr<LocalListener> listener_;
  std::string lease_, local_socket_;
};

TEST_F(RunChannelsTest, RunsAreAnsweredInTurn) {
  Client client(local_socket_, lease_);
  ASSERT_TRUE(client.open());
  EXPECT_EQ(client.Run(kRest), absl::OkStatus());
  EXPECT_EQ(client.Run(kSum), absl::OkStatus());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(client.Run(kRest), absl::OkStatus());
  // Requests sent ahead wait for their turn.
  for (int i = 0; i < 3; ++i) client.Send(kRest);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.Answer(), absl::OkStatus());
}

TEST_F(RunChannelsTest, ARefusedRunIsAnsweredWithTheReason) {
  Client client(local_socket_, lease_);
  EXPECT_EQ(client.Run(kNoProgram)->message(), "program 3 does not exist; there are 3");
  EXPECT_EQ(client.Run(kRest, 1000)->message(), "stream slot 1000 does not exist; there are 2");
  EXPECT_EQ(client.Run(kRest), absl::OkStatus());
}

TEST_F(RunChannelsTest, StrangersGetNoChannel) {
  EXPECT_FALSE(Client(local_socket_, std::string(32, '0')).open());
  EXPECT_FALSE(Client(local_socket_, std::string(32, '\xff')).open());
}

TEST_F(RunChannelsTest, AChannelEndsWithItsLease) {
  Client idle(local_socket_, lease_);
  agent_->Release(lease_, /*lost=*/false);
  EXPECT_EQ(idle.Answer(), std::nullopt);
  EXPECT_FALSE(Client(local_socket_, lease_).open());
}

TEST_F(RunChannelsTest, ARunThatIsCancelledIsAnsweredBeforeItsChannelEnds) {
  Client client(local_socket_, lease_);
  client.Send(kLong);
  agent_->Release(lease_, /*lost=*/false);
  // Whether the run had begun is chance; it has an answer, or the channel has ended without it.
  if (const auto answer = client.Answer(); answer.has_value()) {
    EXPECT_FALSE(answer->ok());
    EXPECT_EQ(client.Answer(), std::nullopt);
  }
}

TEST_F(RunChannelsTest, ALeaseHasOneChannelAtMost) {
  Client first(local_socket_, lease_), second(local_socket_, lease_);
  ASSERT_TRUE(second.open());
  EXPECT_EQ(first.Answer(), std::nullopt);
  EXPECT_EQ(second.Run(kRest), absl::OkStatus());
}

TEST_F(RunChannelsTest, AClientThatHangsUpLeavesTheAgentServing) {
  Client half(local_socket_, lease_);
  half.Send(kRest, 0, 3);
  half.HangUp();
  Client waiting(local_socket_, lease_);
  waiting.Send(kLong);
  waiting.HangUp();
  const auto other = Attach(Open(1));
  ASSERT_TRUE(other.ok()) << other.status();
  ASSERT_TRUE(agent_->Load(other->lease_id(), SumExecutable()).ok());
  Client client(local_socket_, other->lease_id());
  EXPECT_EQ(client.Run(kRest), absl::OkStatus());
  agent_->Release(lease_, /*lost=*/true);
}

TEST_F(RunChannelsTest, AClientThatNeverReadsLosesItsChannel) {
  Client client(local_socket_, lease_);
  ASSERT_TRUE(client.open());
  constexpr int kFarTooMany = 100'000;  // for the memory of a socket
  int sent = 0, answered = 0;
  while (sent < kFarTooMany && client.TrySend(kRest)) ++sent;
  EXPECT_LT(sent, kFarTooMany);
  // Answers are whole or not there.
  std::optional<absl::Status> answer;
  for (; (answer = client.Answer()).has_value(); ++answered) EXPECT_EQ(*answer, absl::OkStatus());
  EXPECT_GT(answered, 0);
  EXPECT_LE(answered, sent);
  // The lease goes on, and nothing runs for the lost channel.
  Client next(local_socket_, lease_);
  EXPECT_EQ(next.Run(kRest), absl::OkStatus());
}

TEST_F(RunChannelsTest, AProcessThatHangsAnswersWhenItGoesOn) {
  Client client(local_socket_, lease_);
  EXPECT_EQ(client.Run(kRest), absl::OkStatus());
  agent_->gate().Close(HangGate::Clock::now() + std::chrono::hours(1));
  client.Send(kRest);
  // A run that passed the gate would have been answered by the time that two others are.
  EXPECT_TRUE(Run(lease_, kRest).ok());
  EXPECT_TRUE(Run(lease_, kRest).ok());
  EXPECT_FALSE(client.Answered());
  agent_->gate().OpenForEver();
  EXPECT_EQ(client.Answer(), absl::OkStatus());
}

}  // namespace
}  // namespace vpod::agent
