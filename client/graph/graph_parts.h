// What a graph consists of: its values, the operations that make them, and what leaves it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/graph/origin_table.h"
#include "device/program/tensor_type.h"
#include "proto/program/v1/program.pb.h"

namespace vpod::graph {

using program::Dims;
using program::TensorType;
namespace v1 = program::v1;

// A value of a graph. Cheap to copy; valid as long as its graph.
struct Tensor {
  uint32_t id = ~0u;
  bool valid() const { return id != ~0u; }
  friend bool operator==(Tensor, Tensor) = default;
};

// An operation in single-assignment form: an instruction whose operands are ids of graph values.
struct Node {
  v1::Instruction instruction;
  uint32_t ipu = 0;
  uint32_t origin = 0;  // in the graph's table, which knows the scope, phase and stage
};

// Where a value comes from.
enum class Origin { kOperation, kInput, kVariable, kConstant };  // a buffer is a variable

struct Value {
  TensorType type;
  Origin origin = Origin::kOperation;
  uint32_t ipu = 0;  // that produces or holds it
  std::string name;  // of inputs and variables
  double constant = 0;
  // The elements of a constant, row-major and little-endian. Null: all elements are `constant`.
  std::shared_ptr<const std::string> elements;
  // The value whose bytes an alias (a reshape, stop or pass-by) shares. ~0u: this is no alias.
  uint32_t alias_of = ~0u;
  // The value that receives the gradient of an alias: alias_of for a reshape, the source for a
  // pass-by. ~0u: a stop passes no gradient on.
  uint32_t gradient_to = ~0u;
  uint32_t stage = 0;  // of a pipeline, to which it belongs
  bool is_checkpoint = false;
  uint32_t region = ~0u;  // the number of the gradient region to which it belongs; ~0u: to none
};

struct GraphOutput {
  std::string name;
  Tensor value;
};

// Rows in the streaming memory of an IPU's machine; index among those of its IPU.
struct RemoteBuffer {
  uint32_t ipu = 0, index = ~0u;
};

// In which programs an assignment is made.
enum class Assigned {
  kInTraining,
  kAlways,
  // In programs that train, and in others that read the buffer, which counts micro-batches.
  kIfRead,
};

struct Assignment {
  Tensor variable, value;  // a buffer is a variable
  Assigned when = Assigned::kInTraining;
};

// Gradients that a program defines itself: operations that make the gradients of `inputs` from
// those of `outputs`. They stand beside the nodes of the graph, and are copied to them when
// gradients are added.
struct GradientRegion {
  std::vector<Tensor> outputs, inputs;
  std::vector<Tensor> cotangents;  // stand for the gradients of the outputs, and have their types
  std::vector<Node> nodes;         // read cotangents and any values of the forward pass
  std::vector<Tensor> gradients;   // of the inputs; invalid: none
  uint32_t ipu = 0;                // on which the nodes are
  uint32_t origin = 0;             // in the graph's table; its stage is that of the nodes
  uint32_t first_value = 0, end_value = 0;  // ids of values made in recording; 0, 0: not recorded
};

// All that a graph with gradients consists of, but for the initial values of its variables.
struct GraphParts {
  std::vector<Value> values;  // by id
  std::vector<Node> nodes;    // in an order of execution
  std::vector<Tensor> inputs, variables, buffers;
  std::vector<Assignment> assignments;
  std::map<uint32_t, std::vector<v1::RemoteBuffer>> remote_buffers;  // by IPU
  std::vector<GraphOutput> outputs;
  OriginTable origins;  // of the nodes
};

}  // namespace vpod::graph
