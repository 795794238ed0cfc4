// Collectives between the instances of a job, on the host. `id` names the tensor and lets instances
// issue collectives in different order; the instances of its communicator take part
// (registerCommunicator), and ranks count these in order of their indices. Differing shapes or
// types throw popdist_error on all of them. Not thread-safe.
#pragma once

#include <cstddef>
#include <string>

#include "client/popdist/backend.hpp"

namespace popdist {

enum class Type { BOOL, UNSIGNED_CHAR, INT, UNSIGNED_INT, LONGLONG, HALF, FLOAT, DOUBLE };

namespace collectives {

// `root` is a rank.
void broadcast(void* data, size_t count, Type type, unsigned root = 0,
               const std::string& id = defaultCommunicatorId());
// Sums in instance order; half is added in float and rounded once.
void allReduceSum(void* inout, size_t count, Type type,
                  const std::string& id = defaultCommunicatorId());
// `out` holds count_per_instance elements of every instance; with `inplace` ours are there already
// and `in` may be null.
void allGather(const void* in, void* out, size_t count_per_instance, Type type,
               const std::string& id = defaultCommunicatorId(), bool inplace = false);

}  // namespace collectives
}  // namespace popdist
