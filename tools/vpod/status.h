// State and processes of a POD, for people and as JSON: `vpod status` and `vpod list`.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/vipu/v1/vipuuser.pb.h"
#include "tools/vpod/pod.h"

namespace vpod::tools {

struct AgentProcess {
  std::string name, log;
  int pid = 0;  // 0: it does not run
};

struct PodStatus {
  enum class State { kNone, kDamaged, kStopped, kPartial, kRunning };

  State state = State::kNone;
  std::string home, name;         // of a POD without a name empty
  bool in_use = false;            // it is the one that tools follow here
  std::string damage;             // of a damaged POD
  std::optional<PodShape> shape;  // unless there is none, or it is damaged; so are the rest
  std::vector<std::string> missing;
  int server_pid = 0;
  std::vector<AgentProcess> agents;
  std::string metrics;  // URL of the controller's; empty: unknown
  absl::StatusOr<std::vector<vipuuser::Partition>> partitions =
      absl::UnavailableError("not running");
};

// Asks the daemons; for some seconds at most.
PodStatus StatusOf(const Pod& pod);
std::string StatusText(const PodStatus& status);
nlohmann::ordered_json StatusJson(const PodStatus& status);

// The PODs of this user on this machine: those that run, and those that have a name.
std::vector<Pod> AllPods();
std::string ListText(const std::vector<PodStatus>& pods);

}  // namespace vpod::tools
