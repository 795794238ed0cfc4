// How ops on rows of a matrix are cut: short rows are several a chunk; a long row is cut into
// parts, whose contributions meet in shared memory.
#pragma once

#include <initializer_list>
#include <memory>

#include "device/engine/kernels/operand.h"

namespace vpod::engine {

struct RowParts {
  size_t rows, length;
  Chunking together;  // rows of a chunk, if they are whole
  Chunking parts;     // of each row

  // `type` has an element or more.
  static RowParts Of(const program::TensorType& type) {
    constexpr size_t kMostElements = size_t{1} << 20;
    RowParts cut;
    cut.length = static_cast<size_t>(type.dims.back());
    cut.rows = static_cast<size_t>(type.elements()) / cut.length;
    const bool whole = cut.length <= kMostElements;
    cut.together = whole ? ChunkItems(cut.rows, cut.length) : Chunking{cut.rows, 1};
    cut.parts = {cut.length, std::min(cut.length, kMostElements)};
    return cut;
  }

  bool whole() const { return parts.chunks() == 1; }
  size_t chunks() const { return together.chunks() * parts.chunks(); }
  // The most elements that a chunk has.
  size_t elements() const { return together.per_chunk * parts.per_chunk; }

  // A chunk's rows, their number, and the elements that it has of each.
  struct Piece {
    size_t row, rows;
    size_t column, columns;  // within each row
    size_t first;            // element of the tensor
    size_t count;
  };
  Piece operator[](size_t chunk) const {
    const size_t group = chunk / parts.chunks(), part = chunk % parts.chunks();
    Piece piece{.row = together.begin(group),
                .rows = together.size(group),
                .column = parts.begin(part),
                .columns = parts.size(part)};
    piece.first = piece.row * length + piece.column;
    piece.count = piece.rows * piece.columns;
    return piece;
  }

  // The contributions of the parts of a row, one after the other, in shared memory.
  template <class T>
  T* PartsOf(const Workspace& at, size_t row) const {
    return reinterpret_cast<T*>(at.shared) + row * parts.chunks();
  }
  template <class T>
  size_t SharedBytes() const {
    return rows * parts.chunks() * sizeof(T);
  }
};

// Phases of an op on rows, one for each of these functions.
template <class Op>
Kernel PhasesOf(
    const std::shared_ptr<const Op>& op, const MemoryPlan& scratch,
    std::initializer_list<absl::Status (Op::*)(const Workspace&, size_t) const> phases) {
  Kernel kernel{.scratch_bytes = scratch.bytes()};
  for (const auto run : phases) {
    kernel.phases.push_back(
        {.chunks = op->cut.chunks(),
         .run = [op, run](const Workspace& at, size_t chunk) { return ((*op).*run)(at, chunk); },
         .is_long = op->cut.elements() * op->cut.chunks() > kElementsOfAChunk,
         .operations = static_cast<double>(op->cut.elements())});
  }
  return kernel;
}

}  // namespace vpod::engine
