// vpod's command line.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/vpod/plan_arguments.h"
#include "tools/vpod/pod.h"

namespace vpod::tools {

inline constexpr char kSupportBundle[] = "support-bundle";

struct Arguments {
  std::string command;      // "up"
  std::string name;         // of the POD; empty: the one in use
  PodRequest request;       // of up, unless there is a file
  std::string file;         // of up: describes the POD; of backup and restore: the backup
  bool keep = false;        // of down
  std::string user;         // of env: whose key; empty: the administrator's
  std::string daemon;       // of logs: server, agent or empty for all
  size_t lines = 50;        // of logs
  bool follow = false;      // of logs
  bool json = false;        // of status and list
  std::string shell, tool;  // of completion
  std::string output;       // of support-bundle; empty: a name with the time, here
  std::string project;      // of new: its directory
  bool python = false;      // of new
  PlanArguments plan;       // of plan
};

// Parses the words after the program's name. A number: nothing is left to do but to end with that
// status, since help was printed or wrong usage reported.
std::optional<int> ParseArguments(std::vector<std::string> words, Arguments& arguments);

}  // namespace vpod::tools
