// Collectives when things go wrong, and messages that nobody asked for.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "device/base/text.h"
#include "device/fabric/collectives.h"
#include "device/fabric/collectives_test_util.h"
#include "device/fabric/job.h"
#include "device/fabric/memory_transport.h"

namespace vpod::fabric {
namespace {

class CollectivesFailureTest : public testing::TestWithParam<bool> {
 protected:
  CollectivesFailureTest() {
    case_.tensors = {{0, 0, 4096, Element::kFloat32, Element::kFloat32}};
    arenas_ = RandomArenas(case_, Layout(case_), 3);
    processes_ = std::make_unique<Processes>(std::vector<uint32_t>{0, 0, 0, 0, 1, 1, 1, 1},
                                             GetParam(), arenas_);
  }
  Case case_;
  Arenas arenas_;
  const ReplicaGroup all_{0, 1, 8};
  std::unique_ptr<Processes> processes_;
};

TEST_P(CollectivesFailureTest, APeerThatDoesSomethingElseIsNamed) {
  processes_->Arrive(0, case_, all_, 0, "all-reduce 0 of program 1");
  processes_->Arrive(1, case_, all_, 0, "broadcast 0 of program 2");
  for (const auto& result : processes_->Results()) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
    for (const std::string part :
         {"replica 0 does all-reduce 0 of program 1", "replica 4 does broadcast 0 of program 2"}) {
      EXPECT_NE(result.status().message().find(part), std::string::npos) << result.status();
    }
  }
}

TEST_P(CollectivesFailureTest, AnErrorOfTheTransportEndsTheCollective) {
  processes_->transport(1).set_tamper([](MemoryTransport::Message& message) {
    message.fate = absl::UnavailableError("the cable is cut");
  });
  processes_->Arrive(1, case_, all_);
  const auto cause = [this](std::chrono::hours later) {
    return processes_->at(1).Unreachable(Collectives::Clock::now() + later, std::chrono::hours(1));
  };
  while (cause(std::chrono::hours(2)).ok()) std::this_thread::yield();
  EXPECT_EQ(cause(std::chrono::hours(2)).message(),
            "the agent at process 0 cannot be reached: the cable is cut");
  // The job's record has its time to say who was lost.
  EXPECT_TRUE(cause(std::chrono::hours(0)).ok());
  processes_->at(1).Fail(cause(std::chrono::hours(2)));
  EXPECT_FALSE(processes_->Results()[0].ok());
}

// All come as if nothing had happened, and all learn of it.
TEST_P(CollectivesFailureTest, TheReasonForWhichARunFailedReachesAllWhoMeet) {
  const absl::Status cause = absl::OutOfRangeError(std::string(5000, 'x'));
  for (size_t failed : {0, 1}) {
    for (size_t p : {0, 1}) {
      processes_->Arrive(p, case_, all_, failed, "test", p == failed ? cause : absl::OkStatus());
    }
    for (const auto& outcome : processes_->Results()) {
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_EQ(outcome->failure.code(), cause.code());
      EXPECT_EQ(outcome->failure.message().substr(0, 4000), cause.message().substr(0, 4000));
    }
  }
}

// Clients are told of it in a message of protobuf, which takes whole characters only.
TEST_P(CollectivesFailureTest, AReasonIsCutBetweenCharacters) {
  for (const std::string begin : {"", "x"}) {
    std::string text = begin;
    while (text.size() < 5000) text += "ö";
    processes_->Arrive(0, case_, all_, begin.size(), "test", absl::OutOfRangeError(text));
    processes_->Arrive(1, case_, all_, begin.size(), "test", absl::OkStatus());
    for (const auto& outcome : processes_->Results()) {
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_TRUE(base::IsUtf8(outcome->failure.message())) << outcome->failure;
      EXPECT_GE(outcome->failure.message().size(), 4000u);
    }
  }
}

TEST_P(CollectivesFailureTest, TheReasonForWhichARunFailedReachesTheOtherEndOfACopy) {
  const absl::Status cause = absl::InvalidArgumentError("label 12 is outside 0 to 9");
  for (size_t failed : {0, 1}) {
    std::promise<absl::StatusOr<Outcome>> ends[2];
    for (size_t p : {0, 1}) {
      processes_->at(p).Copy(
          {.channel = 1, .sequence = failed},
          {.to_unit = 4,
           .data = arenas_[4 * p].data(),
           .bytes = 4,
           .failure = p == failed ? cause : absl::OkStatus()},
          [&, p](absl::StatusOr<Outcome> outcome) { ends[p].set_value(std::move(outcome)); });
    }
    for (auto& end : ends) EXPECT_EQ(end.get_future().get()->failure, cause);
  }
}

TEST_P(CollectivesFailureTest, APeerThatNeverComesIsOverdue) {
  const ReplicaGroup odd{1, 2, 4};
  processes_->Arrive(0, case_, odd);
  const auto now = Collectives::Clock::now();
  EXPECT_TRUE(processes_->at(0).FindOverdue(now, std::chrono::hours(1)).units.empty());
  const auto overdue =
      processes_->at(0).FindOverdue(now + std::chrono::hours(2), std::chrono::hours(1));
  EXPECT_TRUE(overdue.fresh);
  EXPECT_EQ(overdue.units, (std::set<uint32_t>{5, 7}));
  EXPECT_FALSE(
      processes_->at(0).FindOverdue(now + std::chrono::hours(2), std::chrono::hours(1)).fresh);
  processes_->Arrive(1, case_, odd);
  for (const auto& result : processes_->Results()) EXPECT_TRUE(result.ok());
}

TEST_P(CollectivesFailureTest, KnowsForWhichReplicasItWaits) {
  const ReplicaGroup odd{1, 2, 4};
  Collectives& here = processes_->at(0);
  processes_->Arrive(0, case_, odd);
  EXPECT_TRUE(here.AwaitsReplicas(7, 1, 0));
  EXPECT_FALSE(here.AwaitsReplicas(6, 1, 0));
  EXPECT_FALSE(here.AwaitsReplicas(0, 4, 0));
  EXPECT_FALSE(here.AwaitsReplicas(7, 1, 1));  // in later runs
  processes_->Arrive(1, case_, odd);
  for (const auto& result : processes_->Results()) EXPECT_TRUE(result.ok());
  EXPECT_FALSE(here.AwaitsReplicas(7, 1, 0));
}

// Either end of a copy may be late.
TEST_P(CollectivesFailureTest, AnIpuThatDoesNotComeToAnExchangeIsNamed) {
  using std::chrono::hours;
  for (const size_t late : {0, 1}) {
    const size_t early = 1 - late;
    const RendezvousKey key{.run = 7 + late, .channel = 1};
    std::promise<void> ends[2];
    const auto come = [&](size_t p) {
      processes_->at(p).Copy(key,
                             {.to_unit = 4,
                              .data = arenas_[4 * p].data(),
                              .bytes = 4,
                              .name_other = [] { return "IPU 0 (stage 2 of program 'train')"; }},
                             [&, p](const absl::StatusOr<Outcome>&) { ends[p].set_value(); });
    };
    const auto texts = [&](int waited) {
      std::vector<std::string> all;
      const auto now = Collectives::Clock::now() + hours(waited);
      for (const auto& end : processes_->at(early).FindLateEnds(now, hours(1))) {
        EXPECT_EQ(end.unit, 4 * late);
        all.push_back(end.text);
      }
      return all;
    };
    const std::string text = "replica " + std::to_string(4 * late) +
                             ": IPU 0 (stage 2 of program 'train') on the agent at process " +
                             std::to_string(late) + " has not come to the exchange for ";
    come(early);
    EXPECT_EQ(texts(0).size(), 0u);
    EXPECT_EQ(texts(2), std::vector<std::string>{text + "7200 s"});
    EXPECT_EQ(texts(3).size(), 0u);
    EXPECT_EQ(texts(5), std::vector<std::string>{text + "18000 s"});
    come(late);
    for (auto& end : ends) end.get_future().wait();
    EXPECT_EQ(texts(9).size(), 0u);
  }
}

TEST_P(CollectivesFailureTest, TheInstanceHearsOfAnIpuThatDoesNotComeToAnExchange) {
  using std::chrono::hours;
  const JobShape shape{.num_instances = 1, .total_replicas = 8};
  Job job("j", shape, Job::Role::kCoordinator, [](const std::vector<JobPart>&) {});
  std::vector<std::string> notices, notices_elsewhere;
  for (uint32_t part : {0, 1}) {
    JobMember member;
    member.part = part;
    member.local_replicas = 8;
    for (uint32_t unit = 4 * part; unit < 4 * part + 4; ++unit) member.units.push_back(unit);
    if (part == 1) member.endpoint = "process 1";
    std::vector<std::string>& heard = part == 0 ? notices : notices_elsewhere;
    member.notice = [&heard](const std::string& text) { heard.push_back(text); };
    ASSERT_TRUE(job.Join(shape, member).ok());
  }
  job.Formed(processes_->at(0).shared_from_this());
  std::promise<void> ends[2];
  const auto come = [&](size_t p) {
    processes_->at(p).Copy({.channel = 8},
                           {.to_unit = 4,
                            .data = arenas_[4 * p].data(),
                            .bytes = 4,
                            .name_other = [] { return "IPU 0"; }},
                           [&, p](const absl::StatusOr<Outcome>&) { ends[p].set_value(); });
  };
  come(0);
  job.Tick(Job::Clock::now() + hours(2), hours(1), hours(9));
  EXPECT_EQ(notices, std::vector<std::string>{"replica 4: IPU 0 on the agent at process 1 has not "
                                              "come to the exchange for 7200 s"});
  EXPECT_TRUE(notices_elsewhere.empty());
  come(1);
  for (auto& end : ends) end.get_future().wait();
}

INSTANTIATE_TEST_SUITE_P(Ways, CollectivesFailureTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Shared" : "Messages"; });

class WrongSizeTest : public testing::TestWithParam<Kind> {};

TEST_P(WrongSizeTest, APayloadOfAnotherSizeEndsTheCollective) {
  Case c{.kind = GetParam()};
  c.tensors = {{0, 0, 4096, Element::kFloat32, Element::kFloat32}};
  Arenas arenas = RandomArenas(c, Layout(c), 3);
  Processes processes({0, 0, 0, 0, 1, 1, 1, 1}, false, arenas);
  processes.transport(0).set_tamper([](MemoryTransport::Message& message) {
    if (!message.payload.empty()) message.payload.remove_suffix(4);
  });
  processes.Arrive(1, c, {0, 1, 8});
  processes.Arrive(0, c, {0, 1, 8});
  while (processes.failure(1).ok()) std::this_thread::yield();
  EXPECT_NE(processes.failure(1).message().find("of another size"), std::string::npos);
  processes.Results();
}

INSTANTIATE_TEST_SUITE_P(Kinds, WrongSizeTest,
                         testing::Values(Kind::kAllReduce, Kind::kReduceScatter, Kind::kAllGather,
                                         Kind::kAllToAll, Kind::kBroadcast));

TEST(CollectivesMessageTest, CopiesHaveNoLimit) {
  constexpr size_t kBytes = (size_t{129} << 20) + 4;
  Arenas arenas(2, std::vector<std::byte>(kBytes));
  for (size_t i = 0; i < kBytes; i += 4093) arenas[0][i] = std::byte{7};
  Processes processes({0, 1}, false, arenas);
  std::promise<absl::StatusOr<Outcome>> ends[2];
  for (size_t p = 0; p < 2; ++p) {
    processes.at(p).Copy({.channel = 1},
                         {.to_unit = 1, .data = arenas[p].data(), .bytes = kBytes, .clock = p},
                         [&, p](absl::StatusOr<Outcome> outcome) { ends[p].set_value(outcome); });
  }
  for (auto& end : ends) EXPECT_EQ(end.get_future().get()->clock, 1u);
  EXPECT_TRUE(arenas[0] == arenas[1]);
}

TEST(CollectivesMessageTest, ACopyOutsideTheTargetsMemoryEndsTheJob) {
  for (const size_t offset : {size_t{61}, size_t{65}, ~size_t{0} - 2}) {
    Arenas arenas(2, std::vector<std::byte>(64));
    Processes processes({0, 1}, true, arenas);
    std::promise<absl::StatusOr<Outcome>> ends[2];
    for (size_t p = 0; p < 2; ++p) {
      processes.at(p).Copy(
          {.channel = 1},
          {.to_unit = 1, .data = arenas[p].data(), .arena_offset = offset, .bytes = 4},
          [&, p](absl::StatusOr<Outcome> outcome) { ends[p].set_value(outcome); });
    }
    for (auto& end : ends) {
      EXPECT_EQ(end.get_future().get().status().message(),
                "a peer wants a tensor outside its memory");
    }
  }
}

// The receiver knows the size of what it takes, or takes nothing.
TEST(CollectivesMessageTest, PartialResultsOfAnotherSizeEndTheJob) {
  Case c;
  c.tensors = {{0, 0, 64, Element::kFloat32, Element::kFloat32}};
  for (const size_t bytes : {size_t{8}, size_t{1} << 20}) {
    Arenas arenas = RandomArenas(c, Layout(c), 3);
    Processes processes({0, 0, 0, 0, 1, 1, 1, 1}, false, arenas);
    const std::vector<std::byte> other(bytes);
    for (size_t p = 0; p < 2; ++p) {
      processes.transport(p).set_tamper([&](MemoryTransport::Message& message) {
        if (!message.payload.empty()) message.payload = other;
      });
    }
    for (size_t p = 0; p < 2; ++p) processes.Arrive(p, c, {0, 1, 8});
    for (const auto& result : processes.Results())
      EXPECT_EQ(result.status().message(), "a peer sent partial results of another size");
  }
}

TEST(CollectivesMessageTest, PartialResultsWaitForTheirReceiver) {
  Case c;
  c.tensors = {{0, 0, 64, Element::kFloat32, Element::kFloat32}};
  Arenas arenas = RandomArenas(c, Layout(c), 3);
  Processes processes({0, 0, 0, 0, 1, 1, 1, 1}, false, arenas);
  std::atomic<bool> arrived = false, early = false;
  std::string header;  // of the word that process 1 is ready
  processes.transport(1).set_tamper([&](MemoryTransport::Message& message) {
    if (!arrived && !message.payload.empty()) early = true;
    if (header.empty()) header = message.header;
  });
  processes.Arrive(1, c, {0, 1, 8});
  // A member that sends all the same is not heard, whatever size it names.
  for (uint8_t kind = 0; kind < 16; ++kind) {
    header[header.size() - 8] = static_cast<char>(kind);
    const bool with_reason = kind == 0 || kind == 4;  // that it is ready
    for (const size_t bytes : {size_t{1}, size_t{64}, size_t{1} << 40}) {
      if (with_reason && bytes <= 4096) continue;
      EXPECT_EQ(processes.at(0).OnMessage(header, bytes).buffer, nullptr);
    }
  }
  EXPECT_TRUE(processes.failure(0).ok());
  arrived = true;
  processes.Arrive(0, c, {0, 1, 8});
  for (const auto& result : processes.Results()) EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(early);
}

TEST(CollectivesMessageTest, StrayMessagesAreDropped) {
  Case c;
  c.tensors = {{0, 0, 64, Element::kFloat32, Element::kFloat32}};
  Arenas arenas = RandomArenas(c, Layout(c), 3);
  Processes processes({0, 0, 0, 0, 1, 1, 1, 1}, false, arenas);
  EXPECT_EQ(processes.at(0).OnMessage("short", 8).buffer, nullptr);
  std::string header;
  processes.transport(1).set_tamper([&](MemoryTransport::Message& message) {
    if (header.empty()) header = message.header;
  });
  processes.Arrive(1, c, {0, 1, 8});
  EXPECT_EQ(processes.at(0).OnMessage(header, size_t{1} << 40).buffer, nullptr);
  EXPECT_EQ(processes.at(1).OnMessage(header, 8).buffer, nullptr);  // of itself
  // Sent twice, it counts once.
  processes.at(0).OnMessage(header, 0);
  processes.Arrive(0, c, {0, 1, 8});
  for (const auto& result : processes.Results()) EXPECT_TRUE(result.ok());
}

}  // namespace
}  // namespace vpod::fabric
