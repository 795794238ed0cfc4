// Numbers of the Fashion-MNIST and hands-on examples: how replicas are spread over accumulation,
// processes and transports changes nothing, or nothing beyond rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <regex>
#include <sstream>

#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

// A run of the example: the loss of every weight update, as text with all its digits.
struct Curve {
  std::string text;
  std::vector<double> losses;
};

class TrainingTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    pod_ = new TestPod(16);
    pod_->CreatePartition("p16", 16);
    whole_epoch_ = Train({}, {"--replicas", "16"});
  }
  static void TearDownTestSuite() {
    EXPECT_EQ(pod_->AttachedIpus(), 0);
    delete pod_;
    pod_ = nullptr;
  }

  // `launcher` is poprun and its options, or nothing.
  static Curve Train(std::vector<std::string> words, const std::vector<std::string>& arguments,
                     const std::string& transport = "") {
    static int runs = 0;
    const std::string file = pod_->directory() + "/loss" + std::to_string(++runs);
    words.insert(words.end(), {"fashion_mnist", "--epochs", "1", "--device-iterations", "13",
                               "--loss-file", file});
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::map<std::string, std::string> environment = pod_->environment();
    environment["VPOD_TRANSPORT"] = transport;
    const Outcome outcome = Command(words, environment).Wait(std::chrono::seconds(300));
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
    Curve curve;
    std::stringstream text;
    text << std::ifstream(file).rdbuf();
    curve.text = text.str();
    double loss;
    while (text >> loss) curve.losses.push_back(loss);
    return curve;
  }

  static std::vector<std::string> Poprun(int instances, int replicas) {
    return {"poprun", "--num-instances", std::to_string(instances), "--num-replicas",
            std::to_string(replicas)};
  }

  // The largest relative difference of two curves of the same length.
  static double Difference(const Curve& a, const Curve& b) {
    EXPECT_EQ(a.losses.size(), b.losses.size());
    double largest = 0;
    for (size_t i = 0; i < std::min(a.losses.size(), b.losses.size()); ++i) {
      largest = std::max(largest, std::abs(a.losses[i] - b.losses[i]) / std::abs(a.losses[i]));
    }
    return largest;
  }

  static TestPod* pod_;
  static Curve whole_epoch_;  // 16 replicas in one process
};
TestPod* TrainingTest::pod_ = nullptr;
Curve TrainingTest::whole_epoch_;

TEST_F(TrainingTest, AnEpochLearns) {
  // 60000 images in 18 runs of 13 updates of 16 replicas x 16 images.
  ASSERT_EQ(whole_epoch_.losses.size(), 18u * 13u);
  EXPECT_GT(whole_epoch_.losses.front(), 2.0);
  EXPECT_LT(whole_epoch_.losses.back(), 0.6);
  for (double loss : whole_epoch_.losses) EXPECT_TRUE(std::isfinite(loss));
}

TEST_F(TrainingTest, TwoRunsAreIdentical) {
  const Curve again = Train({}, {"--replicas", "16"});
  EXPECT_EQ(again.text, whole_epoch_.text);
}

TEST_F(TrainingTest, FourProcessesAreIdenticalToOne) {
  const Curve four = Train(Poprun(4, 16), {});
  EXPECT_EQ(four.text, whole_epoch_.text);
}

TEST_F(TrainingTest, HandsOnDoesNotDependOnInstances) {
  const auto losses = [](std::vector<std::string> words) {
    words.insert(words.end(), {"hands_on", "--network", "mnist", "--micro-batch", "8"});
    if (words[0] == "hands_on") words.insert(words.end(), {"--replicas", "2"});
    const Outcome outcome = Command(words, pod_->environment()).Wait();
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
    static const std::regex loss("run [0-9]+: loss [0-9.]+");
    std::string all;
    for (std::sregex_iterator each(outcome.out.begin(), outcome.out.end(), loss), end; each != end;
         ++each)
      all += each->str() + "\n";
    return all;
  };
  const std::string one = losses(Poprun(1, 2));
  EXPECT_EQ(std::count(one.begin(), one.end(), '\n'), 3) << one;
  EXPECT_EQ(losses(Poprun(2, 2)), one);
  EXPECT_EQ(losses({}), one);  // on IPUModels
}

TEST_F(TrainingTest, ReplicasAndAccumulationGiveOneCurve) {
  const Curve four = Train({}, {"--replicas", "4", "--accumulation", "4"});
  EXPECT_LE(Difference(whole_epoch_, four), 1e-5);
  const Curve one = Train({}, {"--replicas", "1", "--accumulation", "16"});
  EXPECT_LE(Difference(whole_epoch_, one), 1e-5);
  EXPECT_LE(Difference(four, one), 1e-5);
}

TEST_F(TrainingTest, TransportsAreIdentical) {
  const std::vector<std::string> few = {"--train-images", "10000"};
  const Curve shared = Train(Poprun(4, 16), few, "shm");
  const Curve network = Train(Poprun(4, 16), few, "tcp");
  EXPECT_EQ(shared.losses.size(), 3u * 13u);
  EXPECT_EQ(shared.text, network.text);
}

TEST_F(TrainingTest, TheIpuModelIsIdenticalToThePod) {
  const std::vector<std::string> few = {"--replicas", "4", "--train-images", "10000"};
  std::vector<std::string> model = few;
  model.emplace_back("--use-ipu-model");
  const Curve pod = Train({}, few);
  EXPECT_EQ(pod.losses.size(), 12u * 13u);
  EXPECT_EQ(Train({}, model).text, pod.text);
  // Under poprun with one instance, too.
  EXPECT_EQ(Train(Poprun(1, 4), {"--train-images", "10000", "--use-ipu-model"}).text, pod.text);
}

TEST_F(TrainingTest, FusionChangesNoLoss) {
  const std::vector<std::string> few = {"--replicas", "4", "--train-images", "4000"};
  std::vector<std::string> single = few;
  single.emplace_back("--no-fusion");
  EXPECT_EQ(Train({}, single).text, Train({}, few).text);
}

TEST_F(TrainingTest, ACachedExecutableGivesTheSameLosses) {
  // Each instance compiles, or finds what another one has left.
  std::vector<std::string> words = Poprun(2, 4);
  words.insert(words.end(), {"--executable-cache-path", pod_->directory() + "/cache"});
  const std::vector<std::string> few = {"--train-images", "4000"};
  const Curve first = Train(words, few);
  EXPECT_EQ(Train(words, few).text, first.text);
  words.insert(words.end(), {"fashion_mnist", "--train-images", "4000", "--epochs", "1"});
  std::map<std::string, std::string> environment = pod_->environment();
  environment["POPLAR_LOG_LEVEL"] = "INFO";
  const Outcome outcome = Command(words, environment).Wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE((outcome.out + outcome.err).find("Executable cache hit: "), std::string::npos)
      << outcome.err;
}

TEST_F(TrainingTest, TheIpuModelTakesNoPartInAJobOfSeveralInstances) {
  std::vector<std::string> words = Poprun(4, 16);
  words.insert(words.end(), {"fashion_mnist", "--use-ipu-model"});
  const Outcome outcome = pod_->Run(words);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find("fashion_mnist: error: the IPUModel runs in one process and cannot "
                             "take part in a job of 4 instances"),
            std::string::npos)
      << outcome.err;
}

TEST(FashionMnistTest, OptionsOutOfRangeAreRefused) {
  TestPod pod(0);
  const std::vector<std::pair<std::string, std::vector<std::string>>> wrong = {
      {"--learning-rate", {"nan", "inf", "-0.1", "1e400", "fast"}},
      {"--momentum", {"nan", "-inf", "-0.1", "1", "1e400"}},
      {"--epochs", {"nan", "0", "-1", "1.5", "4294967297", "99999999999999999999"}},
      {"--micro-batch", {"0", "-1", "4294967297"}},
      {"--accumulation", {"0", "-1", "inf"}},
      {"--device-iterations", {"0", "-1", "1e3"}},
      {"--replicas", {"0", "-1", "65"}},
      {"--train-images", {"0", "-1", "60001", "99999999999999999999"}},
      {"--seed", {"-1", "nan", "1.5", "99999999999999999999"}}};
  for (const auto& [option, values] : wrong) {
    for (const std::string& value : values) {
      const Outcome outcome =
          pod.Run({"fashion_mnist", "--use-ipu-model", "--data=/none", option + "=" + value});
      EXPECT_EQ(outcome.code, 2) << option << " " << value;
      EXPECT_NE(outcome.err.find(option), std::string::npos) << outcome.err;
      EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    }
  }
}

TEST(FashionMnistTest, HelpSaysWhatEveryOptionDoes) {
  TestPod pod(0);
  std::istringstream help(pod.Run({"fashion_mnist", "--help"}).out);
  int options = 0;
  for (std::string line; std::getline(help, line);) {
    if (line.rfind("  -", 0) != 0) continue;
    ++options;
    // The option, its type and default, then what it does: beside it or on the next line.
    const std::regex words("  [A-Z][a-z].* [a-z]");
    if (!std::regex_search(line, words)) std::getline(help, line);
    EXPECT_TRUE(std::regex_search(line, words)) << line;
  }
  EXPECT_EQ(options, 18);
}

}  // namespace
}  // namespace vpod::testing
