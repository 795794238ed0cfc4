// Command lines of gc-docker and gc-podman.
#include "tools/gc-docker/container.h"

#include <gtest/gtest.h>

namespace vpod::tools {
namespace {

TEST(ContainerCommandTest, WithoutAnythingSet) {
  EXPECT_EQ(ShellLine(ContainerCommand("docker", {}, {"-ti", "image"})),
            "docker run --network=host --ipc=host --ulimit memlock=-1:-1 --cap-add=IPC_LOCK "
            "-ti image");
}

TEST(ContainerCommandTest, WithVariablesOfTheController) {
  EXPECT_EQ(
      ShellLine(ContainerCommand(
          "podman",
          {.variables = {"IPUOF_VIPU_API_HOST", "IPUOF_VIPU_API_PARTITION_ID"}, .infiniband = true},
          {"image", "sh", "-c", "echo it's $HOME"})),
      "podman run --network=host --ipc=host --ulimit memlock=-1:-1 --cap-add=IPC_LOCK "
      "--device=/dev/infiniband/ -e IPUOF_VIPU_API_HOST -e IPUOF_VIPU_API_PARTITION_ID "
      "image sh -c 'echo it'\\''s $HOME'");
}

TEST(ContainerCommandTest, AFileIsMountedReadOnlyAndNamed) {
  EXPECT_EQ(ShellLine(ContainerCommand("docker",
                                       {.ipuof_file = "/home/u/p1.conf",
                                        .variables = {"IPUOF_CONFIG_PATH", "IPUOF_LOG_LEVEL"}},
                                       {"image"})),
            "docker run --network=host --ipc=host --ulimit memlock=-1:-1 --cap-add=IPC_LOCK "
            "-v /home/u/p1.conf:/home/u/p1.conf:ro -e IPUOF_CONFIG_PATH=/home/u/p1.conf "
            "-e IPUOF_LOG_LEVEL image");
}

TEST(ShellLineTest, QuotesWhatAShellWouldRead) {
  EXPECT_EQ(ShellLine({"a b", "", "*", "x=1"}), "'a b' '' '*' x=1");
}

}  // namespace
}  // namespace vpod::tools
