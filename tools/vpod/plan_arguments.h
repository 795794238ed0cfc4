// The command line of vpod plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/vpod/plan.h"

namespace CLI {
class App;
}

namespace vpod::tools {

struct PlanArguments {
  plan::PlanRequest request;         // of a model
  std::string file;                  // with an executable, instead of a model
  std::vector<std::string> program;  // with its arguments, instead of both
  Systems systems;
  bool names_pods = false;  // --pod is given
  PlanFormat format = PlanFormat::kTable;
  bool explain = false;
  bool search = false;
  uint64_t global_batch = 4096;  // of a search, at most
};

// Adds the command, whose arguments go there. Options that would be ignored are wrong usage.
void AddPlan(CLI::App& app, PlanArguments& plan);

// Takes a program of the user's from the words of this command, with the -- before it. CLI11 would
// read its options. InvalidArgument: nothing follows.
absl::Status TakeProgram(std::vector<std::string>& words, PlanArguments& plan);

// The output of the command: the text for stdout, the notes for stderr.
absl::StatusOr<PlanOutput> RunPlan(const PlanArguments& arguments);

}  // namespace vpod::tools
