#include "device/model/liveness.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace vpod::model {
namespace {

using program::v1::Instruction;

// Bytes of the arena, the first and the one behind the last.
struct Range {
  uint64_t begin, end;
  friend bool operator==(const Range&, const Range&) = default;
};

// The values that ranges of bytes hold.
class ByteMap {
 public:
  // Sets all bytes of a range.
  void Set(Range range, uint32_t value) {
    Split(range.begin);
    Split(range.end);
    runs_.erase(runs_.lower_bound(range.begin), runs_.lower_bound(range.end));
    runs_[range.begin] = {range.end, value};
  }
  // Calls `visit(value)` for each run that overlaps the range; whether they cover all of it.
  template <class Visit>
  bool ForEach(Range range, const Visit& visit) const {
    auto it = runs_.upper_bound(range.begin);
    if (it != runs_.begin() && std::prev(it)->second.end > range.begin) --it;
    uint64_t covered = range.begin;
    for (; it != runs_.end() && it->first < range.end; ++it) {
      if (it->first > covered) return false;
      visit(it->second.value);
      covered = it->second.end;
    }
    return covered >= range.end;
  }
  bool Covers(Range range) const {
    return ForEach(range, [](uint32_t) {});
  }

 private:
  struct Run {
    uint64_t end;
    uint32_t value;
  };
  void Split(uint64_t at) {
    auto it = runs_.upper_bound(at);
    if (it == runs_.begin()) return;
    --it;
    if (it->first == at || it->second.end <= at) return;
    runs_[at] = it->second;
    it->second.end = at;
  }

  std::map<uint64_t, Run> runs_;  // by first byte
};

class Analysis {
 public:
  Analysis(const program::v1::Executable& executable, uint32_t ipu)
      : executable_(executable), ipu_(ipu), text_(executable.ipus(static_cast<int>(ipu))) {
    for (const auto& variable : executable.variables()) {
      if (variable.ipu() == ipu) KeepAlways(variable.tensor());
    }
  }

  Liveness Run() {
    for (const auto& program : executable_.programs()) {
      program_ = {};
      written_ = {};
      newest_ = {};
      before_ = {};
      held_ = {};
      step_ = 0;
      summands_ = {};
      Visit(program.functions(static_cast<int>(ipu_)));
      if (visits_ > kMostVisits) return KeepAll();
      for (const auto& [summand, step] : summands_) {
        LiveValue& value = program_.values[summand];
        if (value.last == step && value.first < step) --value.last;
      }
      liveness_.programs.push_back(std::move(program_));
    }
    // Values that one program keeps for another are always live.
    for (ProgramLiveness& program : liveness_.programs) {
      std::erase_if(program.values,
                    [&](const LiveValue& value) { return always_.Covers(RangeOf(value.tensor)); });
      std::stable_sort(program.values.begin(), program.values.end(),
                       [](const LiveValue& a, const LiveValue& b) { return a.first < b.first; });
    }
    return std::move(liveness_);
  }

 private:
  // An executable whose programs execute instructions with more operands, those in loops twice, is
  // hostile, or so large that it does not fit anyway: all its tensors are taken to live throughout.
  static constexpr uint32_t kMostVisits = 1 << 20;

  struct Loop {
    uint32_t first, last;  // steps
  };

  Range RangeOf(uint32_t tensor) const {
    const auto& text = text_.tensors(static_cast<int>(tensor));
    return {text.offset(), text.offset() + program::ArenaBytes(text)};
  }

  void KeepAlways(uint32_t tensor) {
    const Range range = RangeOf(tensor);
    if (range.begin == range.end || always_.Covers(range)) return;
    always_.Set(range, tensor);
    liveness_.always_live.push_back(tensor);
  }

  void Read(uint32_t tensor) {
    const bool all_written = held_.ForEach(RangeOf(tensor), [&](uint32_t index) {
      ++visits_;
      LiveValue& value = program_.values[index];
      if (!again_ || (value.first >= again_->first && value.first < step_)) {
        value.last = std::max(value.last, step_);
        return;
      }
      // Values from before the loop stay for all rounds; what the round before has written
      // keeps its memory for the next one, in the place of what there was before the first.
      value.last = std::max(value.last, again_->last);
      if (value.first < step_) return;
      value.first = again_->first;
      const auto before = before_.find(index);
      if (before == before_.end()) return;
      LiveValue& replaced = program_.values[before->second];
      if (replaced.first < again_->first)
        replaced.last = std::min(replaced.last, again_->first - 1);
    });
    if (!all_written) KeepAlways(tensor);
  }

  void Write(uint32_t tensor) {
    const Range range = RangeOf(tensor);
    if (range.begin == range.end || always_.Covers(range)) return;
    const auto [it, added] =
        written_.insert({{step_, tensor}, static_cast<uint32_t>(program_.values.size())});
    if (added) {
      const auto [newest, first] = newest_.insert({tensor, it->second});
      if (!first) before_[it->second] = std::exchange(newest->second, it->second);
      program_.values.push_back({tensor, step_, step_, step_});
    }
    held_.Set(range, it->second);
  }

  // Whether an instruction writes the first part of something that is made in parts, as a stash is.
  bool BeginsInPlace(const Instruction& instruction) const {
    if (!instruction.has_dynamic_update() || instruction.inputs(0) != instruction.outputs(0))
      return false;
    const Range range = RangeOf(instruction.outputs(0));
    return !held_.Covers(range) && !always_.Covers(range);
  }

  void Execute(const Instruction& instruction) {
    const bool begins = BeginsInPlace(instruction);
    for (int i = begins ? 1 : 0; i < instruction.inputs_size(); ++i) Read(instruction.inputs(i));
    if (begins) Write(instruction.outputs(0));
    if (instruction.has_rounding()) {
      Read(instruction.rounding().seed());
      Read(instruction.rounding().counter());
    }
    if (instruction.has_all_reduce()) {
      for (uint32_t input : instruction.inputs())
        held_.ForEach(RangeOf(input), [&](uint32_t value) { summands_[value] = step_; });
    }
    std::vector<uint32_t> received;
    if (instruction.has_exchange()) {
      const auto exchange = static_cast<int>(instruction.exchange().exchange());
      for (const auto& move : executable_.exchanges(exchange).moves()) {
        ++visits_;
        if (move.from_ipu() == ipu_) Read(move.from_tensor());
        if (move.to_ipu() == ipu_) received.push_back(move.to_tensor());
      }
    }
    // A result in the place of an operand, or of a part of it, is the same value.
    std::map<uint64_t, uint64_t> inputs;  // end by begin
    for (uint32_t input : instruction.inputs()) {
      uint64_t& end = inputs[RangeOf(input).begin];
      end = std::max(end, RangeOf(input).end);
    }
    const auto in_place = [&](uint32_t output) {
      const Range range = RangeOf(output);
      const auto behind = inputs.upper_bound(range.begin);
      return behind != inputs.begin() && std::prev(behind)->second >= range.end;
    };
    visits_ += static_cast<uint32_t>(instruction.inputs_size() + instruction.outputs_size());
    for (uint32_t output : instruction.outputs()) {
      if (!in_place(output)) Write(output);
    }
    for (uint32_t tensor : received) Write(tensor);
  }

  void Visit(uint32_t function) {
    const auto& instructions = text_.functions(static_cast<int>(function)).instructions();
    for (int i = 0; i < instructions.size() && visits_ <= kMostVisits; ++i) {
      ++visits_;
      const Instruction& instruction = instructions[i];
      if (step_ == program_.steps.size())
        program_.steps.push_back({function, static_cast<uint32_t>(i)});
      Execute(instruction);
      ++step_;
      const uint64_t rounds = instruction.has_repeat()   ? instruction.repeat().count()
                              : instruction.has_while_() ? instruction.while_().max_rounds()
                                                         : 1;
      program::ForEachCall(instruction, [&](uint32_t callee, uint64_t) {
        const uint32_t first = step_;
        Visit(callee);
        if (rounds == 1 || again_.has_value() || step_ == first) return;
        // A second round shows what the first hands over. Loops in it have shown theirs.
        again_ = Loop{first, step_ - 1};
        step_ = first;
        Visit(callee);
        again_.reset();
      });
    }
  }

  Liveness KeepAll() {
    for (int tensor = 0; tensor < text_.tensors_size(); ++tensor)
      KeepAlways(static_cast<uint32_t>(tensor));
    liveness_.programs.assign(static_cast<size_t>(executable_.programs_size()), {});
    return std::move(liveness_);
  }

  const program::v1::Executable& executable_;
  const uint32_t ipu_;
  const program::v1::Ipu& text_;
  Liveness liveness_;
  ByteMap always_;  // the tensors that have their memory always
  // The part for the program that is visited.
  ProgramLiveness program_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> written_;  // values by (step, tensor)
  std::map<uint32_t, uint32_t> newest_;                        // value of each tensor
  std::map<uint32_t, uint32_t> before_;    // the value of the same tensor before each value
  ByteMap held_;                           // the values that bytes hold
  std::map<uint32_t, uint32_t> summands_;  // the step of the last all-reduce, by value
  uint32_t step_ = 0;
  uint32_t visits_ = 0;        // in all programs
  std::optional<Loop> again_;  // the loop that is in its second round
};

}  // namespace

Liveness LivenessOf(const program::v1::Executable& executable, uint32_t ipu) {
  return Analysis(executable, ipu).Run();
}

}  // namespace vpod::model
