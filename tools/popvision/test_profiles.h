// Profiles of small networks, for tests of views.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/compiler/compiler.h"
#include "client/pva/pva.h"
#include "device/base/units.h"
#include "tools/popvision/document.h"

namespace vpod::popvision {

// ResNet-18 for small images, on one IPU or two.
struct NetworkOptions {
  uint32_t ipus = 2, accumulation = 7;
  int64_t micro_batch = 2;
  compiler::Recomputation recomputation = compiler::Recomputation::kNone;
  program::v1::DataType type = program::v1::FLOAT32;
  compiler::Optimizer optimizer = {};
  uint32_t replicas = 1;
  bool off_chip = false;  // state, activations and weights
  bool off_chip_accumulators = false;
  compiler::Schedule schedule = compiler::Schedule::kGrouped;
  std::string split = "layer3.0";  // the block with which the second IPU begins
  model::OptionNames option_names;
};

// The profile of the first program, with a run that takes the cycles of the model and does not
// compute anything.
pva::Report ProfileOf(const compiler::Compiled& compiled, uint32_t replicas = 1);
pva::Report ProfileOf(const NetworkOptions& options);
// The profile of NetworkOptions().
const pva::Report& Pipeline();

struct RecordedRun {
  pva::Report report;
  base::Cycles cycles;  // that the device counted
};
// The profile of a run on an IPUModel. Its file is kept if `keep` is set.
RecordedRun Record(const NetworkOptions& options, bool keep = false);

// Parts of a document as JSON: its blocks, the one with a title, and the rows of that.
nlohmann::json Blocks(const Document& document);
nlohmann::json Find(const Document& document, const std::string& title);
std::vector<nlohmann::json> Rows(const Document& document, const std::string& title);

}  // namespace vpod::popvision
