#include "device/fabric/tree_sum.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "device/base/simd.h"

namespace vpod::fabric {
namespace {

// Elements that are carried through the whole tree at once: the partial sums of a block stay in the
// first-level caches.
constexpr size_t kBlock = 512;

VPOD_SIMD void LoadFloats(const float* from, double* to, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] = from[i];
}

VPOD_SIMD void AddFloatPair(const float* a, const float* b, double* to, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] = static_cast<double>(a[i]) + static_cast<double>(b[i]);
}

VPOD_SIMD void AddInto(double* to, const double* from, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] += from[i];
}

VPOD_SIMD void RoundToFloats(const double* from, double scale, float* to, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i] * scale);
}

// Copies `bytes` (a multiple of 16, 16-byte aligned) without reading the target into the caches
// first.
void CopyPastCaches(void* to, const void* from, size_t bytes) {
  auto* target = static_cast<__m128i*>(to);
  const auto* source = static_cast<const __m128i*>(from);
  for (size_t i = 0; i < bytes / sizeof(__m128i); ++i) {
    _mm_stream_si128(target + i, _mm_loadu_si128(source + i));
  }
}

void Load(const void* from, Element element, size_t begin, double* to, size_t n) {
  switch (element) {
    case Element::kFloat64:
      std::memcpy(to, static_cast<const double*>(from) + begin, n * sizeof(double));
      break;
    case Element::kFloat32:
      LoadFloats(static_cast<const float*>(from) + begin, to, n);
      break;
    case Element::kFloat16:
      for (size_t i = 0; i < n; ++i)
        to[i] = static_cast<double>(static_cast<const _Float16*>(from)[begin + i]);
      break;
  }
}

// Sum of two neighbouring leaves; float32 leaves are added without a detour through memory.
void LoadPair(const void* a, const void* b, Element element, size_t begin, double* to,
              double* spare, size_t n) {
  if (element == Element::kFloat32) {
    AddFloatPair(static_cast<const float*>(a) + begin, static_cast<const float*>(b) + begin, to, n);
    return;
  }
  Load(a, element, begin, to, n);
  Load(b, element, begin, spare, n);
  AddInto(to, spare, n);
}

// Sums one block over all replicas. Subtrees of equal size merge as they complete, like the digits
// of a binary counter; what is left is added from the right, which is the tree split at the largest
// power of two.
class BlockSum {
 public:
  explicit BlockSum(size_t replicas) {
    size_t levels = 2;
    while ((size_t{1} << levels) < 2 * replicas) ++levels;
    partials_.resize((levels + 1) * kBlock);
    sizes_.reserve(levels + 1);
  }

  const double* Sum(absl::Span<const void* const> inputs, Element element, size_t begin, size_t n) {
    sizes_.clear();
    size_t replica = 0;
    for (; replica + 1 < inputs.size(); replica += 2) {
      LoadPair(inputs[replica], inputs[replica + 1], element, begin, Top(0), Top(1), n);
      sizes_.push_back(2);
      while (sizes_.size() > 1 && sizes_[sizes_.size() - 2] == sizes_.back()) Merge(n);
    }
    if (replica < inputs.size()) {
      Load(inputs[replica], element, begin, Top(0), n);
      sizes_.push_back(1);
    }
    while (sizes_.size() > 1) Merge(n);
    return partials_.data();
  }

 private:
  double* Top(size_t above) { return partials_.data() + (sizes_.size() + above) * kBlock; }

  void Merge(size_t n) {
    const size_t last = sizes_.size() - 1;
    AddInto(partials_.data() + (last - 1) * kBlock, partials_.data() + last * kBlock, n);
    sizes_[last - 1] += sizes_[last];
    sizes_.pop_back();
  }

  std::vector<double> partials_;
  std::vector<size_t> sizes_;
};

}  // namespace

void TreeSum(absl::Span<const void* const> inputs, Element input, absl::Span<void* const> outputs,
             Element output, size_t begin, size_t end, double scale, bool beyond_caches) {
  BlockSum block_sum(inputs.size());
  alignas(64) std::byte rounded[kBlock * sizeof(float)];
  const size_t element = output == Element::kFloat32 ? sizeof(float) : sizeof(_Float16);
  for (size_t at = begin; at < end; at += kBlock) {
    const size_t n = std::min(kBlock, end - at);
    const double* sum = block_sum.Sum(inputs, input, at, n);
    if (output == Element::kFloat32) {
      RoundToFloats(sum, scale, reinterpret_cast<float*>(rounded), n);
    } else {
      auto* halves = reinterpret_cast<_Float16*>(rounded);
      for (size_t i = 0; i < n; ++i) halves[i] = static_cast<_Float16>(sum[i] * scale);
    }
    for (void* to : outputs) {
      std::byte* target = static_cast<std::byte*>(to) + at * element;
      const bool aligned = reinterpret_cast<uintptr_t>(target) % 16 == 0 && n * element % 16 == 0;
      if (beyond_caches && aligned) {
        CopyPastCaches(target, rounded, n * element);
      } else {
        std::memcpy(target, rounded, n * element);
      }
    }
  }
  // The streamed results must be seen by whoever is told that the sum is done.
  if (beyond_caches) _mm_sfence();
}

}  // namespace vpod::fabric
