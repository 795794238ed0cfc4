// Writes profile.pop, one file for each program of an executable (docs/profiles.md).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/base/units.h"
#include "device/model/cost.h"
#include "device/program/executable.h"

namespace vpod::profile {

struct ProfileOptions {
  std::string directory;     // in which each program has a folder of its name
  bool execution = false;    // also what runs do
  uint32_t runs = 2;         // of each program that are recorded; pva::kMostRows at most
  bool is_model = false;     // an IPUModel
  model::Topology topology;  // of the job
  // The cycles of moving the weights once before a run and once after it; runs do not contain them.
  base::Cycles weights_from_host, weights_to_host;
  std::map<std::string, std::string> engine_options;  // as the user gave them
  std::string session;                                // a random id, of Profiler::Create
};

class Recording;
struct ProgramRuns;

// The profiles of a session. One thread at a time.
class Profiler {
 public:
  ~Profiler();  // finishes

  // Writes what is known before the first run: target, memory, variables, program tree. A profile
  // that is there is replaced, whole or not at all. ResourceExhausted: the disk is full.
  // Unavailable: otherwise. The message names the file or directory.
  static absl::StatusOr<std::unique_ptr<Profiler>> Create(
      std::shared_ptr<const program::Executable> executable, const ProfileOptions& options);

  // Adds a run, and with the first one the steps that runs take. Short runs are written together, a
  // tenth of a second of them at most, so that writing takes little of the time. Does nothing for
  // runs beyond those that are to be recorded. An error, which names the file, is the last: from
  // then on nothing is recorded, which the profiles say if that can be written. FailedPrecondition:
  // another session has replaced the profile. The child of a fork writes nothing.
  absl::Status AddRun(uint32_t program, base::Cycles cycles);
  // Writes the runs that wait for others. Errors are those of AddRun.
  absl::Status Finish();

  const std::string& PathOf(uint32_t program) const;

 private:
  Profiler(std::shared_ptr<const program::Executable> executable, ProfileOptions options);

  absl::Status WriteWaiting(bool are_last);
  absl::Status Write(uint32_t program);
  void NoteLostRuns(const ProgramRuns& runs) const;

  const std::shared_ptr<const program::Executable> executable_;
  const ProfileOptions options_;
  const pid_t process_;            // that created it
  std::vector<ProgramRuns> runs_;  // by program
  // From then on a run is written at once, with those that wait.
  std::chrono::steady_clock::time_point next_write_;
  bool stopped_ = false;  // after an error
};

}  // namespace vpod::profile
