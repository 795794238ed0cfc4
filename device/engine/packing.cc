#include "device/engine/packing.h"

#include <algorithm>

#include "device/program/op.h"

namespace vpod::engine {
namespace {

using program::v1::Ipu;

using Range = program::ArenaRange;

// Ranges in ascending order that do not overlap.
class Ranges {
 public:
  explicit Ranges(std::vector<Range> ranges) {
    std::sort(ranges.begin(), ranges.end(),
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
    for (const Range& range : ranges) {
      if (merged_.empty() || range.begin >= merged_.back().end) {
        merged_.push_back(range);
      } else {
        merged_.back().end = std::max(merged_.back().end, range.end);
      }
    }
  }
  uint32_t size() const { return static_cast<uint32_t>(merged_.size()); }

  // Calls `visit(number)` for the ranges that overlap one.
  template <class Visit>
  void ForOverlapping(const Range& range, const Visit& visit) const {
    auto it = std::partition_point(merged_.begin(), merged_.end(),
                                   [&](const Range& each) { return each.end <= range.begin; });
    for (; it != merged_.end() && it->begin < range.end; ++it)
      visit(static_cast<uint32_t>(it - merged_.begin()));
  }

 private:
  std::vector<Range> merged_;
};

// The ranges that an instruction's outputs overlap.
std::vector<uint32_t> WrittenBy(const program::v1::Instruction& instruction, const Ipu& ipu,
                                const Ranges& ranges) {
  constexpr size_t kMany = 16;
  std::vector<uint32_t> written;
  for (uint32_t output : instruction.outputs()) {
    ranges.ForOverlapping(program::RangeOf(ipu.tensors(static_cast<int>(output)), /*output=*/true),
                          [&](uint32_t range) {
                            if (written.size() <= kMany) written.push_back(range);
                          });
  }
  if (written.size() > kMany) written = {kAllRanges};
  return written;
}

}  // namespace

PackingPlan PlanPacking(const program::v1::Executable& executable, uint32_t ipu,
                        absl::Span<const std::vector<const Kernel*>> kernels) {
  const Ipu& text = executable.ipus(static_cast<int>(ipu));
  const auto instruction_at = [&](size_t f, size_t s) -> const program::v1::Instruction& {
    return text.functions(static_cast<int>(f)).instructions(static_cast<int>(s));
  };
  const auto for_steps = [&](const auto& visit) {
    for (size_t f = 0; f < kernels.size(); ++f) {
      for (size_t s = 0; s < kernels[f].size(); ++s) visit(f, s);
    }
  };
  // The operand that a step packs.
  const auto packed_by = [&](size_t f, size_t s) -> std::optional<Range> {
    const Kernel& kernel = *kernels[f][s];
    if (kernel.packed_bytes == 0) return std::nullopt;
    const uint32_t input = instruction_at(f, s).inputs(kernel.packed_input);
    return program::RangeOf(text.tensors(static_cast<int>(input)), /*output=*/false);
  };
  std::vector<Range> operands;
  for_steps([&](size_t f, size_t s) {
    if (const auto operand = packed_by(f, s)) operands.push_back(*operand);
  });
  const Ranges ranges(std::move(operands));

  PackingPlan plan{.ranges = ranges.size()};
  for (const auto& function : kernels) {
    plan.kept.emplace_back(function.size());
    plan.written.emplace_back(function.size());
  }
  // A loop writes its counter between the steps of its rounds: what lies there is not kept.
  std::vector<bool> counter(ranges.size());
  for_steps([&](size_t f, size_t s) {
    plan.written[f][s] = WrittenBy(instruction_at(f, s), text, ranges);
    if (!instruction_at(f, s).has_repeat()) return;
    for (uint32_t range : plan.written[f][s]) counter[range] = true;
  });
  for (const program::v1::Program& program : executable.programs()) {
    const std::vector<uint64_t> executions =
        program::Executions(text, program.functions(static_cast<int>(ipu)));
    std::vector<uint64_t> writes(ranges.size());
    uint64_t writes_to_all = 0;
    for_steps([&](size_t f, size_t s) {
      if (f >= executions.size()) return;
      for (uint32_t range : plan.written[f][s])
        (range == kAllRanges ? writes_to_all : writes[range]) += executions[f];
    });
    for_steps([&](size_t f, size_t s) {
      const auto operand = packed_by(f, s);
      if (!operand || plan.kept[f][s] || f >= executions.size()) return;
      ranges.ForOverlapping(*operand, [&](uint32_t range) {
        if (counter[range] || executions[f] <= writes[range] + writes_to_all) return;
        plan.kept[f][s] = KeptOperand{plan.kept_bytes, range};
        plan.kept_bytes += RoundUp(kernels[f][s]->packed_bytes);
      });
    });
  }
  return plan;
}

}  // namespace vpod::engine
