// Damaged executables and odd options: a plan or one line, without a crash, a hang or much memory.
//   VPOD_FUZZ_PLANS  their number, of each kind (a few hundred)
//   VPOD_FUZZ_SEED   other ones (2026)
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/compiler/compiler.h"
#include "client/compiler/executable_file.h"
#include "client/graph/graph.h"
#include "device/base/file.h"
#include "device/base/sha256.h"
#include "tools/vpod/arguments.h"
#include "tools/vpod/plan_executable.h"

namespace vpod::tools {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT32;

uint64_t NumberFrom(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  uint64_t number = otherwise;
  return text != nullptr && absl::SimpleAtoi(text, &number) ? number : otherwise;
}

void ExpectLittleMemory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, 2 << 20) << "KiB";
}

// A pipeline of two small products, which trains.
std::string SmallExecutable() {
  Graph g;
  Tensor x = g.Input("x", {FLOAT32, {4, 8}});
  for (uint32_t stage : {0, 1}) {
    g.SetIpu(stage);
    g.SetStage(stage);
    x = g.MatMul(
        x, g.Variable(absl::StrCat("w", stage), {FLOAT32, {8, 8}}, graph::InitialValue::Filled(1)));
  }
  compiler::CompileOptions options{
      .ipus_per_replica = 2, .total_replicas = 2, .schedule = compiler::Schedule::kGrouped};
  options.programs = {{.name = "train", .accumulation = 3, .loss = g.Mean(x)}};
  const auto compiled = compiler::Compile(g, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  const std::string path = testing::TempDir() + "/small.vipuexe";
  EXPECT_TRUE(
      compiler::WriteExecutableFile(path, std::string(64, '0'), *compiled->executable).ok());
  return path;
}

class HostilePlansTest : public testing::Test {
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
  std::mt19937_64 random_;
};

TEST_F(HostilePlansTest, DamagedExecutables) {
  const std::string path = SmallExecutable(), sound = base::ReadFile(path);
  constexpr size_t kHead = 10 + 64 + 64 + 8;  // docs/formats.md
  const uint64_t count = NumberFrom("VPOD_FUZZ_PLANS", 500);
  uint64_t planned = 0;
  for (uint64_t i = 0; i < count; ++i) {
    std::string bytes = sound;
    for (uint64_t changes = Any(4) + 1; changes > 0; --changes)
      bytes[kHead + Any(bytes.size() - kHead)] = static_cast<char>(random_());
    if (Any(16) == 0) bytes.resize(Any(bytes.size()));
    // Mostly, its bytes are those that were meant.
    if (bytes.size() > kHead && Any(16) != 0)
      bytes.replace(74, 64, base::Sha256Hex(absl::string_view(bytes).substr(138)));
    ASSERT_TRUE(base::ReplaceFile(path, bytes, 0644).ok());
    const auto executable = ReadExecutable(path);
    if (!executable.ok()) {
      EXPECT_EQ(executable.status().code(), absl::StatusCode::kInvalidArgument) << i;
      continue;
    }
    const auto text = ExecutablePlanText(
        **executable, {AnyOf(std::vector<uint32_t>{4, 16, 64, 256, 65536})}, "m2000",
        AnyOf(std::vector<PlanFormat>{PlanFormat::kTable, PlanFormat::kJson, PlanFormat::kCsv}),
        Any(2) == 0);
    planned += text.ok() ? 1 : 0;
    EXPECT_NE(text.ok(), !text.status().message().empty()) << i;
  }
  EXPECT_GT(planned, 0u);
  EXPECT_LT(planned, count);
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
  const std::vector<std::string> choices = {
      "none",  "pipeline", "all",      "grouped",           "sharded",
      "adamw", "lamb",     "16",       "16-half-partials",  "32",
      "m2000", "bow2000",  "layer1.0", "layer2.0,layer3.0", "1,3",
      "h.4",   ",",        "''"};
  const std::vector<std::string> of_numbers = {"--pod",
                                               "--micro-batch",
                                               "--accumulation",
                                               "--ipus-per-replica",
                                               "--image-size",
                                               "--sequence-length",
                                               "--predictions",
                                               "--device-iterations",
                                               "--memory-proportion"};
  const std::vector<std::string> of_choices = {"--machine-type", "--stages",    "--recompute",
                                               "--checkpoints",  "--precision", "--schedule",
                                               "--optimizer"};
  const std::vector<std::string> flags = {"--uint8-images",
                                          "--off-chip-optimizer-state",
                                          "--off-chip-activations",
                                          "--off-chip-weights",
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
    const auto text = RunPlan(arguments.plan);
    planned += text.ok() ? 1 : 0;
    if (text.ok()) {
      EXPECT_EQ(text->back(), '\n');
    } else {
      EXPECT_FALSE(text.status().message().empty());
    }
  }
  EXPECT_GT(planned, 0u);
  EXPECT_LT(planned, count);
}

}  // namespace
}  // namespace vpod::tools
