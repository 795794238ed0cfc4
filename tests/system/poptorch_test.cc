// Programs of PopTorch on the IPUs of a POD.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

std::map<std::string, std::string> Environment() {
  const auto modules = std::filesystem::absolute("client/python");
  return {{"PYTHONPATH", modules.string() + ":" + (modules / "poptorch").string()},
          {"POPTORCH_IPU_MODEL", "0"},
          {"OMP_WAIT_POLICY", "passive"}};
}

bool HasPyTorch() {
  return std::system("/usr/bin/python3 -c 'import numpy, torch' 2>/dev/null") == 0;
}

// The package's own test compares training and inference with eager PyTorch.
TEST(PopTorchTest, ModelsRunAsInPyTorch) {
  if (!HasPyTorch()) GTEST_SKIP() << "python3-torch is not installed (deploy/packages-pytorch.txt)";
  TestPod pod(4, {}, Environment());
  pod.CreatePartition("p4", 4);
  const Outcome outcome = pod.Run({"/usr/bin/python3", "client/python/poptorch/poptorch_test.py"});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_EQ(pod.Shell("grep 'attach .*python' $VPOD_HOME/vipu-agent.log").code, 0);
  EXPECT_EQ(pod.AttachedIpus(), 0);
}

// A model that trains, and one for validation, on a partition with one IPU.
constexpr char kTwoModels[] = R"(
import os
import poptorch
import torch

model = torch.nn.Linear(2, 2)


class Trained(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model

    def forward(self, x):
        return poptorch.identity_loss(self.inner(x), reduction="sum")


options = poptorch.Options().showCompilationProgressBar(False)
x = torch.ones(1, 2)
training = poptorch.trainingModel(Trained(), options)
training(x)
validation = poptorch.inferenceModel(model, options)
try:
    validation(x)
except poptorch.Error as error:
    print(str(error).replace(str(os.getpid()), "OWN"))
training.detachFromDevice()
print("shape", tuple(validation(x).shape))
)";

TEST(PopTorchTest, ModelThatHasTheOnlyIpuIsOfThisProcess) {
  if (!HasPyTorch()) GTEST_SKIP() << "python3-torch is not installed (deploy/packages-pytorch.txt)";
  TestPod pod(4, {}, Environment());
  pod.CreatePartition("p1", 1);
  const Outcome outcome = pod.Run({"/usr/bin/python3", "-c", kTwoModels});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  for (const char* part : {"Failed to acquire 1 IPU(s): device 0 is in use by process OWN (",
                           "That is this process, model 'training': call detachFromDevice() or "
                           "destroy() of the model that "
                           "has the IPUs",
                           "shape (1, 2)"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  }
}

// Each test checks at its end that its process can train; then the POD has to serve another one.
TEST(PopTorchTest, ProcessAndPodAreUsableAfterWrongUses) {
  if (!HasPyTorch()) GTEST_SKIP() << "python3-torch is not installed (deploy/packages-pytorch.txt)";
  TestPod pod(4, {}, Environment());
  pod.environment()["PYTHONPATH"] += ":client/python/poptorch/_testing";
  pod.CreatePartition("p4", 4);
  for (const std::string mistakes : {"calls", "models"}) {
    const Outcome outcome =
        pod.Run({"/usr/bin/python3", "client/python/poptorch/mistakes_" + mistakes + "_test.py"});
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
    EXPECT_EQ(pod.AttachedIpus(), 0);
  }
  const Outcome after = pod.Run({"/usr/bin/python3", "client/python/poptorch/poptorch_test.py"});
  EXPECT_EQ(after.code, 0) << after.out << after.err;
  EXPECT_EQ(pod.Shell("grep 'attach .*python' $VPOD_HOME/vipu-agent.log").code, 0);
}

// Pipelines whose stages have an IPU each.
constexpr char kPipelines[] = R"(
import poptorch
import torch


class Pipeline(torch.nn.Module):
    def __init__(self, stages):
        super().__init__()
        self.layers = torch.nn.Sequential(*(
            poptorch.BeginBlock(torch.nn.Linear(2, 2), ipu_id=ipu) for ipu in range(stages)))

    def forward(self, x):
        return poptorch.identity_loss(self.layers(x), reduction="sum")


options = poptorch.Options().showCompilationProgressBar(False)
options.Training.gradientAccumulation(7)
for stages in (4, 2):
    training = poptorch.trainingModel(Pipeline(stages), options)
    try:
        print("trained", stages, tuple(training(torch.ones(7, 2)).shape))
    except poptorch.Error as error:
        print(error)
    training.destroy()
)";

TEST(PopTorchTest, FourStagesOnTwoIpusAreRefusedAndTwoTrain) {
  if (!HasPyTorch()) GTEST_SKIP() << "python3-torch is not installed (deploy/packages-pytorch.txt)";
  TestPod pod(4, {}, Environment());
  pod.CreatePartition("p2", 2);
  const Outcome outcome = pod.Run({"/usr/bin/python3", "-c", kPipelines});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("Failed to acquire 4 IPU(s): partition p2 has 2"), std::string::npos)
      << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("trained 2 "), std::string::npos) << outcome.out << outcome.err;
  EXPECT_EQ(pod.AttachedIpus(), 0);
}

constexpr char kAgreement[] = "client/python/poptorch/_testing/agreement.py";

// The lines that begin with "weights", each once.
std::set<std::string> Digests(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  std::set<std::string> digests;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);)
    if (const size_t at = line.find("weights "); at != line.npos) digests.insert(line.substr(at));
  EXPECT_FALSE(digests.empty()) << outcome.out << outcome.err;
  return digests;
}

// On one IPU, on two one after the other, on two as a pipeline; on a POD and on an IPUModel.
TEST(PopTorchTest, PlacementsAreEqualToTheBit) {
  if (!HasPyTorch()) GTEST_SKIP() << "python3-torch is not installed (deploy/packages-pytorch.txt)";
  TestPod pod(4, {}, Environment());
  pod.CreatePartition("p4", 4);
  std::set<std::string> digests;
  for (const char* placement : {"single", "sharded", "pipelined"})
    digests.merge(Digests(pod.Run({"/usr/bin/python3", kAgreement, placement})));
  pod.environment()["POPTORCH_IPU_MODEL"] = "1";
  digests.merge(Digests(pod.Run({"/usr/bin/python3", kAgreement, "pipelined"})));
  EXPECT_EQ(digests.size(), 1u);
}

// 16 replicas in one process, in four, and in sixteen: each process prints the same weights.
TEST(PopTorchTest, InstancesAreEqualToTheBit) {
  if (!HasPyTorch()) GTEST_SKIP() << "python3-torch is not installed (deploy/packages-pytorch.txt)";
  TestPod pod(16, {}, Environment());
  pod.CreatePartition("p16", 16);
  std::set<std::string> weights;
  for (const int instances : {1, 4, 16}) {
    const std::string replicas = std::to_string(16 / instances);
    const Outcome outcome =
        pod.Run({"poprun", "--num-instances", std::to_string(instances), "--num-replicas", "16",
                 "--vipu-partition", "p16", "/usr/bin/python3", kAgreement, "single", replicas},
                std::chrono::seconds(300));
    for (const std::string& digest : Digests(outcome))
      weights.insert(digest.substr(0, digest.find(" losses")));
  }
  EXPECT_EQ(weights.size(), 1u);
}

// The example of the manual, on all IPUs of a POD4: its losses fall, and are those of an IPUModel.
TEST(PopTorchTest, APipelineOfFourStagesTrainsOnAPod4) {
  if (!HasPyTorch()) GTEST_SKIP() << "python3-torch is not installed (deploy/packages-pytorch.txt)";
  TestPod pod(4, {}, Environment());
  pod.CreatePartition("p4", 4);
  const std::vector<std::string> pipeline = {"/usr/bin/python3",
                                             "client/examples/pytorch/pipeline.py"};
  const Outcome on_pod = pod.Run(pipeline);
  EXPECT_EQ(on_pod.code, 0) << on_pod.out << on_pod.err;
  EXPECT_EQ(pod.Shell("grep 'attach .*python' $VPOD_HOME/vipu-agent.log").code, 0);
  EXPECT_EQ(pod.AttachedIpus(), 0);
  std::vector<double> losses;
  std::istringstream lines(on_pod.out);
  for (std::string line; std::getline(lines, line);)
    if (const size_t at = line.find("loss "); at != line.npos)
      losses.push_back(std::stod(line.substr(at + 5)));
  ASSERT_EQ(losses.size(), 4u) << on_pod.out;
  EXPECT_TRUE(std::is_sorted(losses.rbegin(), losses.rend())) << on_pod.out;
  pod.environment()["POPTORCH_IPU_MODEL"] = "1";
  EXPECT_EQ(pod.Run(pipeline).out, on_pod.out);
}

}  // namespace
}  // namespace vpod::testing
