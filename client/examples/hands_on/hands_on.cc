// A hands-on session with several IPUs per replica: README.md says what to try.
//
//   hands_on --network resnet101 --ipus 2 --micro-batch 64 --accumulation 8 --precision 16.16
//
// It trains on images of ten classes that it makes up, on the IPUs that poprun gave to it; without
// poprun, on IPUModels in its own process.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <future>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/compiler/compiler.h"
#include "client/examples/hands_on/network.h"
#include "client/examples/memory_advice.h"
#include "client/popdist/context.hpp"
#include "client/session/open.h"
#include "client/session/profiles.h"
#include "client/session/session.h"
#include "device/base/command_line.h"
#include "device/base/exit_code.h"
#include "device/base/real_number.h"
#include "device/base/status.h"
#include "device/base/stdout.h"
#include "device/base/text.h"
#include "device/base/version.h"
#include "device/base/whole_number.h"

namespace vpod::examples {
namespace {

using compiler::Recomputation;
using compiler::Schedule;
using program::v1::FLOAT16;
using program::v1::FLOAT32;
using Clock = std::chrono::steady_clock;

struct Arguments {
  NetworkOptions network;
  uint32_t replicas = 1, accumulation = 1, device_iterations = 1, runs = 3;
  float learning_rate = 0.002f;
  Schedule schedule = Schedule::kGrouped;
  Recomputation recomputation = Recomputation::kNone;
  bool off_chip_optimizer_state = false, off_chip_activations = false, off_chip_weights = false,
       off_chip_accumulators = false;
  uint32_t load_milliseconds = 0;
  bool synchronous = false;
  bool compile_only = false;
};

// Images of a class are its pattern and noise. They are the same in each run, so that their loss
// falls within a few, and those of a replica are its own, whatever instance has it.
class Images {
 public:
  Images(const Arguments& arguments, uint32_t first_replica)
      : arguments_(arguments), first_replica_(first_replica) {
    std::mt19937 patterns(5);
    std::normal_distribution<float> normal;
    for (size_t c = 0; c < kClasses; ++c) {
      for (float& value : patterns_[c]) value = normal(patterns) / 2;
    }
  }

  // The micro-batches of all local replicas for a run.
  absl::Status Fill(session::Session& session, uint32_t slot) const {
    std::this_thread::sleep_for(std::chrono::milliseconds(arguments_.load_milliseconds));
    for (uint32_t replica = 0; replica < session.device().local_replicas(); ++replica) {
      std::mt19937 random(7 + first_replica_ + replica);
      VPOD_ASSIGN_OR_RETURN(const auto labels, session.Stream<int32_t>("labels", replica, slot));
      for (int32_t& label : labels) label = static_cast<int32_t>(random() % kClasses);
      std::vector<double> pixels = Draw({labels.begin(), labels.end()}, random);
      if (arguments_.network.byte_images) {
        const std::vector<int64_t> bytes = Bytes(pixels);
        VPOD_RETURN_IF_ERROR(
            session.WriteStream("images", replica, absl::MakeConstSpan(bytes), slot));
      } else {
        VPOD_RETURN_IF_ERROR(
            session.WriteStream("images", replica, absl::MakeConstSpan(pixels), slot));
      }
    }
    return absl::OkStatus();
  }

 private:
  std::vector<double> Draw(const std::vector<int32_t>& labels, std::mt19937& random) const {
    const NetworkOptions& network = arguments_.network;
    const int64_t channels = network.name == "mnist" ? 1 : 3,
                  size = network.name == "mnist" ? 28 : network.image_size;
    const auto pixels = static_cast<size_t>(channels * size * size);
    std::vector<double> images;
    images.reserve(labels.size() * pixels);
    for (int32_t label : labels) {
      const auto& pattern = patterns_[static_cast<size_t>(label)];
      for (size_t p = 0; p < pixels; ++p) {
        const double noise = static_cast<double>(random() % 1024) / 1024 - 0.5;
        images.push_back(pattern[p % pattern.size()] + noise);
      }
    }
    return images;
  }

  // -1 to 1 become 0 to 255.
  static std::vector<int64_t> Bytes(const std::vector<double>& pixels) {
    std::vector<int64_t> bytes;
    bytes.reserve(pixels.size());
    for (double pixel : pixels)
      bytes.push_back(std::clamp<int64_t>(std::llround((pixel + 1) * 127.5), 0, 255));
    return bytes;
  }

  const Arguments& arguments_;
  const uint32_t first_replica_;
  std::array<std::array<float, 61>, kClasses> patterns_;
};

absl::StatusOr<compiler::Model> ModelOf(const Arguments& arguments, uint32_t replicas) {
  VPOD_ASSIGN_OR_RETURN(Network network, BuildNetwork(arguments.network));
  compiler::CompileOptions options{.ipus_per_replica = arguments.network.ipus,
                                   .total_replicas = replicas};
  options.schedule = arguments.schedule;
  options.recomputation = arguments.recomputation;
  options.off_chip_optimizer_state = arguments.off_chip_optimizer_state;
  options.off_chip_activations = arguments.off_chip_activations;
  options.off_chip_weights = arguments.off_chip_weights;
  options.off_chip_accumulators = arguments.off_chip_accumulators;
  options.programs = {{.name = "train",
                       .device_iterations = arguments.device_iterations,
                       .accumulation = arguments.accumulation,
                       .loss = network.loss,
                       .optimizer = compiler::SgdOptions{.learning_rate = arguments.learning_rate,
                                                         .momentum = 0.9f}}};
  return compiler::Model{std::move(network.graph), std::move(options)};
}

model::OptionNames OwnOptions() {
  model::OptionNames names = model::NoOptions();
  names.float16 = "--precision 16.16";
  names.micro_batch = "--micro-batch";
  names.accumulation = "--accumulation";
  names.recomputation = "--recompute standard";
  names.off_chip_activations = "--off-chip-activations";
  names.off_chip_optimizer_state = "--off-chip-optimizer-state";
  names.off_chip_weights = "--off-chip-weights";
  names.off_chip_accumulators = "--off-chip-accumulators";
  names.ipus_per_replica = "--ipus";
  names.ipus_without_pipeline = "--ipus, --schedule sharded";
  return names;
}

// Changes the arguments as advice says. InvalidArgument: no argument does it.
absl::Status Follow(model::MemoryAdvice advice, Arguments& arguments) {
  using model::MemoryAdvice;
  NetworkOptions& network = arguments.network;
  switch (advice) {
    case MemoryAdvice::kFloat16:
      network.type = FLOAT16;
      return absl::OkStatus();
    case MemoryAdvice::kMoreAccumulation:
      return AccumulateMore(network.micro_batch, arguments.accumulation);
    case MemoryAdvice::kMoreIpusSharded:
      arguments.schedule = Schedule::kSharded;
      [[fallthrough]];
    case MemoryAdvice::kMoreIpus:
      network.ipus *= network.name == "mnist" ? 4 : 2;
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError("no argument does it");
  }
}

absl::StatusOr<compiler::Compiled> CompileNetwork(const Arguments& arguments, uint32_t replicas) {
  const auto build = [=](const Arguments& each) { return ModelOf(each, replicas); };
  VPOD_ASSIGN_OR_RETURN(compiler::Model model, build(arguments));
  model.options.front = FrontOf(OwnOptions(), arguments, Follow, build);
  return compiler::Compile(model.graph, model.options);
}

absl::StatusOr<float> MeanLoss(session::Session& session, uint32_t slot) {
  VPOD_ASSIGN_OR_RETURN(const auto losses, session.Stream<float>("loss", 0, slot));
  double sum = 0;
  for (float loss : losses) sum += loss;
  return static_cast<float>(sum / static_cast<double>(losses.size()));
}

absl::Status Train(const Arguments& arguments, session::Session& session, uint32_t replicas) {
  const uint32_t offset = popdist::getReplicaIndexOffset();
  const Images images(arguments, offset);
  VPOD_RETURN_IF_ERROR(images.Fill(session, 0));
  const Clock::time_point start = Clock::now();
  base::Cycles cycles;
  for (uint32_t run = 0; run < arguments.runs; ++run) {
    const uint32_t slot = run % 2;
    // The next data are put in place while the IPUs work, unless that is to wait.
    auto next = std::async(arguments.synchronous ? std::launch::deferred : std::launch::async,
                           [&, is_last = run + 1 == arguments.runs] {
                             return is_last ? absl::OkStatus() : images.Fill(session, 1 - slot);
                           });
    const auto ran = session.Run("train", slot);
    VPOD_RETURN_IF_ERROR(next.get());
    VPOD_RETURN_IF_ERROR(ran.status());
    cycles += *ran;
    VPOD_ASSIGN_OR_RETURN(const float loss, MeanLoss(session, slot));
    if (offset == 0) {
      std::printf("run %u: loss %.4f, %lu cycles\n", run, loss, ran->value());
      std::fflush(stdout);
    }
  }
  if (offset > 0) return absl::OkStatus();
  const double wall = std::chrono::duration<double>(Clock::now() - start).count(),
               modelled = static_cast<double>(cycles.value()) / session.device().clock_hz(),
               all = static_cast<double>(arguments.network.micro_batch) * arguments.accumulation *
                     arguments.device_iterations * replicas * arguments.runs;
  std::printf("modelled: %.0f images/s, %.3f ms an update; on this host: %.1f images/s\n",
              all / modelled, 1e3 * modelled / arguments.runs / arguments.device_iterations,
              all / wall);
  return absl::OkStatus();
}

absl::Status Run(const Arguments& arguments) {
  const bool by_poprun = popdist::isPopdistEnvSet();
  const uint32_t replicas = by_poprun ? popdist::getNumTotalReplicas() : arguments.replicas;
  VPOD_ASSIGN_OR_RETURN(const compiler::Compiled compiled, CompileNetwork(arguments, replicas));
  if (arguments.recomputation != Recomputation::kNone &&
      !compiler::Recomputes(*compiled.executable)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--recompute ", NameOf(arguments.recomputation), " has no effect: network ",
                     arguments.network.name, " has nothing to recompute"));
  }
  if (arguments.compile_only) {
    const uint32_t first = popdist::getReplicaIndexOffset();
    VPOD_RETURN_IF_ERROR(session::WriteProfiles(
        compiled,
        {.is_model = !by_poprun, .part = {.total_replicas = replicas, .first_replica = first}}));
    if (first == 0)
      std::printf(compiled.fits ? "compiled: it fits\n" : "compiled: it does not fit\n");
    return absl::OkStatus();
  }
  VPOD_ASSIGN_OR_RETURN(auto device,
                        session::OpenDevice({.replicas = arguments.replicas,
                                             .ipus_per_replica = arguments.network.ipus}));
  VPOD_ASSIGN_OR_RETURN(const auto session, session::Session::Create(std::move(device), compiled));
  return Train(arguments, *session, replicas);
}

// Adds an option with names for the values of an enumeration.
template <class Enum>
void AddChoice(CLI::App& app, const char* name, Enum& value, std::map<std::string, Enum> choices,
               const char* help) {
  std::vector<std::string> names;
  for (const auto& [choice, of_choice] : choices) names.push_back(choice);
  app.add_option_function<std::string>(
         name,
         [&value, choices = std::move(choices)](const std::string& choice) {
           value = choices.at(choice);
         },
         help)
      ->check(base::OneOf(names));
}

void AddOptions(CLI::App& app, Arguments& arguments) {
  NetworkOptions& network = arguments.network;
  const auto count = [&](const char* name, auto& value, const char* help, int64_t most = 1 << 16) {
    return app.add_option(name, value, help)->transform(base::WholeNumber(1, most));
  };
  app.set_version_flag("--version", absl::StrCat("version: ", base::kVersion), "show the version");
  app.add_option("--network", network.name, "resnet18, resnet50, resnet101 or mnist (resnet50)");
  count("--ipus", network.ipus, "IPUs of a replica: 1 or 2; of mnist 1 or 4 (1)", 4);
  app.add_option("--split", network.split,
                 "of a residual network with --ipus 2: the block with which IPU 1 begins, as "
                 "layer3.0");
  count("--replicas", arguments.replicas, "number of replicas, if it runs without poprun (1)");
  count("--micro-batch", network.micro_batch, "images (4)");
  count("--accumulation", arguments.accumulation, "micro-batches of an update (1)");
  count("--device-iterations", arguments.device_iterations, "updates of a run (1)");
  auto* runs = count("--runs", arguments.runs, "runs of the program (3)");
  auto* learning_rate =
      app.add_option("--learning-rate", arguments.learning_rate, "of the optimiser (0.002)")
          ->check(base::RealNumber([](double value) { return value >= 0 && value <= 1; },
                                   "from 0 to 1"));
  count("--image-size", network.image_size, "of a residual network: pixels of an edge (64)", 4096);
  AddChoice<Schedule>(app, "--schedule", arguments.schedule,
                      {std::begin(compiler::kScheduleNames), std::end(compiler::kScheduleNames)},
                      "how several IPUs share the work, or phased with one (grouped)");
  AddChoice<Recomputation>(
      app, "--recompute", arguments.recomputation,
      {std::begin(compiler::kRecomputationNames), std::end(compiler::kRecomputationNames)},
      "what is computed again for the gradients; pipeline with several IPUs (none)");
  app.add_flag("--off-chip-optimizer-state", arguments.off_chip_optimizer_state,
               "the state of the optimiser lies in streaming memory");
  app.add_flag("--off-chip-activations", arguments.off_chip_activations,
               "what is kept for the gradients lies in streaming memory");
  app.add_flag("--off-chip-weights", arguments.off_chip_weights,
               "the weights lie in streaming memory");
  app.add_flag("--off-chip-accumulators", arguments.off_chip_accumulators,
               "accumulated gradients lie in streaming memory between micro-batches");
  AddChoice<program::v1::DataType>(app, "--precision", network.type,
                                   {{"32.32", FLOAT32}, {"16.16", FLOAT16}},
                                   "bits of operations and of weights (32.32)");
  app.add_flag("--byte-images", network.byte_images, "images come from the host as bytes");
  auto* load = count("--load-milliseconds", arguments.load_milliseconds,
                     "extra time to load the images of a run, as if from a disk (none)");
  auto* synchronous = app.add_flag("--synchronous", arguments.synchronous,
                                   "load data only after the IPUs are done");
  app.add_flag("--compile-only", arguments.compile_only, "do not run it")
      ->excludes(runs)
      ->excludes(learning_rate)
      ->excludes(load)
      ->excludes(synchronous);
}

// Options that others leave without effect.
void RefuseWhatIsIgnored(const CLI::App& app, const Arguments& arguments) {
  const auto is_given = [&](const char* name) { return app.get_option(name)->count() > 0; };
  const auto refuse = [&](bool is_ignored, const char* name, const char* why) {
    if (is_ignored && is_given(name)) throw CLI::ValidationError(absl::StrCat(name, " ", why));
  };
  const bool is_mnist = arguments.network.name == "mnist";
  refuse(is_mnist, "--split", "has no effect on network mnist, each of whose layers has an IPU");
  refuse(is_mnist, "--image-size", "has no effect on network mnist, whose images have 28 pixels");
  if (arguments.network.ipus == 1) {
    constexpr const char* kNeeded = "needs --ipus above 1";
    refuse(true, "--split", kNeeded);
    // Phases of one IPU still use streaming memory.
    refuse(arguments.schedule != Schedule::kPhased, "--schedule", kNeeded);
    refuse(arguments.recomputation == Recomputation::kPipeline, "--recompute",
           "pipeline needs --ipus above 1");
  }
  if (arguments.schedule == Schedule::kPhased) {
    for (const char* name : {"--off-chip-optimizer-state", "--off-chip-activations",
                             "--off-chip-weights", "--off-chip-accumulators"})
      refuse(true, name, "has no effect with --schedule phased, which does the same");
  }
  refuse(arguments.accumulation == 1, "--off-chip-accumulators", "needs --accumulation above 1");
  if (arguments.runs == 1) {
    for (const char* name : {"--synchronous", "--load-milliseconds"})
      refuse(true, name, "needs --runs above 1");
    refuse(arguments.device_iterations == 1, "--learning-rate",
           "has no effect on one update, whose loss comes before it");
  }
  refuse(popdist::isPopdistEnvSet(), "--replicas", "is poprun's, as poprun --num-replicas");
}

int Main(int argc, char** argv) {
  base::CheckStdoutAtExit();
  CLI::App app("Trains a network on one or several IPUs per replica.", "hands_on");
  Arguments arguments;
  AddOptions(app, arguments);
  app.callback([&] { RefuseWhatIsIgnored(app, arguments); });
  if (const auto code = base::ParseCommandLine(app, {argv + 1, argv + argc}); code.has_value())
    return *code;
  const auto fail = [](absl::string_view message, int status) {
    std::fprintf(stderr, "hands_on: error: %s\n", base::OneLine(message).c_str());
    return status;
  };
  try {
    const absl::Status status = Run(arguments);
    if (status.ok()) return 0;
    // The network and the compiler know ranges that depend on each other.
    return fail(status.message(), base::ExitCode(status));
  } catch (const popdist::popdist_error& error) {
    return fail(error.what(), 1);
  }
}

}  // namespace
}  // namespace vpod::examples

int main(int argc, char** argv) { return vpod::examples::Main(argc, argv); }
