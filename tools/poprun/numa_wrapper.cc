// poprun_numa_wrapper program [args]: binds an instance to its share of the host's NUMA nodes, then
// becomes the program. poprun puts it before the program; nobody else needs it.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/numbers.h"
#include "client/launch/numa.h"
#include "client/vipu/config.h"
#include "device/base/text.h"

int main(int argc, char** argv) {
  using namespace vpod;
  uint32_t index = 0, instances = 0;
  if (argc < 2 || !absl::SimpleAtoi(vipu::Environment("POPDIST_LOCAL_INSTANCE_INDEX"), &index) ||
      !absl::SimpleAtoi(vipu::Environment("OMPI_COMM_WORLD_LOCAL_SIZE"), &instances) ||
      index >= instances) {
    std::fprintf(stderr,
                 "poprun_numa_wrapper: error: started by poprun only, as "
                 "'poprun_numa_wrapper program [args]'\n");
    return 2;
  }
  const auto nodes = launch::ReadNumaNodes();
  if (nodes.size() > 1) {
    const absl::Status bound = launch::BindTo(launch::ShareOfNodes(nodes, index, instances));
    if (!bound.ok()) {
      std::fprintf(stderr, "poprun_numa_wrapper: warning: instance is not bound, %s\n",
                   std::string(bound.message()).c_str());
    }
  }
  execvp(argv[1], argv + 1);
  std::fprintf(stderr, "poprun_numa_wrapper: error: cannot run '%s': %s\n",
               base::OneLine(argv[1]).c_str(), std::strerror(errno));
  return 127;
}
