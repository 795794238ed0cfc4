// Rows that plans of models and of executables show alike: a program on a POD.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "client/plan/executable_plan.h"

namespace vpod::tools {

// The POD, and what a run takes there.
struct PodRow {
  const std::string& machine_type;
  uint32_t pod;  // IPUs
  const plan::ExecutablePlan& plan;
  const model::Timeline& timeline;  // of the run
  double items_per_second;
  double efficiency;
};

// Items for each IPU, compared with those on the smallest POD of the same machines: a replica has
// the same work on all PODs.
class Efficiency {
 public:
  void Add(const std::string& machine_type, uint32_t pod, double seconds);
  // The efficiency of one that was added.
  double Of(const std::string& machine_type, double seconds) const;

 private:
  std::map<std::string, std::pair<uint32_t, double>> smallest_;  // POD and its seconds, by machines
};

// The own columns of a kind of plan, between those that both kinds of plan have: before the
// machine, between the replicas and the items of a second, and before the shares of time.
template <class T>
struct Between {
  T first, items, times;
};

std::vector<std::string> PlanHeadings(const Between<std::vector<std::string>>& own);
std::vector<std::string> PlanCells(const PodRow& row, const Between<std::vector<std::string>>& own);
nlohmann::ordered_json PlanJson(const PodRow& row, const Between<nlohmann::ordered_json>& own);

}  // namespace vpod::tools
