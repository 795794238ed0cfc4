#include "client/aten/lower.h"

#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/aten/call.h"

namespace vpod::aten {
namespace {

const std::map<std::string, Row, std::less<>>& Table() {
  static const auto* const table = [] {
    auto* rows = new std::map<std::string, Row, std::less<>>;
    for (const auto family :
         {ViewRows,   PartRows,     DiagonalRows,   CreationRows,     MovementRows, UnaryRows,
          BinaryRows, SpecialRows,  ActivationRows, ProductRows,      NormRows,     PoolingRows,
          ResizeRows, SamplingRows, ReductionRows,  SortingRows,      DistanceRows, LossRows,
          CtcRows,    IndexRows,    ScatterRows,    EmbeddingBagRows, RandomRows}) {
      for (Row& row : family()) rows->emplace(row.name, std::move(row));
    }
    return rows;
  }();
  return *table;
}

// "relu.default" for "relu_.default"; the name itself, if it is not that of an operator in place.
std::string OutOfPlace(absl::string_view name) {
  const size_t dot = name.find('.');
  if (dot == absl::string_view::npos || dot == 0 || name[dot - 1] != '_') return std::string(name);
  return absl::StrCat(name.substr(0, dot - 1), name.substr(dot));
}

const Row* Find(absl::string_view name) {
  auto it = Table().find(name);
  if (it == Table().end()) it = Table().find(OutOfPlace(name));
  return it == Table().end() ? nullptr : &it->second;
}

bool HasDynamicShape(absl::string_view name) {
  static constexpr absl::string_view kNames[] = {
      "nonzero",           "masked_select", "unique", "_unique", "_unique2", "unique_consecutive",
      "repeat_interleave", "bincount"};
  const absl::string_view base = name.substr(0, name.find('.'));
  return std::find(std::begin(kNames), std::end(kNames), base) != std::end(kNames);
}

struct Parameter {
  absl::string_view type, initial;
  bool may_be_none = false, has_default = false;
};

Parameter ParseParameter(absl::string_view text) {
  Parameter parameter;
  const size_t equals = text.find('=');
  parameter.has_default = equals != absl::string_view::npos;
  if (parameter.has_default) parameter.initial = text.substr(equals + 1);
  parameter.type = text.substr(0, equals);
  parameter.may_be_none = absl::ConsumeSuffix(&parameter.type, "?");
  return parameter;
}

Argument Default(const Parameter& parameter) {
  if (parameter.initial == "None") return {};
  double number = 0;
  if (parameter.type == "ints") {
    if (parameter.initial == "[]") return Dims{};
    (void)absl::SimpleAtod(parameter.initial, &number);
    return Dims{static_cast<int64_t>(number)};
  }
  if (parameter.type == "text") return std::string(parameter.initial);
  if (absl::SimpleAtod(parameter.initial, &number)) return number;
  return parameter.initial == "true";
}

bool IsNumber(const Argument& argument) {
  return std::holds_alternative<bool>(argument) || std::holds_alternative<int64_t>(argument) ||
         std::holds_alternative<double>(argument);
}

// Whether it fits; a single int becomes a list where one is wanted.
bool Fits(const Parameter& parameter, Argument& argument) {
  if (parameter.type == "any") return true;
  if (std::holds_alternative<std::monostate>(argument)) return parameter.may_be_none;
  const bool tensor =
      std::holds_alternative<Tensor>(argument) && std::get<Tensor>(argument).valid();
  if (parameter.type == "tensor") return tensor;
  if (parameter.type == "operand") return tensor || IsNumber(argument);
  if (parameter.type == "number") return IsNumber(argument);
  if (parameter.type == "int" || parameter.type == "bool" || parameter.type == "type")
    return IsNumber(argument) && !std::holds_alternative<double>(argument);
  if (parameter.type == "text") return std::holds_alternative<std::string>(argument);
  if (parameter.type == "tensors") {
    // An empty list has no type of its own.
    if (std::holds_alternative<Dims>(argument) && std::get<Dims>(argument).empty())
      argument = Tensors{};
    return std::holds_alternative<Tensors>(argument);
  }
  if (parameter.type == "numbers") {
    if (const auto* whole = std::get_if<Dims>(&argument))
      argument = std::vector<double>(whole->begin(), whole->end());
    return std::holds_alternative<std::vector<double>>(argument);
  }
  if (std::holds_alternative<int64_t>(argument)) argument = Dims{std::get<int64_t>(argument)};
  return std::holds_alternative<Dims>(argument);
}

absl::Status Complete(const Row& row, absl::string_view name, std::vector<Argument>& arguments) {
  const std::vector<absl::string_view> parameters =
      absl::StrSplit(row.parameters, ", ", absl::SkipEmpty());
  if (arguments.size() > parameters.size()) {
    return absl::InvalidArgumentError(absl::StrCat("aten::", name, " has ", arguments.size(),
                                                   " arguments, must have at most ",
                                                   parameters.size()));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter parameter = ParseParameter(parameters[i]);
    if (i < arguments.size()) {
      if (Fits(parameter, arguments[i])) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "aten::", name, ": argument ", i, " does not fit the parameters (", row.parameters, ")"));
    }
    if (!parameter.has_default) {
      return absl::InvalidArgumentError(absl::StrCat("aten::", name, " needs argument ", i,
                                                     " of its parameters (", row.parameters, ")"));
    }
    arguments.push_back(Default(parameter));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Tensor>> Lower(Graph& graph, absl::string_view name,
                                          std::vector<Argument> arguments) {
  VPOD_RETURN_IF_ERROR(graph.status());
  const Row* row = Find(name);
  if (row == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("aten::", name,
                     HasDynamicShape(name) ? " has a result whose shape depends on its elements"
                                           : " is not among the operators that are known"));
  }
  VPOD_RETURN_IF_ERROR(Complete(*row, name, arguments));
  const Graph::Scope scope(graph, absl::StrCat("aten::", name));
  const bool in_place = OutOfPlace(name) != name && row->name != name;
  const Tensor self = in_place ? std::get<Tensor>(arguments[0]) : Tensor{};
  Outputs outputs = row->lower(Call(graph, name, std::move(arguments)));
  // An operator in place keeps the type.
  if (in_place && outputs.ok() && graph.status().ok())
    outputs->at(0) = graph.Cast(outputs->at(0), graph.TypeOf(self).type);
  const absl::Status status = graph.TakeStatus();
  VPOD_RETURN_IF_ERROR(outputs.status());
  VPOD_RETURN_IF_ERROR(status);
  return outputs;
}

std::vector<Operator> Operators() {
  std::vector<Operator> operators;
  for (const auto& [name, row] : Table()) operators.push_back({name, row.parameters});
  return operators;
}

}  // namespace vpod::aten
