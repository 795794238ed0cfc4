// vpod.compile with its programs and optimisers.
#include "client/compiler/compiler.h"

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/compiler/executable_cache.h"
#include "client/compiler/optimizer.h"
#include "client/popdist/context.hpp"
#include "client/python/vpod/bindings.h"
#include "client/python/vpod/executable.h"

namespace vpod::python {
namespace {

using compiler::AdamOptions;
using compiler::LambOptions;
using compiler::LarsOptions;
using compiler::Optimizer;
using compiler::ProgramSpec;
using compiler::RmsPropOptions;
using compiler::SgdOptions;

// A program with the graph of its loss.
struct Program {
  ProgramSpec spec;
  std::optional<Value> loss;
};

template <class Options>
Options Checked(Options options) {
  Check(compiler::CheckHyperParameters(options));
  return options;
}

void DefineOptimizers(py::module_& module) {
  py::class_<SgdOptions>(module, "Sgd")
      .def(py::init([](float learning_rate, float momentum, float dampening, float weight_decay,
                       bool nesterov, bool maximize) {
             return Checked(
                 SgdOptions{learning_rate, momentum, dampening, weight_decay, nesterov, maximize});
           }),
           py::arg("learning_rate") = 0.01, py::kw_only(), py::arg("momentum") = 0.0,
           py::arg("dampening") = 0.0, py::arg("weight_decay") = 0.0, py::arg("nesterov") = false,
           py::arg("maximize") = false);
  py::class_<AdamOptions>(module, "Adam")
      .def(py::init([](float learning_rate, float beta1, float beta2, float epsilon,
                       float weight_decay, bool decoupled, bool amsgrad, bool maximize) {
             return Checked(AdamOptions{learning_rate, beta1, beta2, epsilon, weight_decay,
                                        decoupled, amsgrad, maximize});
           }),
           py::arg("learning_rate") = 0.001, py::kw_only(), py::arg("beta1") = 0.9,
           py::arg("beta2") = 0.999, py::arg("epsilon") = 1e-8, py::arg("weight_decay") = 0.0,
           py::arg("decoupled_weight_decay") = false, py::arg("amsgrad") = false,
           py::arg("maximize") = false);
  py::class_<RmsPropOptions>(module, "RmsProp")
      .def(py::init([](float learning_rate, float alpha, float epsilon, float weight_decay,
                       float momentum, bool centered, bool maximize) {
             return Checked(RmsPropOptions{learning_rate, alpha, epsilon, weight_decay, momentum,
                                           centered, maximize});
           }),
           py::arg("learning_rate") = 0.01, py::kw_only(), py::arg("alpha") = 0.99,
           py::arg("epsilon") = 1e-8, py::arg("weight_decay") = 0.0, py::arg("momentum") = 0.0,
           py::arg("centered") = false, py::arg("maximize") = false);
  py::class_<LambOptions>(module, "Lamb")
      .def(py::init([](float learning_rate, float beta1, float beta2, float epsilon,
                       float weight_decay, bool maximize) {
             return Checked(
                 LambOptions{learning_rate, beta1, beta2, epsilon, weight_decay, maximize});
           }),
           py::arg("learning_rate") = 0.001, py::kw_only(), py::arg("beta1") = 0.9,
           py::arg("beta2") = 0.999, py::arg("epsilon") = 1e-6, py::arg("weight_decay") = 0.0,
           py::arg("maximize") = false);
  py::class_<LarsOptions>(module, "Lars")
      .def(py::init([](float learning_rate, float momentum, float weight_decay, float trust,
                       float epsilon, bool maximize) {
             return Checked(
                 LarsOptions{learning_rate, momentum, weight_decay, trust, epsilon, maximize});
           }),
           py::arg("learning_rate") = 0.1, py::kw_only(), py::arg("momentum") = 0.9,
           py::arg("weight_decay") = 0.0, py::arg("trust") = 0.001, py::arg("epsilon") = 1e-8,
           py::arg("maximize") = false);
}

using Reduction = compiler::GradientReduction;
constexpr std::pair<const char*, Reduction> kReductions[] = {
    {"mean", Reduction::kMean},
    {"sum", Reduction::kSum},
    {"running_mean", Reduction::kRunningMean}};

// The value that a name stands for.
template <class T, size_t count>
T Choose(const char* argument, const std::string& name,
         const std::pair<const char*, T> (&choices)[count]) {
  std::vector<std::string> names;
  for (const auto& [choice, value] : choices) {
    if (name == choice) return value;
    names.push_back(absl::StrCat("'", choice, "'"));
  }
  throw py::value_error(
      absl::StrCat(argument, " '", name, "' must be one of ", absl::StrJoin(names, ", ")));
}

Program MakeProgram(std::string name, std::optional<Value> loss, std::optional<Optimizer> optimizer,
                    const std::vector<std::pair<std::vector<std::string>, Optimizer>>& groups,
                    int64_t accumulation, int64_t device_iterations, std::optional<float> clip_norm,
                    std::optional<float> clip_value, std::optional<float> loss_scale,
                    bool automatic_loss_scale, const std::string& reduction,
                    const std::string& output_mode, int64_t output_period) {
  Program program{
      .spec = {.name = std::move(name),
               .device_iterations = Count("device_iterations", device_iterations, 1),
               .accumulation = Count("accumulation", accumulation, 1),
               .optimizer = std::move(optimizer),
               .clip_norm = clip_norm,
               .clip_value = clip_value,
               .loss_scale = loss_scale,
               .reduction = Choose("reduction", reduction, kReductions),
               .output_mode = Choose("output_mode", output_mode, compiler::kOutputModeNames),
               .output_period = Count("output_period", output_period, 1)},
      .loss = std::move(loss)};
  for (const auto& [variables, own] : groups) program.spec.groups.push_back({variables, own});
  if (automatic_loss_scale) program.spec.automatic_loss_scale.emplace();
  return program;
}

// Arguments of vpod.compile and vpod.Program, for the message about what does not fit.
model::OptionNames ArgumentNames() {
  return {.optimizer = "optimizer=vpod.Sgd()",
          .accumulation = "accumulation",
          .recomputation = "recomputation=\"standard\"",
          .memory_proportions = "memory_proportions",
          .off_chip_activations = "off_chip_activations=True",
          .off_chip_optimizer_state = "off_chip_optimizer_state=True",
          .off_chip_weights = "off_chip_weights=True",
          .off_chip_accumulators = "off_chip_accumulators=True",
          .tensor_shards = "tensor_shards",
          .ipus_per_replica = "ipus_per_replica",
          .ipus_without_pipeline = "ipus_per_replica, schedule=\"sharded\""};
}

// A session refuses a program whose shared-out tensors do not lie in one instance as wholes. Where
// poprun has said how many replicas an instance has, nobody needs to compile it to learn that.
void CheckShardsOfInstance(const compiler::CompileOptions& options) {
  const uint32_t local = popdist::getNumLocalReplicas(), shards = options.tensor_shards;
  if (options.total_replicas % shards != 0 || local % shards == 0) return;
  throw py::value_error(absl::StrCat("tensor_shards is ", shards, ", must divide the ", local,
                                     local == 1 ? " replica" : " replicas",
                                     " of each instance, which has all parts of a tensor"));
}

Executable Compile(const GraphPtr& graph, const std::vector<Program>& programs,
                   std::optional<int64_t> total_replicas, int64_t ipus_per_replica, bool fusion,
                   const std::string& schedule, const std::string& recomputation,
                   bool off_chip_optimizer_state, bool off_chip_activations, bool off_chip_weights,
                   bool off_chip_accumulators, int64_t tensor_shards,
                   std::vector<std::optional<float>> memory_proportions) {
  compiler::CompileOptions options;
  options.front.names = ArgumentNames();
  options.products.memory_proportions = std::move(memory_proportions);
  options.ipus_per_replica = Count("ipus_per_replica", ipus_per_replica, 1);
  const int64_t replicas = popdist::isPopdistEnvSet() ? popdist::getNumTotalReplicas() : 1;
  options.total_replicas = Count("total_replicas", total_replicas.value_or(replicas), 1);
  options.fusion = fusion;
  options.schedule = Choose("schedule", schedule, compiler::kScheduleNames);
  options.recomputation = Choose("recomputation", recomputation, compiler::kRecomputationNames);
  options.off_chip_optimizer_state = off_chip_optimizer_state;
  options.off_chip_activations = off_chip_activations;
  options.off_chip_weights = off_chip_weights;
  options.off_chip_accumulators = off_chip_accumulators;
  options.tensor_shards = Count("tensor_shards", tensor_shards, 1);
  if (!total_replicas.has_value() && popdist::isPopdistEnvSet()) {
    CheckShardsOfInstance(options);
    options.front.instance_replicas = popdist::getNumLocalReplicas();
  }
  for (const Program& program : programs) {
    options.programs.push_back(program.spec);
    if (program.loss) options.programs.back().loss = TensorOf(*program.loss, graph);
  }
  const char* cache = std::getenv("POPDIST_EXECUTABLE_CACHE_PATH");
  const std::string directory = cache == nullptr ? "" : cache;
  // Another thread of Python may add to the graph meanwhile. The copy shares first values.
  const graph::Graph copy = *graph;
  const py::gil_scoped_release unlocked;
  return {Take(compiler::CompileCached(copy, options, directory)), options.total_replicas};
}

py::tuple Described(const program::TensorType& type) {
  return py::make_tuple(py::tuple(py::cast(type.dims)), NumpyType(type.type));
}

py::dict Streams(const Executable& executable) {
  py::dict streams;
  for (const auto& stream : executable.compiled.executable->proto().streams())
    streams[py::str(stream.name())] = Described(program::TypeOf(stream));
  return streams;
}

}  // namespace

py::dict VariablesOf(const program::Executable& executable) {
  py::dict variables;
  for (const auto& variable : executable.host_tensors())
    variables[py::str(variable.name)] = Described(variable.host_type());
  return variables;
}

void DefineCompiler(py::module_& module) {
  DefineOptimizers(module);
  py::class_<Program>(module, "Program", "An entry point; with a loss it trains.")
      .def(py::init(&MakeProgram), py::arg("name"), py::kw_only(), py::arg("loss") = py::none(),
           py::arg("optimizer") = py::none(),
           py::arg("groups") = std::vector<std::pair<std::vector<std::string>, Optimizer>>(),
           py::arg("accumulation") = 1, py::arg("device_iterations") = 1,
           py::arg("clip_norm") = py::none(), py::arg("clip_value") = py::none(),
           py::arg("loss_scale") = py::none(), py::arg("automatic_loss_scale") = false,
           py::arg("reduction") = "mean", py::arg("output_mode") = "all",
           py::arg("output_period") = 1)
      .def_property_readonly("name", [](const Program& program) { return program.spec.name; });
  py::class_<Executable>(module, "Executable", "A compiled model.")
      .def_property_readonly(
          "hash",
          [](const Executable& executable) { return executable.compiled.executable->hash(); })
      .def_property_readonly(
          "variables",
          [](const Executable& executable) { return VariablesOf(*executable.compiled.executable); },
          "(shape, dtype) by name.")
      .def_property_readonly("streams", Streams, "(shape, dtype) of one micro-batch by name.")
      .def_property_readonly(
          "programs",
          [](const Executable& executable) {
            std::vector<std::string> names;
            for (const auto& each : executable.compiled.executable->proto().programs())
              names.push_back(each.name());
            return names;
          })
      .def_readonly("total_replicas", &Executable::total_replicas);
  module.def("compile", Compile, py::arg("graph").none(false), py::arg("programs"), py::kw_only(),
             py::arg("total_replicas") = py::none(), py::arg("ipus_per_replica") = 1,
             py::arg("fusion") = true, py::arg("schedule") = "sharded",
             py::arg("recomputation") = "none", py::arg("off_chip_optimizer_state") = false,
             py::arg("off_chip_activations") = false, py::arg("off_chip_weights") = false,
             py::arg("off_chip_accumulators") = false, py::arg("tensor_shards") = 1,
             py::arg("memory_proportions") = std::vector<std::optional<float>>(),
             "Compiles for the replicas that poprun gave, for one, or for as many as are given.");
}

}  // namespace vpod::python
