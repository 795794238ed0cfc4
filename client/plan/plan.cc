#include "client/plan/plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/compiler/memory_trials.h"
#include "client/compiler/weight_transfers.h"
#include "client/plan/split.h"
#include "device/arch/hardware.h"
#include "device/base/status.h"
#include "device/model/memory_advice.h"

namespace vpod::plan {

namespace {

// The network, and the options that train it.
absl::StatusOr<compiler::Model> ModelOf(const PlanRequest& request) {
  const uint32_t ipus = request.network.ipus;
  VPOD_ASSIGN_OR_RETURN(const uint32_t of_pod, ReplicasOf(request.pod, ipus));
  VPOD_RETURN_IF_ERROR(arch::FindMachineType(request.machine_type).status());
  VPOD_ASSIGN_OR_RETURN(Network network, BuildNetwork(request.network));
  const uint32_t replicas = request.replicas.value_or(of_pod);
  if (replicas == 0 || replicas > of_pod) {
    return absl::InvalidArgumentError(
        absl::StrCat("a POD of ", request.pod, " IPUs has ", of_pod, " replicas of ", ipus,
                     ipus == 1 ? " IPU, not " : " IPUs, not ", replicas));
  }
  compiler::CompileOptions options{.ipus_per_replica = ipus, .total_replicas = replicas};
  options.allow_out_of_memory = true;
  options.schedule = request.schedule;
  options.recomputation = request.recomputation;
  options.off_chip_optimizer_state = request.off_chip_optimizer_state;
  options.off_chip_activations = request.off_chip_activations;
  options.off_chip_weights = request.off_chip_weights;
  options.off_chip_accumulators = request.off_chip_accumulators;
  if (request.tensor_sharding) options.tensor_shards = replicas;
  if (request.half_partials) options.products.partials = program::v1::FLOAT16;
  if (request.memory_proportion)
    options.products.memory_proportions.assign(ipus, request.memory_proportion);
  options.programs = {{.name = "train",
                       .device_iterations = request.device_iterations,
                       .accumulation = request.accumulation,
                       .loss = network.loss,
                       .optimizer = request.optimizer}};
  return compiler::Model{std::move(network.graph), std::move(options)};
}

// With stages of about as many parts each, if the network does not find its stages itself.
absl::Status DoubleIpus(PlanRequest& request) {
  VPOD_ASSIGN_OR_RETURN(const NetworkOptions options, OptionsOf(request.network.name));
  NetworkRequest& network = request.network;
  network.ipus *= 2;
  if (request.replicas) request.replicas = std::max(1u, *request.replicas / 2);
  if (options.is_split && network.stages.empty()) return absl::OkStatus();
  VPOD_ASSIGN_OR_RETURN(const PartCosts costs, CostsOfParts(request));
  network.stages = StagesOf(network.name, costs, EvenSplit(costs, network.ipus));
  return absl::OkStatus();
}

// InvalidArgument: the network cannot have it.
absl::Status Follow(model::MemoryAdvice advice, PlanRequest& request) {
  using model::MemoryAdvice;
  NetworkRequest& network = request.network;
  switch (advice) {
    case MemoryAdvice::kFloat16:
      network.type = program::v1::FLOAT16;
      if (network.image_type == program::v1::FLOAT32) network.image_type = network.type;
      return absl::OkStatus();
    case MemoryAdvice::kMoreAccumulation:
      if (network.micro_batch < 2)
        return absl::InvalidArgumentError("a micro-batch has one item or more");
      network.micro_batch /= 2;
      request.accumulation *= 2;
      return absl::OkStatus();
    case MemoryAdvice::kMoreIpusSharded:
      request.schedule = compiler::Schedule::kSharded;
      return DoubleIpus(request);
    case MemoryAdvice::kMoreIpus:
      return DoubleIpus(request);
    default:
      return absl::InvalidArgumentError("the compiler has an option for it");
  }
}

absl::StatusOr<compiler::Model> Rebuilt(PlanRequest request,
                                        const std::vector<model::MemoryAdvice>& changes) {
  for (model::MemoryAdvice advice : changes) VPOD_RETURN_IF_ERROR(Follow(advice, request));
  return ModelOf(request);
}

}  // namespace

absl::StatusOr<std::string> WhyNotFit(const PlanRequest& request, const model::OptionNames& names) {
  VPOD_ASSIGN_OR_RETURN(compiler::Model model, ModelOf(request));
  model.options.front = {.names = names,
                         .rebuild = [&](const auto& changes) { return Rebuilt(request, changes); }};
  VPOD_ASSIGN_OR_RETURN(const compiler::Compiled compiled,
                        compiler::Compile(model.graph, model.options));
  const model::MemoryVerdict verdict =
      model::JudgeMemory(*compiled.executable, compiler::TopologyOf(model.options));
  if (verdict.fits) return std::string();
  const auto go_on = [](absl::string_view) { return absl::OkStatus(); };
  return compiler::WhyNotFit(model.graph, model.options, *compiled.executable, verdict, go_on);
}

absl::StatusOr<Plan> MakePlan(const PlanRequest& request, const VisitSteps& visit) {
  VPOD_ASSIGN_OR_RETURN(const compiler::Model model, ModelOf(request));
  const uint32_t ipus = model.options.ipus_per_replica, replicas = model.options.total_replicas;
  VPOD_ASSIGN_OR_RETURN(const compiler::Compiled compiled,
                        compiler::Compile(model.graph, model.options));
  const program::Executable& executable = *compiled.executable;
  VisitEvent visit_event;
  if (visit) {
    visit_event = [&](uint32_t, const model::TimelineEvent& event) {
      const auto* origin = executable.OriginOf(event.ipu, event.place.function, event.place.index);
      visit(event.ipu, origin == nullptr ? program::v1::Origin() : *origin,
            (event.end - event.begin - event.waiting).value());
    };
  }
  Plan plan;
  VPOD_ASSIGN_OR_RETURN(
      static_cast<ExecutablePlan&>(plan),
      PlanExecutable(executable, replicas * ipus, request.machine_type, visit_event));
  plan.executable = compiled.executable;
  plan.global_batch =
      static_cast<uint64_t>(request.network.micro_batch) * request.accumulation * replicas;
  for (const auto& stream : executable.proto().streams())
    plan.stream_bytes += program::TypeOf(stream).bytes() * stream.transfers_per_run();
  plan.weight_transfers = compiler::PriceWeightTransfers(executable, plan.topology).total();
  plan.seconds = plan.runs[0].seconds / request.device_iterations;
  plan.items_per_second = static_cast<double>(plan.global_batch) / plan.seconds;
  return plan;
}

}  // namespace vpod::plan
