// Which local POD is chosen, and where it keeps its state.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace vpod::vipu {

inline constexpr char kPodClientFile[] = "vipu-cli.hcl";      // in a POD's state directory
inline constexpr char kPodIpuofDirectory[] = "ipuof.conf.d";  // in it
inline constexpr char kEnvironmentHome[] = "VPOD_ENV_HOME";   // what `vpod env` was made for
inline constexpr char kDefaultPod[] = "default";              // the name of the POD in ~/.vpod

// The state directory of the chosen POD: VPOD_HOME, else that of the POD in use, which is
// ~/.vpod unless `vpod use` has named another. InvalidArgument: VPOD_HOME is set but empty, or none
// of VPOD_HOME and HOME is set.
absl::StatusOr<std::string> PodHome();

// A POD that the user has chosen, which tools prefer to the other places where a controller may be
// named.
struct ChosenPod {
  std::string home;
  std::string how;  // for people: "VPOD_HOME is /x", "the POD in use is lab2 in /y"
};
// By VPOD_HOME or `vpod use`. InvalidArgument as in PodHome.
absl::StatusOr<std::optional<ChosenPod>> FindChosenPod();

// InvalidArgument: VPOD_HOME is empty, or `vpod env` was evaluated for another home than it names.
absl::Status CheckPodEnvironment();

// PODs with names are in <state>/vpod/pods/<name>, where <state> is XDG_STATE_HOME, else
// ~/.local/state. InvalidArgument: what cannot be a name, or HOME is not set.
absl::StatusOr<std::string> HomeOfPod(const std::string& name);
// Name of the POD with this state directory; empty: it has none.
std::string NameOfPod(const std::string& home);
// Names of all PODs that have a state directory, sorted; without "default".
std::vector<std::string> PodNames();

// The name that `vpod use` was given last; "default" without one.
std::string PodInUse();
absl::Status UsePod(const std::string& name);

}  // namespace vpod::vipu
