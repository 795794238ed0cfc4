// Indices and lengths that kernels take from an arena, which other agents of a job may have mapped.
#pragma once

#include <atomic>

namespace vpod::engine {

// Reads a value that another process may be changing: once, so that what is checked is what is
// used.
template <class T>
T ReadOnce(const T* place) {
  return std::atomic_ref<T>(*const_cast<T*>(place)).load(std::memory_order_relaxed);
}

}  // namespace vpod::engine
