// Builds a graph from a tape: what build.h does, in parts by purpose. Only those include this.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/aten/lower.h"
#include "client/graph/graph.h"
#include "client/poptorch/build.h"
#include "client/poptorch/marks.h"
#include "client/poptorch/program.h"

namespace vpod::poptorch {

// What a value of the tape is before any operator has made it.
struct Source {
  enum class Kind {
    kOperator,
    kParameter,
    kBuffer,
    kInput,
    kConstant,
    kHook,  // another of these that gets its gradient by way of a region
  } kind = Kind::kOperator;
  size_t place = 0;           // in the tape's list of that kind; of a hook: that of its record
  ValueId hooked = kNoValue;  // of a hook: the other value
};

// The operands of poptorch::region.
struct RegionUse {
  std::vector<ValueId> values, inputs;
  size_t number = 0;  // in the tape's list
};

class Builder {
 public:
  // The arguments outlive the object.
  Builder(const Tape& tape, const ModelOptions& options, const OptimizerOptions& optimizer)
      : tape_(tape),
        options_(options),
        values_(tape.values.size()),
        stopped_(tape.values.size()),
        has_gradient_(tape.values.size(), false),
        sources_(tape.values.size()),
        marks_(tape) {
    for (const compiler::ParameterGroup& group : optimizer.groups)
      grouped_.insert(group.variables.begin(), group.variables.end());
  }

  // Called once.
  absl::StatusOr<BuiltGraph> Build();

 private:
  // --- Values that no operator makes (sources.cc) ---
  absl::Status ListSources();
  // Of the tensor itself, whatever its uses are; it is created by its first use.
  absl::StatusOr<graph::Tensor> ValueOf(ValueId value);
  // InvalidArgument names state that two IPUs of a pipeline read.
  absl::Status CheckIpu(ValueId value) const;
  absl::StatusOr<graph::Tensor> CreateSource(const Source& source, ValueId value);
  absl::StatusOr<graph::Tensor> CreateState(const NamedValue& state, bool parameter);
  graph::Tensor RowOfGroup(const std::string& parameter, graph::Tensor rows);
  absl::StatusOr<graph::Tensor> TensorOf(const Use& use);
  bool IsTrained(const NamedValue& parameter, const program::TensorType& type) const;

  // --- Operators (records.cc) ---
  absl::Status AddRecord(const Record& record);
  absl::Status AddOperator(const Record& record);
  // Whether a gradient that is wanted flows through a use of a value.
  bool HasGradient(const Record& record) const;
  void EnterBlock(int32_t block);
  absl::StatusOr<aten::Argument> Convert(const Argument& argument);
  absl::StatusOr<std::vector<aten::Argument>> ArgumentsOf(const Record& record);
  absl::StatusOr<std::vector<graph::Tensor>> Lower(const std::string& name, const Record& record);
  absl::StatusOr<std::vector<graph::Tensor>> LowerOwn(absl::string_view name, const Record& record);
  absl::Status SetOutputs(const std::string& name, const Record& record,
                          const std::vector<graph::Tensor>& outputs);
  // Takes note of an operator that is not known; its outputs are constants, so that the others are
  // found as well.
  absl::Status AddUnsupported(const std::string& name, const Record& record);
  absl::Status UnsupportedError() const;
  // "layer1.0 (model.py:12)"
  std::string PlaceOf(const Record& record) const;

  // --- Gradients of the program's own (regions.cc) ---
  absl::Status AddRegion(const Record& record);
  absl::StatusOr<RegionUse> RegionOf(const Record& record) const;
  absl::Status MakeRegion(const Record& record);
  // When all values of the forward pass are there.
  absl::Status RecordRegions();
  absl::StatusOr<std::vector<graph::Tensor>> AddRegionRecords(
      const Region& region, const std::vector<graph::Tensor>& cotangents);

  // --- What leaves the graph (build.cc) ---
  absl::Status AddResults();
  absl::Status AddAnchors();
  absl::Status AssignState();
  absl::Status AddLoss();
  absl::Status KeepOutsideSpans();

  const Tape& tape_;
  const ModelOptions& options_;
  std::set<std::string> grouped_;
  BuiltGraph built_;
  graph::Graph& graph_ = built_.graph;
  std::vector<graph::Tensor> values_, stopped_;  // by number; invalid until they are made
  std::vector<bool> has_gradient_;             // by number: depends on a parameter that is trained
  std::vector<Source> sources_;                // by number
  std::map<ValueId, std::string> mismatches_;  // outputs of other types than on the tape
  Marks marks_;
  // The regions of the graph, with their numbers on the tape.
  std::vector<std::pair<graph::Graph::Region, size_t>> regions_;
  bool in_region_ = false;
  // What the operators are that are not known, with their places, in program order.
  std::vector<std::pair<std::string, std::string>> unsupported_;
};

}  // namespace vpod::poptorch
