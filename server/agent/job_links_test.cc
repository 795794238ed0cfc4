#include "server/agent/job_links.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace vpod::agent {
namespace {

// A stream holds its events as long as it lives, and a gateway its streams until they have ended.
class FakeGateway : public PeerGateway {
 public:
  explicit FakeGateway(bool refuses) : refuses_(refuses) {}

  std::shared_ptr<CoordinatorStream> JoinJob(const std::string&,
                                             CoordinatorStreamEvents events) override {
    stream_ = std::make_shared<Stream>(std::move(events));
    std::shared_ptr<CoordinatorStream> stream = stream_;
    if (refuses_) End();
    return stream;
  }
  std::weak_ptr<CoordinatorStream> stream() const { return stream_; }
  const auto& sent() const { return stream_->sent; }
  void End() {
    const auto ended = std::exchange(stream_, nullptr);
    ended->events.on_end(absl::UnavailableError("closed"));
  }

 private:
  struct Stream : CoordinatorStream {
    explicit Stream(CoordinatorStreamEvents events) : events(std::move(events)) {}
    // The coordinator answers before Send returns, as it may on a busy machine.
    void Send(const fabric::v1::JobRequest& request) override {
      sent.push_back(request.message_case());
      if (!request.has_join()) return;
      fabric::v1::JobEvent event;
      event.mutable_joined()->set_token(std::string(32, 't'));
      event.mutable_joined()->set_arena_key(std::string(32, 'a'));
      events.on_event(event);
    }
    void Close() override {}
    const CoordinatorStreamEvents events;
    std::vector<fabric::v1::JobRequest::MessageCase> sent;
  };
  const bool refuses_;
  std::shared_ptr<Stream> stream_;
};

class PartLinkTest : public ::testing::Test {
 protected:
  // A link that has been opened.
  std::shared_ptr<PartLink> Opened(FakeGateway& gateway) {
    auto link = std::make_shared<PartLink>(
        std::weak_ptr<fabric::Job>(),
        PartLink::Options{"here:1", "coordinator:1", "agent ag0 at coordinator:1", {}});
    link->Open(gateway, {}, [this](absl::Status status) { joined_ = std::move(status); });
    return link;
  }
  absl::Status joined_;
};

TEST(NameOfPeerTest, NamesTheAgentsOfItsMachines) {
  vipuagent::AgentPartition partition;
  vipuagent::Peer* peer = partition.add_peers();
  peer->set_endpoint("e:1");
  EXPECT_EQ(NameOfPeer(partition, "e:1"), "the agent at e:1");  // it has not been told
  peer->add_agent_ids("ag0");
  EXPECT_EQ(NameOfPeer(partition, "e:1"), "agent ag0 at e:1");
  EXPECT_EQ(NameOfPeer(partition, "e:2"), "the agent at e:2");
  peer->add_agent_ids("ag1");
  peer->add_agent_ids("ag2");
  EXPECT_EQ(NameOfPeer(partition, "e:1"), "agents ag0 to ag2 at e:1");
}

TEST_F(PartLinkTest, LinkAndStreamEndTogether) {
  FakeGateway gateway(false);
  std::shared_ptr<PartLink> link = Opened(gateway);
  const std::weak_ptr<PartLink> weak = link;
  const std::weak_ptr<CoordinatorStream> stream = gateway.stream();
  gateway.End();
  EXPECT_EQ(joined_.message(),
            "agent ag0 at coordinator:1, which keeps the job's record, was lost");
  link.reset();
  EXPECT_TRUE(stream.expired());
  EXPECT_TRUE(weak.expired());
}

// Requests that follow the coordinator's answer must not be lost, however soon it comes.
TEST_F(PartLinkTest, WhatIsSaidBeforeOpenReturnsFollowsTheJoin) {
  FakeGateway gateway(false);
  const auto job = std::make_shared<fabric::Job>("job", fabric::JobShape(),
                                                 fabric::Job::Role::kFollower, nullptr);
  const auto link =
      std::make_shared<PartLink>(job, PartLink::Options{"here:1", "coordinator:1", {}});
  link->Open(gateway, {}, [&link](const absl::Status&) {
    link->Loaded("hash");
    link->Waits();
  });
  using Request = fabric::v1::JobRequest;
  EXPECT_EQ(gateway.sent(),
            (std::vector<Request::MessageCase>{Request::kJoin, Request::kLoaded, Request::kStart}));
  EXPECT_EQ(job->secrets().token, std::string(32, 't'));
  EXPECT_EQ(job->secrets().arena_key, std::string(32, 'a'));
  gateway.End();
}

TEST_F(PartLinkTest, AlsoAfterALeave) {
  FakeGateway gateway(false);
  std::shared_ptr<PartLink> link = Opened(gateway);
  const std::weak_ptr<PartLink> weak = link;
  link->Leave(/*lost=*/false, /*runs=*/0);
  gateway.End();
  EXPECT_EQ(joined_, absl::CancelledError("the lease has ended"));
  link.reset();
  EXPECT_TRUE(weak.expired());
}

TEST_F(PartLinkTest, AlsoWhenTheStreamEndsAtOnce) {
  FakeGateway gateway(true);
  std::shared_ptr<PartLink> link = Opened(gateway);
  const std::weak_ptr<PartLink> weak = link;
  EXPECT_FALSE(joined_.ok());
  link.reset();
  EXPECT_TRUE(weak.expired());
}

}  // namespace
}  // namespace vpod::agent
