// Leases of one job in one process share variables that are equal on all of them.
#include "device/engine/lease_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/engine/executors.h"
#include "device/engine/memory_budget.h"
#include "device/engine/sharing_test_util.h"
#include "device/fabric/job.h"

namespace vpod::engine {
namespace {

constexpr uint32_t kLeases = 4;
constexpr uint64_t kPage = program::kPageBytes;

// The executable with its sums in groups of `size` replicas that follow one another.
std::shared_ptr<const program::Executable> InGroupsOf(uint32_t size) {
  program::v1::Executable text = Parsed()->proto();
  for (auto& instruction : *text.mutable_ipus(0)->mutable_functions(0)->mutable_instructions()) {
    if (!instruction.has_all_reduce()) continue;
    auto& group = *instruction.mutable_all_reduce()->mutable_group();
    group.set_kind(program::v1::ReplicaGroup::CONSECUTIVE);
    group.set_size(size);
  }
  auto executable = program::Executable::Make(std::move(text));
  EXPECT_TRUE(executable.ok()) << executable.status();
  return *std::move(executable);
}

// A job of four leases with an equal number of replicas.
class Leases {
 public:
  Leases(Executors& executors, MemoryBudget& budget, bool sharing, uint32_t replicas = 2,
         std::shared_ptr<const program::Executable> executable = Parsed())
      : replicas_(replicas), executable_(std::move(executable)) {
    auto group = std::make_shared<LeaseGroup>();
    for (uint32_t lease = 0; lease < kLeases; ++lease) {
      fabric::JobMember member;
      member.instance = lease;
      member.replica_offset = lease * replicas;
      member.local_replicas = replicas;
      EXPECT_TRUE(job_->Join(job_->shape(), std::move(member)).ok());
    }
    for (uint32_t lease = 0; lease < kLeases; ++lease) {
      options_.push_back({.executors = &executors,
                          .budget = &budget,
                          .job = job_,
                          .instance = lease,
                          .replica_offset = lease * replicas,
                          .local_replicas = replicas,
                          .sharing = sharing,
                          .group = group});
    }
    engines_.resize(kLeases);
    Reload();
    for (const auto& engine : engines_) slots_.emplace_back(engine->layout().SlotBytes() + 64);
  }

  void Reload() {
    for (uint32_t lease = 0; lease < kLeases; ++lease) {
      const std::weak_ptr<Engine> before = std::exchange(engines_[lease], nullptr);
      while (!before.expired()) std::this_thread::yield();  // a run that ends still has it
      auto engine = Engine::Create(executable_, options_[lease]);
      EXPECT_TRUE(engine.ok()) << engine.status();
      engines_[lease] = *std::move(engine);
      job_->Loaded(lease, 0, engines_[lease]->executable().hash());
    }
    WriteAll("rate", Filled(0.5f));
  }

  // Loads the executable again, with checks on this lease alone.
  void CheckFinite(uint32_t lease) {
    options_[lease].check_finite = true;
    Reload();
  }

  absl::Status Write(const char* name, uint32_t lease, const std::string& bytes,
                     std::optional<uint32_t> replica = std::nullopt) {
    Engine& engine = *engines_[lease];
    return engine.WriteVariable(**engine.executable().FindVariable(name), replica, 0, bytes);
  }
  void WriteAll(const char* name, const std::string& bytes) {
    for (uint32_t lease = 0; lease < kLeases; ++lease) EXPECT_TRUE(Write(name, lease, bytes).ok());
  }
  std::string Read(const char* name, uint32_t lease, uint32_t replica = 0) {
    Engine& engine = *engines_[lease];
    const auto bytes = engine.ReadVariable(**engine.executable().FindVariable(name), replica);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    return bytes.ok() ? *bytes : "";
  }
  std::string ReadAll() {
    std::string all;
    for (uint32_t lease = 0; lease < kLeases; ++lease) {
      for (uint32_t replica = 0; replica < replicas_; ++replica) {
        for (const char* name : {"w", "m", "rate", "own"}) all += Read(name, lease, replica);
      }
    }
    return all;
  }

  void Fill(uint32_t lease) {
    for (uint32_t replica = 0; replica < replicas_; ++replica) {
      const auto number = static_cast<float>(step_ * 7 + (lease * replicas_ + replica) * 3 + 1);
      const std::string x = Filled(0.1f * number);
      std::memcpy(slots_[lease].data() + engines_[lease]->layout().Offset(0, replica, 0), x.data(),
                  x.size());
    }
  }
  std::vector<absl::Status> Step(uint32_t program = 0) {
    std::vector<RunEnd> ends(kLeases);
    for (uint32_t lease = 0; lease < kLeases; ++lease) {
      Fill(lease);
      engines_[lease]->Run(program, slots_[lease].data(), ends[lease].Done());
    }
    ++step_;
    std::vector<absl::Status> result;
    for (RunEnd& end : ends) result.push_back(end.Wait());
    return result;
  }
  void Train(int steps = 2) {
    for (int step = 0; step < steps; ++step) {
      for (const absl::Status& status : Step()) EXPECT_TRUE(status.ok()) << status;
    }
  }
  // By one lease alone.
  absl::Status Pick(uint32_t lease) {
    RunEnd end;
    engines_[lease]->Run(1, slots_[lease].data(), end.Done());
    return end.Wait();
  }

  fabric::Job& job() { return *job_; }
  std::shared_ptr<Engine>& engine(uint32_t lease) { return engines_[lease]; }
  std::byte* slot(uint32_t lease) { return slots_[lease].data(); }

 private:
  const uint32_t replicas_;
  const std::shared_ptr<const program::Executable> executable_;
  const std::shared_ptr<fabric::Job> job_ =
      std::make_shared<fabric::Job>("job", fabric::JobShape{kLeases, kLeases* replicas_, 1});
  std::vector<EngineOptions> options_;
  std::vector<std::shared_ptr<Engine>> engines_;
  std::vector<std::vector<std::byte>> slots_;
  int step_ = 0;
};

class LeaseGroupTest : public testing::TestWithParam<uint32_t> {
 protected:
  // Does the same with and without sharing, and compares all variables.
  template <class F>
  void ExpectSameBits(const F& act) {
    std::string results[2];
    for (bool sharing : {false, true}) {
      Leases leases(*executors_, budget_, sharing, GetParam());
      act(leases);
      results[sharing] = leases.ReadAll();
    }
    EXPECT_TRUE(results[0] == results[1]);
  }
  // Ends what still holds engines.
  void ExpectAllGivenBack() {
    executors_.reset();
    EXPECT_EQ(budget_.used(), 0u);
  }

  MemoryBudget budget_{64 << 20};
  std::optional<Executors> executors_{2};
};
INSTANTIATE_TEST_SUITE_P(Replicas, LeaseGroupTest, testing::Values(1, 2));

TEST_P(LeaseGroupTest, VariablesTakeMemoryOnce) {
  {
    Leases leases(*executors_, budget_, true, GetParam());
    const uint64_t before = budget_.used();
    leases.Train();
    EXPECT_EQ(before - budget_.used(), kShared * (kLeases - 1) * kPage);
    EXPECT_TRUE(leases.Read("w", 0) == leases.Read("w", 3));
    EXPECT_FALSE(leases.Read("own", 0) == leases.Read("own", 3));
  }
  ExpectAllGivenBack();
}

TEST_P(LeaseGroupTest, SharingChangesNoBit) {
  ExpectSameBits([](Leases& leases) { leases.Train(3); });
}

// Variables that depend on the weights differ from then on, too, and are no longer shared.
TEST_P(LeaseGroupTest, OneLeaseUploadsOtherWeights) {
  ExpectSameBits([](Leases& leases) {
    leases.Train();
    ASSERT_TRUE(leases.Write("w", 2, Filled(3)).ok());
    EXPECT_TRUE(leases.Read("w", 2) == Filled(3));
    EXPECT_FALSE(leases.Read("w", 1) == Filled(3));
    leases.Train();
    EXPECT_FALSE(leases.Read("w", 2) == leases.Read("w", 1));
    EXPECT_TRUE(leases.Read("m", 2) == leases.Read("m", 1));
    ASSERT_TRUE(leases.Write("rate", 1, Filled(0.25f)).ok());
    leases.Train();
    EXPECT_FALSE(leases.Read("m", 2) == leases.Read("m", 1));
  });
}

TEST_P(LeaseGroupTest, OneReplicaIsWritten) {
  ExpectSameBits([](Leases& leases) {
    leases.Train();
    ASSERT_TRUE(leases.Write("w", 2, Filled(3), 0).ok());
    leases.Train();
  });
}

TEST_P(LeaseGroupTest, WhatBecomesEqualIsSharedAgain) {
  Leases leases(*executors_, budget_, true, GetParam());
  leases.Train();
  const uint64_t shared = budget_.used();
  ASSERT_TRUE(leases.Write("rate", 1, Filled(0.25f)).ok());
  EXPECT_EQ(budget_.used() - shared, kPage);  // only what was written, before a run
  leases.Train();
  EXPECT_EQ(budget_.used() - shared, 3 * (kLeases - 1) * kPage);  // rate, m and w
  for (const char* name : {"w", "m", "rate"}) leases.WriteAll(name, Filled(2));
  leases.Train();
  EXPECT_EQ(budget_.used(), shared);
}

// As with a schedule of learning rates: nothing else is copied meanwhile.
TEST_P(LeaseGroupTest, AllLeasesWriteTheSame) {
  ExpectSameBits([](Leases& leases) {
    leases.Train();
    leases.WriteAll("rate", Filled(0.25f));
    leases.WriteAll("w", Filled(4));
    leases.Train(1);
    EXPECT_TRUE(leases.Read("rate", 2) == Filled(0.25f));
  });
  Leases leases(*executors_, budget_, true, GetParam());
  leases.Train();
  const uint64_t shared = budget_.used();
  leases.WriteAll("rate", Filled(0.25f));
  EXPECT_EQ(budget_.used() - shared, (kLeases - 1) * kPage);
  leases.Train();
  EXPECT_EQ(budget_.used(), shared);
}

// A run of one lease by itself writes "w" if it is that of a table's rows.
TEST_P(LeaseGroupTest, ARunOfOneLeaseChangesNoOther) {
  ExpectSameBits([](Leases& leases) {
    leases.WriteAll("table", Filled(7));
    leases.Train();
    EXPECT_TRUE(leases.Pick(1).ok());
    EXPECT_TRUE(leases.Read("w", 1) == Filled(7));
    EXPECT_FALSE(leases.Read("w", 0) == Filled(7));
    leases.Train();
  });
}

// The shared step of a run by itself is the lease's own when a write has taken its pages before.
TEST_P(LeaseGroupTest, ARunOfOneLeaseAfterAWrite) {
  ExpectSameBits([](Leases& leases) {
    leases.Train();
    ASSERT_TRUE(leases.Write("w", 1, Filled(3)).ok());
    EXPECT_TRUE(leases.Pick(1).ok());
    ASSERT_TRUE(leases.Write("w", 2, Filled(3), 0).ok());
    EXPECT_TRUE(leases.Pick(2).ok());
    leases.Train();
  });
}

TEST_P(LeaseGroupTest, TooLittleMemoryIsAnErrorOfWriteOrRun) {
  Leases leases(*executors_, budget_, true, GetParam());
  leases.Train();
  const std::string before = leases.ReadAll();
  const uint64_t free = budget_.limit() - budget_.used();
  auto other = Reservation::Make(budget_, free);  // of another job
  ASSERT_TRUE(other.ok());
  const absl::Status status = leases.Write("w", 1, Filled(3));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("variable 'w'"), std::string::npos) << status;
  EXPECT_TRUE(leases.ReadAll() == before);
  other->Shrink(kPage);
  ASSERT_TRUE(leases.Write("rate", 1, Filled(3)).ok());
  for (const absl::Status& each : leases.Step())
    EXPECT_EQ(each.code(), absl::StatusCode::kResourceExhausted) << each;
  other->Shrink(free - kPage);
  leases.Train();
}

TEST_P(LeaseGroupTest, JobsShareNothing) {
  Leases leases(*executors_, budget_, true, GetParam());
  leases.Train();
  const uint64_t of_one = budget_.used();
  // The same executable, the same contents: each pays for its own, and keeps them.
  Leases others(*executors_, budget_, true, GetParam());
  others.Train();
  EXPECT_EQ(budget_.used(), 2 * of_one);
  const std::string before = leases.ReadAll();
  EXPECT_TRUE(others.ReadAll() == before);
  others.WriteAll("w", Filled(9));
  others.Train();
  EXPECT_TRUE(leases.ReadAll() == before);
}

// Its memory stays as long as others have it.
TEST_P(LeaseGroupTest, TheLeaseThatLedEnds) {
  {
    Leases leases(*executors_, budget_, true, GetParam());
    leases.Train();
    const std::string w = leases.Read("w", 3);
    leases.engine(0)->Cancel(absl::CancelledError("killed"));
    leases.engine(0).reset();
    leases.job().Leave(0, 0, /*lost=*/true);
    EXPECT_TRUE(leases.Read("w", 3) == w);
    EXPECT_TRUE(leases.Write("w", 3, Filled(1)).ok());
    EXPECT_TRUE(leases.Read("w", 2) == w);
    RunEnd end;
    leases.engine(1)->Run(0, leases.slot(1), end.Done());
    EXPECT_FALSE(end.Wait().ok());
  }
  ExpectAllGivenBack();
}

// A lease that others wait for is killed at any point of a run; all runs end.
TEST_P(LeaseGroupTest, ALeaseIsKilledDuringARun) {
  for (int round = 0; round < 50; ++round) {
    Leases leases(*executors_, budget_, true, GetParam());
    leases.Train(1);
    std::vector<RunEnd> ends(kLeases);
    for (uint32_t lease = 0; lease < kLeases; ++lease) {
      leases.Fill(lease);
      leases.engine(lease)->Run(0, leases.slot(lease), ends[lease].Done());
    }
    leases.engine(round % kLeases)->Cancel(absl::CancelledError("killed"));
    leases.job().Leave(round % kLeases, 0, /*lost=*/true);
    leases.job().Fail(absl::AbortedError("an instance was killed"));
    for (RunEnd& end : ends) {
      const absl::Status status = end.Wait();
      if (status.ok()) continue;  // it was done before
      EXPECT_THAT(status.message(),
                  testing::AnyOf(testing::HasSubstr("killed"), testing::HasSubstr("was lost")));
    }
  }
  ExpectAllGivenBack();
}

// Leases that meet in pairs do not wait for the other pair.
TEST_P(LeaseGroupTest, GroupsOfTwoLeasesRunAsOftenAsTheyWant) {
  Leases leases(*executors_, budget_, true, GetParam(), InGroupsOf(2 * GetParam()));
  leases.WriteAll("w", Filled(1));
  const auto run = [&](std::initializer_list<uint32_t> members) {
    std::vector<RunEnd> ends(kLeases);
    for (uint32_t lease : members) {
      leases.Fill(lease);
      leases.engine(lease)->Run(0, leases.slot(lease), ends[lease].Done());
    }
    for (uint32_t lease : members) {
      const absl::Status status = ends[lease].Wait();
      EXPECT_TRUE(status.ok()) << status;
    }
  };
  run({0, 1, 2, 3});
  run({0, 1});
  run({0, 1});
  run({2, 3});
}

// Checks of results are steps, which a lease without them does not have.
TEST_P(LeaseGroupTest, LeasesThatCheckResultsShareNothingWithOthers) {
  Leases leases(*executors_, budget_, true, GetParam());
  leases.CheckFinite(2);
  leases.WriteAll("w", Filled(1));
  leases.Train();
  Leases without(*executors_, budget_, false, GetParam());
  without.WriteAll("w", Filled(1));
  without.Train();
  EXPECT_EQ(leases.ReadAll(), without.ReadAll());
}

// Nothing of the executable before is left, although it was the same.
TEST_P(LeaseGroupTest, LeasesLoadAgain) {
  Leases leases(*executors_, budget_, true, GetParam());
  const uint64_t loaded = budget_.used();
  leases.Train();
  const uint64_t shared = budget_.used();
  leases.Reload();
  EXPECT_EQ(budget_.used(), loaded);
  EXPECT_TRUE(leases.Read("w", 1) == Filled(0));
  leases.Train();
  EXPECT_EQ(budget_.used(), shared);
  const std::string w = leases.Read("w", 2);
  Leases first(*executors_, budget_, false, GetParam());
  first.Train();
  first.Reload();
  first.Train();
  EXPECT_TRUE(first.Read("w", 2) == w);
}

// A shared step fails on the unit that runs it for all: all leases get its message.
TEST_P(LeaseGroupTest, AnErrorInASharedStepReachesAllLeases) {
  Leases leases(*executors_, budget_, true, GetParam());
  leases.Train();
  const int32_t bad = 5, good = 0;
  for (int round = 0; round < 20; ++round) {
    leases.WriteAll("row", {reinterpret_cast<const char*>(&bad), sizeof(bad)});
    for (const absl::Status& status : leases.Step(2)) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_NE(status.message().find("gather"), std::string::npos) << status;
    }
    leases.WriteAll("row", {reinterpret_cast<const char*>(&good), sizeof(good)});
    for (const absl::Status& status : leases.Step(2)) EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(leases.Read("w", 3) == Filled(0));
  }
}

TEST_P(LeaseGroupTest, AnErrorOfOneLeaseAlone) {
  Leases leases(*executors_, budget_, true, GetParam());
  leases.Train();
  const int32_t row = 5;
  leases.WriteAll("row", {reinterpret_cast<const char*>(&row), sizeof(row)});
  const absl::Status status = leases.Pick(2);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_NE(status.message().find("gather"), std::string::npos) << status;
  leases.Train();
}

}  // namespace
}  // namespace vpod::engine
