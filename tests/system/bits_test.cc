// How the micro-batches of an update are dealt to threads, replicas, processes and machines changes
// no bit of losses, weights and the optimiser's state. Neither do fusion and sharing.
//
// Between 1 × 16, 4 × 4 and 16 × 1 (replicas × accumulation) float64 sums of gradients are added in
// another order, so that a float32 may come out one step apart if such a sum lies on the boundary
// between two of them. The elements that differ are counted; here there are none.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "client/session/ipu_model.h"
#include "tests/programs/bits_training.h"
#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

struct Kind {
  std::string name;
  BitsOptions options;
  std::vector<std::string> words;  // the same for bits_job
};

std::vector<Kind> Kinds() {
  constexpr auto kHalf = program::v1::FLOAT16;
  return {{"Float32", {}, {}},
          {"Float32Dropout", {.dropout = true}, {"--dropout"}},
          {"Float16", {.type = kHalf}, {"--half"}},
          {"Float16Dropout", {.type = kHalf, .dropout = true}, {"--half", "--dropout"}},
          {"StochasticRounding",
           {.type = kHalf, .dropout = true, .rounding = compiler::Rounding::kStochastic},
           {"--half", "--dropout", "--stochastic-rounding"}}};
}

Bits OnIpuModel(BitsOptions options, uint32_t replicas, int compute_threads = 0) {
  options.replicas = replicas;
  auto device = session::CreateIpuModel({.replicas = replicas, .compute_threads = compute_threads});
  EXPECT_TRUE(device.ok()) << device.status();
  if (!device.ok()) return {};
  const auto bits = TrainForBits(options, *std::move(device));
  EXPECT_TRUE(bits.ok()) << bits.status();
  return bits.ok() ? *bits : Bits{};
}

// Elements that one of them has and the other has not, or not with these bits.
size_t Differences(const Bits& a, const Bits& b) {
  size_t equal = 0;
  for (const auto& [name, value] : a) {
    const auto other = b.find(name);
    equal += other != b.end() && other->second == value ? 1 : 0;
  }
  return std::max(a.size(), b.size()) - equal;
}

class BitsTest : public ::testing::TestWithParam<Kind> {
 protected:
  static const BitsOptions& Options() { return GetParam().options; }
  // 16 replicas in this process.
  static const Bits& Reference() {
    static auto* const references = new std::map<std::string, Bits>;
    Bits& bits = (*references)[GetParam().name];
    if (bits.empty()) bits = OnIpuModel(Options(), 16);
    return bits;
  }

  static Bits OnPod(TestPod& pod, int instances, int replicas, bool sharing = true) {
    const std::string file = pod.directory() + "/bits";
    std::vector<std::string> words = {"poprun",
                                      "--num-instances",
                                      std::to_string(instances),
                                      "--num-replicas",
                                      std::to_string(replicas),
                                      "bits_job",
                                      "--results",
                                      file};
    words.insert(words.end(), GetParam().words.begin(), GetParam().words.end());
    if (!sharing) words.push_back("--no-sharing");
    const Outcome outcome = pod.Run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
    Bits bits;
    for (int instance = 0; instance < instances; ++instance) {
      std::ifstream in(file + "." + std::to_string(instance));
      for (std::string name, index, value; in >> name >> index >> value;) {
        std::string& of_element = bits[name + " " + index];
        EXPECT_TRUE(of_element.empty() || of_element == value) << name << " " << index;
        of_element = value;
      }
    }
    return bits;
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, BitsTest, ::testing::ValuesIn(Kinds()),
                         [](const auto& info) { return info.param.name; });

TEST_P(BitsTest, ThereAreManyAndTheyChange) {
  const Bits& bits = Reference();
  EXPECT_EQ(std::count_if(bits.begin(), bits.end(),
                          [](const auto& each) { return each.first.rfind("loss ", 0) == 0; }),
            6 * 16);
  EXPECT_GT(bits.size(), 3000u);
  std::set<std::string> different;
  for (const auto& [name, value] : bits) different.insert(value);
  EXPECT_GT(different.size(), 2000u);
}

TEST_P(BitsTest, TwoRunsAndAnyNumberOfThreads) {
  for (int threads : {1, 1, 2, 4})
    EXPECT_EQ(Differences(OnIpuModel(Options(), 16, threads), Reference()), 0u) << threads;
}

TEST_P(BitsTest, ReplicasAndAccumulation) {
  for (uint32_t replicas : {1, 2, 4, 8})
    EXPECT_EQ(Differences(OnIpuModel(Options(), replicas), Reference()), 0u) << replicas;
}

TEST_P(BitsTest, Fusion) {
  BitsOptions options = Options();
  if (options.rounding != compiler::Rounding::kNearest)
    GTEST_SKIP() << "programs that round stochastically are not fused";
  options.fusion = false;
  EXPECT_EQ(Differences(OnIpuModel(options, 16), Reference()), 0u);
}

TEST_P(BitsTest, Sharing) {
  BitsOptions options = Options();
  options.sharing = false;
  EXPECT_EQ(Differences(OnIpuModel(options, 16), Reference()), 0u);
}

TEST_P(BitsTest, OneAgentAndOneProcessOrFour) {
  static TestPod* const pod = [] {
    auto* one = new TestPod(16);
    one->CreatePartition("p16", 16);
    return one;
  }();
  struct Owner : ::testing::Environment {
    void TearDown() override { delete pod; }
  };
  static auto* const owner = ::testing::AddGlobalTestEnvironment(new Owner);
  (void)owner;
  for (int instances : {1, 4})
    EXPECT_EQ(Differences(OnPod(*pod, instances, 16), Reference()), 0u) << instances;
  EXPECT_EQ(Differences(OnPod(*pod, 4, 16, /*sharing=*/false), Reference()), 0u);
}

// Two agents have 8 replicas.
TEST_P(BitsTest, TwoAgents) {
  TestPod pod(8, {"--agents", "processes"});
  pod.CreatePartition("p8", 8);
  EXPECT_EQ(Differences(OnPod(pod, 2, 8), Reference()), 0u);
  EXPECT_EQ(pod.AttachedIpus(), 0);
}

// The tests above would also hold if nobody read the masks or the types.
TEST(BitsOfKindsTest, Differ) {
  std::vector<Bits> all;
  for (const Kind& kind : Kinds()) {
    all.push_back(OnIpuModel(kind.options, 4));
    for (size_t i = 0; i + 1 < all.size(); ++i)
      EXPECT_GT(Differences(all[i], all.back()), 2000u) << kind.name;
  }
}

}  // namespace
}  // namespace vpod::testing
