// Writes profile.pop, one file for each program of an executable (docs/profiles.md).
#pragma once

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
  uint32_t runs = 2;         // of each program that are recorded
  bool is_model = false;     // an IPUModel
  model::Topology topology;  // of the job
  std::map<std::string, std::string> engine_options;  // as the user gave them
  std::string session;                                // a random id, of Profiler::Create
};

class Recording;

// The profiles of a session. One thread at a time.
class Profiler {
 public:
  ~Profiler();

  // Writes what is known before the first run: target, memory, variables, program tree. A profile
  // that is there is replaced, whole or not at all. ResourceExhausted: the disk is full.
  // Unavailable: otherwise. The message names the file or directory.
  static absl::StatusOr<std::unique_ptr<Profiler>> Create(
      std::shared_ptr<const program::Executable> executable, const ProfileOptions& options);

  // Adds a run, and with the first one the steps that runs take. Does nothing for runs beyond those
  // that are to be recorded. An error, which names the file, is the last: from then on nothing is
  // recorded, which the profiles say if that can be written. FailedPrecondition: another session
  // has replaced the profile.
  absl::Status AddRun(uint32_t program, base::Cycles cycles);

  const std::string& PathOf(uint32_t program) const { return paths_[program]; }

 private:
  Profiler(std::shared_ptr<const program::Executable> executable, ProfileOptions options);

  absl::Status Add(uint32_t program, base::Cycles cycles);
  void NoteLostRuns(uint32_t program) const;

  const std::shared_ptr<const program::Executable> executable_;
  const ProfileOptions options_;
  std::vector<std::string> paths_;  // by program
  std::vector<uint32_t> runs_;      // recorded, by program
  // By program, open from its first run to the last one that is recorded.
  std::vector<std::unique_ptr<Recording>> recordings_;
  bool stopped_ = false;  // after an error
};

}  // namespace vpod::profile
