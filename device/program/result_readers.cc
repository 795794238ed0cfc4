#include "device/program/result_readers.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "device/program/byte_set.h"
#include "device/program/op.h"
#include "device/program/ops/collective.h"

namespace vpod::program {
namespace {

using v1::Instruction;

// All-reduces that are looked at, the first ones: a compiled program has one an IPU, or few more.
constexpr size_t kMostCandidates = 64;

// The bytes of each candidate that are stale on a replica without the results.
class StaleBytes {
 public:
  explicit StaleBytes(size_t candidates) : of_(candidates) {}
  ByteSet& of(size_t candidate) { return of_[candidate]; }
  const ByteSet& of(size_t candidate) const { return of_[candidate]; }
  void Overwrite(const ArenaRange& range) {
    for (ByteSet& bytes : of_) bytes.Remove(range.begin, range.end);
  }
  void UniteWith(const StaleBytes& other) {
    for (size_t c = 0; c < of_.size(); ++c) of_[c].UniteWith(other.of_[c]);
  }
  // How long it takes to copy.
  uint64_t size() const {
    uint64_t size = of_.size();
    for (const ByteSet& bytes : of_) size += bytes.ranges().size();
    return size;
  }
  friend bool operator==(const StaleBytes&, const StaleBytes&) = default;

 private:
  std::vector<ByteSet> of_;
};

// Follows the programs of one IPU with what is stale.
class Search {
 public:
  // `once` and `for_one`: [function][instruction], as in Uniformity; candidates are added to the
  // latter.
  Search(const Executable& executable, const ReplicaRange& replicas, uint32_t ipu,
         const std::vector<std::vector<bool>>& once, std::vector<std::vector<bool>>& for_one)
      : executable_(executable),
        text_(executable.proto().ipus(static_cast<int>(ipu))),
        ipu_(ipu),
        once_(once),
        for_one_(for_one) {
    std::vector<bool> variables;
    for (const HostTensor& tensor : executable.host_tensors()) variables.push_back(!tensor.remote);
    const ByteSet host_tensors = BytesOf(executable, ipu, variables);
    for (size_t f = 0; f < for_one_.size(); ++f) {
      const auto& instructions = text_.functions(static_cast<int>(f)).instructions();
      for (size_t i = 0; i < for_one_[f].size() && candidates_.size() < kMostCandidates; ++i) {
        const Instruction& step = instructions[static_cast<int>(i)];
        if (for_one_[f][i] || !step.has_all_reduce() || IsSeenByHost(step, host_tensors) ||
            !MeetsAll(*CollectiveOf(step), replicas))
          continue;
        candidates_.emplace(std::pair(f, i), candidates_.size());
        for_one_[f][i] = true;
      }
    }
  }

  // Strikes out candidates whose results others read, until none is left that has any.
  void Run() {
    StaleBytes stale(candidates_.size()), before = stale;
    do {
      before = stale;  // also what a program leaves stale for those that run after it
      for (int program = 0; program < executable_.proto().programs_size(); ++program) {
        visits_ += before.size();
        if (visits_ > kMostVisits) return StrikeAll();
        StaleBytes after = before;
        Follow(executable_.EntryOf(static_cast<uint32_t>(program), ipu_), after);
        stale.UniteWith(after);
      }
      if (visits_ > kMostVisits) return StrikeAll();
    } while (stale != before);
  }

 private:
  using Place = std::pair<size_t, size_t>;  // function, instruction

  ArenaRange RangeAt(uint32_t tensor) const {
    return RangeOf(text_.tensors(static_cast<int>(tensor)), false);
  }
  bool IsSeenByHost(const Instruction& step, const ByteSet& host_tensors) const {
    return std::any_of(step.outputs().begin(), step.outputs().end(), [&](uint32_t output) {
      const ArenaRange range = RangeAt(output);
      return host_tensors.Touches(range.begin, range.end);
    });
  }

  // Every replica reads the tensor: candidates whose results may lie there are struck out.
  // Following them further changes nothing for the others.
  void Read(uint32_t tensor, const StaleBytes& stale) {
    const ArenaRange range = RangeAt(tensor);
    for (const auto& [place, c] : candidates_) {
      if (stale.of(c).Touches(range.begin, range.end)) for_one_[place.first][place.second] = false;
    }
  }
  void StrikeAll() {
    for (const auto& [place, c] : candidates_) for_one_[place.first][place.second] = false;
  }

  // `stale` is what may be stale before the function, then after it.
  void Follow(uint32_t function, StaleBytes& stale) {
    const auto& instructions = text_.functions(static_cast<int>(function)).instructions();
    for (int i = 0; i < instructions.size(); ++i) {
      const Instruction& step = instructions[i];
      const auto operands = static_cast<uint64_t>(step.inputs().size() + step.outputs().size());
      visits_ += 1 + operands * candidates_.size();
      if (visits_ > kMostVisits) return;
      if (FindOp(step.attributes_case())->role == Role::kControl) {
        FollowControl(step, stale);
      } else {
        FollowStep({function, static_cast<size_t>(i)}, step, stale);
      }
    }
  }

  void FollowStep(const Place& place, const Instruction& step, StaleBytes& stale) {
    if (once_[place.first][place.second]) return;
    for (uint32_t input : step.inputs()) Read(input, stale);
    if (step.has_rounding()) {
      Read(step.rounding().seed(), stale);
      Read(step.rounding().counter(), stale);
    }
    const auto candidate = candidates_.find(place);
    for (uint32_t output : step.outputs()) {
      const ArenaRange range = RangeAt(output);
      // Otherwise the bytes between the elements stay as they were, and so does the whole range.
      if (IsDense(text_.tensors(static_cast<int>(output)))) stale.Overwrite(range);
      if (candidate != candidates_.end()) stale.of(candidate->second).Add(range.begin, range.end);
    }
  }

  void FollowControl(const Instruction& step, StaleBytes& stale) {
    for (uint32_t condition : step.inputs()) Read(condition, stale);
    if (step.has_call()) return Follow(step.call().function(), stale);
    visits_ += stale.size();
    if (step.has_if_()) {
      StaleBytes other = stale;
      if (step.if_().has_then_function()) Follow(step.if_().then_function(), stale);
      if (step.if_().has_else_function()) Follow(step.if_().else_function(), other);
      return stale.UniteWith(other);
    }
    const uint32_t function =
        step.has_repeat() ? step.repeat().function() : step.while_().function();
    StaleBytes before = stale;
    do {
      before = stale;
      Follow(function, stale);
      if (step.has_while_()) Read(step.inputs(0), stale);
      stale.UniteWith(before);
    } while (visits_ <= kMostVisits && stale != before);
  }

  const Executable& executable_;
  const v1::Ipu& text_;
  const uint32_t ipu_;
  const std::vector<std::vector<bool>>& once_;
  std::vector<std::vector<bool>>& for_one_;
  std::map<Place, size_t> candidates_;  // their numbers in StaleBytes
  uint64_t visits_ = 0;
};

}  // namespace

void FindResultsForOne(const Executable& executable, const ReplicaRange& replicas,
                       Uniformity& uniformity) {
  const bool any = std::find(uniformity.variables.begin(), uniformity.variables.end(), true) !=
                   uniformity.variables.end();
  if (!any) return;
  for (uint32_t ipu = 0; ipu < executable.ipus_per_replica(); ++ipu)
    Search(executable, replicas, ipu, uniformity.once[ipu], uniformity.results_for_one[ipu]).Run();
}

}  // namespace vpod::program
