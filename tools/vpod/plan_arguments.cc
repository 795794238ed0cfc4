#include "tools/vpod/plan_arguments.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_join.h"
#include "device/arch/hardware.h"
#include "device/base/whole_number.h"

namespace vpod::tools {
namespace {

// Hyper-parameters do not change the time of an update.
compiler::Optimizer OptimizerOf(const std::string& name) {
  if (name == "adamw") return compiler::AdamOptions{.decoupled_weight_decay = true};
  if (name == "lamb") return compiler::LambOptions{};
  if (name == "lars") return compiler::LarsOptions{};
  if (name == "sgd") return compiler::SgdOptions{};
  return compiler::SgdOptions{.momentum = 0.9f};
}

}  // namespace

void AddPlan(CLI::App& app, PlanArguments& plan) {
  plan::PlanRequest& request = plan.request;
  plan::NetworkRequest& network = request.network;
  auto* command =
      app.add_subcommand("plan", "what training a model takes on PODs of any size; needs no POD");
  command->add_option("model", network.name, absl::StrJoin(plan::NetworkNames(), ", "))->required();
  command->add_option("--pod", plan.pods, "numbers of IPUs (16), as 16,64,256")
      ->delimiter(',')
      ->transform(base::WholeNumber(1, arch::kMaxIpusPerPod));
  command->add_option("--machine-type", request.machine_type, "m2000 or bow2000 (m2000)")
      ->check(CLI::IsMember({"m2000", "bow2000"}));
  command->add_option("--micro-batch", network.micro_batch, "images or sequences (1)")
      ->transform(base::WholeNumber(1, 1 << 20));
  command->add_option("--accumulation", request.accumulation, "micro-batches of an update (1)")
      ->transform(base::WholeNumber(1, 1 << 16));
  command->add_option("--device-iterations", request.device_iterations, "updates of a run (1)")
      ->transform(base::WholeNumber(1, 1 << 16));
  command->add_option("--ipus-per-replica", network.ipus, "1, 2, 4, 8 or 16 (1)")
      ->transform(base::WholeNumber(1, 16));
  command
      ->add_option("--stages", network.stages,
                   "of residual networks and EfficientNet: blocks with which the next IPU begins, "
                   "as layer2.0,layer3.0; of BERT: half layers of each IPU, as 9,13,13,13")
      ->delimiter(',');
  command
      ->add_option_function<std::string>(
          "--schedule",
          [&](const std::string& name) {
            request.schedule = name == "sharded"       ? compiler::Schedule::kSharded
                               : name == "interleaved" ? compiler::Schedule::kInterleaved
                               : name == "sequential"  ? compiler::Schedule::kSequential
                                                       : compiler::Schedule::kGrouped;
          },
          "how several IPUs share the work (grouped)")
      ->check(CLI::IsMember({"sharded", "grouped", "interleaved", "sequential"}));
  command
      ->add_option_function<std::string>(
          "--recompute",
          [&](const std::string& name) {
            request.recomputation = name == "standard"    ? compiler::Recomputation::kStandard
                                    : name == "norm-only" ? compiler::Recomputation::kNormOnly
                                    : name == "pipeline"  ? compiler::Recomputation::kPipeline
                                    : name == "all"       ? compiler::Recomputation::kAll
                                                          : compiler::Recomputation::kNone;
          },
          "what is computed again for the gradients instead of being kept (none)")
      ->check(CLI::IsMember({"none", "standard", "norm-only", "pipeline", "all"}));
  command
      ->add_option("--checkpoints", network.checkpoints,
                   "of residual networks: blocks whose outputs are kept, as layer1.0,layer2.2")
      ->delimiter(',');
  command
      ->add_option_function<std::string>(
          "--precision",
          [&](const std::string& name) {
            network.type = network.image_type =
                name == "32" ? program::v1::FLOAT32 : program::v1::FLOAT16;
            request.half_partials = name == "16-half-partials";
          },
          "type of operations and weights (16)")
      ->check(CLI::IsMember({"16", "16-half-partials", "32"}));
  command->add_flag_callback(
      "--uint8-images", [&] { network.image_type = program::v1::UINT8; },
      "images come from the host as bytes");
  command
      ->add_option_function<std::string>(
          "--optimizer", [&](const std::string& name) { request.optimizer = OptimizerOf(name); },
          "(momentum)")
      ->check(CLI::IsMember({"sgd", "momentum", "adamw", "lamb", "lars"}));
  command->add_flag("--off-chip-optimizer-state", request.off_chip_optimizer_state,
                    "the state of the optimiser lies in streaming memory");
  command->add_option("--image-size", network.image_size, "pixels of an edge (224)")
      ->transform(base::WholeNumber(8, 4096));
  command->add_option("--sequence-length", network.sequence_length, "tokens (128)")
      ->transform(base::WholeNumber(1, 1 << 16));
  command
      ->add_option("--predictions", network.predictions,
                   "of BERT: tokens of a sequence that are predicted (all)")
      ->transform(base::WholeNumber(1, 1 << 16));
  command->add_option("--memory-proportion", request.memory_proportion,
                      "of a tile's memory for the operands of a product, above 0 to 1 (0.6)");
  command->add_flag("--explain", plan.explain, "show each IPU of a replica, and what does not fit");
  command->add_flag("--search", plan.search,
                    "find the IPUs per replica, stages, micro-batch, accumulation and "
                    "recomputation that are fastest and fit, on the first of the PODs");
  command
      ->add_option("--global-batch", plan.global_batch,
                   "of a search: images or sequences of an update, at most (4096)")
      ->transform(base::WholeNumber(1, 1 << 24));
  auto* json = command->add_flag_callback(
      "--json", [&] { plan.format = PlanFormat::kJson; }, "print JSON");
  command
      ->add_flag_callback(
          "--csv", [&] { plan.format = PlanFormat::kCsv; }, "print CSV")
      ->excludes(json);
}

}  // namespace vpod::tools
