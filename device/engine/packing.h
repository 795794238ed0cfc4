// Which kernels keep the packed form of an operand, as convolutions pack weights, from call to
// call, and which steps make that form stale.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "device/engine/kernels/kernel.h"
#include "device/program/executable.h"

namespace vpod::engine {

// The packed operand of a step.
struct KeptOperand {
  uint64_t offset = 0;  // of its form in the memory that is kept
  uint32_t range = 0;   // of the arena, which the operand is part of
};

// A step that writes many ranges is taken to write all.
inline constexpr uint32_t kAllRanges = ~0u;

// For the functions of one IPU. Ranges are those of the operands that are packed, and do not
// overlap.
struct PackingPlan {
  uint64_t kept_bytes = 0;
  uint32_t ranges = 0;
  // For each step: [function][step].
  std::vector<std::vector<std::optional<KeptOperand>>> kept;
  std::vector<std::vector<std::vector<uint32_t>>> written;  // ranges
};

// `kernels` are those of the IPU's instructions. Packed forms are kept where that pays: by steps
// that some program executes more often than it writes the operand.
PackingPlan PlanPacking(const program::v1::Executable& executable, uint32_t ipu,
                        absl::Span<const std::vector<const Kernel*>> kernels);

// Belongs to one (replica, IPU). Not thread-safe.
class KeptForms {
 public:
  explicit KeptForms(const PackingPlan& plan) : versions_(plan.ranges, 1), packed_(plan.ranges) {}

  void Written(absl::Span<const uint32_t> ranges) {
    for (uint32_t range : ranges) {
      if (range == kAllRanges) return AllWritten();
      ++versions_[range];
    }
  }
  void AllWritten() {
    for (uint64_t& version : versions_) ++version;
  }
  // Whether the form at this place is that of what the range holds now.
  bool IsCurrent(const KeptOperand& operand) const {
    const auto& forms = packed_[operand.range];
    const auto it = forms.find(operand.offset);
    return it != forms.end() && it->second == versions_[operand.range];
  }
  void Packed(const KeptOperand& operand) {
    packed_[operand.range][operand.offset] = versions_[operand.range];
  }

 private:
  std::vector<uint64_t> versions_;
  std::vector<std::map<uint64_t, uint64_t>> packed_;  // [range], the version of each form
};

}  // namespace vpod::engine
