// Writes tapes by hand, as a front would record them. For tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "client/poptorch/program.h"

namespace vpod::poptorch {

// PyTorch's numbers of types.
inline constexpr int kHostInt32 = 3, kHostInt64 = 4, kHostFloat16 = 5, kHostFloat32 = 6,
                     kHostFloat64 = 7;

class TapeWriter {
 public:
  TapeWriter() { tape_.lines = {"model.py:1"}; }

  ValueId Input(const std::string& name, program::Dims dims, int type = kHostFloat32) {
    return Named(tape_.inputs, name, {type, std::move(dims)}, false);
  }
  ValueId Parameter(const std::string& name, program::Dims dims, bool requires_grad = true) {
    return Named(tape_.parameters, name, {kHostFloat32, std::move(dims)}, requires_grad);
  }
  ValueId Buffer(const std::string& name, program::Dims dims, int type = kHostFloat32) {
    return Named(tape_.buffers, name, {type, std::move(dims)}, false);
  }
  ValueId Constant(program::Dims dims, int type, std::string bytes) {
    const ValueId value = Value({type, std::move(dims)});
    tape_.constants.push_back({value, std::move(bytes)});
    return value;
  }
  // An operator with one output, in the scope and the block there are.
  ValueId Op(const std::string& name, std::vector<Argument> arguments, program::Dims dims,
             int type = kHostFloat32) {
    const ValueId output = Value({type, std::move(dims)});
    tape_.records.push_back({.op = Place(tape_.operators, name),
                             .arguments = std::move(arguments),
                             .outputs = {output},
                             .scope = Place(tape_.scopes, scope_),
                             .line = 0,
                             .block = block_});
    return output;
  }
  // Values like these, whose gradients reach the inputs by way of what `record` writes: it takes
  // the cotangents, and returns the gradients of the inputs.
  using Gradients = std::function<std::vector<ValueId>(const std::vector<ValueId>& cotangents)>;
  std::vector<ValueId> Region(const std::vector<ValueId>& values,
                              const std::vector<ValueId>& inputs, const Gradients& record) {
    Record use{.op = Place(tape_.operators, "poptorch::region.default"),
               .scope = Place(tape_.scopes, scope_),
               .line = 0,
               .block = block_};
    poptorch::Region region{.name = "Function"};
    std::vector<Use> stopped, flowing;
    for (ValueId value : values) {
      stopped.push_back({value, /*stop=*/true});
      region.cotangents.push_back(Like(value));
      use.outputs.push_back(Like(value));
    }
    for (ValueId input : inputs) flowing.push_back({input});
    use.arguments = {stopped, flowing, static_cast<int64_t>(tape_.regions.size())};
    std::vector<Record> records = std::exchange(tape_.records, {});
    region.gradients = record(region.cotangents);
    region.records = std::exchange(tape_.records, std::move(records));
    tape_.regions.push_back(std::move(region));
    tape_.records.push_back(std::move(use));
    return tape_.records.back().outputs;
  }
  void SetScope(std::string scope) { scope_ = std::move(scope); }
  void SetBlock(BlockPlace place) {
    block_ = static_cast<int32_t>(tape_.blocks.size());
    tape_.blocks.push_back(place);
  }
  void Result(ValueId value) { tape_.results.push_back(value); }
  void Loss(ValueId value, const std::string& name = "mse_loss") {
    tape_.losses.push_back({value, name});
  }
  // A write in place: the parameter, buffer or input of this value ends with another one.
  void Write(ValueId value, ValueId final) {
    for (auto* list : {&tape_.parameters, &tape_.buffers, &tape_.inputs}) {
      for (NamedValue& each : *list) {
        if (each.value == value) each.final = final;
      }
    }
  }

  Tape& tape() { return tape_; }

 private:
  ValueId Value(TapeValue value) {
    tape_.values.push_back(std::move(value));
    return static_cast<ValueId>(tape_.values.size() - 1);
  }
  ValueId Like(ValueId value) { return Value(TapeValue(tape_.values[static_cast<size_t>(value)])); }
  ValueId Named(std::vector<NamedValue>& list, const std::string& name, TapeValue type,
                bool requires_grad) {
    const ValueId value = Value(std::move(type));
    list.push_back({name, value, value, requires_grad});
    return value;
  }
  static uint32_t Place(std::vector<std::string>& names, const std::string& name) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end()) return static_cast<uint32_t>(found - names.begin());
    names.push_back(name);
    return static_cast<uint32_t>(names.size() - 1);
  }

  Tape tape_;
  std::string scope_;
  int32_t block_ = -1;
};

}  // namespace vpod::poptorch
