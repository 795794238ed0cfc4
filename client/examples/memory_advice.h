// The examples follow advice about a program that does not fit: each example names its own options
// (model::NoOptions with the names that it has) and builds its model again with other arguments.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/compiler/compiler.h"
#include "device/base/status.h"

namespace vpod::examples {

// Halves the micro-batch and doubles the accumulation, which gives the same update. Returns
// InvalidArgument if the micro-batch has one item and cannot be smaller.
template <class Count>
absl::Status AccumulateMore(Count& micro_batch, uint32_t& accumulation) {
  if (micro_batch < 2) return absl::InvalidArgumentError("a micro-batch has one item or more");
  micro_batch /= 2;
  accumulation *= 2;
  return absl::OkStatus();
}

// Returns the front of a program whose model follows from its arguments. `follow(advice,
// arguments)` changes the arguments as a user who follows the advice would, and fails if no
// argument does it; `build(arguments)` gives the model.
template <class Arguments, class Follow, class Build>
compiler::Front FrontOf(model::OptionNames names, const Arguments& arguments, Follow follow,
                        Build build) {
  return {
      .names = std::move(names),
      .rebuild =
          [=](const std::vector<model::MemoryAdvice>& changes) -> absl::StatusOr<compiler::Model> {
        Arguments changed = arguments;
        for (const model::MemoryAdvice advice : changes)
          VPOD_RETURN_IF_ERROR(follow(advice, changed));
        return build(changed);
      }};
}

}  // namespace vpod::examples
