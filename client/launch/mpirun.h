// The mpirun command of a job and its process (spec/poprun.md 6 and 9).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/launch/layout.h"

namespace vpod::launch {

// What the command needs to know of the partition; absent in offline mode.
struct MpiTarget {
  std::string server_host;
  uint32_t server_port = 8090;
  std::string partition_id;
  std::optional<uint32_t> node_device_id;  // reconfigurable partitions
  std::string target_options;
};

// Words after mpirun's path, in the order of the real tool. Reads the environment for what is
// forwarded: instances on other hosts do not inherit it.
std::vector<std::string> MpirunArguments(const Options& options, const Layout& layout,
                                         const std::optional<MpiTarget>& target, bool numa_wrapper);

// Lets through the output of one rank, and what mpirun itself says. Splits at every tag; keeps
// state between calls.
class OutputFilter {
 public:
  explicit OutputFilter(uint32_t rank) : rank_(rank) {}
  // Returns what to print of `data`; bytes that may be the beginning of a tag are held back.
  std::string Pass(const std::string& data);
  // What was held back when the stream ends.
  std::string Finish();

 private:
  const uint32_t rank_;
  std::string held_;
  bool at_line_start_ = true;
  bool showing_ = true;
};

// Starts mpirun in a process group of its own and waits for it. SIGINT, SIGTERM and SIGHUP are
// forwarded to the group, and followed by SIGKILL after 10 s. `signal` receives the number of a
// forwarded signal, else 0. Call before other threads are started with BlockSignals. Unavailable:
// it cannot be started.
struct MpirunResult {
  int exit_code = 0;  // 128 + signal when mpirun itself was killed
  int signal = 0;
  int killed_by = 0;  // signal that ended mpirun itself, when nobody here sent one
};
void BlockSignals();
// A blocked SIGINT, SIGTERM or SIGHUP that has come meanwhile; 0 when none has.
int PendingSignal();
absl::StatusOr<MpirunResult> RunMpirun(const std::string& path,
                                       const std::vector<std::string>& arguments,
                                       std::optional<uint32_t> only_output_from,
                                       const std::function<void(int pid)>& started);

}  // namespace vpod::launch
