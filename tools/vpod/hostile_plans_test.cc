// Damaged executables and odd options: a plan or one line, without a crash, a hang or much memory.
//   VPOD_FUZZ_PLANS  their number, of each kind (a few hundred)
//   VPOD_FUZZ_SEED   other ones (2026); `tests/security/fuzz --plans` takes a random one
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/compiler/compiler.h"
#include "client/compiler/executable_file.h"
#include "client/graph/graph.h"
#include "device/base/file.h"
#include "device/base/sha256.h"
#include "tests/support/executable_mutations.h"
#include "tests/support/fuzz.h"
#include "tools/vpod/arguments.h"
#include "tools/vpod/plan_executable.h"

namespace vpod::tools {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT32;
using testing::MutateBytes;
using testing::MutateExecutable;
using testing::NumberFrom;
using testing::Random;

void ExpectLittleMemory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, 2 << 20) << "KiB";
}

// Two stages of a product each, which train.
program::v1::Executable TwoProducts(const compiler::CompileOptions& options,
                                    const compiler::Optimizer& optimizer) {
  Graph g;
  Tensor x = g.Input("x", {FLOAT32, {4, 64}});
  for (uint32_t stage : {0, 1}) {
    g.SetIpu(options.ipus_per_replica > 1 ? stage : 0);
    g.SetStage(stage);
    x = g.MatMul(x, g.Variable(absl::StrCat("w", stage), {FLOAT32, {64, 64}},
                               graph::InitialValue::Filled(1)));
  }
  compiler::CompileOptions with_program = options;
  with_program.programs = {
      {.name = "train", .accumulation = 3, .loss = g.Mean(x), .optimizer = optimizer}};
  const auto compiled = compiler::Compile(g, with_program);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return compiled->executable->proto();
}

// A pipeline; replicas that share their state out; state and weights off the chip.
std::vector<program::v1::Executable> SoundExecutables() {
  return {
      TwoProducts(
          {.ipus_per_replica = 2, .total_replicas = 2, .schedule = compiler::Schedule::kGrouped},
          compiler::SgdOptions{}),
      TwoProducts({.total_replicas = 4, .tensor_shards = 4}, compiler::AdamOptions{}),
      TwoProducts({.off_chip_optimizer_state = true, .off_chip_weights = true},
                  compiler::AdamOptions{})};
}

// The bytes of a file (docs/formats.md: Cached executables).
std::string FileOf(absl::string_view executable, bool intact) {
  const uint64_t size = executable.size();
  const std::string bytes = absl::StrCat(
      absl::string_view(reinterpret_cast<const char*>(&size), sizeof(size)), executable);
  return absl::StrCat(absl::string_view("VIPUCACHE\x02", 10), std::string(64, '0'),
                      intact ? base::Sha256Hex(bytes) : std::string(64, '1'), bytes);
}

class HostilePlansTest : public ::testing::Test {
 protected:
  HostilePlansTest() {
    std::fprintf(stderr, "VPOD_FUZZ_SEED=%lu\n", seed_);
    random_.seed(seed_);
  }
  ~HostilePlansTest() override { ExpectLittleMemory(); }

  uint64_t Any(uint64_t below) { return random_() % below; }
  template <class T>
  const T& AnyOf(const std::vector<T>& choices) {
    return choices[Any(choices.size())];
  }

  const uint64_t seed_ = NumberFrom("VPOD_FUZZ_SEED", 2026);
  Random random_;
};

TEST_F(HostilePlansTest, DamagedExecutables) {
  const std::vector<program::v1::Executable> sound = SoundExecutables();
  const std::string path = ::testing::TempDir() + "/damaged.vipuexe";
  const uint64_t count = NumberFrom("VPOD_FUZZ_PLANS", 500);
  uint64_t valid = 0, planned = 0;
  for (uint64_t i = 0; i < count; ++i) {
    program::v1::Executable damaged = AnyOf(sound), donor = AnyOf(sound);
    for (uint64_t changes = Any(3) + 1; changes > 0; --changes)
      MutateExecutable(damaged, donor, random_);
    if (Any(2) == 0) damaged.set_total_replicas(0);  // for PODs of other sizes
    std::string bytes = program::Serialize(damaged);
    if (Any(8) == 0) MutateBytes(bytes, random_);
    ASSERT_TRUE(base::ReplaceFile(path, FileOf(bytes, Any(16) != 0), 0644).ok());
    const auto executable = ReadExecutable(path);
    if (!executable.ok()) {
      EXPECT_EQ(executable.status().code(), absl::StatusCode::kDataLoss) << i;
      continue;
    }
    ++valid;
    const auto output = ExecutablePlan(
        [&](uint32_t) { return executable; },
        {.pods = {AnyOf(std::vector<uint32_t>{4, 16, 64, 256, 65536})}},
        AnyOf(std::vector<PlanFormat>{PlanFormat::kTable, PlanFormat::kJson, PlanFormat::kCsv}),
        Any(2) == 0);
    planned += output.ok() ? 1 : 0;
    EXPECT_NE(output.ok(), !output.status().message().empty()) << i;
  }
  std::fprintf(stderr, "%lu executables, %lu valid, %lu planned\n", count, valid, planned);
  EXPECT_GT(planned, 0u);
  EXPECT_LT(valid, count);
}

TEST_F(HostilePlansTest, OddOptions) {
  const std::vector<std::string> numbers = {"-1",
                                            "0",
                                            "1",
                                            "2",
                                            "3",
                                            "7",
                                            "16",
                                            "65",
                                            "1024",
                                            "65536",
                                            "1048577",
                                            "4294967296",
                                            "99999999999999999999",
                                            "1e9",
                                            "x",
                                            "",
                                            "nan",
                                            "0x10"};
  const std::vector<std::string> choices = {"none",
                                            "pipeline",
                                            "all",
                                            "grouped",
                                            "sharded",
                                            "adamw",
                                            "lamb",
                                            "16",
                                            "16-half-partials",
                                            "32",
                                            "m2000",
                                            "m2000,bow2000",
                                            "layer1.0",
                                            "layer2.0,layer3.0",
                                            "1,3",
                                            "h.4",
                                            ",",
                                            "''"};
  const std::vector<std::string> of_numbers = {"--pod",
                                               "--micro-batch",
                                               "--accumulation",
                                               "--ipus-per-replica",
                                               "--replicas",
                                               "--classes",
                                               "--attention-dropout",
                                               "--image-size",
                                               "--sequence-length",
                                               "--predictions",
                                               "--device-iterations",
                                               "--memory-proportion"};
  const std::vector<std::string> of_choices = {"--machine-type", "--stages",    "--recompute",
                                               "--checkpoints",  "--precision", "--schedule",
                                               "--optimizer",    "--gelu"};
  const std::vector<std::string> flags = {"--uint8-images",
                                          "--off-chip-optimizer-state",
                                          "--off-chip-activations",
                                          "--off-chip-weights",
                                          "--off-chip-accumulators",
                                          "--tensor-sharding",
                                          "--explain",
                                          "--json",
                                          "--csv"};
  const std::vector<std::string> models = {"mnist", "bert-tiny", "resnet18", "", "-", "x/y"};
  const uint64_t count = NumberFrom("VPOD_FUZZ_PLANS", 500);
  uint64_t planned = 0;
  for (uint64_t i = 0; i < count; ++i) {
    std::vector<std::string> words = {"plan", AnyOf(models)};
    for (uint64_t options = Any(4); options > 0; --options) {
      switch (Any(3)) {
        case 0:
          words.insert(words.end(), {AnyOf(of_numbers), AnyOf(numbers)});
          break;
        case 1:
          words.insert(words.end(), {AnyOf(of_choices), AnyOf(choices)});
          break;
        default:
          words.push_back(AnyOf(flags));
      }
    }
    SCOPED_TRACE(absl::StrJoin(words, " "));
    Arguments arguments;
    const std::optional<int> end = ParseArguments(words, arguments);
    if (end) {
      EXPECT_EQ(*end, 2);
      continue;
    }
    const auto output = RunPlan(arguments.plan);
    planned += output.ok() ? 1 : 0;
    if (output.ok()) {
      EXPECT_EQ(output->text.back(), '\n');
    } else {
      EXPECT_FALSE(output.status().message().empty());
    }
  }
  EXPECT_GT(planned, 0u);
  EXPECT_LT(planned, count);
}

}  // namespace
}  // namespace vpod::tools
