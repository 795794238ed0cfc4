// How the micro-batches of an update are dealt to threads, replicas, processes and machines changes
// no bit of losses, weights and the optimiser's state. Neither do fusion and sharing. With the same
// number of replicas, what each replica has for itself is the same, too.
//
// Between 1 × 16, 4 × 4 and 16 × 1 (replicas × accumulation) float64 sums of gradients are added in
// another order, so that a float32 may come out one step apart if such a sum lies on the boundary
// between two of them. The elements that differ are counted; here there are none.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <string_view>

#include "client/session/ipu_model.h"
#include "client/session/npz.h"
#include "tests/programs/bits_models.h"
#include "tests/programs/bits_training.h"
#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

struct Kind {
  std::string name;
  BitsOptions options;
};

std::vector<Kind> SmallKinds() {
  constexpr auto kHalf = program::v1::FLOAT16;
  constexpr auto kStochastic = compiler::Rounding::kStochastic;
  return {
      {"Float32", {}},
      {"Float32Dropout", {.model = "small_dropout"}},
      {"Float16", {.type = kHalf}},
      {"Float16Dropout", {.model = "small_dropout", .type = kHalf}},
      {"StochasticRounding", {.model = "small_dropout", .type = kHalf, .rounding = kStochastic}}};
}

std::vector<Kind> ModelKinds() {
  std::vector<Kind> kinds;
  const std::pair<const char*, const char*> models[] = {{"MobileNetV2", "mobilenet"},
                                                        {"EfficientNetB0", "efficientnet"},
                                                        {"TransformerEncoder", "encoder"},
                                                        {"Lstm", "lstm"},
                                                        {"Gru", "gru"},
                                                        {"BertTiny", "bert_tiny"},
                                                        {"Gpt2", "gpt2"}};
  for (const auto& [name, model] : models) {
    BitsOptions options{.model = model};
    kinds.push_back({name, options});
    options.type = program::v1::FLOAT16;
    kinds.push_back({std::string(name) + "Half", options});
    options.rounding = compiler::Rounding::kStochastic;
    kinds.push_back({std::string(name) + "StochasticRounding", options});
  }
  return kinds;
}

// The same options in the words of bits_job.
std::vector<std::string> Words(const BitsOptions& options) {
  std::vector<std::string> words = {"--model", options.model};
  if (options.type == program::v1::FLOAT16) words.push_back("--half");
  if (options.rounding == compiler::Rounding::kStochastic) words.push_back("--stochastic-rounding");
  if (!options.fusion) words.push_back("--no-fusion");
  if (!options.sharing) words.push_back("--no-sharing");
  return words;
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

size_t Differences(std::string_view a, std::string_view b) {
  if (a == b) return 0;
  if (a.size() != b.size()) return std::max(a.size(), b.size()) / sizeof(float);
  size_t count = 0;
  for (size_t at = 0; at < a.size(); at += sizeof(float))
    count += a.substr(at, sizeof(float)) == b.substr(at, sizeof(float)) ? 0 : 1;
  return count;
}

// By name, the elements that one of them has and the other has not, or not with these bits.
std::map<std::string, size_t> Differences(const Bits& a, const Bits& b) {
  const auto bytes = [](const Bits& bits, const std::string& name) -> std::string_view {
    const auto array = bits.find(name);
    if (array == bits.end()) return {};
    return array->second.bytes;
  };
  std::map<std::string, size_t> differences;
  for (const Bits* either : {&a, &b}) {
    for (const auto& [name, array] : *either) {
      const size_t count = Differences(bytes(a, name), bytes(b, name));
      if (count > 0) differences[name] = count;
    }
  }
  return differences;
}
const std::map<std::string, size_t> kNone;

Bits OfJob(Bits bits) {
  std::erase_if(bits, [](const auto& each) { return each.first.starts_with(kOfReplica); });
  return bits;
}

class BitsTest : public ::testing::TestWithParam<Kind> {
 protected:
  static const BitsOptions& Options() { return GetParam().options; }
  // So many replicas in this process.
  static const Bits& Reference(uint32_t replicas = 16) {
    static auto* const references = new std::map<std::pair<std::string, uint32_t>, Bits>;
    Bits& bits = (*references)[{GetParam().name, replicas}];
    if (bits.empty()) bits = OnIpuModel(Options(), replicas);
    return bits;
  }

  static Bits OnPod(TestPod& pod, int instances, int replicas, bool sharing = true) {
    BitsOptions options = Options();
    options.sharing = sharing;
    const std::string file = pod.directory() + "/bits";
    std::vector<std::string> words = {"poprun",
                                      "--num-instances",
                                      std::to_string(instances),
                                      "--num-replicas",
                                      std::to_string(replicas),
                                      "bits_job",
                                      "--results",
                                      file};
    for (const std::string& word : Words(options)) words.push_back(word);
    const Outcome outcome = pod.Run(words);
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
    Bits bits;
    for (int instance = 0; instance < instances; ++instance) {
      auto of_instance = session::ReadNpz(file + "." + std::to_string(instance));
      EXPECT_TRUE(of_instance.ok()) << of_instance.status();
      if (!of_instance.ok()) continue;
      for (auto& [name, array] : *of_instance) {
        const auto [first, is_new] = bits.try_emplace(name, array);
        EXPECT_EQ(Differences(first->second.bytes, array.bytes), 0u) << name;
      }
    }
    return bits;
  }
};
constexpr auto kName = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Small, BitsTest, ::testing::ValuesIn(SmallKinds()), kName);
INSTANTIATE_TEST_SUITE_P(Models, BitsTest, ::testing::ValuesIn(ModelKinds()), kName);

TEST_P(BitsTest, ThereAreManyAndTheyChange) {
  const Bits& bits = Reference();
  uint32_t losses = 0;
  std::vector<uint32_t> all;
  for (const auto& [name, array] : bits) {
    losses += name.starts_with("loss ") ? 1 : 0;
    const auto* begin = reinterpret_cast<const uint32_t*>(array.bytes.data());
    const auto* end = begin + array.bytes.size() / sizeof(uint32_t);
    all.insert(all.end(), begin, end);
    // LAMB's limit of a norm is infinite by default.
    if (name.starts_with("optimizer/hyperParameters/")) continue;
    EXPECT_TRUE(std::all_of(begin, end, [](uint32_t element) {
      return std::isfinite(std::bit_cast<float>(element));
    })) << name;
  }
  EXPECT_EQ(losses, Options().updates() * BitsOptions::kMicroBatches);
  const size_t elements = all.size();
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  EXPECT_GT(elements, 3000u);
  // Float16 has 63,488 finite values for the weights; the rest is float32.
  EXPECT_GT(all.size(), Options().type == program::v1::FLOAT16 ? elements / 2 : elements * 3 / 4);
}

TEST_P(BitsTest, TwoRunsAndAnyNumberOfThreads) {
  const bool is_small = Options().model.starts_with("small");
  for (int threads : is_small ? std::vector{1, 1, 2, 4} : std::vector{1, 4})
    EXPECT_EQ(Differences(OnIpuModel(Options(), 16, threads), Reference()), kNone) << threads;
}

TEST_P(BitsTest, ReplicasAndAccumulation) {
  for (uint32_t replicas : {1, 2, 4, 8})
    EXPECT_EQ(Differences(OfJob(Reference(replicas)), OfJob(Reference())), kNone) << replicas;
}

TEST_P(BitsTest, Fusion) {
  BitsOptions options = Options();
  if (options.rounding != compiler::Rounding::kNearest)
    GTEST_SKIP() << "programs that round stochastically are not fused";
  options.fusion = false;
  EXPECT_EQ(Differences(OnIpuModel(options, 16), Reference()), kNone);
}

TEST_P(BitsTest, Sharing) {
  BitsOptions options = Options();
  options.sharing = false;
  EXPECT_EQ(Differences(OnIpuModel(options, 16), Reference()), kNone);
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
    EXPECT_EQ(Differences(OnPod(*pod, instances, 16), Reference()), kNone) << instances;
  EXPECT_EQ(Differences(OnPod(*pod, 4, 16, /*sharing=*/false), Reference()), kNone);
}

// Each has four replicas, of one instance or of two.
TEST_P(BitsTest, TwoAgents) {
  TestPod pod(8, {"--agents", "processes"});
  pod.CreatePartition("p8", 8);
  for (int instances : {2, 4})
    EXPECT_EQ(Differences(OnPod(pod, instances, 8), Reference(8)), kNone) << instances;
  EXPECT_EQ(pod.AttachedIpus(), 0);
}

// The tests above would also hold if nobody read the masks or the types.
TEST(BitsOfKindsTest, Differ) {
  std::vector<Bits> all;
  for (const Kind& kind : SmallKinds()) {
    all.push_back(OnIpuModel(kind.options, 4));
    for (size_t i = 0; i + 1 < all.size(); ++i)
      EXPECT_GT(Differences(all[i], all.back()).size(), 96u) << kind.name;
  }
}

}  // namespace
}  // namespace vpod::testing
