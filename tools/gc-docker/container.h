// Command lines of gc-docker and gc-podman (spec/gc-tools.md 8): "docker run" with what a container
// needs to reach IPUs over the fabric.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace vpod::tools {

// Access that the container gets from this shell.
struct ContainerAccess {
  std::string ipuof_file = "";              // absolute; empty: none
  std::string controller = "";              // host:port, of a partition without a file here
  std::vector<std::string> variables = {};  // names of the IPUOF_* variables that are set, sorted
  bool infiniband = false;                  // /dev/infiniband/ is there
};

// "docker run", the flags of the access, then the user's words.
std::vector<std::string> ContainerCommand(const std::string& engine, const ContainerAccess& access,
                                          const std::vector<std::string>& words);

// Words as one line for a shell, quoted where needed.
std::string ShellLine(const std::vector<std::string>& words);

// The whole tool, "gc-" + engine; returns only when the engine was not started.
int RunContainerTool(const std::string& engine, int argc, char** argv);

}  // namespace vpod::tools
