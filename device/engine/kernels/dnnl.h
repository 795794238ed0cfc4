// Helpers for oneDNN that matmul and convolution share.
#pragma once

#include <omp.h>

#include <dnnl.hpp>

#include "absl/strings/str_cat.h"
#include "device/engine/kernels/operand.h"

namespace vpod::engine {

inline const dnnl::engine& CpuEngine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

inline dnnl::stream& StreamOfThisThread() {
  thread_local dnnl::stream stream(CpuEngine());
  return stream;
}

// Bits depend on the number of OpenMP threads; ours is always one, at preparation and at execution.
inline void UseOneThread() { omp_set_num_threads(1); }

// Host memory that a primitive takes with its descriptors and its code, at most: 2,000 convolutions
// of different shapes took 83 KiB each (brgconv of 3x3 windows, oneDNN 2.6), others less.
inline constexpr size_t kPrimitiveBytes = 96 << 10;

inline dnnl::primitive_attr UserScratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

// oneDNN reports errors by exception; none leaves the kernels.
template <class F>
auto Guarded(const F& f) -> decltype(f()) {
  try {
    UseOneThread();
    return f();
  } catch (const dnnl::error& error) {
    return absl::InternalError(absl::StrCat("oneDNN: ", error.what()));
  }
}

}  // namespace vpod::engine
