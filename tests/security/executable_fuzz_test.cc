// Mutated executables against everything that an agent does with them: parsing, validation,
// prices, memory, preparation of kernels, and, if they are small, runs. Whatever the bytes, the
// worst that happens is a refusal or a run that fails.
//   VPOD_FUZZ_EXECUTABLES  their number (20000)
//   VPOD_FUZZ_SEED         other mutations (2026)
// The script `fuzz` makes a million of them under the address sanitizer.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <optional>
#include <thread>

#include "device/engine/engine.h"
#include "device/model/cost.h"
#include "device/program/op.h"
#include "tests/security/executable_seeds.h"
#include "tests/support/executable_mutations.h"
#include "tests/support/fuzz.h"

namespace vpod::testing {
namespace {

namespace v1 = program::v1;

constexpr uint64_t kMemoryBudget = 64 << 20;
// Elements and operations of a run, all replicas together: it takes milliseconds.
constexpr double kMostWork = 2e6;
constexpr std::chrono::seconds kPatience(120);

// Elements and operations of a run of a program, of one replica.
double WorkOf(const v1::Executable& text, uint32_t program) {
  double work = 0;
  for (int ipu = 0; ipu < text.ipus_size(); ++ipu) {
    const auto& tensors = text.ipus(ipu).tensors();
    const auto types = [&](const auto& indices) {
      program::Types result;
      for (uint32_t index : indices)
        result.push_back(program::TypeOf(tensors[static_cast<int>(index)]));
      return result;
    };
    program::ForEachInstruction(
        text.ipus(ipu), text.programs(static_cast<int>(program)).functions(ipu),
        [&](const v1::Instruction& instruction, uint64_t times) {
          const program::Types inputs = types(instruction.inputs()),
                               outputs = types(instruction.outputs());
          double most = 100;  // an instruction by itself
          for (const auto* operands : {&inputs, &outputs}) {
            for (const auto& type : *operands)
              most = std::max(most, static_cast<double>(type.elements()));
          }
          const auto operations = program::FindOp(instruction.attributes_case())->operations;
          if (operations != nullptr)
            most = std::max(most, operations(instruction, inputs, outputs));
          work += most * static_cast<double>(times);
        });
  }
  return work;
}

// How far the executables came.
struct Tally {
  uint64_t valid = 0, loaded = 0, runs = 0, failed_runs = 0;
};

class Agent {
 public:
  // False if a run does not end.
  bool Load(const std::string& bytes, const std::string& origins, Random& random, Tally& tally) {
    const auto executable = program::Executable::Parse(bytes, {}, origins);
    if (!executable.ok()) {
      EXPECT_EQ(executable.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_LT(executable.status().message().size(), 4000u);
      return true;
    }
    ++tally.valid;
    // The end of a run may still hold the engine before, and its memory.
    while (!last_engine_.expired()) std::this_thread::yield();
    const uint32_t ipus = (*executable)->ipus_per_replica();
    auto job = std::make_shared<fabric::Job>("job", fabric::JobShape{1, kReplicas, ipus});
    fabric::JobMember member;
    member.local_replicas = kReplicas;
    EXPECT_TRUE(job->Join(job->shape(), std::move(member)).ok());
    const auto engine = engine::Engine::Create(*executable, {.executors = &executors_,
                                                             .budget = &budget_,
                                                             .job = job,
                                                             .local_replicas = kReplicas,
                                                             .check_finite = random() % 8 == 0});
    if (!engine.ok()) return true;
    ++tally.loaded;
    last_engine_ = *engine;
    job->Loaded(0, 0, (*executable)->hash());
    streams_.assign((*engine)->layout().TotalBytes() + 64, std::byte{});
    for (std::byte& byte : streams_) byte = static_cast<std::byte>(random() % 4);
    for (uint32_t p = 0; p < static_cast<uint32_t>((*executable)->proto().programs_size()); ++p) {
      if (kReplicas * WorkOf((*executable)->proto(), p) > kMostWork) continue;
      ++tally.runs;
      const auto status = Run(**engine, p);
      if (!status.has_value()) return false;
      if (!status->ok()) ++tally.failed_runs;
    }
    return true;
  }

 private:
  std::optional<absl::Status> Run(engine::Engine& engine, uint32_t program) {
    struct Outcome {
      base::Mutex mutex;
      std::condition_variable changed;
      std::optional<absl::Status> status;
    };
    const auto outcome = std::make_shared<Outcome>();
    const auto address = reinterpret_cast<uintptr_t>(streams_.data());
    engine.Run(program, streams_.data() + (64 - address % 64) % 64,
               [outcome](const absl::StatusOr<engine::RunResult>& result) {
                 base::MutexLock lock(outcome->mutex);
                 outcome->status = result.status();
                 outcome->changed.notify_all();
               });
    base::MutexLock lock(outcome->mutex);
    lock.WaitUntil(outcome->changed, std::chrono::steady_clock::now() + kPatience,
                   [&] { return outcome->status.has_value(); });
    return outcome->status;
  }

  engine::MemoryBudget budget_{kMemoryBudget};
  std::weak_ptr<engine::Engine> last_engine_;
  std::vector<std::byte> streams_;
  engine::Executors executors_{2};
};

TEST(ExecutableFuzzTest, TheSeedsAreValidAndRun) {
  Agent agent;
  Random random(1);
  for (const v1::Executable& seed : ExecutableSeeds()) {
    const auto valid = program::Executable::Make(seed);
    ASSERT_TRUE(valid.ok()) << valid.status() << "\n" << seed.DebugString();
    Tally tally;
    EXPECT_TRUE(agent.Load(program::Serialize(seed), "", random, tally));
    EXPECT_EQ(tally.loaded, 1u) << seed.DebugString();
  }
}

TEST(ExecutableFuzzTest, AgentsOutliveWhateverIsLoaded) {
  const uint64_t count = NumberFrom("VPOD_FUZZ_EXECUTABLES", 20000);
  const uint64_t seed = NumberFrom("VPOD_FUZZ_SEED", 2026);
  std::fprintf(stderr, "VPOD_FUZZ_SEED=%lu VPOD_FUZZ_EXECUTABLES=%lu\n", seed, count);
  const std::vector<v1::Executable> seeds = ExecutableSeeds();
  Random random(seed);
  Agent agent;
  Tally tally;
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < count; ++i) {
    // The last ones, which are large, less often.
    const size_t choices = random() % 4 == 0 ? seeds.size() : seeds.size() - 3;
    v1::Executable executable = seeds[random() % choices], donor = seeds[random() % choices];
    for (uint64_t rounds = 1 + random() % 3; rounds > 0; --rounds)
      MutateExecutable(executable, donor, random);
    std::string bytes = program::Serialize(executable), origins;
    if (random() % 8 == 0) MutateBytes(bytes, random);
    if (random() % 8 == 0) {
      v1::Origins table;
      table.add_origins()->set_scope("layer");
      for (const v1::Ipu& ipu : executable.ipus()) {
        v1::IpuOrigins& names = *table.add_ipus();
        for (const v1::Function& function : ipu.functions()) {
          auto& instructions = *names.add_functions()->mutable_instructions();
          instructions.Resize(function.instructions_size(), 1);
        }
      }
      origins = table.SerializeAsString();
      if (random() % 2 == 0) MutateBytes(origins, random);
    }
    ASSERT_TRUE(agent.Load(bytes, origins, random, tally))
        << "a run does not end: executable " << i << "\n"
        << executable.DebugString();
    if (HasFailure()) FAIL() << "executable " << i << "\n" << executable.DebugString();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::fprintf(stderr,
               "%lu executables in %.0f s: %lu valid, %lu loaded, %lu runs, of which %lu failed\n",
               count, took.count(), tally.valid, tally.loaded, tally.runs, tally.failed_runs);
  // The mutations must leave something to be run.
  EXPECT_GT(tally.runs * 50, count);
}

}  // namespace
}  // namespace vpod::testing
