// Reductions over replicas in the canonical order (docs/architecture.md, "Reduce"): a balanced
// binary tree over the members of a group by replica number, split at the largest power of two
// below n, with float64 partial results, rounded once at the end; integers are reduced as they are.
// The bits depend on the replica numbers only, never on threads, processes or hosts.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/types/span.h"

namespace vpod::fabric {

// How one replica's contribution, and the result, are stored.
enum class Element { kFloat64, kFloat32, kFloat16, kInt32 };

// Sums and products of kInt32 are taken modulo 2^32. A NaN makes the minimum and maximum NaN.
// kSquareAdd is the sum of the squares of the contributions.
enum class Operator { kSum, kMin, kMax, kProduct, kSquareAdd };

size_t ElementBytes(Element element);
// How the result of a node of several leaves is stored between processes.
Element PartialElement(Element leaf);

// Members [begin, end) of the group, by position, that are a node of the tree.
struct TreeNode {
  size_t begin = 0, end = 0;
  size_t size() const { return end - begin; }
  friend bool operator==(const TreeNode&, const TreeNode&) = default;
};

// The largest nodes of the tree over `present.size()` members whose members are all present, in
// order. A process can reduce each of them where it lies.
std::vector<TreeNode> MaximalNodes(const std::vector<bool>& present);

// A node as one process has it: its leaves, or their result, aligned for its elements.
struct Subtree {
  TreeNode node;
  std::vector<const void*> leaves;  // one a member of the node, or their PartialReduce alone
  Element element = Element::kFloat32;
  size_t origin = 0;  // index of the element at which `leaves` begin
};

// Where results go; `origin` as above.
struct TreeOutput {
  void* data = nullptr;
  size_t origin = 0;
};

// Writes the results of elements [begin, end) of a node to `to`, as PartialElement; `subtrees`
// cover the node in order.
void PartialReduce(Operator op, absl::Span<const Subtree> subtrees, size_t begin, size_t end,
                   void* to);

// Reduces elements [begin, end) of `subtrees`, which cover the tree in order, multiplies the result
// by `scale` (floats only) and writes it to every one of `outputs`. Leaves may alias outputs of the
// same element. `output` is the type of the leaves, or any float for those of kFloat64.
//
// `beyond_caches` says that the buffers of all replicas together exceed the caches: results are
// then written past them.
void TreeReduce(Operator op, absl::Span<const Subtree> subtrees,
                absl::Span<const TreeOutput> outputs, Element output, size_t begin, size_t end,
                double scale, bool beyond_caches = false);

}  // namespace vpod::fabric
