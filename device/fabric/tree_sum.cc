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

// How many of `count` leaves the left half of a node has.
size_t LeftLeaves(size_t count) {
  size_t left = 1;
  while (left * 2 < count) left *= 2;
  return left;
}

// The additions above the subtrees, as steps over a stack of blocks.
class Combination {
 public:
  explicit Combination(absl::Span<const Subtree> subtrees) : subtrees_(subtrees) {
    size_t most_leaves = 1;
    for (const Subtree& subtree : subtrees)
      most_leaves = std::max(most_leaves, subtree.leaves.size());
    sums_.assign(subtrees.size(), BlockSum(most_leaves));
    size_t next = 0;
    Plan({subtrees.front().node.begin, subtrees.back().node.end}, next, 0);
  }

  const double* Sum(size_t begin, size_t n) {
    if (steps_.size() == 1) return LeafSum(0, begin, n);
    for (const Step& step : steps_) {
      double* to = stack_.data() + step.depth * kBlock;
      if (step.subtree == kAdd) {
        AddInto(to, to + kBlock, n);
      } else {
        std::memcpy(to, LeafSum(step.subtree, begin, n), n * sizeof(double));
      }
    }
    return stack_.data();
  }

 private:
  static constexpr size_t kAdd = ~size_t{0};
  struct Step {
    size_t subtree;
    size_t depth;
  };

  void Plan(TreeNode node, size_t& next, size_t depth) {
    stack_.resize(std::max(stack_.size(), (depth + 1) * kBlock));
    if (next < subtrees_.size() && subtrees_[next].node == node) {
      steps_.push_back({next++, depth});
      return;
    }
    const size_t middle = node.begin + LeftLeaves(node.end - node.begin);
    Plan({node.begin, middle}, next, depth);
    Plan({middle, node.end}, next, depth + 1);
    steps_.push_back({kAdd, depth});
  }

  const double* LeafSum(size_t index, size_t begin, size_t n) {
    const Subtree& subtree = subtrees_[index];
    return sums_[index].Sum(subtree.leaves, subtree.element, begin - subtree.origin, n);
  }

  const absl::Span<const Subtree> subtrees_;
  std::vector<BlockSum> sums_;
  std::vector<Step> steps_;
  std::vector<double> stack_;
};

void AppendMaximalNodes(const std::vector<bool>& present, TreeNode node,
                        std::vector<TreeNode>& nodes) {
  const auto first = present.begin() + static_cast<ptrdiff_t>(node.begin);
  const auto last = present.begin() + static_cast<ptrdiff_t>(node.end);
  if (std::all_of(first, last, [](bool here) { return here; })) {
    nodes.push_back(node);
    return;
  }
  if (node.end - node.begin < 2) return;
  const size_t middle = node.begin + LeftLeaves(node.end - node.begin);
  AppendMaximalNodes(present, {node.begin, middle}, nodes);
  AppendMaximalNodes(present, {middle, node.end}, nodes);
}

}  // namespace

std::vector<TreeNode> MaximalNodes(const std::vector<bool>& present) {
  std::vector<TreeNode> nodes;
  if (!present.empty()) AppendMaximalNodes(present, {0, present.size()}, nodes);
  return nodes;
}

void PartialSum(const Subtree& subtree, size_t begin, size_t end, double* to) {
  BlockSum block_sum(subtree.leaves.size());
  for (size_t at = begin; at < end; at += kBlock) {
    const size_t n = std::min(kBlock, end - at);
    std::memcpy(to + (at - begin),
                block_sum.Sum(subtree.leaves, subtree.element, at - subtree.origin, n),
                n * sizeof(double));
  }
}

void TreeSum(absl::Span<const Subtree> subtrees, absl::Span<const TreeOutput> outputs,
             Element output, size_t begin, size_t end, double scale, bool beyond_caches) {
  Combination combination(subtrees);
  alignas(64) std::byte rounded[kBlock * sizeof(float)];
  const size_t element = output == Element::kFloat32 ? sizeof(float) : sizeof(_Float16);
  for (size_t at = begin; at < end; at += kBlock) {
    const size_t n = std::min(kBlock, end - at);
    const double* sum = combination.Sum(at, n);
    if (output == Element::kFloat32) {
      RoundToFloats(sum, scale, reinterpret_cast<float*>(rounded), n);
    } else {
      auto* halves = reinterpret_cast<_Float16*>(rounded);
      for (size_t i = 0; i < n; ++i) halves[i] = static_cast<_Float16>(sum[i] * scale);
    }
    for (const TreeOutput& to : outputs) {
      std::byte* target = static_cast<std::byte*>(to.data) + (at - to.origin) * element;
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

void TreeSum(absl::Span<const void* const> inputs, Element input, absl::Span<void* const> outputs,
             Element output, size_t begin, size_t end, double scale, bool beyond_caches) {
  const std::vector<const void*> leaves(inputs.begin(), inputs.end());
  const Subtree all{{0, inputs.size()}, leaves, input, 0};
  std::vector<TreeOutput> targets;
  for (void* to : outputs) targets.push_back({to, 0});
  TreeSum({&all, 1}, targets, output, begin, end, scale, beyond_caches);
}

}  // namespace vpod::fabric
