#include "tools/vpod/plan_arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/compiler/executable_file.h"
#include "client/plan/executable_plan.h"
#include "device/arch/device_id.h"
#include "device/arch/hardware.h"
#include "device/base/command_line.h"
#include "device/base/real_number.h"
#include "device/base/status.h"
#include "device/base/text.h"
#include "device/base/whole_number.h"
#include "tools/vpod/plan_executable.h"
#include "tools/vpod/planned_program.h"

namespace vpod::tools {
namespace {

// Hyper-parameters do not change the time of an update.
std::map<std::string, compiler::Optimizer> Optimizers() {
  return {{"adamw", compiler::AdamOptions{.decoupled_weight_decay = true}},
          {"lamb", compiler::LambOptions{}},
          {"lars", compiler::LarsOptions{}},
          {"momentum", compiler::SgdOptions{.momentum = 0.9f}},
          {"sgd", compiler::SgdOptions{}}};
}

// Numbers, as `--micro-batch 4`.
template <class T>
CLI::Option* AddCount(CLI::App& command, const char* name, T& value, uint64_t most,
                      const char* help, uint64_t least = 1) {
  return command.add_option(name, value, help)->transform(base::WholeNumber(least, most));
}

// As `vpod up` has them.
CLI::Validator PodSize() {
  const std::string range =
      absl::StrCat("a power of two from ", arch::kIpusPerMachine, " to ", arch::kMaxIpusPerPod);
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        uint64_t ipus = 0;
        if (!absl::SimpleAtoi(text, &ipus) || ipus < arch::kIpusPerMachine ||
            ipus > arch::kMaxIpusPerPod || !arch::IsPowerOfTwo(ipus))
          return absl::StrCat("a POD has ", range, " IPUs, not '", text, "'");
        text = absl::StrCat(ipus);
        return "";
      },
      range);
}

// One of some names, which stand for values.
template <class T>
CLI::Option* AddChoice(CLI::App& command, const char* name, std::map<std::string, T> choices,
                       std::function<void(const T&)> set, const char* help) {
  std::vector<std::string> names;
  for (const auto& [choice, value] : choices) names.push_back(choice);
  return command
      .add_option_function<std::string>(
          name,
          [choices = std::move(choices), set = std::move(set)](const std::string& choice) {
            set(choices.at(choice));
          },
          help)
      ->check(base::OneOf(names));
}

// Options that a search finds, and that cannot be given with it.
std::vector<CLI::Option*> AddConfiguration(CLI::App& command, plan::PlanRequest& request) {
  plan::NetworkRequest& network = request.network;
  using compiler::Recomputation;
  std::map<std::string, Recomputation> recomputations;
  for (const auto& [name, recomputation] : compiler::kRecomputationNames)
    recomputations[name] = recomputation;
  return {
      AddCount(command, "--micro-batch", network.micro_batch, 1 << 20, "images or sequences (1)"),
      AddCount(command, "--accumulation", request.accumulation, 1 << 16,
               "micro-batches of an update (1)"),
      AddCount(command, "--replicas", request.replicas, arch::kMaxIpusPerPod,
               "replicas of a part of the POD (as many as fit the POD)"),
      AddCount(command, "--ipus-per-replica", network.ipus, arch::kMaxIpusPerReplica,
               "a power of two up to 64 (1)"),
      command
          .add_option("--stages", network.stages,
                      "blocks with which the next IPU begins, as layer2.0,layer3.0; of BERT: half "
                      "layers of each IPU, as 9,13,13,13 (of BERT, GPT-2 and ViT: even shares)")
          ->delimiter(',')
          ->allow_extra_args(false),
      AddChoice<Recomputation>(
          command, "--recompute", std::move(recomputations),
          [&](const Recomputation& value) { request.recomputation = value; },
          "what is computed again for the gradients instead of being kept (none)"),
      command
          .add_option("--checkpoints", network.checkpoints,
                      "of residual networks, with --recompute: blocks whose outputs are kept, as "
                      "layer1.0,layer2.2")
          ->delimiter(',')
          ->allow_extra_args(false)};
}

void Refuse(const std::string& message) { throw CLI::ValidationError(message); }

template <class T>
void RefuseTwice(const char* name, std::vector<T> values) {
  std::sort(values.begin(), values.end());
  const auto twice = std::adjacent_find(values.begin(), values.end());
  if (twice != values.end()) Refuse(absl::StrCat(name, " names ", *twice, " twice"));
}

// Compiled programs leave open only where they run.
void RefuseOptionsOfModels(const CLI::App& command, const char* what) {
  const std::set<std::string> others = {"--pod", "--machine-type", "--explain", "--json", "--csv"};
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() > 0 && !option->get_positional() && others.count(option->get_name()) == 0)
      Refuse(absl::StrCat(option->get_name(), " is for models, not for ", what));
  }
}

// Whether a file is meant, if only by its name, and no model.
bool IsFile(const std::string& word) {
  std::error_code error;
  return absl::StrContains(word, "/") || absl::EndsWith(word, compiler::kExecutableFileEnd) ||
         (!plan::OptionsOf(word).ok() && std::filesystem::exists(word, error));
}

// Decides what is planned.
void ChooseSubject(const CLI::App& command, PlanArguments& plan) {
  std::string& model = plan.request.network.name;
  if (!plan.program.empty()) {
    if (!model.empty())
      Refuse(absl::StrCat("'", model, "' and a program after -- exclude each other"));
    return RefuseOptionsOfModels(command, "programs");
  }
  if (model.empty()) Refuse("give a model, a file with an executable, or -- and a program");
  if (!IsFile(model)) {
    if (plan::OptionsOf(model).ok()) return;
    Refuse(absl::StrCat("'", base::Printable(model), "' is neither a model nor a file; models are ",
                        absl::StrJoin(plan::NetworkNames(), ", ")));
  }
  plan.file = std::move(model);
  model.clear();
  RefuseOptionsOfModels(command, "executables");
}

// Options that a model does not look at, or that others leave without effect.
void RefuseWhatIsIgnored(const CLI::App& command, const PlanArguments& plan) {
  const auto is_given = [&](const char* name) { return command.get_option(name)->count() > 0; };
  const plan::NetworkRequest& network = plan.request.network;
  const plan::NetworkOptions model = *plan::OptionsOf(network.name);  // ChooseSubject has checked
  for (const auto& [name, takes] : std::initializer_list<std::pair<const char*, bool>>{
           {"--image-size", model.image_size},
           {"--uint8-images", model.images},
           {"--sequence-length", model.tokens},
           {"--predictions", model.predictions},
           {"--attention-dropout", model.predictions},
           {"--gelu", model.predictions},
           {"--classes", model.classes}}) {
    if (is_given(name) && !takes)
      Refuse(absl::StrCat("model '", network.name, "' takes no ", name));
  }
  if (is_given("--checkpoints") && model.checkpoints &&
      plan.request.recomputation == compiler::Recomputation::kNone)
    Refuse("--checkpoints needs --recompute with another value than none");
  if (is_given("--checkpoints") && plan.request.recomputation == compiler::Recomputation::kNormOnly)
    Refuse("--checkpoints has no effect with --recompute norm-only");
  if (!arch::IsPowerOfTwo(network.ipus)) {
    Refuse(absl::StrCat("--ipus-per-replica: ", network.ipus, " is not a power of two up to ",
                        arch::kMaxIpusPerReplica));
  }
  // Phases of one IPU still use streaming memory.
  if (is_given("--schedule") && !plan.search && network.ipus == 1 &&
      plan.request.schedule != compiler::Schedule::kPhased)
    Refuse("--schedule needs --ipus-per-replica above 1");
  if (plan.request.recomputation == compiler::Recomputation::kPipeline && network.ipus == 1 &&
      network.checkpoints.empty())
    Refuse("--recompute pipeline needs --ipus-per-replica above 1, or --checkpoints");
  if (plan.request.schedule == compiler::Schedule::kPhased) {
    for (const char* name : {"--off-chip-optimizer-state", "--off-chip-activations",
                             "--off-chip-weights", "--off-chip-accumulators"}) {
      if (is_given(name))
        Refuse(absl::StrCat(name, " has no effect with --schedule phased, which does the same"));
    }
  }
  if (is_given("--off-chip-accumulators") && !plan.search && plan.request.accumulation == 1)
    Refuse("--off-chip-accumulators needs --accumulation above 1");
  const compiler::Optimizer& optimizer = plan.request.optimizer;
  const auto* sgd = std::get_if<compiler::SgdOptions>(&optimizer);
  for (const char* name : {"--off-chip-optimizer-state", "--tensor-sharding"}) {
    if (is_given(name) && sgd != nullptr && sgd->momentum == 0)
      Refuse(absl::StrCat(name, " has no effect with --optimizer sgd, which has no state"));
  }
  if (is_given("--tensor-sharding") && std::holds_alternative<compiler::LarsOptions>(optimizer))
    Refuse("--tensor-sharding has no effect with --optimizer lars, which needs whole tensors");
  const auto& pods = plan.systems.pods;
  if (is_given("--tensor-sharding") && !plan.search &&
      (plan.request.replicas == 1u || *std::max_element(pods.begin(), pods.end()) == network.ipus))
    Refuse("--tensor-sharding needs several replicas");
  if (plan.search && plan.systems.pods.size() > 1)
    Refuse(absl::StrCat("--search takes one POD, --pod names ", plan.systems.pods.size()));
  if (plan.search && plan.systems.machine_types.size() > 1) {
    Refuse(absl::StrCat("--search takes one type of machine, --machine-type names ",
                        plan.systems.machine_types.size()));
  }
}

void AddNetwork(CLI::App& command, plan::PlanRequest& request) {
  plan::NetworkRequest& network = request.network;
  AddChoice<std::pair<program::v1::DataType, bool>>(
      command, "--precision",
      {{"16", {program::v1::FLOAT16, false}},
       {"16-half-partials", {program::v1::FLOAT16, true}},
       {"32", {program::v1::FLOAT32, false}}},
      [&](const auto& precision) {
        network.type = network.image_type = precision.first;
        request.half_partials = precision.second;
      },
      "type of operations and weights (16)");
  command.add_flag_callback(
      "--uint8-images", [&] { network.image_type = program::v1::UINT8; },
      "images come from the host as bytes");
  AddCount(command, "--image-size", network.image_size, 4096, "pixels of an edge (224)", 8);
  AddCount(command, "--sequence-length", network.sequence_length, 1 << 16, "tokens (128)");
  AddCount(command, "--predictions", network.predictions, 1 << 16,
           "of BERT: tokens of a sequence that are predicted (all)");
  command
      .add_option("--attention-dropout", network.attention_dropout,
                  "of BERT: a probability (that of the other layers)")
      ->check(base::RealNumber([](double value) { return value >= 0 && value < 1; },
                               "from 0 to below 1"));
  AddChoice<bool>(
      command, "--gelu", {{"exact", false}, {"tanh", true}},
      [&](const bool& tanh) { network.tanh_gelu = tanh; },
      "of BERT: by erf, or approximated by tanh as PopART's programs have it (exact)");
  AddCount(command, "--classes", network.classes, 1 << 20, "of residual networks (1000)");
}

}  // namespace

void AddPlan(CLI::App& app, PlanArguments& plan) {
  plan::PlanRequest& request = plan.request;
  plan::NetworkRequest& network = request.network;
  auto* command = app.add_subcommand(
      "plan",
      "what training a model, or a program of your own, takes on PODs of any size; needs no POD");
  command->add_option("model", network.name,
                      absl::StrCat(absl::StrJoin(plan::NetworkNames(), ", "),
                                   "; or a file with a compiled executable"));
  command->footer(
      "vpod plan [OPTIONS] -- PROGRAM [ARGUMENTS]: runs a program of your own up to its first "
      "session and plans what it has compiled");
  command
      ->add_option(
          "--pod", plan.systems.pods,
          "numbers of IPUs (16, or those of the replicas that a file is for), as 16,64,256, or one "
          "with --search; efficiency is compared with the smallest")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(PodSize());
  command
      ->add_option("--machine-type", plan.systems.machine_types,
                   "m2000 or bow2000, or both, as m2000,bow2000, or one with --search (m2000)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(base::OneOf({"m2000", "bow2000"}));
  const std::vector<CLI::Option*> configuration = AddConfiguration(*command, request);
  AddNetwork(*command, request);
  AddCount(*command, "--device-iterations", request.device_iterations, 1 << 16,
           "updates of a run (1)");
  using compiler::Schedule;
  AddChoice<Schedule>(
      *command, "--schedule",
      {std::begin(compiler::kScheduleNames), std::end(compiler::kScheduleNames)},
      [&](const Schedule& schedule) { request.schedule = schedule; },
      "how several IPUs share the work, or phased with one (grouped)");
  AddChoice<compiler::Optimizer>(
      *command, "--optimizer", Optimizers(),
      [&](const compiler::Optimizer& optimizer) { request.optimizer = optimizer; }, "(momentum)");
  command->add_flag("--tensor-sharding", request.tensor_sharding,
                    "the replicas share out the state of the optimiser");
  command->add_flag("--off-chip-activations", request.off_chip_activations,
                    "what is kept for the gradients lies in streaming memory");
  command->add_flag("--off-chip-weights", request.off_chip_weights,
                    "the weights lie in streaming memory");
  command->add_flag("--off-chip-accumulators", request.off_chip_accumulators,
                    "accumulated gradients lie in streaming memory between micro-batches");
  command->add_flag("--off-chip-optimizer-state", request.off_chip_optimizer_state,
                    "the state of the optimiser lies in streaming memory");
  command
      ->add_option("--memory-proportion", request.memory_proportion,
                   "of a tile's memory for the operands of a product (0.6)")
      ->check(base::RealNumber([](double value) { return value > 0 && value <= 1; },
                               "above 0 up to 1"));
  command->add_flag("--explain", plan.explain, "show each IPU of a replica, and what does not fit");
  auto* search = command->add_flag(
      "--search", plan.search,
      "find the IPUs per replica, stages, micro-batch, accumulation and recomputation that are "
      "fastest and fit, on a POD");
  for (CLI::Option* option : configuration) search->excludes(option);
  AddCount(*command, "--global-batch", plan.global_batch, 1 << 24,
           "of a search: images or sequences of an update, at most (4096)")
      ->needs(search);
  auto* json = command->add_flag_callback(
      "--json", [&] { plan.format = PlanFormat::kJson; }, "print JSON");
  command
      ->add_flag_callback(
          "--csv", [&] { plan.format = PlanFormat::kCsv; }, "print CSV")
      ->excludes(json);
  command->callback([command, &plan] {
    plan.names_pods = command->count("--pod") > 0;
    RefuseTwice("--pod", plan.systems.pods);
    RefuseTwice("--machine-type", plan.systems.machine_types);
    RefuseTwice("--checkpoints", plan.request.network.checkpoints);
    ChooseSubject(*command, plan);
    if (!plan.request.network.name.empty()) RefuseWhatIsIgnored(*command, plan);
  });
}

absl::Status TakeProgram(std::vector<std::string>& words, PlanArguments& plan) {
  const auto dashes = std::find(words.begin(), words.end(), "--");
  if (dashes == words.end()) return absl::OkStatus();
  plan.program.assign(dashes + 1, words.end());
  words.erase(dashes, words.end());
  if (!plan.program.empty() && !plan.program[0].empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("-- is not followed by a program");
}

namespace {

// An executable in a file is planned as it is: on the PODs that are named, or with the replicas
// that it is for.
absl::StatusOr<PlanOutput> PlanFile(const PlanArguments& arguments) {
  VPOD_ASSIGN_OR_RETURN(const auto executable, ReadExecutable(arguments.file));
  Systems systems = arguments.systems;
  const uint32_t replicas = executable->total_replicas(), ipus = executable->ipus_per_replica();
  if (!arguments.names_pods && replicas != 0) {
    if (replicas > arch::kMaxIpusPerPod / ipus) {
      return absl::DataLossError(absl::StrCat(
          "file '", arguments.file, "': the executable is for ", replicas, " replicas of ", ipus,
          ipus == 1 ? " IPU" : " IPUs", ", and a POD has at most ", arch::kMaxIpusPerPod));
    }
    systems.pods = {replicas * ipus};
  }
  return ExecutablePlan([&](uint32_t) { return executable; }, systems, arguments.format,
                        arguments.explain);
}

absl::StatusOr<PlanOutput> PlanProgram(const PlanArguments& arguments) {
  VPOD_ASSIGN_OR_RETURN(const auto executable,
                        CompileByProgram(arguments.program, std::nullopt, arguments.explain));
  const uint32_t ipus = executable->ipus_per_replica(), shards = plan::ShardsOf(*executable);
  const ExecutableFor executable_for = [&](uint32_t pod) -> decltype(CompileByProgram({})) {
    // Where replicas share out state, a program is compiled for their number.
    const bool is_for_others = shards > 1 && !plan::CheckPod(*executable, pod).ok();
    if (is_for_others && pod % (ipus * shards) == 0)
      return CompileByProgram(arguments.program, pod / ipus, arguments.explain);
    return executable;
  };
  return ExecutablePlan(executable_for, arguments.systems, arguments.format, arguments.explain);
}

}  // namespace

absl::StatusOr<PlanOutput> RunPlan(const PlanArguments& arguments) {
  if (!arguments.program.empty()) return PlanProgram(arguments);
  if (!arguments.file.empty()) return PlanFile(arguments);
  const auto output = [](std::string text) { return PlanOutput{std::move(text)}; };
  if (!arguments.search) {
    VPOD_ASSIGN_OR_RETURN(std::string text, PlanText(arguments.request, arguments.systems,
                                                     arguments.format, arguments.explain));
    return output(std::move(text));
  }
  plan::PlanRequest request = arguments.request;
  request.pod = arguments.systems.pods[0];
  request.machine_type = arguments.systems.machine_types[0];
  VPOD_ASSIGN_OR_RETURN(std::string text, SearchText(request, arguments.global_batch,
                                                     arguments.format, arguments.explain));
  return output(std::move(text));
}

}  // namespace vpod::tools
