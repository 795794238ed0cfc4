// Which variables hold the same bytes on all replicas at all times, if they begin equal: only steps
// whose operands are equal write them. Replicas may then have one copy of such a variable, which
// one of them updates for all.
#pragma once

#include <cstdint>
#include <vector>

#include "device/program/byte_set.h"
#include "device/program/executable.h"
#include "device/program/ops/collective.h"

namespace vpod::program {

// Replicas share whole pages of the host. The compiler lets variables that are likely to be uniform
// begin and end with a page.
inline constexpr uint64_t kPageBytes = 4096;

// Operands, variables and ranges of bytes that are looked at before a search for uniform variables
// is given up: hostile loops in loops would take hours. A training step of BERT-large has some ten
// thousand.
inline constexpr uint64_t kMostVisits = uint64_t{1} << 20;

// Replicas [first, first + count) of a job.
struct ReplicaRange {
  uint32_t first = 0, count = 1, total = 1;
  // Whether others of the job are on other processes, which read and write in the memory of these.
  bool spans_processes = true;
};

// Whether all these replicas get equal results of a collective.
bool MeetsAll(const Collective& collective, const ReplicaRange& replicas);

struct Uniformity {
  // By number in Executable::host_tensors(); never a remote buffer.
  std::vector<bool> variables;
  // [ipu][function][instruction], as what follows: a kernel that writes uniform variables and
  // nothing else, so that it may run once for all replicas.
  std::vector<std::vector<std::vector<bool>>> once;
  // A collective whose results one replica needs: they are uniform variables, or those of an
  // all-reduce that only kernels that run once read (result_readers.h).
  std::vector<std::vector<std::vector<bool>>> results_for_one;
};

// Finds the variables among `candidates` that are uniform over `replicas`. Variables that a
// collective or an exchange touches do not count, but for results of an all-reduce or an all-gather
// in one process.
// An executable whose control flow takes too long to follow has none.
Uniformity FindUniform(const Executable& executable, const ReplicaRange& replicas,
                       std::vector<bool> candidates);

// The bytes that those of an IPU's variables take up in its arena; `variables` as in Uniformity.
ByteSet BytesOf(const Executable& executable, uint32_t ipu, const std::vector<bool>& variables);

}  // namespace vpod::program
