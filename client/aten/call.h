// For the lowerings: the arguments of one operator, which fit its parameters, and the rows of the
// table that are in the files of the families.
#pragma once

#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "client/aten/lower.h"
#include "client/nn/term.h"
#include "device/base/status.h"

namespace vpod::aten {

using graph::Dims;
using graph::Graph;
using graph::Tensor;
using graph::TensorType;
using nn::Term;
namespace v1 = program::v1;

using Tensors = std::vector<Tensor>;
using Outputs = absl::StatusOr<Tensors>;

class Call {
 public:
  Call(Graph& graph, absl::string_view name, std::vector<Argument> arguments)
      : graph_(graph), name_(name), arguments_(std::move(arguments)) {}

  Graph& graph() const { return graph_; }

  // --- Arguments, by their place among the parameters ---
  bool has(size_t i) const { return !std::holds_alternative<std::monostate>(arguments_[i]); }
  // Invalid for None.
  Tensor tensor(size_t i) const { return has(i) ? std::get<Tensor>(arguments_[i]) : Tensor{}; }
  const Tensors& tensors(size_t i) const { return std::get<Tensors>(arguments_[i]); }
  double number(size_t i) const;
  int64_t integer(size_t i) const;
  bool flag(size_t i) const { return number(i) != 0; }
  // Empty for None.
  Dims ints(size_t i) const { return has(i) ? std::get<Dims>(arguments_[i]) : Dims{}; }
  std::vector<double> numbers(size_t i) const {
    return has(i) ? std::get<std::vector<double>>(arguments_[i]) : std::vector<double>{};
  }
  const std::string& text(size_t i) const { return std::get<std::string>(arguments_[i]); }
  // The type that argument i chooses, or this one for None.
  absl::StatusOr<v1::DataType> type(size_t i, v1::DataType otherwise) const;
  const Argument& at(size_t i) const { return arguments_[i]; }

  // --- What is known of values ---
  // A scalar's for an invalid tensor, of which there are some after a mistake.
  TensorType TypeOf(Tensor tensor) const {
    return tensor.valid() ? graph_.TypeOf(tensor) : TensorType{};
  }
  Dims DimsOf(Tensor tensor) const { return TypeOf(tensor).dims; }

  // --- Checks ---
  absl::Status Refuse(absl::string_view why) const;
  // An axis of a tensor of this rank, negative ones counted from the end. A scalar has axis 0.
  absl::StatusOr<uint32_t> Axis(int64_t axis, size_t rank) const;
  // In ascending order; all of them, if there are none.
  absl::StatusOr<std::vector<uint32_t>> Axes(const Dims& axes, size_t rank) const;
  // A number for each of `count` dimensions: one may serve for all. `missing` where there is none.
  absl::StatusOr<Dims> PerDimension(size_t i, size_t count, const Dims& missing = {}) const;

  // --- Values ---
  Tensor Scalar(v1::DataType type, double value) const {
    return graph_.Constant({type, {}}, value);
  }
  Term term(Tensor tensor) const { return {graph_, tensor}; }
  // float16 as FLOAT32, so that a formula is rounded once, at its end.
  Term Wide(Tensor tensor) const;
  Term Wide(size_t i) const { return Wide(tensor(i)); }
  Tensor Narrow(Tensor wide, Tensor like) const { return graph_.Cast(wide, TypeOf(like).type); }
  // Arguments i and j, one of which is a tensor, as tensors of the type to which PyTorch promotes
  // them.
  absl::StatusOr<std::pair<Term, Term>> Promoted(size_t i, size_t j) const;
  // Integers and BOOL as FLOAT32: what functions with fractions make of them.
  Tensor AsFloat(Tensor tensor) const;

 private:
  Graph& graph_;
  absl::string_view name_;
  std::vector<Argument> arguments_;
};

// The gradients of the inputs of `forward` by that of its result.
Tensors Pullback(const Call& call, const Tensors& inputs, Tensor gradient,
                 absl::FunctionRef<Tensor(const Tensors&)> forward);

// log(exp(a) + exp(b)), which infinities and numbers far from each other do not spoil.
Term LogAddExp(Term a, Term b);

// PyTorch's type of what combines two.
v1::DataType PromotedType(v1::DataType a, v1::DataType b);

// A row of the table. Parameters are tensor, operand (a tensor or a number), number, int, bool,
// ints, numbers, tensors, type, text or any; "?" takes None, "=" precedes a default.
struct Row {
  std::string name, parameters;
  Outputs (*lower)(const Call& call);
};

// Appends the parameters of operators that make a tensor: its type, then layout, device, pinning
// and memory format, which say nothing of a graph.
std::string WithOptions(absl::string_view parameters);

// --- By family, for the table ---
std::vector<Row> ViewRows();
std::vector<Row> PartRows();
std::vector<Row> DiagonalRows();
std::vector<Row> CreationRows();
std::vector<Row> MovementRows();
std::vector<Row> UnaryRows();
std::vector<Row> BinaryRows();
std::vector<Row> SpecialRows();
std::vector<Row> ActivationRows();
std::vector<Row> ProductRows();
std::vector<Row> NormRows();
std::vector<Row> PoolingRows();
std::vector<Row> ReductionRows();
std::vector<Row> SortingRows();
std::vector<Row> DistanceRows();
std::vector<Row> LossRows();
std::vector<Row> CtcRows();
std::vector<Row> ResizeRows();
std::vector<Row> SamplingRows();
std::vector<Row> IndexRows();
std::vector<Row> ScatterRows();
std::vector<Row> EmbeddingBagRows();
std::vector<Row> RandomRows();

}  // namespace vpod::aten
