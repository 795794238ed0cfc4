#include "device/model/timeline.h"

#include <algorithm>
#include <utility>

#include "device/model/op_plans.h"
#include "device/program/rendezvous.h"

namespace vpod::model {
namespace {

using program::v1::Instruction;

// How often an instruction executes a function in a planned run.
struct Callee {
  uint32_t function = 0;
  uint64_t rounds = 0;  // 0: none
};
Callee CalleeOf(const Instruction& instruction) {
  Callee callee;
  program::ForEachPlannedCall(instruction, [&](uint32_t function, uint64_t rounds) {
    callee = {function, rounds};
  });
  return callee;
}

// Prices of the functions of an IPU.
class Prices {
 public:
  Prices(const program::v1::Executable& executable, uint32_t ipu, const Topology& topology) {
    const PlanContext context(executable, ipu, topology);
    for (const auto& function : executable.ipus(static_cast<int>(ipu)).functions()) {
      std::vector<Cost>& steps = steps_.emplace_back();
      Function& whole = functions_.emplace_back();
      for (const Instruction& instruction : function.instructions()) {
        steps.push_back(Price(instruction, context));
        whole.cost += steps.back();
        whole.meets = whole.meets || instruction.has_exchange();
        const Callee callee = CalleeOf(instruction);
        if (callee.rounds == 0) continue;
        whole.cost += functions_[callee.function].cost * callee.rounds;
        whole.meets = whole.meets || functions_[callee.function].meets;
      }
    }
  }

  const Cost& OfStep(InstructionPlace place) const { return steps_[place.function][place.index]; }
  // The time of a function with all that it calls.
  const Cost& Of(uint32_t function) const { return functions_[function].cost; }
  bool Meets(uint32_t function) const { return functions_[function].meets; }

 private:
  struct Function {
    Cost cost;
    bool meets = false;  // other IPUs
  };
  std::vector<std::vector<Cost>> steps_;  // [function]
  std::vector<Function> functions_;
};

// An IPU that goes through its program.
class Player {
 public:
  using Visit = std::function<void(const TimelineEvent&)>;

  Player(const program::v1::Executable& executable, uint32_t program, uint32_t ipu,
         const Topology& topology, const Visit& visit)
      : text_(executable.ipus(static_cast<int>(ipu))),
        ipu_(ipu),
        prices_(executable, ipu, topology),
        visit_(visit) {
    const auto& entry = executable.programs(static_cast<int>(program));
    frames_.push_back({entry.functions(static_cast<int>(ipu)), 1});
  }

  // Goes on to the next exchange; false at the end of the program.
  bool GoOn() {
    while (!frames_.empty()) {
      Frame& frame = frames_.back();
      const auto& instructions = text_.functions(static_cast<int>(frame.function)).instructions();
      if (frame.next == instructions.size()) {
        frame.next = 0;
        if (--frame.rounds == 0) frames_.pop_back();
        continue;
      }
      const Instruction& instruction = instructions[frame.next];
      if (instruction.has_exchange()) return true;
      const InstructionPlace place{frame.function, static_cast<uint32_t>(frame.next++)};
      const Callee callee = CalleeOf(instruction);
      // As the engine counts: what controls, after what it controls.
      if (callee.rounds > 0 && (visit_ || prices_.Meets(callee.function))) {
        Execute(place);
        if (!IsEmpty(callee.function)) frames_.push_back({callee.function, callee.rounds});
        continue;
      }
      Execute(place);
      if (callee.rounds > 0) time_.cost += prices_.Of(callee.function) * callee.rounds;
    }
    return false;
  }

  uint32_t exchange() const { return instruction().exchange().exchange(); }
  Cycles clock() const { return time_.end(); }
  // Takes part in the exchange, which begins when the last IPU has come.
  void Meet(Cycles begin) {
    const Cycles waiting = begin - clock();
    Frame& frame = frames_.back();
    const InstructionPlace place{frame.function, static_cast<uint32_t>(frame.next++)};
    Execute(place, waiting);
  }
  const IpuTime& time() const { return time_; }

 private:
  struct Frame {
    uint32_t function;
    uint64_t rounds;
    int next = 0;
  };

  const Instruction& instruction() const {
    const Frame& frame = frames_.back();
    return text_.functions(static_cast<int>(frame.function)).instructions(frame.next);
  }
  bool IsEmpty(uint32_t function) const {
    return text_.functions(static_cast<int>(function)).instructions().empty();
  }

  void Execute(InstructionPlace place, Cycles waiting = {}) {
    const Cycles begin = clock();
    time_.waiting += waiting;
    time_.cost += prices_.OfStep(place);
    if (visit_) visit_({ipu_, place, begin, waiting, clock()});
  }

  const program::v1::Ipu& text_;
  const uint32_t ipu_;
  const Prices prices_;
  const Visit& visit_;
  std::vector<Frame> frames_;  // the innermost function last
  IpuTime time_;
};

}  // namespace

Cycles Timeline::end() const {
  Cycles last;
  for (const IpuTime& ipu : ipus) last = std::max(last, ipu.end());
  return last;
}

Bytes Timeline::over_ipu_links() const {
  Bytes most;
  for (const IpuTime& ipu : ipus) most = std::max(most, ipu.cost.over_ipu_links);
  return most;
}

Bytes Timeline::over_gw_links() const {
  Bytes most;
  for (const IpuTime& ipu : ipus) most = std::max(most, ipu.cost.over_gw_links);
  return most;
}

Timeline TimelineOf(const program::v1::Executable& executable, uint32_t program,
                    const Topology& topology,
                    const std::function<void(const TimelineEvent&)>& visit) {
  const std::vector<std::vector<uint32_t>> participants = program::Participants(executable);
  std::vector<Player> players;
  for (uint32_t ipu = 0; ipu < executable.ipus_per_replica(); ++ipu)
    players.emplace_back(executable, program, ipu, topology, visit);
  // The IPUs that wait at each exchange. Validation has shown that all of them will meet.
  std::vector<uint32_t> arrived(participants.size());
  std::vector<uint32_t> ready;
  for (uint32_t ipu = 0; ipu < players.size(); ++ipu) ready.push_back(ipu);
  while (!ready.empty()) {
    Player& player = players[ready.back()];
    ready.pop_back();
    if (!player.GoOn()) continue;
    const uint32_t exchange = player.exchange();
    if (++arrived[exchange] < participants[exchange].size()) continue;
    arrived[exchange] = 0;
    Cycles begin;
    for (uint32_t ipu : participants[exchange]) begin = std::max(begin, players[ipu].clock());
    for (uint32_t ipu : participants[exchange]) {
      players[ipu].Meet(begin);
      ready.push_back(ipu);
    }
  }
  Timeline timeline;
  for (const Player& player : players) timeline.ipus.push_back(player.time());
  return timeline;
}

}  // namespace vpod::model
