// Sharing variables between the replicas of an engine saves memory and changes no bit.
#include "device/engine/sharing.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/engine/engine.h"
#include "device/engine/executors.h"
#include "device/engine/memory_budget.h"
#include "device/engine/sharing_test_util.h"
#include "device/fabric/job.h"

namespace vpod::engine {
namespace {

constexpr uint32_t kReplicas = 4;
// An engine of four replicas in a job of its own.
class Machine {
 public:
  explicit Machine(bool sharing, uint64_t budget = 64 << 20) : budget_(budget) {
    auto job = std::make_shared<fabric::Job>("job", fabric::JobShape{1, kReplicas, 1});
    fabric::JobMember member;
    member.local_replicas = kReplicas;
    EXPECT_TRUE(job->Join(job->shape(), std::move(member)).ok());
    auto engine = Engine::Create(Parsed(), {.executors = &executors_,
                                            .budget = &budget_,
                                            .job = job,
                                            .local_replicas = kReplicas,
                                            .sharing = sharing});
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    job->Loaded(0, 0, engine_->executable().hash());
    slot_.resize(engine_->layout().SlotBytes() + 64);
    WriteAll("rate", Filled(0.5f));
  }

  absl::Status Write(const char* name, std::optional<uint32_t> replica, const std::string& bytes) {
    return engine_->WriteVariable(**engine_->executable().FindVariable(name), replica, 0, bytes);
  }
  void WriteAll(const char* name, const std::string& bytes) {
    const absl::Status status = Write(name, std::nullopt, bytes);
    EXPECT_TRUE(status.ok()) << status;
  }
  std::string Read(const char* name, uint32_t replica) {
    const auto bytes = engine_->ReadVariable(**engine_->executable().FindVariable(name), replica);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    return bytes.ok() ? *bytes : "";
  }
  // All variables of all replicas.
  std::string ReadAll() {
    std::string all;
    for (uint32_t replica = 0; replica < kReplicas; ++replica) {
      for (const char* name : {"w", "m", "rate", "own", "most"}) all += Read(name, replica);
    }
    return all;
  }

  absl::Status Run(uint32_t program) {
    RunEnd end;
    engine_->Run(program, slot_.data(), end.Done());
    return end.Wait();
  }
  // Each replica has other data in each step.
  void Train(int steps = 3) {
    for (int step = 0; step < steps; ++step, ++step_) {
      for (uint32_t replica = 0; replica < kReplicas; ++replica) {
        const std::string x = Filled(0.1f * static_cast<float>(step_ * 7 + replica * 3 + 1));
        std::memcpy(slot_.data() + engine_->layout().Offset(0, replica, 0), x.data(), x.size());
      }
      const absl::Status status = Run(0);
      EXPECT_TRUE(status.ok()) << status;
    }
  }

  uint64_t SavedPages() const { return engine_->saved_bytes() / program::kPageBytes; }
  const MemoryBudget& budget() const { return budget_; }

 private:
  MemoryBudget budget_;
  Executors executors_{2};
  std::shared_ptr<Engine> engine_;
  std::vector<std::byte> slot_;
  int step_ = 0;
};

TEST(SharingTest, EqualVariablesTakeMemoryOnce) {
  Machine shared(true), apart(false);
  EXPECT_EQ(shared.SavedPages(), kShared * (kReplicas - 1));
  EXPECT_EQ(apart.SavedPages(), 0u);
  EXPECT_EQ(apart.budget().used() - shared.budget().used(),
            kShared * (kReplicas - 1) * program::kPageBytes);
}

TEST(SharingTest, ChangesNoBit) {
  Machine shared(true), apart(false);
  for (Machine* machine : {&shared, &apart}) machine->Train();
  EXPECT_TRUE(shared.ReadAll() == apart.ReadAll());
  EXPECT_FALSE(shared.Read("own", 0) == shared.Read("own", 1));
  EXPECT_TRUE(shared.Read("w", 0) == shared.Read("w", 3));
  EXPECT_FALSE(shared.Read("w", 0) == Filled(0));
}

TEST(SharingTest, AWriteToOneReplicaSplitsTheVariable) {
  Machine shared(true), apart(false);
  for (Machine* machine : {&shared, &apart}) {
    machine->Train();
    ASSERT_TRUE(machine->Write("w", 2, Filled(3)).ok());
    EXPECT_TRUE(machine->Read("w", 2) == Filled(3));
    EXPECT_FALSE(machine->Read("w", 1) == Filled(3));
    machine->Train();
  }
  EXPECT_TRUE(shared.ReadAll() == apart.ReadAll());
  EXPECT_EQ(shared.SavedPages(), 5 * (kReplicas - 1));
  // Also the first replica, whose writes the others do not see.
  for (Machine* machine : {&shared, &apart}) {
    ASSERT_TRUE(machine->Write("m", 0, Filled(-1)).ok());
    machine->Train();
  }
  EXPECT_TRUE(shared.ReadAll() == apart.ReadAll());
}

TEST(SharingTest, NoOtherNumberMeansAllReplicas) {
  Machine shared(true);
  for (uint32_t replica : {kReplicas, UINT32_MAX})
    EXPECT_EQ(shared.Write("w", replica, Filled(3)).code(), absl::StatusCode::kOutOfRange);
}

TEST(SharingTest, AnEqualWriteSplitsNothing) {
  Machine shared(true);
  shared.Train();
  ASSERT_TRUE(shared.Write("w", 2, shared.Read("w", 0)).ok());
  EXPECT_EQ(shared.SavedPages(), kShared * (kReplicas - 1));
}

TEST(SharingTest, WhatDependsOnADifferenceIsSplit) {
  Machine shared(true), apart(false);
  for (Machine* machine : {&shared, &apart}) {
    ASSERT_TRUE(machine->Write("rate", 3, Filled(0.25f)).ok());
    machine->Train();
    EXPECT_FALSE(machine->Read("m", 3) == machine->Read("m", 0));
  }
  EXPECT_TRUE(shared.ReadAll() == apart.ReadAll());
  EXPECT_EQ(shared.SavedPages(), 3 * (kReplicas - 1));  // row, table, most
}

TEST(SharingTest, WhatBecomesEqualIsSharedAgain) {
  Machine shared(true), apart(false);
  const uint64_t used = shared.budget().used();
  for (Machine* machine : {&shared, &apart}) {
    ASSERT_TRUE(machine->Write("rate", 3, Filled(0.25f)).ok());
    machine->Train();
    for (const char* name : {"w", "m", "rate"}) machine->WriteAll(name, Filled(2));
    machine->Train();
  }
  EXPECT_EQ(shared.SavedPages(), kShared * (kReplicas - 1));
  EXPECT_EQ(shared.budget().used(), used);
  EXPECT_TRUE(shared.ReadAll() == apart.ReadAll());
}

TEST(SharingTest, TooLittleMemoryIsAnErrorOfTheWriteThatSplits) {
  const uint64_t used = Machine(true).budget().used();
  Machine shared(true, used + program::kPageBytes);
  shared.Train();
  const std::string before = shared.ReadAll();
  const absl::Status status = shared.Write("w", 1, Filled(3));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("variable 'w'"), std::string::npos) << status;
  EXPECT_TRUE(shared.ReadAll() == before);
  shared.Train();
  EXPECT_TRUE(shared.Read("w", 1) == shared.Read("w", 2));
}

TEST(SharingTest, AnErrorInASharedStepFailsTheRunOnce) {
  Machine shared(true);
  shared.Train();
  const int32_t row = 5;
  shared.WriteAll("row", {reinterpret_cast<const char*>(&row), sizeof(row)});
  const absl::Status status = shared.Run(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_NE(status.message().find("gather"), std::string::npos) << status;
  shared.Train();
}

}  // namespace
}  // namespace vpod::engine
