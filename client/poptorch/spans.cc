#include "client/poptorch/spans.h"

#include <set>

#include "client/poptorch/uses.h"

namespace vpod::poptorch {

Spans::Spans(const Tape& tape) : spans_(tape.records.size(), -1) {
  const auto length = [&](int32_t span) {
    const auto& [first, end] = tape.recomputed[static_cast<size_t>(span)];
    return end - first;
  };
  for (size_t i = 0; i < tape.recomputed.size(); ++i) {
    const auto span = static_cast<int32_t>(i);
    for (uint32_t record = tape.recomputed[i].first; record < tape.recomputed[i].second; ++record) {
      int32_t& widest = spans_[record];
      if (widest < 0 || length(widest) < length(span)) widest = span;
    }
  }
  std::vector<int32_t> made_in(tape.values.size(), -1);
  std::set<ValueId> read_outside;
  for (size_t record = 0; record < tape.records.size(); ++record) {
    ForEachUse(tape.records[record], [&](ValueId value) {
      const int32_t span = made_in[static_cast<size_t>(value)];
      if (span >= 0 && span != spans_[record]) read_outside.insert(value);
    });
    for (ValueId output : tape.records[record].outputs) {
      if (output != kNoValue) made_in[static_cast<size_t>(output)] = spans_[record];
    }
  }
  for (ValueId result : tape.results) {
    if (made_in[static_cast<size_t>(result)] >= 0) read_outside.insert(result);
  }
  results_.assign(read_outside.begin(), read_outside.end());
}

}  // namespace vpod::poptorch
