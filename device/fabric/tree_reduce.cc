#include "device/fabric/tree_reduce.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "device/base/simd.h"

namespace vpod::fabric {
namespace {

// Elements that are carried through the whole tree at once: the partial results of a block stay in
// the first-level caches.
constexpr size_t kBlock = 512;

// --- Arithmetic on blocks. Integers are carried as uint32_t, whose arithmetic is modulo 2^32. ---

VPOD_SIMD void LoadFloats(const float* from, double* to, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] = from[i];
}

VPOD_SIMD void AddFloatPair(const float* a, const float* b, double* to, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] = static_cast<double>(a[i]) + static_cast<double>(b[i]);
}

VPOD_SIMD void AddInto(double* to, const double* from, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] += from[i];
}

VPOD_SIMD void MultiplyInto(double* to, const double* from, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] *= from[i];
}

VPOD_SIMD void MinInto(double* to, const double* from, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] = to[i] < from[i] || to[i] != to[i] ? to[i] : from[i];
}

VPOD_SIMD void MaxInto(double* to, const double* from, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] = to[i] > from[i] || to[i] != to[i] ? to[i] : from[i];
}

VPOD_SIMD void AddInto(uint32_t* to, const uint32_t* from, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] += from[i];
}

VPOD_SIMD void MultiplyInto(uint32_t* to, const uint32_t* from, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] *= from[i];
}

VPOD_SIMD void MinInto(uint32_t* to, const uint32_t* from, size_t n) {
  for (size_t i = 0; i < n; ++i)
    to[i] = static_cast<int32_t>(to[i]) < static_cast<int32_t>(from[i]) ? to[i] : from[i];
}

VPOD_SIMD void MaxInto(uint32_t* to, const uint32_t* from, size_t n) {
  for (size_t i = 0; i < n; ++i)
    to[i] = static_cast<int32_t>(to[i]) > static_cast<int32_t>(from[i]) ? to[i] : from[i];
}

VPOD_SIMD void RoundToFloats(const double* from, double scale, float* to, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i] * scale);
}

template <class Value>
void CombineInto(Operator op, Value* to, const Value* from, size_t n) {
  switch (op) {
    case Operator::kSum:
    case Operator::kSquareAdd:
      return AddInto(to, from, n);
    case Operator::kMin:
      return MinInto(to, from, n);
    case Operator::kMax:
      return MaxInto(to, from, n);
    case Operator::kProduct:
      return MultiplyInto(to, from, n);
  }
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
    case Element::kInt32:
      break;  // is carried as uint32_t
  }
}

void Load(const void* from, Element, size_t begin, uint32_t* to, size_t n) {
  std::memcpy(to, static_cast<const uint32_t*>(from) + begin, n * sizeof(uint32_t));
}

// Reduces one block over the leaves of a node. Subtrees of equal size merge as they complete, like
// the digits of a binary counter; what is left is merged from the right, which is the tree split at
// the largest power of two.
template <class Value>
class BlockReduction {
 public:
  BlockReduction(Operator op, size_t leaves) : op_(op) {
    size_t levels = 2;
    while ((size_t{1} << levels) < 2 * leaves) ++levels;
    partials_.resize((levels + 1) * kBlock);
    sizes_.reserve(levels + 1);
  }

  const Value* Reduce(const Subtree& subtree, size_t begin, size_t n) {
    const std::vector<const void*>& leaves = subtree.leaves;
    // The result of another process is there as it is.
    const bool partial = leaves.size() < subtree.node.size();
    if (partial) return static_cast<const Value*>(leaves[0]) + begin;
    sizes_.clear();
    size_t leaf = 0;
    for (; leaf + 1 < leaves.size(); leaf += 2) {
      LoadPair(leaves[leaf], leaves[leaf + 1], subtree.element, begin, n);
      sizes_.push_back(2);
      while (sizes_.size() > 1 && sizes_[sizes_.size() - 2] == sizes_.back()) Merge(n);
    }
    if (leaf < leaves.size()) {
      LoadLeaf(leaves[leaf], subtree.element, begin, Top(0), n);
      sizes_.push_back(1);
    }
    while (sizes_.size() > 1) Merge(n);
    return partials_.data();
  }

 private:
  Value* Top(size_t above) { return partials_.data() + (sizes_.size() + above) * kBlock; }

  void LoadLeaf(const void* from, Element element, size_t begin, Value* to, size_t n) {
    Load(from, element, begin, to, n);
    if (op_ == Operator::kSquareAdd) MultiplyInto(to, to, n);
  }

  // Two neighbouring leaves; float32 leaves are added without a detour through memory.
  void LoadPair(const void* a, const void* b, Element element, size_t begin, size_t n) {
    if constexpr (std::is_same_v<Value, double>) {
      if (element == Element::kFloat32 && op_ == Operator::kSum) {
        AddFloatPair(static_cast<const float*>(a) + begin, static_cast<const float*>(b) + begin,
                     Top(0), n);
        return;
      }
    }
    LoadLeaf(a, element, begin, Top(0), n);
    LoadLeaf(b, element, begin, Top(1), n);
    CombineInto(op_, Top(0), Top(1), n);
  }

  void Merge(size_t n) {
    const size_t last = sizes_.size() - 1;
    CombineInto(op_, partials_.data() + (last - 1) * kBlock, partials_.data() + last * kBlock, n);
    sizes_[last - 1] += sizes_[last];
    sizes_.pop_back();
  }

  Operator op_;
  std::vector<Value> partials_;
  std::vector<size_t> sizes_;
};

// How many of `count` leaves the left half of a node has.
size_t LeftLeaves(size_t count) {
  size_t left = 1;
  while (left * 2 < count) left *= 2;
  return left;
}

// The merges above the subtrees, as steps over a stack of blocks.
template <class Value>
class Combination {
 public:
  Combination(Operator op, absl::Span<const Subtree> subtrees) : op_(op), subtrees_(subtrees) {
    size_t most_leaves = 1;
    for (const Subtree& subtree : subtrees)
      most_leaves = std::max(most_leaves, subtree.leaves.size());
    reductions_.assign(subtrees.size(), BlockReduction<Value>(op, most_leaves));
    size_t next = 0;
    Plan({subtrees.front().node.begin, subtrees.back().node.end}, next, 0);
  }

  const Value* Reduce(size_t begin, size_t n) {
    if (steps_.size() == 1) return ReduceSubtree(0, begin, n);
    for (const Step& step : steps_) {
      Value* to = stack_.data() + step.depth * kBlock;
      if (step.subtree == kMerge) {
        CombineInto(op_, to, to + kBlock, n);
      } else {
        std::memcpy(to, ReduceSubtree(step.subtree, begin, n), n * sizeof(Value));
      }
    }
    return stack_.data();
  }

 private:
  static constexpr size_t kMerge = ~size_t{0};
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
    const size_t middle = node.begin + LeftLeaves(node.size());
    Plan({node.begin, middle}, next, depth);
    Plan({middle, node.end}, next, depth + 1);
    steps_.push_back({kMerge, depth});
  }

  const Value* ReduceSubtree(size_t index, size_t begin, size_t n) {
    const Subtree& subtree = subtrees_[index];
    return reductions_[index].Reduce(subtree, begin - subtree.origin, n);
  }

  const Operator op_;
  const absl::Span<const Subtree> subtrees_;
  std::vector<BlockReduction<Value>> reductions_;
  std::vector<Step> steps_;
  std::vector<Value> stack_;
};

void AppendMaximalNodes(const std::vector<bool>& present, TreeNode node,
                        std::vector<TreeNode>& nodes) {
  const auto first = present.begin() + static_cast<ptrdiff_t>(node.begin);
  const auto last = present.begin() + static_cast<ptrdiff_t>(node.end);
  if (std::all_of(first, last, [](bool here) { return here; })) {
    nodes.push_back(node);
    return;
  }
  if (node.size() < 2) return;
  const size_t middle = node.begin + LeftLeaves(node.size());
  AppendMaximalNodes(present, {node.begin, middle}, nodes);
  AppendMaximalNodes(present, {middle, node.end}, nodes);
}

void Round(const double* from, double scale, Element output, void* to, size_t n) {
  if (output == Element::kFloat32) return RoundToFloats(from, scale, static_cast<float*>(to), n);
  if (output == Element::kFloat64) {
    auto* wide = static_cast<double*>(to);
    for (size_t i = 0; i < n; ++i) wide[i] = from[i] * scale;
    return;
  }
  auto* halves = static_cast<_Float16*>(to);
  for (size_t i = 0; i < n; ++i) halves[i] = static_cast<_Float16>(from[i] * scale);
}

void Round(const uint32_t* from, double, Element, void* to, size_t n) {
  std::memcpy(to, from, n * sizeof(uint32_t));
}

template <class Value>
void PartialReduceAs(Operator op, absl::Span<const Subtree> subtrees, size_t begin, size_t end,
                     Value* to) {
  Combination<Value> combination(op, subtrees);
  for (size_t at = begin; at < end; at += kBlock) {
    const size_t n = std::min(kBlock, end - at);
    std::memcpy(to + (at - begin), combination.Reduce(at, n), n * sizeof(Value));
  }
}

template <class Value>
void TreeReduceAs(Operator op, absl::Span<const Subtree> subtrees,
                  absl::Span<const TreeOutput> outputs, Element output, size_t begin, size_t end,
                  double scale, bool beyond_caches) {
  Combination<Value> combination(op, subtrees);
  alignas(64) std::byte rounded[kBlock * sizeof(double)];
  const size_t element = ElementBytes(output);
  for (size_t at = begin; at < end; at += kBlock) {
    const size_t n = std::min(kBlock, end - at);
    Round(combination.Reduce(at, n), scale, output, rounded, n);
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
  // The streamed results must be seen by every thread that is told that the reduction is done.
  if (beyond_caches) _mm_sfence();
}

}  // namespace

size_t ElementBytes(Element element) {
  switch (element) {
    case Element::kFloat64:
      return 8;
    case Element::kFloat32:
    case Element::kInt32:
      return 4;
    case Element::kFloat16:
      return 2;
  }
  return 0;
}

Element PartialElement(Element leaf) {
  return leaf == Element::kInt32 ? Element::kInt32 : Element::kFloat64;
}

std::vector<TreeNode> MaximalNodes(const std::vector<bool>& present) {
  std::vector<TreeNode> nodes;
  if (!present.empty()) AppendMaximalNodes(present, {0, present.size()}, nodes);
  return nodes;
}

void PartialReduce(Operator op, absl::Span<const Subtree> subtrees, size_t begin, size_t end,
                   void* to) {
  if (subtrees.front().element == Element::kInt32)
    return PartialReduceAs(op, subtrees, begin, end, static_cast<uint32_t*>(to));
  PartialReduceAs(op, subtrees, begin, end, static_cast<double*>(to));
}

void TreeReduce(Operator op, absl::Span<const Subtree> subtrees,
                absl::Span<const TreeOutput> outputs, Element output, size_t begin, size_t end,
                double scale, bool beyond_caches) {
  if (output == Element::kInt32)
    return TreeReduceAs<uint32_t>(op, subtrees, outputs, output, begin, end, scale, beyond_caches);
  TreeReduceAs<double>(op, subtrees, outputs, output, begin, end, scale, beyond_caches);
}

}  // namespace vpod::fabric
