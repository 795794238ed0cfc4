#include "device/program/uniformity.h"

#include <algorithm>
#include <utility>

#include "device/program/op.h"
#include "device/program/result_readers.h"

namespace vpod::program {
namespace {

using v1::Instruction;

// Follows the programs of an executable with the set of bytes that are equal on all replicas.
class Search {
 public:
  Search(const Executable& executable, const ReplicaRange& replicas, std::vector<bool>& candidates)
      : executable_(executable), replicas_(replicas), candidates_(candidates) {}

  // Strikes out candidates that a program makes different, until none does. False: given up.
  bool Run() {
    const v1::Executable& text = executable_.proto();
    do {
      struck_ = false;
      for (uint32_t ipu = 0; ipu < text.ipus_per_replica(); ++ipu) {
        if (!Visit(candidates_.size())) return false;
        BeginIpu(ipu);
        for (int program = 0; program < text.programs_size(); ++program) {
          if (!Visit(1 + candidate_bytes_.ranges().size())) return false;
          ByteSet equal = candidate_bytes_;
          Follow(executable_.EntryOf(static_cast<uint32_t>(program), ipu), equal);
          if (visits_ > kMostVisits) return false;
        }
      }
    } while (struck_);
    return true;
  }

 private:
  void BeginIpu(uint32_t ipu) {
    text_ = &executable_.proto().ipus(static_cast<int>(ipu));
    ipu_ = ipu;
    candidate_bytes_ = BytesOf(executable_, ipu, candidates_);
    // Variables may share bytes.
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const HostTensor& variable = executable_.host_tensors()[i];
      if (!candidates_[i] && variable.ipu == ipu && !variable.remote)
        Strike({variable.offset, variable.end(), false});
    }
  }

  ArenaRange RangeAt(uint32_t tensor) const {
    return RangeOf(text_->tensors(static_cast<int>(tensor)), false);
  }
  bool Visit(uint64_t operands) {
    visits_ += operands;
    return visits_ <= kMostVisits;
  }

  // Bytes of the range become different, or are written with others: no candidate has any.
  void Strike(const ArenaRange& range) {
    if (!candidate_bytes_.Touches(range.begin, range.end) || !Visit(candidates_.size())) return;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const HostTensor& variable = executable_.host_tensors()[i];
      if (!candidates_[i] || variable.ipu != ipu_) continue;
      if (variable.offset >= range.end || range.begin >= variable.end()) continue;
      candidates_[i] = false;
      struck_ = true;
    }
    candidate_bytes_ = BytesOf(executable_, ipu_, candidates_);
  }

  // `equal` is what is equal before the function, then after it.
  void Follow(uint32_t function, ByteSet& equal) {
    for (const Instruction& step : text_->functions(static_cast<int>(function)).instructions()) {
      if (!Visit(uint64_t{1} + step.inputs().size() + step.outputs().size())) return;
      if (FindOp(step.attributes_case())->role == Role::kControl) {
        FollowControl(step, equal);
      } else {
        FollowStep(step, equal);
      }
    }
  }

  void FollowStep(const Instruction& step, ByteSet& equal) {
    const Role role = FindOp(step.attributes_case())->role;
    const bool meets = role == Role::kCollective || role == Role::kExchange;
    // Other processes read and write these in the memory of the single replica. In one process, an
    // input that is written as an output elsewhere would have to be read before.
    if (meets) {
      for (uint32_t input : step.inputs()) Strike(RangeAt(input));
    }
    const bool gives_equal = !differs_ && GivesEqual(step, equal);
    const bool can_write_once =
        role == Role::kKernel ||
        ((step.has_all_reduce() || step.has_all_gather()) && !replicas_.spans_processes);
    bool writes_only_candidates = can_write_once && gives_equal;
    for (uint32_t output : step.outputs()) {
      const ArenaRange range = RangeAt(output);
      writes_only_candidates =
          writes_only_candidates && candidate_bytes_.Contains(range.begin, range.end);
    }
    for (uint32_t output : step.outputs()) {
      const ArenaRange range = RangeAt(output);
      if (!writes_only_candidates) Strike(range);
      if (!gives_equal) {
        equal.Remove(range.begin, range.end);
      } else if (IsDense(text_->tensors(static_cast<int>(output)))) {
        equal.Add(range.begin, range.end);
      }  // else the bytes between the elements stay as they were, and so does the whole range
    }
  }

  // Whether the outputs are equal on all replicas.
  bool GivesEqual(const Instruction& step, const ByteSet& equal) const {
    const OpDef& op = *FindOp(step.attributes_case());
    if (const auto collective = CollectiveOf(step))
      return program::MeetsAll(*collective, replicas_);
    if (op.role != Role::kKernel || op.own_data) return false;
    const auto is_equal = [&](uint32_t tensor) {
      const ArenaRange range = RangeAt(tensor);
      return equal.Contains(range.begin, range.end);
    };
    if (step.has_rounding() &&
        !(is_equal(step.rounding().seed()) && is_equal(step.rounding().counter())))
      return false;
    return std::all_of(step.inputs().begin(), step.inputs().end(), is_equal);
  }

  void FollowControl(const Instruction& step, ByteSet& equal) {
    if (step.has_call()) return Follow(step.call().function(), equal);
    const bool by_condition = step.has_if_() || step.has_while_();
    const auto holds_alike = [&] {
      const ArenaRange range = RangeAt(step.inputs(0));
      return equal.Contains(range.begin, range.end);
    };
    // The condition of a While may become different in a later round.
    const bool differed = std::exchange(differs_, differs_ || (by_condition && !holds_alike()));
    if (step.has_if_()) {
      FollowBranches(step, equal);
    } else {
      FollowRounds(step, equal);
      if (step.has_while_() && !differs_ && !holds_alike()) {
        differs_ = true;
        FollowRounds(step, equal);
      }
    }
    differs_ = differed;
  }

  void FollowBranches(const Instruction& step, ByteSet& equal) {
    ByteSet other = equal;
    if (!Visit(equal.ranges().size())) return;
    if (step.if_().has_then_function()) Follow(step.if_().then_function(), equal);
    if (step.if_().has_else_function()) Follow(step.if_().else_function(), other);
    equal.IntersectWith(other);
  }

  void FollowRounds(const Instruction& step, ByteSet& equal) {
    const bool repeat = step.has_repeat();
    while (true) {
      ByteSet after = equal;
      if (!Visit(equal.ranges().size())) return;
      for (uint32_t counter : step.outputs()) {
        const ArenaRange range = RangeAt(counter);
        Strike(range);
        if (!differs_) after.Add(range.begin, range.end);
      }
      Follow(repeat ? step.repeat().function() : step.while_().function(), after);
      ByteSet both = equal;
      both.IntersectWith(after);
      // A round that begins with what the one before has left changes nothing more.
      if (both == equal) {
        if (repeat) equal = std::move(after);
        return;
      }
      equal = std::move(both);
    }
  }

  const Executable& executable_;
  const ReplicaRange& replicas_;
  std::vector<bool>& candidates_;
  const v1::Ipu* text_ = nullptr;  // of the IPU that is followed
  uint32_t ipu_ = 0;
  ByteSet candidate_bytes_;  // there
  // Whether replicas may have gone different ways, or have come here a different number of times.
  bool differs_ = false;
  bool struck_ = false;
  uint64_t visits_ = 0;
};

// For each instruction of an IPU, whether it has this role and writes bytes of the set.
std::vector<std::vector<bool>> StepsThatWrite(const v1::Ipu& ipu, Role role,
                                              const ByteSet& variables) {
  std::vector<std::vector<bool>> steps;
  for (const v1::Function& function : ipu.functions()) {
    std::vector<bool>& writes = steps.emplace_back();
    for (const Instruction& step : function.instructions()) {
      writes.push_back(
          FindOp(step.attributes_case())->role == role &&
          std::any_of(step.outputs().begin(), step.outputs().end(), [&](uint32_t output) {
            const ArenaRange range = RangeOf(ipu.tensors(static_cast<int>(output)), true);
            return variables.Touches(range.begin, range.end);
          }));
    }
  }
  return steps;
}

}  // namespace

bool MeetsAll(const Collective& collective, const ReplicaRange& replicas) {
  if (collective.kind != Instruction::kAllReduce && collective.kind != Instruction::kAllGather &&
      collective.kind != Instruction::kBroadcast)
    return false;
  const auto group = [&](uint32_t replica) {
    const GroupMembers members = MembersOf(*collective.group, replicas.total, replica);
    return std::pair(members.first, members.stride);
  };
  for (uint32_t i = 1; i < replicas.count; ++i) {
    if (group(replicas.first + i) != group(replicas.first)) return false;
  }
  return true;
}

ByteSet BytesOf(const Executable& executable, uint32_t ipu, const std::vector<bool>& variables) {
  ByteSet bytes;
  for (size_t i = 0; i < variables.size(); ++i) {
    const HostTensor& variable = executable.host_tensors()[i];
    if (variables[i] && variable.ipu == ipu) bytes.Add(variable.offset, variable.end());
  }
  return bytes;
}

Uniformity FindUniform(const Executable& executable, const ReplicaRange& replicas,
                       std::vector<bool> candidates) {
  for (size_t i = 0; i < candidates.size(); ++i)
    candidates[i] = candidates[i] && !executable.host_tensors()[i].remote;
  const bool any = std::find(candidates.begin(), candidates.end(), true) != candidates.end();
  Search search(executable, replicas, candidates);
  if (any && !search.Run()) candidates.assign(candidates.size(), false);
  Uniformity uniformity;
  for (uint32_t ipu = 0; ipu < executable.ipus_per_replica(); ++ipu) {
    const v1::Ipu& text = executable.proto().ipus(static_cast<int>(ipu));
    const ByteSet variables = BytesOf(executable, ipu, candidates);
    uniformity.once.push_back(StepsThatWrite(text, Role::kKernel, variables));
    // Only all-reduces and all-gathers write shared variables.
    uniformity.results_for_one.push_back(StepsThatWrite(text, Role::kCollective, variables));
  }
  uniformity.variables = std::move(candidates);
  FindResultsForOne(executable, replicas, uniformity);
  return uniformity;
}

}  // namespace vpod::program
