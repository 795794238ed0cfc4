// Buffers for partial results on their way: used again, because pages fresh from the system cost
// more than the arithmetic on them.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "device/base/mutex.h"

namespace vpod::fabric {

// Its content is undefined at first.
class Buffer {
 public:
  explicit Buffer(size_t bytes)
      : bytes_(bytes),
        capacity_(bytes),
        data_(std::make_unique_for_overwrite<std::byte[]>(bytes)) {}

  std::byte* data() { return data_.get(); }
  size_t size() const { return bytes_; }
  absl::Span<const std::byte> span() const { return {data_.get(), bytes_}; }

 private:
  friend class BufferPool;
  size_t bytes_, capacity_;
  std::unique_ptr<std::byte[]> data_;
};
using BufferPtr = std::shared_ptr<Buffer>;

// Thread-safe. Buffers may outlive the pool.
class BufferPool {
 public:
  BufferPtr Take(size_t bytes) {
    std::unique_ptr<Buffer> buffer = Reuse(bytes);
    if (buffer == nullptr) buffer = std::make_unique<Buffer>(bytes);
    return {buffer.release(), [idle = idle_](Buffer* used) { idle->Keep(used); }};
  }

 private:
  // As many as are under way at once when 16 replicas on 4 processes reduce 64 MiB.
  static constexpr size_t kKept = 128;
  struct Idle {
    base::Mutex mutex;
    std::vector<std::unique_ptr<Buffer>> buffers ABSL_GUARDED_BY(mutex);

    void Keep(Buffer* used) {
      std::unique_ptr<Buffer> buffer(used);
      base::MutexLock lock(mutex);
      if (buffers.size() < kKept) buffers.push_back(std::move(buffer));
    }
  };

  // The last one that came back, which is most likely in the caches, when it is large enough.
  std::unique_ptr<Buffer> Reuse(size_t bytes) {
    base::MutexLock lock(idle_->mutex);
    if (idle_->buffers.empty()) return nullptr;
    std::unique_ptr<Buffer> buffer = std::move(idle_->buffers.back());
    idle_->buffers.pop_back();
    if (buffer->capacity_ < bytes) return nullptr;
    buffer->bytes_ = bytes;
    return buffer;
  }

  const std::shared_ptr<Idle> idle_ = std::make_shared<Idle>();
};

}  // namespace vpod::fabric
