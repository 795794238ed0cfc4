// Which values of a chain of operations to keep, so that the rest can be computed again in parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vpod::compiler {

// An operation of a chain in its order of execution.
struct ChainLink {
  uint64_t read_bytes = 0;  // of its results that gradients read: held while its part is computed
  uint64_t bytes = 0;       // of all its results: held throughout if a later part reads them
  size_t last_reader = 0;   // the last operation of the chain that reads them, or itself
};

// The operations with which parts begin, in order; the first part begins with operation 0, which is
// left out. Chosen so that what the largest part holds, together with what is kept for later parts,
// is small.
std::vector<size_t> BeginningsOfParts(const std::vector<ChainLink>& chain);

}  // namespace vpod::compiler
