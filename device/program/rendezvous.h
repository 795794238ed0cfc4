// Whether the IPUs of a replica come to their exchanges in an order that lets all go on.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "device/program/executable.h"

namespace vpod::program {

// The IPUs that take part in each exchange, ascending.
std::vector<std::vector<uint32_t>> Participants(const v1::Executable& executable);

// Plays the exchanges of a replica's IPUs against each other. Collectives need no such check: they
// are met by the same IPU of other replicas, which execute the same code. The executable outlives
// the object; its functions and exchanges have been checked each for itself.
class RendezvousChecker {
 public:
  explicit RendezvousChecker(const v1::Executable& executable);

  // InvalidArgument for a program that would wait for ever. `rendezvous` counts those of all
  // programs up to this one, which have a limit together.
  absl::Status Check(const v1::Program& program, const Limits& limits, uint64_t& rendezvous) const;

 private:
  // An exchange, or a function that has some.
  struct Step {
    uint32_t exchange = 0;
    int function = -1;
    uint64_t rounds = 1;
  };
  struct Function {
    std::vector<Step> steps;
    uint64_t rendezvous = 0;  // with all rounds, at most kMany
  };
  class Walk;
  static constexpr uint64_t kMany = uint64_t{1} << 40;

  std::vector<std::vector<Function>> functions_;     // [ipu][function]
  std::vector<std::vector<uint32_t>> participants_;  // IPUs of each exchange
};

}  // namespace vpod::program
