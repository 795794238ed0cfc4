// Programs of PopTorch on the IPUs of a POD.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

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
  if (!HasPyTorch()) GTEST_SKIP() << "python3-torch is not installed (deploy/packages-test.txt)";
  TestPod pod(4, {}, Environment());
  pod.CreatePartition("p4", 4);
  const Outcome outcome = pod.Run({"/usr/bin/python3", "client/python/poptorch/poptorch_test.py"});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_EQ(pod.Shell("grep 'attach .*python' $VPOD_HOME/vipu-agent.log").code, 0);
  EXPECT_EQ(pod.AttachedIpus(), 0);
}

}  // namespace
}  // namespace vpod::testing
