// Agents from which no heartbeat comes: lost agents are Down in time, and agents that are
// late, or that only the controller is late to hear, are not.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "server/controller/controller.h"
#include "server/controller/controller_fixture.h"
#include "server/controller/registry_fixture.h"

namespace vpod::controller {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

class SilenceTest : public RegistryTest {
 protected:
  SilenceTest() {
    CreatePod(1);
    CreateActive(Wanted("p1", 4));
    Heartbeat();
  }
  std::string AgentStatus() { return controller_->GetAgent("ag0")->status(); }
  // Passes the time, in which the agent answers every question at once but sends no heartbeat.
  void AnswerFor(seconds time) {
    for (milliseconds passed{0}; passed < time; passed += milliseconds(250)) {
      Advance(milliseconds(250));
      gateway_.ConfirmAll();
    }
  }
};

TEST_F(SilenceTest, AnAgentThatSaysNothingIsDownAfterItsTimeout) {
  Advance(seconds(5));
  EXPECT_EQ(AgentStatus(), "Up");
  Advance(milliseconds(250));
  EXPECT_EQ(AgentStatus(), "Down");
  EXPECT_EQ(StatusOf("p1").message(), "Agent ag0 does not answer.");
}

TEST_F(SilenceTest, AnAgentIsAskedBeforeItIsDown) {
  Advance(milliseconds(2500));
  EXPECT_TRUE(gateway_.calls.empty());
  Advance(milliseconds(250));
  ASSERT_EQ(gateway_.calls.size(), 1u);
  const vipuagent::ConfigureRequest question = gateway_.calls.front().request;
  EXPECT_FALSE(question.complete());
  EXPECT_EQ(question.agent_boot_id(), "boot-1");
  EXPECT_EQ(question.partitions_size() + question.removed_size() + question.kept_size(), 0);
  Advance(seconds(2));
  EXPECT_EQ(gateway_.calls.size(), 1u) << "one question at a time";
}

TEST_F(SilenceTest, AnAgentThatAnswersIsUpWithoutHeartbeats) {
  AnswerFor(seconds(20));
  EXPECT_EQ(AgentStatus(), "Up");
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  // From its last answer on, no more than the timeout.
  Advance(milliseconds(7750));
  EXPECT_EQ(AgentStatus(), "Down");
}

// Heartbeats tell how the machines are.
TEST_F(SilenceTest, AnAgentThatOnlyAnswersIsDownAfterAMinute) {
  AnswerFor(seconds(60));
  EXPECT_EQ(AgentStatus(), "Up");
  AnswerFor(seconds(6));
  EXPECT_EQ(AgentStatus(), "Down");
  AnswerFor(seconds(6));
  EXPECT_EQ(AgentStatus(), "Down") << "an answer is not a heartbeat";
  Heartbeat();
  EXPECT_EQ(AgentStatus(), "Up");
}

TEST_F(SilenceTest, AnAgentThatRefusesConnectionsIsDownInTheSameTime) {
  for (milliseconds passed{0}; passed < seconds(5); passed += milliseconds(250)) {
    EXPECT_EQ(AgentStatus(), "Up");
    Advance(milliseconds(250));
    while (!gateway_.calls.empty()) gateway_.Answer(absl::UnavailableError("refused"));
  }
  Advance(milliseconds(250));
  EXPECT_EQ(AgentStatus(), "Down");
}

// It cannot register, perhaps, and its jobs have ended.
TEST_F(SilenceTest, AnotherProcessAtTheSamePlaceDoesNotAnswerForIt) {
  for (milliseconds passed{0}; passed <= seconds(5); passed += milliseconds(250)) {
    Advance(milliseconds(250));
    while (!gateway_.calls.empty())
      gateway_.Answer(absl::FailedPreconditionError("for an earlier process"));
  }
  EXPECT_EQ(AgentStatus(), "Down");
}

// Where all processors are busy, the controller does not get round to listening either.
TEST_F(SilenceTest, AControllerThatIsLateItselfGivesAgentsMoreTime) {
  const auto tick_late = [this] {
    now_ += milliseconds(900);
    controller_->Tick();
  };
  for (int tick = 0; tick < 19; ++tick) tick_late();
  EXPECT_EQ(AgentStatus(), "Up");
  tick_late();
  EXPECT_EQ(AgentStatus(), "Down");
}

TEST_F(SilenceTest, TicksBeforeAPauseOfTheControllerDoNotCountAfterIt) {
  Advance(milliseconds(4750));
  now_ += minutes(1);
  controller_->Tick();
  for (int tick = 0; tick < 19; ++tick) {
    now_ += milliseconds(900);
    controller_->Tick();
  }
  EXPECT_EQ(AgentStatus(), "Up");
  Advance(milliseconds(250));
  EXPECT_EQ(AgentStatus(), "Down");
}

}  // namespace
}  // namespace vpod::controller
