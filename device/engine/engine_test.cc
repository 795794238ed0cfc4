// Tests of an engine before it runs. Runs are the subject of the tests of the session, of the
// agent and of the whole system.
#include "device/engine/engine.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "device/engine/executors.h"
#include "device/engine/memory_budget.h"
#include "device/fabric/job.h"
#include "device/program/executable.h"

namespace vpod::engine {
namespace {

// `concats` instructions, each of which joins one tensor `inputs` times.
std::shared_ptr<const program::Executable> Joining(int concats, int inputs, int elements = 1) {
  program::v1::Executable text;
  text.set_ipus_per_replica(1);
  program::v1::Ipu* ipu = text.add_ipus();
  uint64_t bytes = 0;
  for (const int64_t dim : {int64_t{elements}, int64_t{elements} * inputs}) {
    program::v1::Tensor* tensor = ipu->add_tensors();
    tensor->set_type(program::v1::FLOAT32);
    tensor->add_dims(dim);
    tensor->set_offset(bytes);
    bytes += std::max<uint64_t>(64, static_cast<uint64_t>(dim) * sizeof(float));
  }
  ipu->set_arena_bytes(std::max<uint64_t>(1 << 20, bytes));
  program::v1::Function* function = ipu->add_functions();
  for (int i = 0; i < concats; ++i) {
    program::v1::Instruction* instruction = function->add_instructions();
    instruction->mutable_concat();
    instruction->mutable_inputs()->Resize(inputs, 0);
    instruction->add_outputs(1);
  }
  text.add_programs()->set_name("join");
  text.mutable_programs(0)->add_functions(0);
  auto executable = program::Executable::Make(std::move(text));
  EXPECT_TRUE(executable.ok()) << executable.status();
  return *std::move(executable);
}

class EngineTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::shared_ptr<Engine>> Create(
      std::shared_ptr<const program::Executable> executable,
      const std::atomic<bool>* cancelled = nullptr) {
    auto job = std::make_shared<fabric::Job>("job", fabric::JobShape{1, 1, 1});
    return Engine::Create(std::move(executable),
                          {.executors = &executors_, .budget = &budget_, .job = job}, cancelled);
  }

  Executors executors_{1};
  MemoryBudget budget_{64 << 20};
};

TEST_F(EngineTest, PreparedKernelsCountAsHostMemory) {
  constexpr int kInputs = 1000;
  {
    const auto engine = Create(Joining(1, kInputs));
    ASSERT_TRUE(engine.ok()) << engine.status();
    const uint64_t one = budget_.used();
    const auto other = Create(Joining(3, kInputs));
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_GE(budget_.used() - one, one + 2 * kInputs * 600);
  }
  EXPECT_EQ(budget_.used(), 0u);
  EXPECT_EQ(Create(Joining(100, kInputs)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(budget_.used(), 0u);
}

// Whatever the client's compiler said of it.
TEST_F(EngineTest, RefusesWhatDoesNotFitAnIpu) {
  constexpr int kElements = 100 << 20;  // 1.2 GB with the result; an IPU has 897 MiB
  const auto executable = Joining(1, 2, kElements);
  const absl::Status refused = Create(executable).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              testing::StartsWith("Out of memory: Cannot fit all variable data onto one or more "
                                  "tiles. On IPU 0, "));
  EXPECT_EQ(budget_.used(), 0u);
}

constexpr char kSort[] = R"(
  ipus_per_replica: 1
  ipus {
    arena_bytes: 1024
    tensors { type: FLOAT32 dims: 64 }
    tensors { type: FLOAT32 dims: 64 offset: 256 }
    tensors { type: INT32 dims: 64 offset: 512 }
    tensors { type: INT32 offset: 768 }
    functions {
      instructions { sort { count: 64 } inputs: 0 outputs: [ 1, 2 ] }
      instructions { remote_store {} inputs: [ 0, 3 ] }
    }
    remote_buffers { name: "rows" type: FLOAT32 dims: 64 rows: 2 }
  }
  programs { name: "sort" functions: 0 }
)";

// Other agents of a job map it: what kernels keep for themselves is not in it.
TEST_F(EngineTest, AnArenaHoldsTensorsAlone) {
  program::v1::Executable text;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(kSort, &text));
  auto executable = program::Executable::Make(std::move(text));
  ASSERT_TRUE(executable.ok()) << executable.status();
  const auto engine = Create(*std::move(executable));
  ASSERT_TRUE(engine.ok()) << engine.status();
  const auto arena = (*engine)->Arena(0, 0);
  ASSERT_TRUE(arena.ok()) << arena.status();
  EXPECT_EQ(arena->second, 1024u);
  struct stat info = {};
  ASSERT_EQ(fstat(arena->first, &info), 0);
  EXPECT_EQ(info.st_size, 1024);
}

TEST_F(EngineTest, PreparationIsCancelled) {
  const std::atomic<bool> cancelled = true;
  EXPECT_EQ(Create(Joining(1, 2), &cancelled).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(budget_.used(), 0u);
}

}  // namespace
}  // namespace vpod::engine
