// Sums over replicas in the canonical order (DESIGN 3.7): a balanced binary tree over global
// replica indices, split at the largest power of two below n, with float64 partial sums, rounded
// once at the end. The bits depend on the replica numbers only, never on threads, processes or
// hosts.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/types/span.h"

namespace vpod::fabric {

// How one replica's contribution, and the result, are stored.
enum class Element { kFloat64, kFloat32, kFloat16 };

// Replicas [begin, end) that are a node of the tree.
struct TreeNode {
  size_t begin = 0, end = 0;
  friend bool operator==(const TreeNode&, const TreeNode&) = default;
};

// The largest nodes of the tree over `present.size()` replicas whose replicas are all present, in
// order. A process can sum each of them where it lies.
std::vector<TreeNode> MaximalNodes(const std::vector<bool>& present);

// A node as one process has it: its leaves, or their sum.
struct Subtree {
  TreeNode node;
  std::vector<const void*> leaves;  // one a replica of the node, or the sum alone
  Element element = Element::kFloat32;
  size_t origin = 0;  // index of the element at which `leaves` begin
};

// Where results go; `origin` as above.
struct TreeOutput {
  void* data = nullptr;
  size_t origin = 0;
};

// Writes the sums of elements [begin, end) of a node's leaves to `to`.
void PartialSum(const Subtree& subtree, size_t begin, size_t end, double* to);

// Adds elements [begin, end) of `subtrees`, which cover the tree in order, multiplies the sum by
// `scale` and writes it to every one of `outputs`. Otherwise as below.
void TreeSum(absl::Span<const Subtree> subtrees, absl::Span<const TreeOutput> outputs,
             Element output, size_t begin, size_t end, double scale, bool beyond_caches = false);

// Adds elements [begin, end) of all `inputs` (one a replica, in replica order), multiplies the sum
// by `scale` and writes it to the same range of every one of `outputs`. Inputs may alias their own
// outputs. `output` is kFloat32 or kFloat16.
//
// `beyond_caches` says that the buffers of all replicas together exceed the caches: results are
// then written past them.
void TreeSum(absl::Span<const void* const> inputs, Element input, absl::Span<void* const> outputs,
             Element output, size_t begin, size_t end, double scale, bool beyond_caches = false);

}  // namespace vpod::fabric
