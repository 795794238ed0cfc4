#include "client/plan/plan.h"

#include "absl/strings/str_cat.h"
#include "device/arch/hardware.h"
#include "device/base/status.h"
#include "device/model/tile_plan.h"

namespace vpod::plan {

namespace {

model::Cycles WeightTransfers(const program::Executable& executable,
                              const model::Topology& topology) {
  model::Cycles cycles;
  for (uint32_t ipu = 0; ipu < executable.ipus_per_replica(); ++ipu) {
    uint64_t bytes = 0;
    for (const program::HostTensor& tensor : executable.host_tensors()) {
      if (tensor.ipu == ipu && !tensor.remote && !compiler::IsOptimizerState(tensor.name))
        bytes += tensor.type.bytes();
    }
    for (bool to_host : {false, true}) {
      const model::StreamTransfer transfer{
          .to_host = to_host, .bytes = bytes, .tiles = arch::kTilesPerIpu};
      cycles += model::PriceOfStep({transfer}, topology).total();
    }
  }
  return cycles;
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const PlanRequest& request, const VisitSteps& visit) {
  const uint32_t ipus = request.network.ipus;
  VPOD_ASSIGN_OR_RETURN(const uint32_t of_pod, ReplicasOf(request.pod, ipus));
  VPOD_RETURN_IF_ERROR(arch::FindMachineType(request.machine_type).status());
  VPOD_ASSIGN_OR_RETURN(const Network network, BuildNetwork(request.network));
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
  VPOD_ASSIGN_OR_RETURN(const compiler::Compiled compiled,
                        compiler::Compile(network.graph, options));
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
  plan.weight_transfers = WeightTransfers(executable, plan.topology);
  plan.seconds = plan.runs[0].seconds / request.device_iterations;
  plan.items_per_second = static_cast<double>(plan.global_batch) / plan.seconds;
  return plan;
}

}  // namespace vpod::plan
