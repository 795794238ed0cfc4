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
  if (ipus == 0 || request.pod == 0 || request.pod % ipus != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a POD of ", request.pod, " IPUs has no whole number of replicas of ", ipus));
  }
  VPOD_ASSIGN_OR_RETURN(const arch::MachineType machine,
                        arch::FindMachineType(request.machine_type));
  VPOD_ASSIGN_OR_RETURN(const Network network, BuildNetwork(request.network));
  Plan plan;
  plan.replicas = request.replicas.value_or(request.pod / ipus);
  if (plan.replicas == 0 || plan.replicas > request.pod / ipus) {
    return absl::InvalidArgumentError(absl::StrCat("a POD of ", request.pod, " IPUs has ",
                                                   request.pod / ipus, " replicas of ", ipus,
                                                   " IPUs, not ", plan.replicas));
  }
  compiler::CompileOptions options{.ipus_per_replica = ipus, .total_replicas = plan.replicas};
  options.allow_out_of_memory = true;
  options.schedule = request.schedule;
  options.recomputation = request.recomputation;
  options.off_chip_optimizer_state = request.off_chip_optimizer_state;
  options.off_chip_activations = request.off_chip_activations;
  options.off_chip_weights = request.off_chip_weights;
  options.off_chip_accumulators = request.off_chip_accumulators;
  if (request.tensor_sharding) options.tensor_shards = plan.replicas;
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
  plan.executable = compiled.executable;
  plan.topology = {
      .clock_hz = machine.clock_hz, .num_replicas = plan.replicas, .ipus_per_replica = ipus};
  std::function<void(const model::TimelineEvent&)> visit_event;
  if (visit) {
    visit_event = [&](const model::TimelineEvent& event) {
      const auto* origin =
          compiled.executable->OriginOf(event.ipu, event.place.function, event.place.index);
      visit(event.ipu, origin == nullptr ? program::v1::Origin() : *origin,
            (event.end - event.begin - event.waiting).value());
    };
  }
  plan.timeline = model::TimelineOf(compiled.executable->proto(), 0, plan.topology, visit_event);
  plan.fits = model::CheckMemory(*compiled.executable, plan.topology, &plan.memory);
  plan.global_batch =
      static_cast<uint64_t>(request.network.micro_batch) * request.accumulation * plan.replicas;
  for (const auto& stream : compiled.executable->proto().streams())
    plan.stream_bytes += program::TypeOf(stream).bytes() * stream.transfers_per_run();
  plan.weight_transfers = WeightTransfers(*compiled.executable, plan.topology);
  plan.seconds = static_cast<double>(plan.timeline.end().value()) / machine.clock_hz /
                 request.device_iterations;
  plan.items_per_second = static_cast<double>(plan.global_batch) / plan.seconds;
  return plan;
}

}  // namespace vpod::plan
