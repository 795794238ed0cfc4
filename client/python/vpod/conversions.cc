// What numpy and Python's own conversions ask of a tensor, which has no values to give them: they
// would take it for a number or an object, and compute something else. Each is refused with what to
// use instead.
#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/python/vpod/bindings.h"

namespace vpod::python {
namespace {

// --- numpy ---

// An operator between a number or array of numpy and a tensor is a call of one of its functions.
struct Operator {
  const char* ufunc;
  const char* sign;
  const char* method;     // with the tensor on the left
  const char* reflected;  // on the right
};
constexpr Operator kOperators[] = {
    {"add", "+", "__add__", "__radd__"},      {"subtract", "-", "__sub__", "__rsub__"},
    {"multiply", "*", "__mul__", "__rmul__"}, {"divide", "/", "__truediv__", "__rtruediv__"},
    {"power", "**", "__pow__", "__rpow__"},   {"remainder", "%", "__mod__", "__rmod__"},
    {"equal", "==", "__eq__", "__eq__"},      {"not_equal", "!=", "__ne__", "__ne__"},
    {"less", "<", "__lt__", "__gt__"},        {"less_equal", "<=", "__le__", "__ge__"},
    {"greater", ">", "__gt__", "__lt__"},     {"greater_equal", ">=", "__ge__", "__le__"}};

const Operator* FindOperator(absl::string_view ufunc) {
  const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                   [&](const Operator& each) { return ufunc == each.ufunc; });
  return found == std::end(kOperators) ? nullptr : found;
}

// Our names of numpy's functions, where they differ.
std::string OurName(const std::string& numpys) {
  static const auto* const names =
      new std::map<std::string, std::string>{{"absolute", "abs"},
                                             {"amax", "max"},
                                             {"amin", "min"},
                                             {"arccos", "acos"},
                                             {"arccosh", "acosh"},
                                             {"arcsin", "asin"},
                                             {"arcsinh", "asinh"},
                                             {"arctan", "atan"},
                                             {"arctan2", "atan2"},
                                             {"arctanh", "atanh"},
                                             {"argsort", "sort"},
                                             {"astype", "cast"},
                                             {"broadcast_to", "expand"},
                                             {"concatenate", "concat"},
                                             {"dot", "matmul"},
                                             {"expand_dims", "reshape"},
                                             {"fix", "trunc"},
                                             {"hstack", "concat"},
                                             {"inner", "matmul"},
                                             {"invert", "bitwise_not"},
                                             {"left_shift", "shift_left"},
                                             {"negative", "negate"},
                                             {"ravel", "reshape"},
                                             {"right_shift", "shift_right"},
                                             {"around", "round"},
                                             {"round_", "round"},
                                             {"rint", "round"},
                                             {"squeeze", "reshape"},
                                             {"stack", "concat"},
                                             {"swapaxes", "transpose"},
                                             {"take", "gather"},
                                             {"take_along_axis", "gather"},
                                             {"vstack", "concat"},
                                             {"where", "select"}};
  const auto found = names->find(numpys);
  return found == names->end() ? numpys : found->second;
}

// Names what replaces a function of numpy: "the tensor's argmax", "vpod.exp", "the operator +".
std::string InsteadOf(const std::string& function) {
  if (const Operator* found = FindOperator(function))
    return absl::StrCat("the operator ", found->sign);
  const std::string name = OurName(function);
  const bool is_method = py::hasattr(py::type::of<Value>(), name.c_str());
  if (is_method) return absl::StrCat("the tensor's ", name);
  if (py::hasattr(py::module_::import("vpod"), name.c_str())) return absl::StrCat("vpod.", name);
  return "functions of vpod and methods of the tensor";
}

[[noreturn]] void RefuseNumpy(const py::handle& function) {
  const auto name = function.attr("__name__").cast<std::string>();
  throw py::type_error(
      absl::StrCat("numpy.", name, " does not take a vpod.Tensor: use ", InsteadOf(name)));
}

bool IsOfNumpy(const py::handle& value) {
  return py::isinstance<py::array>(value) ||
         py::isinstance(value, py::module_::import("numpy").attr("generic"));
}

// Numbers of numpy are operands as others are; arrays are refused where operands are.
py::object ArrayUfunc(const py::object& self, const py::object& ufunc, const std::string& method,
                      const py::args& inputs, const py::kwargs& options) {
  const Operator* found = FindOperator(ufunc.attr("__name__").cast<std::string>());
  if (found == nullptr || method != "__call__" || inputs.size() != 2 || !options.empty())
    RefuseNumpy(ufunc);
  const py::object a = inputs[0], b = inputs[1];
  if (a.is(self) && IsOfNumpy(b)) return self.attr(found->method)(b);
  if (b.is(self) && IsOfNumpy(a)) return self.attr(found->reflected)(a);
  RefuseNumpy(ufunc);
}

// --- Python ---

constexpr char kNoValues[] = "a tensor has values only when its program runs";

template <class Result>
auto Refusal(std::string message) {
  return [message](const Value&) -> Result { throw py::type_error(message); };
}

std::string Format(const Value& x, const std::string& form) {
  if (form.empty()) return py::str(py::cast(x));
  throw py::type_error(absl::StrCat(kNoValues, ", so that '", form,
                                    "' formats none: session.run gives those of an output"));
}

}  // namespace

void DefineConversions(py::class_<Value>& tensor) {
  tensor.def("__array_ufunc__", ArrayUfunc)
      .def("__array_function__",
           [](const Value&, const py::object& function, const py::args&) -> py::object {
             RefuseNumpy(function);
           })
      .def("__array__",
           [](const Value&, const py::args&, const py::kwargs&) -> py::object {
             throw py::type_error(
                 absl::StrCat(kNoValues, "; session.run gives an output as an array"));
           })
      // Without it, `if x > 0` would always hold.
      .def("__bool__", Refusal<bool>(absl::StrCat(
                           kNoValues, "; vpod.select chooses between two by a condition")))
      .def("__float__", Refusal<double>(absl::StrCat(
                            kNoValues, "; float() takes what session.run gives of an output")))
      .def("__int__", Refusal<int64_t>(absl::StrCat(
                          kNoValues, "; int() takes what session.run gives of an output")))
      .def("__len__", Refusal<size_t>("a tensor has no len(): use its shape[0]"))
      .def("__iter__", Refusal<py::object>(
                           "a tensor is not iterated over: t[i] is its row i, of shape[0] rows"))
      .def("__format__", Format);
}

}  // namespace vpod::python
