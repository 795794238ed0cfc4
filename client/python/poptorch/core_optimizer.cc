// Reads the optimiser of a model, which poptorch._optimizers.export writes as a plain dictionary:
// what groups have as dictionaries of their own, and settings of the whole optimiser.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/python/poptorch/core.h"

namespace vpod::poptorch::python {
namespace {

float FloatOf(const py::dict& group, const char* name) { return group[name].cast<float>(); }

std::pair<float, float> BetasOf(const py::dict& group) {
  return group["betas"].cast<std::pair<float, float>>();
}

// A setting of the whole optimiser; only some kinds have it.
bool Is(const py::dict& optimizer, const char* name, bool otherwise) {
  return optimizer.contains(name) ? optimizer[name].cast<bool>() : otherwise;
}

// Whether a type of the whole optimiser is float16.
bool IsHalf(const py::dict& optimizer, const char* name) {
  if (!optimizer.contains(name)) return false;
  const auto type = optimizer[name].cast<std::string>();
  if (type == "half" || type == "float") return type == "half";
  throw py::value_error(absl::StrCat("option '", name, "' is '", type, "'"));
}

compiler::Optimizer SgdOf(const py::dict& optimizer, const py::dict& group) {
  compiler::SgdOptions sgd{.learning_rate = FloatOf(group, "lr"),
                           .momentum = FloatOf(group, "momentum"),
                           .dampening = FloatOf(group, "dampening"),
                           .weight_decay = FloatOf(group, "weight_decay"),
                           .nesterov = group["nesterov"].cast<bool>(),
                           .maximize = group["maximize"].cast<bool>(),
                           .float16_velocity = IsHalf(optimizer, "velocity_accum_type"),
                           .dampen_all = true,
                           .combined = Is(optimizer, "use_combined_accum", false)};
  if (sgd.combined) sgd.velocity_scaling = FloatOf(group, "velocity_scaling");
  return sgd;
}

compiler::Optimizer AdamOf(const py::dict& optimizer, const py::dict& group, bool decoupled) {
  const auto [beta1, beta2] = BetasOf(group);
  return compiler::AdamOptions{
      .learning_rate = FloatOf(group, "lr"),
      .beta1 = beta1,
      .beta2 = beta2,
      .epsilon = FloatOf(group, "eps"),
      .weight_decay = FloatOf(group, "weight_decay"),
      .decoupled_weight_decay = decoupled,
      .maximize = group["maximize"].cast<bool>(),
      .float16_first_moment = IsHalf(optimizer, "first_order_momentum_accum_type"),
      .float16_second_moment = IsHalf(optimizer, "second_order_momentum_accum_type"),
      .bias_correction = Is(optimizer, "bias_correction", true)};
}

compiler::Optimizer RmsPropOf(const py::dict& optimizer, const py::dict& group) {
  return compiler::RmsPropOptions{
      .learning_rate = FloatOf(group, "lr"),
      .alpha = FloatOf(group, "alpha"),
      .epsilon = FloatOf(group, "eps"),
      .weight_decay = FloatOf(group, "weight_decay"),
      .momentum = FloatOf(group, "momentum"),
      .centered = group["centered"].cast<bool>(),
      .float16_first_moment = IsHalf(optimizer, "first_order_momentum_accum_type"),
      .float16_second_moment = IsHalf(optimizer, "second_order_momentum_accum_type"),
      .tensorflow = Is(optimizer, "use_tf_variant", false)};
}

compiler::Optimizer LambOf(const py::dict& optimizer, const py::dict& group) {
  const auto [beta1, beta2] = BetasOf(group);
  return compiler::LambOptions{
      .learning_rate = FloatOf(group, "lr"),
      .beta1 = beta1,
      .beta2 = beta2,
      .epsilon = FloatOf(group, "eps"),
      .weight_decay = FloatOf(group, "weight_decay"),
      .float16_first_moment = IsHalf(optimizer, "first_order_momentum_accum_type"),
      .float16_second_moment = IsHalf(optimizer, "second_order_momentum_accum_type"),
      .bias_correction = Is(optimizer, "bias_correction", true),
      .max_weight_norm = FloatOf(group, "max_weight_norm")};
}

compiler::Optimizer GroupOf(const py::dict& optimizer, const py::dict& group) {
  const auto kind = optimizer["kind"].cast<std::string>();
  if (kind == "sgd") return SgdOf(optimizer, group);
  if (kind == "adam") return AdamOf(optimizer, group, /*decoupled=*/false);
  if (kind == "adamw") return AdamOf(optimizer, group, /*decoupled=*/true);
  if (kind == "rmsprop") return RmsPropOf(optimizer, group);
  if (kind == "lamb") return LambOf(optimizer, group);
  throw py::value_error(absl::StrCat("there is no optimiser '", kind, "'"));
}

}  // namespace

OptimizerOptions OptimizerOf(const py::object& object) {
  OptimizerOptions result;
  if (object.is_none()) return result;
  const auto optimizer = object.cast<py::dict>();
  for (const py::handle each : optimizer["groups"]) {
    const auto group = each.cast<py::dict>();
    result.groups.push_back(
        {group["parameters"].cast<std::vector<std::string>>(), GroupOf(optimizer, group)});
  }
  result.loss_scale = optimizer["loss_scale"].cast<std::optional<float>>();
  result.max_grad_norm = optimizer["max_grad_norm"].cast<std::optional<float>>();
  // The combined form of SGD has no accumulators of its own.
  result.float16_accumulators =
      IsHalf(optimizer, "accum_type") && !Is(optimizer, "use_combined_accum", false);
  return result;
}

}  // namespace vpod::poptorch::python
