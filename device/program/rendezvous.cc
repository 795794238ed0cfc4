#include "device/program/rendezvous.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"

namespace vpod::program {

std::vector<std::vector<uint32_t>> Participants(const v1::Executable& executable) {
  std::vector<std::vector<uint32_t>> participants;
  for (const v1::Exchange& exchange : executable.exchanges()) {
    std::set<uint32_t> ipus;
    for (const v1::Move& move : exchange.moves()) ipus.insert({move.from_ipu(), move.to_ipu()});
    participants.emplace_back(ipus.begin(), ipus.end());
  }
  return participants;
}

// Functions without exchanges are left out: they may be repeated 2^32 times.
RendezvousChecker::RendezvousChecker(const v1::Executable& executable)
    : participants_(Participants(executable)) {
  for (const v1::Ipu& ipu : executable.ipus()) {
    std::vector<Function>& functions = functions_.emplace_back();
    for (const v1::Function& text : ipu.functions()) {
      Function function;
      for (const v1::Instruction& instruction : text.instructions()) {
        if (instruction.has_exchange()) {
          function.steps.push_back({.exchange = instruction.exchange().exchange()});
          ++function.rendezvous;
        }
        ForEachCall(instruction, [&](uint32_t callee, uint64_t rounds) {
          const uint64_t each = functions[callee].rendezvous;
          if (each == 0) return;
          function.steps.push_back({.function = static_cast<int>(callee), .rounds = rounds});
          function.rendezvous += each > kMany / rounds ? kMany : each * rounds;
        });
        function.rendezvous = std::min(function.rendezvous, kMany);
      }
      functions.push_back(std::move(function));
    }
  }
}

// Goes through the exchanges of an IPU, round after round.
class RendezvousChecker::Walk {
 public:
  Walk(const std::vector<Function>& functions, uint32_t entry)
      : functions_(functions), levels_{{&functions[entry], 1}} {
    FindExchange();
  }

  bool done() const { return levels_.empty(); }
  // The exchange that comes next; not when done.
  uint32_t next() const { return levels_.back().step().exchange; }
  void Pass() {
    ++levels_.back().at;
    FindExchange();
  }

 private:
  struct Level {
    const Function* function;
    uint64_t rounds;  // to go, with this one
    size_t at = 0;
    const Step& step() const { return function->steps[at]; }
  };

  void FindExchange() {
    while (!levels_.empty()) {
      Level& level = levels_.back();
      if (level.at < level.function->steps.size()) {
        const Step& step = level.step();
        if (step.function < 0) return;
        levels_.push_back({&functions_[static_cast<size_t>(step.function)], step.rounds});
      } else if (--level.rounds > 0) {
        level.at = 0;
      } else {
        levels_.pop_back();
        if (!levels_.empty()) ++levels_.back().at;
      }
    }
  }

  const std::vector<Function>& functions_;
  std::vector<Level> levels_;  // of calls
};

absl::Status RendezvousChecker::Check(const v1::Program& program, const Limits& limits,
                                      uint64_t& rendezvous) const {
  std::vector<Walk> walks;
  for (size_t ipu = 0; ipu < functions_.size(); ++ipu) {
    const uint32_t entry = program.functions(static_cast<int>(ipu));
    rendezvous += functions_[ipu][entry].rendezvous;
    walks.emplace_back(functions_[ipu], entry);
  }
  if (rendezvous > limits.rendezvous) {
    return absl::InvalidArgumentError(absl::StrCat(
        "more than ", limits.rendezvous, " exchanges between IPUs in a run of each program"));
  }
  std::vector<size_t> arrived(participants_.size());
  std::vector<uint32_t> complete;  // exchanges at which all have arrived
  const auto arrive = [&](size_t ipu) {
    if (walks[ipu].done()) return;
    const uint32_t exchange = walks[ipu].next();
    if (++arrived[exchange] == participants_[exchange].size()) complete.push_back(exchange);
  };
  for (size_t ipu = 0; ipu < walks.size(); ++ipu) arrive(ipu);
  while (!complete.empty()) {
    const uint32_t exchange = complete.back();
    complete.pop_back();
    arrived[exchange] = 0;
    for (uint32_t ipu : participants_[exchange]) walks[ipu].Pass();
    for (uint32_t ipu : participants_[exchange]) arrive(ipu);
  }
  for (size_t ipu = 0; ipu < walks.size(); ++ipu) {
    if (!walks[ipu].done()) {
      return absl::InvalidArgumentError(
          absl::StrCat("IPU ", ipu, " waits for an exchange that another IPU does not make"));
    }
  }
  return absl::OkStatus();
}

}  // namespace vpod::program
