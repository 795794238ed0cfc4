// Spans of a tape whose values gradients compute again: those of torch.utils.checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/poptorch/program.h"

namespace vpod::poptorch {

class Spans {
 public:
  // The numbers on the tape must exist.
  explicit Spans(const Tape& tape);

  // The widest span around a record, by its place among Tape::recomputed; -1: none.
  int32_t Of(size_t record) const { return spans_[record]; }
  // Values that a span makes and that are read outside of it, or that leave the model. Without
  // them, each span would be computed again for the next one.
  const std::vector<ValueId>& results() const { return results_; }

 private:
  std::vector<int32_t> spans_;  // by record
  std::vector<ValueId> results_;
};

}  // namespace vpod::poptorch
