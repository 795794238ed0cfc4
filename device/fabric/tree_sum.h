// Sums over replicas in the canonical order (DESIGN 3.7): a balanced binary tree over global
// replica indices, split at the largest power of two below n, with float64 partial sums, rounded
// once at the end. The bits depend on the replica numbers only, never on threads, processes or
// hosts.
#pragma once

#include <cstddef>

#include "absl/types/span.h"

namespace vpod::fabric {

// How one replica's contribution, and the result, are stored.
enum class Element { kFloat64, kFloat32, kFloat16 };

// Adds elements [begin, end) of all `inputs` (one a replica, in replica order), multiplies the sum
// by `scale` and writes it to the same range of every one of `outputs`. Inputs may alias their own
// outputs. `output` is kFloat32 or kFloat16.
//
// `beyond_caches` says that the buffers of all replicas together exceed the caches: results are
// then written past them.
void TreeSum(absl::Span<const void* const> inputs, Element input, absl::Span<void* const> outputs,
             Element output, size_t begin, size_t end, double scale, bool beyond_caches = false);

}  // namespace vpod::fabric
