// Writes along a dimension, at places that indices choose, and by a mask.
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/aten/rows/indices.h"

namespace vpod::aten {
namespace {

// --- What is written ---

// A way to write along an axis: updates have the shape that Graph::Gather gives for these places.
class Writer {
 public:
  // `indices` are integers.
  Writer(const Call& call, Tensor indices, uint32_t axis, bool along)
      : call_(call), places_(call.graph().Cast(indices, v1::INT32)), axis_(axis), along_(along) {}

  Term Write(v1::Scatter::Combine combine, Tensor destination, Tensor update) const {
    return call_.term(call_.graph().Scatter(combine, destination, places_, update, axis_, along_));
  }
  Term Read(Tensor whole) const {
    return call_.term(call_.graph().Gather(whole, places_, axis_, along_));
  }
  // Elements of the same value with the shape of `like`.
  Term Like(Tensor like, v1::DataType type, double value) const {
    return call_.term(call_.graph().Constant({type, call_.DimsOf(like)}, value));
  }

 private:
  const Call& call_;
  const Tensor places_;
  const uint32_t axis_;
  const bool along_;
};

// A write of rows along an axis of self.
struct AlongAxis {
  Tensor self;  // with one dimension or more
  Dims rows;    // dimensions of the update: those of self, but n along the axis
  uint32_t axis = 0;
  Tensor indices;  // [n]
};

// (self, dimension, indices): a scalar is a vector of one element to PyTorch.
absl::StatusOr<AlongAxis> AlongAxisOf(const Call& call, bool from_end) {
  Graph& graph = call.graph();
  VPOD_RETURN_IF_ERROR(CheckIndices(call, call.tensor(2)));
  const TensorType self = call.TypeOf(call.tensor(0)), indices = call.TypeOf(call.tensor(2));
  if (indices.dims.size() > 1) {
    return call.Refuse(
        absl::StrCat("the indices are ", indices.ToString(), ", must be a vector or a number"));
  }
  AlongAxis of{call.tensor(0), self.dims};
  if (self.dims.empty()) {
    of.rows = {1};
    of.self = graph.Reshape(of.self, of.rows);
  }
  VPOD_ASSIGN_OR_RETURN(of.axis, call.Axis(call.integer(1), self.dims.size()));
  of.indices = graph.Reshape(call.tensor(2), {indices.elements()});
  if (from_end) of.indices = FromStart(call, of.indices, of.rows[of.axis]);
  of.rows[of.axis] = indices.elements();
  return of;
}

// Argument 3 with the dimensions of the update. A vector of one element is a scalar to PyTorch.
absl::StatusOr<Tensor> SourceOf(const Call& call, const AlongAxis& of) {
  const Dims dims = call.DimsOf(call.tensor(3));
  if (dims == of.rows) return call.tensor(3);
  if (dims.empty() && of.rows == Dims{1}) return call.graph().Reshape(call.tensor(3), of.rows);
  return call.Refuse(absl::StrCat("the source is ", call.TypeOf(call.tensor(3)).ToString(),
                                  ", must have the dimensions [", absl::StrJoin(of.rows, ","),
                                  "]"));
}

// (self, dimension, indices, source, factor)
Outputs IndexAdd(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const AlongAxis of, AlongAxisOf(call, false));
  VPOD_ASSIGN_OR_RETURN(const Tensor given, SourceOf(call, of));
  const Term source = call.Wide(given);
  const Tensor update = call.number(4) == 1 ? source : source * call.number(4);
  const Writer writer(call, of.indices, of.axis, false);
  const Term sum = writer.Write(v1::Scatter::ADD, call.Wide(of.self), update);
  return Tensors{call.graph().Reshape(call.Narrow(sum, of.self), call.DimsOf(call.tensor(0)))};
}

// (self, dimension, indices, source)
Outputs IndexCopy(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const AlongAxis of, AlongAxisOf(call, false));
  VPOD_ASSIGN_OR_RETURN(const Tensor source, SourceOf(call, of));
  const Writer writer(call, of.indices, of.axis, false);
  return Tensors{call.graph().Reshape(writer.Write(v1::Scatter::SET, of.self, source),
                                      call.DimsOf(call.tensor(0)))};
}

// (self, dimension, indices, value): the value is a number or a scalar.
Outputs IndexFill(const Call& call) {
  Graph& graph = call.graph();
  VPOD_ASSIGN_OR_RETURN(const AlongAxis of, AlongAxisOf(call, true));
  const v1::DataType type = call.TypeOf(of.self).type;
  Tensor value;
  if (const auto* tensor = std::get_if<Tensor>(&call.at(3))) {
    if (call.TypeOf(*tensor).elements() != 1) {
      return call.Refuse(absl::StrCat("the value is ", call.TypeOf(*tensor).ToString(),
                                      ", must have one element"));
    }
    value = graph.Expand(graph.Reshape(graph.Cast(*tensor, type), {}), of.rows);
  } else {
    value = graph.Constant({type, of.rows}, call.number(3));
  }
  const Writer writer(call, of.indices, of.axis, false);
  return Tensors{
      graph.Reshape(writer.Write(v1::Scatter::SET, of.self, value), call.DimsOf(call.tensor(0)))};
}

// --- Reductions of what is written to the same place ---

// The value that a reduction begins with where self is not to take part.
double Identity(const std::string& reduction, v1::DataType type) {
  if (reduction == "prod") return 1;
  const bool largest = reduction == "amin";
  if (!largest && reduction != "amax") return 0;
  if (program::IsFloat(type))
    return largest ? std::numeric_limits<double>::infinity()
                   : -std::numeric_limits<double>::infinity();
  const double bits = 8.0 * static_cast<double>(program::SizeOf(type));
  if (!program::IsSigned(type)) return largest ? std::exp2(bits) - 1 : 0;
  return largest ? std::exp2(bits - 1) - 1 : -std::exp2(bits - 1);
}

// Writes the largest or smallest elements. A scatter has no gradient for them: elements that are
// equal to the result share the result's gradient, as in PyTorch.
Term Extreme(const Call& call, const Writer& writer, v1::Scatter::Combine combine, Term self,
             Term source) {
  const Term result = writer.Write(combine, self, source);
  if (!program::IsFloat(call.TypeOf(self).type)) return result;
  const Term is_self = self.Apply(v1::EQUAL, result);
  const Term is_source = source.Apply(v1::EQUAL, writer.Read(result));
  const auto number = [&](Term flags) { return call.term(call.graph().Cast(flags, v1::FLOAT32)); };
  const Term count = writer.Write(v1::Scatter::ADD, number(is_self), number(is_source));
  const Term sum =
      writer.Write(v1::Scatter::ADD, Where(is_self, self, 0.0), Where(is_source, source, 0.0));
  return call.term(call.graph().PassBy(result, sum / count));
}

// Products. The gradient of a factor is the product of the others, which are counted apart where
// they are 0.
Term Product(const Call& call, const Writer& writer, Term self, Term source) {
  const Term result = writer.Write(v1::Scatter::MULTIPLY, self, source);
  if (!program::IsFloat(call.TypeOf(self).type)) return result;
  Graph& graph = call.graph();
  const auto number = [&](Term flags) { return call.term(graph.Cast(flags, v1::FLOAT32)); };
  const Term no_self = self == 0.0, no_source = source == 0.0;
  const Term own = Where(no_self, 1.0, self), others = Where(no_source, 1.0, source);
  const Term product = writer.Write(v1::Scatter::MULTIPLY, own, others);
  const Term zeros = writer.Write(v1::Scatter::ADD, number(no_self), number(no_source));
  const auto without = [](Term factor, Term is_zero, Term whole, Term count) {
    return Where(is_zero, Where(count == 1.0, whole, 0.0),
                 Where(count == 0.0, whole / factor, 0.0));
  };
  const Tensor of_self = graph.Stop(without(own, no_self, product, zeros));
  const Tensor of_source =
      graph.Stop(without(others, no_source, writer.Read(product), writer.Read(zeros)));
  const Term slope =
      writer.Write(v1::Scatter::ADD, self * call.term(of_self), source * call.term(of_source));
  return call.term(graph.PassBy(result, slope));
}

// Sums, divided by how many elements they have.
Term Average(const Call& call, const Writer& writer, Term self, Term source, Term own_count) {
  const v1::DataType type = call.TypeOf(self).type;
  const Term sum = writer.Write(v1::Scatter::ADD, self, source);
  const Term ones = writer.Like(source, type, 1);
  const Term count = Max(writer.Write(v1::Scatter::ADD, own_count, ones), 1);
  if (program::IsFloat(type)) return sum / count;
  return (sum - sum.Apply(v1::REMAINDER, count)) / count;  // rounded down
}

// The elements of `self` and those of `source` that are written to the same place, reduced. With
// `include_self` false, an element of self that others are written to does not take part.
Outputs Reduced(const Call& call, const Writer& writer, Tensor self_given, Tensor source_given,
                const std::string& reduction, bool include_self) {
  if (call.TypeOf(self_given).type != call.TypeOf(source_given).type)
    return call.Refuse("the source must have the type of what it is written to");
  Term self = call.Wide(self_given);
  const Term source = call.Wide(source_given);
  const v1::DataType type = call.TypeOf(self).type;
  Term own_count = writer.Like(self, type, 1);
  if (!include_self) {
    const Term hit = writer.Write(v1::Scatter::SET, writer.Like(self, v1::BOOL, 0),
                                  writer.Like(source, v1::BOOL, 1));
    self = Where(hit, Identity(reduction, type), self);
    own_count = Where(hit, 0.0, own_count);
  }
  Term result = self;
  if (reduction == "sum") {
    result = writer.Write(v1::Scatter::ADD, self, source);
  } else if (reduction == "mean") {
    result = Average(call, writer, self, source, own_count);
  } else if (reduction == "prod") {
    result = Product(call, writer, self, source);
  } else if (reduction == "amax") {
    result = Extreme(call, writer, v1::Scatter::MAX, self, source);
  } else if (reduction == "amin") {
    result = Extreme(call, writer, v1::Scatter::MIN, self, source);
  } else {
    return call.Refuse(
        absl::StrCat("reduction '", reduction, "' must be one of sum, prod, mean, amax, amin"));
  }
  return Tensors{call.Narrow(result, self_given)};
}

// (self, dimension, indices, source, reduction, include self)
Outputs IndexReduce(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const AlongAxis of, AlongAxisOf(call, false));
  const Writer writer(call, of.indices, of.axis, false);
  VPOD_ASSIGN_OR_RETURN(const Tensor source, SourceOf(call, of));
  VPOD_ASSIGN_OR_RETURN(const Tensors outputs,
                        Reduced(call, writer, of.self, source, call.text(4), call.flag(5)));
  return Tensors{call.graph().Reshape(outputs[0], call.DimsOf(call.tensor(0)))};
}

// --- Indices with the shape of what they choose ---

// (self, dimension, indices, source): where and what an operator writes. The indices may be shorter
// than self, whose first elements are a part of it then.
struct Placed {
  Tensor part, source;
  uint32_t axis = 0;
};

absl::StatusOr<Placed> PlacedOf(const Call& call) {
  VPOD_RETURN_IF_ERROR(CheckIndices(call, call.tensor(2)));
  const TensorType type = call.TypeOf(call.tensor(0));
  const Dims dims = call.DimsOf(call.tensor(2));
  if (dims.empty() || type.dims.empty()) return call.Refuse("a scalar has no dimension");
  Placed of;
  VPOD_ASSIGN_OR_RETURN(of.axis, call.Axis(call.integer(1), dims.size()));
  VPOD_ASSIGN_OR_RETURN(of.part, Beginning(call, call.tensor(0), dims, of.axis, false));
  if (const auto* source = std::get_if<Tensor>(&call.at(3))) {
    VPOD_ASSIGN_OR_RETURN(of.source, Beginning(call, *source, dims, of.axis, true));
  } else {
    of.source = call.graph().Constant({type.type, dims}, call.number(3));
  }
  return of;
}

// Self with a part in the place of its first elements.
Tensor WithBeginning(const Call& call, Tensor part) {
  Graph& graph = call.graph();
  const Tensor self = call.tensor(0);
  const TensorType type = call.TypeOf(self);
  if (call.DimsOf(part) == type.dims) return part;
  std::vector<uint32_t> axes;
  for (uint32_t i = 0; i < type.dims.size(); ++i) axes.push_back(i);
  return graph.DynamicUpdate(self, part, graph.Constant({v1::INT32, {type.rank()}}, 0), axes);
}

// (self, dimension, indices, source): the source is a tensor or a number.
template <v1::Scatter::Combine kCombine>
Outputs Scatter(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Placed of, PlacedOf(call));
  const Writer writer(call, call.tensor(2), of.axis, true);
  return Tensors{WithBeginning(call, writer.Write(kCombine, of.part, of.source))};
}

// (self, dimension, indices, source, reduction)
Outputs ScatterReduced(const Call& call, const std::string& reduction, bool include_self) {
  VPOD_ASSIGN_OR_RETURN(const Placed of, PlacedOf(call));
  const Writer writer(call, call.tensor(2), of.axis, true);
  VPOD_ASSIGN_OR_RETURN(const Tensors outputs,
                        Reduced(call, writer, of.part, of.source, reduction, include_self));
  return Tensors{WithBeginning(call, outputs[0])};
}

// (…, include self)
Outputs ScatterReduce(const Call& call) { return ScatterReduced(call, call.text(4), call.flag(5)); }

// The older names of two reductions.
Outputs ScatterCombined(const Call& call) {
  const std::string& name = call.text(4);
  if (name == "add") return ScatterReduced(call, "sum", true);
  if (name == "multiply") return ScatterReduced(call, "prod", true);
  return call.Refuse(absl::StrCat("reduction '", name, "' must be 'add' or 'multiply'"));
}

// --- Of the tensor in row-major order ---

// (self, indices, source, accumulate): elements by their number.
Outputs Put(const Call& call) {
  Graph& graph = call.graph();
  VPOD_RETURN_IF_ERROR(CheckIndices(call, call.tensor(1)));
  const TensorType type = call.TypeOf(call.tensor(0));
  const Tensor places = FromStart(call, call.tensor(1), type.elements());
  const Tensor source = graph.Reshape(call.tensor(2), call.DimsOf(places));
  const Writer writer(call, places, 0, false);
  const Tensor flat = graph.Reshape(call.tensor(0), {type.elements()});
  return Tensors{graph.Reshape(
      writer.Write(call.flag(3) ? v1::Scatter::ADD : v1::Scatter::SET, flat, source), type.dims)};
}

// (self, mask, source): the first elements of the source, in order, where the mask is true.
Outputs MaskedScatter(const Call& call) {
  Graph& graph = call.graph();
  const Tensor self = call.tensor(0), source = call.tensor(2);
  const TensorType type = call.TypeOf(self);
  if (call.TypeOf(source).type != type.type) {
    return call.Refuse(absl::StrCat("the source is ", call.TypeOf(source).ToString(),
                                    ", must have the type of ", type.ToString()));
  }
  VPOD_ASSIGN_OR_RETURN(const Dims dims,
                        program::BroadcastDims(type.dims, call.DimsOf(call.tensor(1))));
  const Tensor mask = graph.Expand(graph.Cast(call.tensor(1), v1::BOOL), dims);
  const Tensor flat = graph.Reshape(source, {call.TypeOf(source).elements()});
  const Term chosen = call.term(graph.Gather(flat, Ranks(call, mask), 0));
  return Tensors{Where(call.term(mask), chosen, call.term(self))};
}

}  // namespace

std::vector<Row> ScatterRows() {
  return {
      {"index_add.default", "tensor, int, tensor, tensor, number=1", IndexAdd},
      {"index_copy.default", "tensor, int, tensor, tensor", IndexCopy},
      {"index_fill.int_Scalar", "tensor, int, tensor, number", IndexFill},
      {"index_fill.int_Tensor", "tensor, int, tensor, operand", IndexFill},
      {"index_reduce.default", "tensor, int, tensor, tensor, text, bool=true", IndexReduce},
      {"scatter.src", "tensor, int, tensor, tensor", Scatter<v1::Scatter::SET>},
      {"scatter.value", "tensor, int, tensor, number", Scatter<v1::Scatter::SET>},
      {"scatter.reduce", "tensor, int, tensor, tensor, text", ScatterCombined},
      {"scatter.value_reduce", "tensor, int, tensor, number, text", ScatterCombined},
      {"scatter_add.default", "tensor, int, tensor, tensor", Scatter<v1::Scatter::ADD>},
      {"scatter_reduce.two", "tensor, int, tensor, tensor, text, bool=true", ScatterReduce},
      {"put.default", "tensor, tensor, tensor, bool=false", Put},
      {"masked_scatter.default", "tensor, tensor, tensor", MaskedScatter},
  };
}

}  // namespace vpod::aten
