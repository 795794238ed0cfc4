#include "device/program/rendezvous.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/program/ops/collective.h"
#include "device/program/tensor_type.h"

namespace vpod::program {
namespace {

absl::Status Invalid(const std::string& message) { return absl::InvalidArgumentError(message); }

// One communication step of an IPU.
struct Rendezvous {
  bool is_collective = false;
  uint32_t peer = 0;
  uint32_t channel = 0;
  bool sends = false;
  const v1::Tensor* tensor = nullptr;
};

// A rendezvous, or those of a repeat.
struct Step {
  Rendezvous rendezvous;
  std::vector<Step> body;  // empty: the rendezvous
  uint32_t rounds = 1;
};

// Repeats without rendezvous are left out: they may have 2^32 rounds.
std::vector<Step> StepsOf(const v1::Ipu& ipu,
                          const google::protobuf::RepeatedPtrField<v1::Instruction>& instructions) {
  std::vector<Step> steps;
  for (const v1::Instruction& instruction : instructions) {
    if (CollectiveOf(instruction).has_value()) {
      steps.push_back({.rendezvous = {.is_collective = true}});
    } else if (instruction.has_send()) {
      const v1::Send& op = instruction.send();
      steps.push_back(
          {.rendezvous = {false, op.to_ipu(), op.channel(), true, &ipu.tensors(op.tensor())}});
    } else if (instruction.has_receive()) {
      const v1::Receive& op = instruction.receive();
      steps.push_back(
          {.rendezvous = {false, op.from_ipu(), op.channel(), false, &ipu.tensors(op.tensor())}});
    } else if (instruction.has_repeat()) {
      std::vector<Step> body = StepsOf(ipu, instruction.repeat().body());
      if (!body.empty())
        steps.push_back({.body = std::move(body), .rounds = instruction.repeat().count()});
    }
  }
  return steps;
}

// No more than the executed instructions, which have a limit.
uint64_t CountRendezvous(const std::vector<Step>& steps) {
  uint64_t rendezvous = 0;
  for (const Step& step : steps)
    rendezvous += step.body.empty() ? 1 : step.rounds * CountRendezvous(step.body);
  return rendezvous;
}

bool HasCollective(const std::vector<Step>& steps) {
  return std::any_of(steps.begin(), steps.end(), [](const Step& step) {
    return step.rendezvous.is_collective || HasCollective(step.body);
  });
}

// Goes through the rendezvous of an IPU, round after round.
class Walk {
 public:
  explicit Walk(const std::vector<Step>& steps) : levels_{{&steps, 1}} { FindRendezvous(); }

  bool done() const { return levels_.empty(); }
  // The rendezvous that comes next; not when done.
  const Rendezvous& next() const { return levels_.back().step().rendezvous; }
  bool at_collective() const { return !done() && next().is_collective; }
  void Pass() {
    ++levels_.back().at;
    FindRendezvous();
  }

 private:
  struct Level {
    const std::vector<Step>* steps;
    uint32_t rounds;  // to go, with this one
    size_t at = 0;
    const Step& step() const { return (*steps)[at]; }
  };

  void FindRendezvous() {
    while (!levels_.empty()) {
      Level& level = levels_.back();
      if (level.at < level.steps->size()) {
        const Step& step = level.step();
        if (step.body.empty()) return;
        levels_.push_back({&step.body, step.rounds});
      } else if (--level.rounds > 0) {
        level.at = 0;
      } else {
        levels_.pop_back();
        if (!levels_.empty()) ++levels_.back().at;
      }
    }
  }

  std::vector<Level> levels_;  // of repeats
};

}  // namespace

// The IPUs that take part in collectives must agree on their number and order; an IPU that holds
// nothing to reduce takes part in none.
absl::Status ValidateRendezvous(const v1::Executable& executable, const v1::Program& program,
                                const Limits& limits, uint64_t& rendezvous) {
  std::vector<std::vector<Step>> steps;
  for (int ipu = 0; ipu < program.blocks_size(); ++ipu) {
    steps.push_back(StepsOf(executable.ipus(ipu), program.blocks(ipu).instructions()));
    rendezvous += CountRendezvous(steps.back());
  }
  if (rendezvous > limits.rendezvous) {
    return Invalid(absl::StrCat("more than ", limits.rendezvous,
                                " exchanges between IPUs in a run of each program"));
  }
  std::vector<Walk> walks(steps.begin(), steps.end());
  std::vector<Walk*> collective;
  for (size_t ipu = 0; ipu < walks.size(); ++ipu) {
    if (HasCollective(steps[ipu])) collective.push_back(&walks[ipu]);
  }
  bool progress = true;
  while (progress) {
    progress = false;
    for (uint32_t ipu = 0; ipu < walks.size(); ++ipu) {
      while (!walks[ipu].done() && walks[ipu].next().sends) {
        const Rendezvous& send = walks[ipu].next();
        Walk& peer = walks[send.peer];
        if (peer.done() || peer.next().is_collective || peer.next().sends ||
            peer.next().peer != ipu || peer.next().channel != send.channel) {
          break;
        }
        if (TypeOf(*peer.next().tensor) != TypeOf(*send.tensor)) {
          return Invalid(absl::StrCat("channel ", send.channel, " sends ",
                                      TypeOf(*send.tensor).ToString(), " but receives ",
                                      TypeOf(*peer.next().tensor).ToString()));
        }
        peer.Pass();
        walks[ipu].Pass();
        progress = true;
      }
    }
    if (!collective.empty() &&
        std::all_of(collective.begin(), collective.end(),
                    [](const Walk* walk) { return walk->at_collective(); })) {
      for (Walk* walk : collective) walk->Pass();
      progress = true;
    }
  }
  for (size_t ipu = 0; ipu < walks.size(); ++ipu) {
    if (!walks[ipu].done()) {
      return Invalid(absl::StrCat("IPU ", ipu, " waits for an exchange that no other IPU makes"));
    }
  }
  return absl::OkStatus();
}

}  // namespace vpod::program
