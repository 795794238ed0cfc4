// The layout pass: where the values of a graph are, on which IPU and in which storage order. Values
// are row-major in the graph; here each gets the order in which it is made, and readers that ask
// for another get a copy. Variables that convolutions read as weights lie with the outputs
// innermost, as in the blocks of oneDNN's layouts, so that packing is several times as fast. Their
// gradients and the optimiser's state lie so, too.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/compiler/compiler.h"
#include "client/compiler/graph_program.h"
#include "client/compiler/lowering.h"
#include "client/graph/graph.h"

namespace vpod::compiler {

// In which order the dimensions of a dense tensor lie, if there are more than two.
enum class Order { kRowMajor, kChannelsLast, kOutputsLast };

// The variables that convolutions read as weights, or that weights are made of element by element.
// The graph has no gradients yet, so that all programs place its variables alike. With stochastic
// rounding, elements of float16 variables are rounded by their numbers, which must not depend on a
// layout: these variables stay row-major.
std::set<uint32_t> FindFilters(const graph::Graph& graph, Rounding rounding);

// The tensors and instructions of a program while it is lowered.
class Placement {
 public:
  // The program outlives the object.
  explicit Placement(const GraphProgram& program);

  LoweredProgram Take() { return std::move(lowered_); }
  // Following instructions belong to this: an operation of the graph, or what is done in a phase
  // with a variable or stream of this name.
  void SetOrigin(program::v1::Origin origin) { origin_ = std::move(origin); }
  void SetOrigin(const std::string& name, program::v1::Origin::Phase phase, uint32_t stage = 0);
  void Emit(uint32_t ipu, Section section, program::v1::Instruction instruction);
  const LoweredTensor& TensorAt(uint32_t ipu, uint32_t index) const {
    return lowered_.ipus[ipu].tensors[index];
  }
  LoweredIpu& ipu(uint32_t ipu) { return lowered_.ipus[ipu]; }

  // --- Tensors: row-major, unless they have strides ---
  uint32_t NewTensor(uint32_t ipu, LoweredTensor tensor);
  uint32_t AddView(uint32_t ipu, LoweredTensor tensor);
  // The elements of a dense tensor as they lie in memory: a row-major tensor, whose dimensions are
  // those of the other in another order. Optimisers, collectives and moves take tensors so.
  uint32_t Flat(uint32_t ipu, uint32_t index);

  // --- Values ---
  // A tensor that is to hold a value on `ipu`.
  uint32_t Make(uint32_t id, uint32_t ipu, Order order);
  // Says that a value is in a tensor.
  void SetPlace(uint32_t id, uint32_t ipu, uint32_t index) { placed_[{id, ipu}] = {index}; }
  // Index on `ipu` of a value that is there already or is made there now (a variable on its IPU, a
  // constant on any), in whatever layout.
  uint32_t Place(uint32_t id, uint32_t ipu);
  // As Place, in the given layout.
  uint32_t PlaceAs(uint32_t id, uint32_t ipu, Order order);
  // A value that is read, in row-major order.
  uint32_t Fetch(uint32_t id, uint32_t ipu);
  // Moves a value that is read to `ipu` if it is on another.
  void Bring(uint32_t id, uint32_t ipu);
  // The order of a dense tensor at a multiple of 64 bytes, as kernels want it; the first if it lies
  // in several orders.
  std::optional<Order> OrderOf(uint32_t ipu, uint32_t index) const;
  // The order for a value that is made element by element from this one, which need not be dense.
  Order OrderLike(uint32_t ipu, uint32_t index) const;
  // Values that have a tensor in a storage of an IPU.
  std::vector<uint32_t> ValuesIn(uint32_t ipu, uint32_t storage) const;
  // Storages, as (IPU, storage), of inputs, variables and constants: one entry for each value.
  std::vector<std::pair<uint32_t, uint32_t>> StoragesFromOutside() const;

  // --- What leaves an IPU ---
  void AddMove(Section section, uint32_t from_ipu, uint32_t from, uint32_t to_ipu, uint32_t to);
  // State in streaming memory, behind the remote buffers of the graph; its index among all.
  uint32_t AddRemoteBuffer(uint32_t ipu, program::v1::RemoteBuffer buffer);
  uint32_t AddStream(std::string name, bool to_device, uint32_t ipu, const graph::TensorType& type,
                     bool periodic = false);

 private:
  // Where a value is on an IPU: the tensor in which it was made, and the same elements in the
  // orders that somebody needed.
  struct Places {
    uint32_t index = ~0u;
    std::array<uint32_t, 3> converted = {~0u, ~0u, ~0u};  // [order]
  };

  // Whether a tensor lies as an op wants it.
  bool Lies(uint32_t ipu, uint32_t index, Order order) const;
  uint32_t RowMajor(uint32_t id, uint32_t ipu) { return PlaceAs(id, ipu, Order::kRowMajor); }

  const graph::Graph& graph_;
  const std::set<uint32_t>& filters_;
  LoweredProgram lowered_;
  program::v1::Origin origin_;  // without an op: what the instruction does
  std::map<std::pair<uint32_t, uint32_t>, Places> placed_;  // of (value, IPU)
};

}  // namespace vpod::compiler
