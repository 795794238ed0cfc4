#include "device/engine/sharing.h"

#include <algorithm>
#include <utility>

#include "device/program/op.h"

namespace vpod::engine {

using program::ByteSet;
using program::HostTensor;
using program::kPageBytes;

void AddPages(uint64_t begin, uint64_t end, ByteSet& pages) {
  if (begin >= end) return;
  pages.Add(begin / kPageBytes * kPageBytes, (end + kPageBytes - 1) / kPageBytes * kPageBytes);
}

namespace {

// The pages that hold tensors outside `shared`, and everything behind the arena.
ByteSet OtherPages(const program::v1::Ipu& ipu, const ByteSet& shared) {
  ByteSet pages;
  for (const program::v1::Tensor& tensor : ipu.tensors()) {
    const program::ArenaRange range = program::RangeOf(tensor, false);
    if (!shared.Contains(range.begin, range.end)) AddPages(range.begin, range.end, pages);
  }
  pages.Add(ipu.arena_bytes() / kPageBytes * kPageBytes, UINT64_MAX);
  return pages;
}

// Takes out variables that lie in the same page as something else, and then those that lie in a
// page with them.
void KeepWholePages(const program::Executable& executable, uint32_t ipu,
                    std::vector<bool>& variables) {
  std::vector<size_t> by_offset;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (variables[i] && executable.host_tensors()[i].ipu == ipu) by_offset.push_back(i);
  }
  std::sort(by_offset.begin(), by_offset.end(), [&](size_t a, size_t b) {
    return executable.host_tensors()[a].offset < executable.host_tensors()[b].offset;
  });
  if (by_offset.empty()) return;
  ByteSet others = OtherPages(executable.proto().ipus(static_cast<int>(ipu)),
                              program::BytesOf(executable, ipu, variables));
  // Upwards, then downwards: each takes along what lies on that side.
  for (int direction = 0; direction < 2; ++direction) {
    for (size_t i : by_offset) {
      const HostTensor& variable = executable.host_tensors()[i];
      if (!variables[i] || !others.Touches(variable.offset, variable.end())) continue;
      variables[i] = false;
      AddPages(variable.offset, variable.end(), others);
    }
    std::reverse(by_offset.begin(), by_offset.end());
  }
}

}  // namespace

SharingPlan PlanSharing(const program::Executable& executable,
                        const program::ReplicaRange& replicas, std::vector<bool> candidates) {
  // Executables of our compiler need two rounds; hostile ones must not take for ever.
  constexpr int kMostRounds = 8;
  const uint32_t ipus = executable.ipus_per_replica();
  SharingPlan plan;
  for (int round = 0;; ++round) {
    if (round == kMostRounds) candidates.assign(candidates.size(), false);
    plan.uniform = program::FindUniform(executable, replicas, std::move(candidates));
    candidates = plan.uniform.variables;
    for (uint32_t ipu = 0; ipu < ipus; ++ipu) KeepWholePages(executable, ipu, candidates);
    if (candidates == plan.uniform.variables) break;
  }
  plan.pages.resize(ipus);
  for (size_t i = 0; i < candidates.size(); ++i) {
    const HostTensor& variable = executable.host_tensors()[i];
    if (candidates[i]) AddPages(variable.offset, variable.end(), plan.pages[variable.ipu]);
  }
  return plan;
}

}  // namespace vpod::engine
