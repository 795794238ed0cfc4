// Figures that plans of models and of executables show alike.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/plan/phases.h"
#include "device/model/timeline.h"

namespace vpod::tools {

enum class PlanFormat { kTable, kJson, kCsv };

struct PlanOutput {
  std::string text;  // ends with a newline
  std::vector<std::string> notes;
};

// A plan is made for each POD of each type of machine.
struct Systems {
  std::vector<uint32_t> pods = {16};  // IPUs
  std::vector<std::string> machine_types = {"m2000"};
};

double Megabytes(model::Bytes bytes);
// "12.5%"
std::string Percent(double share);

// How an IPU spends a run, in parts of its time; the busiest one if none is given.
struct Shares {
  double compute, exchange, sync, waiting;
  double with_streaming_memory;  // of exchange and sync
};
Shares SharesOf(const model::Timeline& timeline);
Shares SharesOf(const model::IpuTime& ipu, const model::Timeline& timeline);

model::Bytes MostMemory(const std::vector<model::Bytes>& memory);

// The IPUs of a replica in a run.
struct IpuFigures {
  const model::Timeline& timeline;
  const std::vector<model::Bytes>& memory;  // of each
  std::vector<plan::PhaseCycles> phases;    // of each
};

std::string IpuTables(const IpuFigures& figures);
// Adds "ipus_of_a_replica", and "why_not" if the plan does not fit.
void AddDetails(nlohmann::ordered_json& row, const IpuFigures& figures, const std::string& why_not);

// JSON in ASCII, whatever the bytes of its texts are; on lines of this indent, or on one.
std::string Dump(const nlohmann::ordered_json& json, int indent = -1);

// Objects of the same fields without nesting, a line each behind one of the fields' names. With
// details it is a line for each IPU of a replica, which has the figures of the IPU in the place of
// those that the replica has under the same names; "why_not" is left out.
std::string Csv(const std::vector<nlohmann::ordered_json>& rows);

}  // namespace vpod::tools
