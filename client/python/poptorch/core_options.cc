// Reads the options of a model, which poptorch._executor.core_options writes as a plain dictionary.
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/python/poptorch/core.h"

namespace vpod::poptorch::python {
namespace {

// The choice with this name; ValueError names the option.
template <class Choice, size_t kCount>
Choice Choose(const std::string& option, const std::string& name,
              const std::pair<const char*, Choice> (&choices)[kCount]) {
  for (const auto& [known, choice] : choices) {
    if (name == known) return choice;
  }
  throw py::value_error(absl::StrCat("option '", option, "' is '", name, "'"));
}

constexpr std::pair<const char*, Strategy> kStrategies[] = {{"pipelined", Strategy::kPipelined},
                                                            {"sharded", Strategy::kSharded},
                                                            {"phased", Strategy::kPhased}};
constexpr std::pair<const char*, compiler::GradientReduction> kReductions[] = {
    {"mean", compiler::GradientReduction::kMean},
    {"sum", compiler::GradientReduction::kSum},
    {"running-mean", compiler::GradientReduction::kRunningMean}};
constexpr std::pair<const char*, program::v1::DataType> kPartials[] = {
    {"float", program::v1::FLOAT32}, {"half", program::v1::FLOAT16}};

using Setter = std::function<void(ModelOptions&, const py::handle&)>;

template <class T>
Setter Sets(T ModelOptions::*field) {
  return
      [field](ModelOptions& options, const py::handle& value) { options.*field = value.cast<T>(); };
}

template <class Choice, size_t kCount>
Setter SetsChoice(const char* name, Choice ModelOptions::*field,
                  const std::pair<const char*, Choice> (&choices)[kCount]) {
  return [name, field, &choices](ModelOptions& options, const py::handle& value) {
    options.*field = Choose(name, value.cast<std::string>(), choices);
  };
}

// (value, whether it is the gradient by the value, output mode, period)
Anchor AnchorOf(const py::handle& object) {
  const auto fields = py::reinterpret_borrow<py::sequence>(object);
  return {.value = fields[0].cast<ValueId>(),
          .gradient = fields[1].cast<bool>(),
          .mode = Choose("anchors", fields[2].cast<std::string>(), compiler::kOutputModeNames),
          .period = fields[3].cast<uint32_t>()};
}

const std::map<std::string, Setter>& Setters() {
  using Options = ModelOptions;
  static const auto* const setters = new std::map<std::string, Setter>{
      {"training", Sets(&Options::training)},
      {"name", Sets(&Options::name)},
      {"device_iterations", Sets(&Options::device_iterations)},
      {"gradient_accumulation", Sets(&Options::gradient_accumulation)},
      {"replicas", Sets(&Options::replicas)},
      {"processes", Sets(&Options::processes)},
      {"input_group_size", Sets(&Options::input_group_size)},
      {"orthogonal_input_groups", Sets(&Options::orthogonal_input_groups)},
      {"synthetic_data", Sets(&Options::synthetic_data)},
      {"schedule", SetsChoice("schedule", &Options::strategy, kStrategies)},
      {"round_ipus_up", Sets(&Options::round_ipus_up)},
      {"recomputation",
       [](Options& options, const py::handle& value) {
         options.recomputation =
             Choose("recomputation", value.cast<std::string>(), compiler::kRecomputationNames);
       }},
      {"output_mode", SetsChoice("output_mode", &Options::output_mode, compiler::kOutputModeNames)},
      {"output_period", Sets(&Options::output_period)},
      {"anchors",
       [](Options& options, const py::handle& value) {
         for (const py::handle each : value) options.anchors.push_back(AnchorOf(each));
       }},
      {"loss_reduction", SetsChoice("loss_reduction", &Options::reduction, kReductions)},
      {"partials", SetsChoice("partials", &Options::partials, kPartials)},
      {"stochastic_rounding", Sets(&Options::stochastic_rounding)},
      {"automatic_loss_scale",
       [](Options& options, const py::handle& value) {
         options.automatic_loss_scale = {
             .bin_edge = value["bin_edge"].cast<float>(),
             .upper_proportion = value["upper_proportion"].cast<float>(),
             .period = value["period"].cast<uint32_t>()};
       }},
      {"check_finite", Sets(&Options::check_finite)},
      {"memory_proportions", Sets(&Options::memory_proportions)},
      {"off_chip_activations", Sets(&Options::off_chip_activations)},
      {"off_chip_weights", Sets(&Options::off_chip_weights)},
      {"off_chip_optimizer_state", Sets(&Options::off_chip_optimizer_state)},
      {"off_chip_accumulators", Sets(&Options::off_chip_accumulators)},
      {"tensor_shards", Sets(&Options::tensor_shards)},
      {"engine_options", Sets(&Options::engine_options)},
      {"report_name", Sets(&Options::report_name)},
      {"allow_out_of_memory", Sets(&Options::allow_out_of_memory)},
      {"seed", Sets(&Options::seed)},
      {"cache_directory", Sets(&Options::cache_directory)}};
  return *setters;
}

}  // namespace

ModelOptions OptionsOf(const py::dict& options) {
  ModelOptions result;
  for (const auto& [key, value] : options) {
    const auto name = key.cast<std::string>();
    const auto setter = Setters().find(name);
    if (setter == Setters().end())
      throw py::value_error(absl::StrCat("poptorch_core has no option '", name, "'"));
    setter->second(result, value);
  }
  return result;
}

}  // namespace vpod::poptorch::python
