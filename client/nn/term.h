// Formulas over tensors that read as they are written.
//
//   const Term x(graph, input), y(graph, target);
//   const Tensor losses = Square(x - y) * 0.5;
#pragma once

#include "client/graph/graph.h"

namespace vpod::nn {

using graph::Graph;
using graph::Tensor;

// A tensor with the operators of arithmetic. A number beside it takes its type.
class Term {
 public:
  Term(Graph& graph, Tensor tensor) : graph_(&graph), tensor_(tensor) {}

  Graph& graph() const { return *graph_; }
  operator Tensor() const { return tensor_; }
  Term Apply(program::v1::UnaryOperator function) const {
    return {*graph_, graph_->Unary(function, tensor_)};
  }
  Term Apply(program::v1::BinaryOperator function, Term other) const {
    return {*graph_, graph_->Binary(function, tensor_, other.tensor_)};
  }
  // A scalar of the same type.
  Term Number(double value) const {
    if (!graph_->status().ok()) return {*graph_, {}};
    return {*graph_, graph_->Constant({graph_->TypeOf(tensor_).type, {}}, value)};
  }

 private:
  Graph* graph_;
  Tensor tensor_;
};

inline Term operator+(Term a, Term b) { return a.Apply(program::v1::ADD, b); }
inline Term operator-(Term a, Term b) { return a.Apply(program::v1::SUBTRACT, b); }
inline Term operator*(Term a, Term b) { return a.Apply(program::v1::MULTIPLY, b); }
inline Term operator/(Term a, Term b) { return a.Apply(program::v1::DIVIDE, b); }
inline Term operator+(Term a, double b) { return a + a.Number(b); }
inline Term operator-(Term a, double b) { return a - a.Number(b); }
inline Term operator*(Term a, double b) { return a * a.Number(b); }
inline Term operator-(double a, Term b) { return b.Number(a) - b; }
inline Term operator-(Term a) { return a.Apply(program::v1::NEGATE); }
inline Term operator>(Term a, double b) { return a.Apply(program::v1::GREATER, a.Number(b)); }
inline Term operator==(Term a, double b) { return a.Apply(program::v1::EQUAL, a.Number(b)); }

inline Term Abs(Term a) { return a.Apply(program::v1::ABSOLUTE); }
inline Term Exp(Term a) { return a.Apply(program::v1::EXPONENT); }
inline Term Log(Term a) { return a.Apply(program::v1::LOGARITHM); }
inline Term Log1p(Term a) { return a.Apply(program::v1::LOG1P); }
inline Term Sqrt(Term a) { return a.Apply(program::v1::SQUARE_ROOT); }
inline Term Square(Term a) { return a.Apply(program::v1::SQUARE); }
inline Term Relu(Term a) { return a.Apply(program::v1::RELU); }
inline Term Min(Term a, Term b) { return a.Apply(program::v1::MINIMUM, b); }
inline Term Min(Term a, double b) { return Min(a, a.Number(b)); }
inline Term Max(Term a, double b) { return a.Apply(program::v1::MAXIMUM, a.Number(b)); }
inline Term Where(Term condition, Term a, Term b) {
  return {a.graph(), a.graph().Select(condition, a, b)};
}
inline Term Where(Term condition, Term a, double b) { return Where(condition, a, a.Number(b)); }
inline Term Where(Term condition, double a, Term b) { return Where(condition, b.Number(a), b); }

// log(1 + exp(a)). The slope at 0 is right: a maximum's is one half there.
inline Term Softplus(Term a) { return Max(a, 0) + Log1p(Exp(-Abs(a))); }

}  // namespace vpod::nn
