// When the bytes of an IPU's memory are in use. It follows from the order of execution, not from
// the places that the compiler has chosen in the emulator's arena, other than that tensors at the
// same place are views of each other's bytes while these are in use.
#pragma once

#include <cstdint>
#include <vector>

#include "device/program/executable.h"

namespace vpod::model {

// The place of an instruction in the text of its IPU.
struct InstructionPlace {
  uint32_t function, index;
};

// A value: what an instruction writes, from then to its last use, in steps of a program. Loops keep
// what one round hands to the next throughout. The result of an all-reduce takes the place of a
// summand that nothing else reads.
struct LiveValue {
  uint32_t tensor;  // that was written
  uint32_t first, last;
  uint32_t maker;  // the step that writes it, which in loops may come after the first
};

struct ProgramLiveness {
  std::vector<InstructionPlace> steps;  // in order of execution; those in loops once
  std::vector<LiveValue> values;        // in the order of their first step
};

struct Liveness {
  // Tensors that have their memory always: variables, and what programs read before they write it,
  // but for those whose bytes others of them have.
  std::vector<uint32_t> always_live;
  std::vector<ProgramLiveness> programs;
};

// Follows the programs of one IPU of a valid executable.
Liveness LivenessOf(const program::v1::Executable& executable, uint32_t ipu);

}  // namespace vpod::model
