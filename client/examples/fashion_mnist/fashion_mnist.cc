// A convolutional classifier on Fashion-MNIST, data-parallel over the replicas that poprun gave it:
//
//   poprun --num-instances 4 --num-replicas 16 fashion_mnist
//   fashion_mnist --replicas 1 --use-ipu-model
//
// Each replica reads its own share of every batch; gradients are averaged on the IPUs; instance 0
// reports.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/compiler/executable_cache.h"
#include "client/examples/fashion_mnist/dataset.h"
#include "client/examples/memory_advice.h"
#include "client/popdist/collectives.hpp"
#include "client/popdist/context.hpp"
#include "client/render/progress_bar.h"
#include "client/render/table.h"
#include "client/session/ipu_model.h"
#include "client/session/open.h"
#include "client/session/session.h"
#include "device/base/command_line.h"
#include "device/base/status.h"
#include "device/base/stdout.h"
#include "device/base/text.h"
#include "device/base/whole_number.h"

namespace vpod::examples {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT32;
using program::v1::INT32;
using Clock = std::chrono::steady_clock;

struct Arguments {
  uint32_t replicas = 1;
  bool use_ipu_model = false;
  uint32_t epochs = 4;
  uint32_t micro_batch = 16;
  uint32_t accumulation = 1;
  uint32_t device_iterations = 13;
  float learning_rate = 0.05f;
  float momentum = 0.9f;
  uint64_t seed = 42;
  size_t train_images = 60000;
  std::string data = kDefaultDataDirectory;
  std::string loss_file;
  std::string executable_cache_path;
  std::string dump_passes;
  bool no_fusion = false;
  bool no_sharing = false;
  bool check_finite = false;
};

// The job as this process sees it: all replicas are numbered 0 … total-1, ours begin at offset.
struct Place {
  uint32_t total = 1, local = 1, offset = 0, instance = 0, instances = 1;
};

struct Model {
  Graph graph;
  Tensor loss;
};

std::vector<float> HeNormal(std::mt19937_64& random, size_t count, size_t fan_in) {
  std::normal_distribution<float> normal(0, std::sqrt(2.0f / static_cast<float>(fan_in)));
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

Model BuildModel(const Arguments& arguments) {
  const auto n = static_cast<int64_t>(arguments.micro_batch);
  std::mt19937_64 random(arguments.seed);
  Model model;
  Graph& g = model.graph;
  const auto conv = [&](Tensor x, const std::string& name, int64_t in, int64_t out) {
    const Tensor w = g.Variable(
        name + ".weight", {FLOAT32, {out, in, 3, 3}},
        HeNormal(random, static_cast<size_t>(9 * in * out), static_cast<size_t>(9 * in)));
    const Tensor b = g.Variable(name + ".bias", {FLOAT32, {out, 1, 1}},
                                std::vector<float>(static_cast<size_t>(out)));
    const Graph::Scope scope(g, name);
    x = g.Relu(g.Add(g.Convolution(x, w, Graph::Sliding(2, 3, 1, 1)), b));
    return g.MaxPool(x, Graph::Sliding(2, 2, 2));
  };
  Tensor x = g.Input("images", {FLOAT32, {n, 1, kImageSide, kImageSide}});
  const Tensor labels = g.Input("labels", {INT32, {n}});
  x = conv(x, "conv1", 1, 16);
  x = conv(x, "conv2", 16, 32);
  x = g.Reshape(x, {n, 32 * 7 * 7});
  const Tensor w = g.Variable("fc.weight", {FLOAT32, {32 * 7 * 7, 10}},
                              HeNormal(random, 32 * 7 * 7 * 10, 32 * 7 * 7));
  const Tensor b = g.Variable("fc.bias", {FLOAT32, {10}}, std::vector<float>(10));
  const auto classify = [&] {
    const Graph::Scope scope(g, "fc");
    return g.Add(g.MatMul(x, w), b);
  };
  const Tensor logits = classify();
  const Graph::Scope scope(g, "loss");
  model.loss = g.Mean(g.SoftmaxCrossEntropy(logits, labels));
  g.Output("loss", model.loss);
  g.Output("correct", g.Cast(g.Binary(program::v1::EQUAL, g.ArgMax(logits), labels), INT32));
  return model;
}

// Shows a compilation that takes long enough to be waited for.
compiler::Progress CompilationBar(const Place& place) {
  if (place.instance != 0 || !render::TakesEscapeCodes(STDERR_FILENO)) return {};
  return [start = Clock::now(), shown = false](absl::string_view, uint32_t done,
                                               uint32_t total) mutable {
    const std::chrono::duration<double> elapsed = Clock::now() - start;
    constexpr std::chrono::duration<double> kPatience(0.5);
    if (!shown && (elapsed < kPatience || done == total)) return absl::OkStatus();
    shown = true;
    std::fprintf(
        stderr, "\r\033[K%s%s",
        render::ProgressBar("Graph compilation", static_cast<double>(done) / total, elapsed)
            .c_str(),
        done == total ? "\n" : "");
    return absl::OkStatus();
  };
}

// Values of all instances, instance by instance.
template <class T>
std::vector<T> Gather(const std::vector<T>& ours, const Place& place, popdist::Type type,
                      const char* id) {
  if (place.instances == 1) return ours;
  std::vector<T> all(ours.size() * place.instances);
  popdist::collectives::allGather(ours.data(), all.data(), ours.size(), type, id);
  return all;
}

class Trainer {
 public:
  // `losses` gets that of every weight update, at the end of each epoch at the latest.
  Trainer(const Arguments& arguments, const Place& place, session::Session& session,
          std::ofstream& losses)
      : arguments_(arguments),
        place_(place),
        session_(session),
        losses_(losses),
        batches_per_step_(arguments.accumulation * place.total),
        batches_per_run_(batches_per_step_ * arguments.device_iterations) {}

  absl::Status Train(const Dataset& data);
  absl::StatusOr<double> Evaluate(const Dataset& data);
  double modelled_seconds() const { return modelled_seconds_; }
  size_t images_trained() const { return images_trained_; }

 private:
  // Position in the epoch of micro-batch `t` of our replica `r` in run `run`: device iteration,
  // accumulation, replica.
  size_t BatchIndex(size_t run, uint32_t r, uint32_t t) const {
    return run * batches_per_run_ + size_t{t} * place_.total + place_.offset + r;
  }
  // Copies our share of a run into a stream slot; beyond the end of `order` images are blank with
  // label 0.
  absl::Status Fill(const Dataset& data, const std::vector<uint32_t>& order, size_t run,
                    uint32_t slot);
  absl::Status RunOnce(const char* program, uint32_t slot);
  void ShowProgress(uint32_t epoch, size_t run, size_t runs) const;

  const Arguments& arguments_;
  const Place& place_;
  session::Session& session_;
  std::ofstream& losses_;
  const size_t batches_per_step_, batches_per_run_;
  double modelled_seconds_ = 0;
  size_t images_trained_ = 0;
  double last_loss_ = 0;
};

absl::Status Trainer::Fill(const Dataset& data, const std::vector<uint32_t>& order, size_t run,
                           uint32_t slot) {
  const uint32_t batch = arguments_.micro_batch;
  for (uint32_t r = 0; r < place_.local; ++r) {
    VPOD_ASSIGN_OR_RETURN(auto images, session_.Stream<float>("images", r, slot));
    VPOD_ASSIGN_OR_RETURN(auto labels, session_.Stream<int32_t>("labels", r, slot));
    for (uint32_t t = 0; t < arguments_.device_iterations * arguments_.accumulation; ++t) {
      for (uint32_t i = 0; i < batch; ++i) {
        const size_t position = BatchIndex(run, r, t) * batch + i;
        float* image = images.data() + (size_t{t} * batch + i) * kPixels;
        if (position < order.size()) {
          const uint32_t index = order[position];
          std::copy_n(data.images.data() + size_t{index} * kPixels, kPixels, image);
          labels[t * batch + i] = data.labels[index];
        } else {
          std::fill_n(image, kPixels, 0.0f);
          labels[t * batch + i] = 0;
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Trainer::RunOnce(const char* program, uint32_t slot) {
  VPOD_ASSIGN_OR_RETURN(const base::Cycles cycles, session_.Run(program, slot));
  modelled_seconds_ += static_cast<double>(cycles.value()) / session_.device().clock_hz();
  return absl::OkStatus();
}

void Trainer::ShowProgress(uint32_t epoch, size_t run, size_t runs) const {
  if (place_.instance != 0 || !render::TakesEscapeCodes(STDOUT_FILENO)) return;
  constexpr size_t kWidth = 40;
  const size_t done = run * kWidth / runs;
  std::printf("\repoch %u [%s%s] loss %.4f", epoch + 1, std::string(done, '#').c_str(),
              std::string(kWidth - done, '.').c_str(), last_loss_);
  if (run == runs) std::printf("\r\033[K");
  std::fflush(stdout);
}

absl::Status Trainer::Train(const Dataset& data) {
  const size_t used = std::min(data.size(), arguments_.train_images);
  const size_t runs = used / (batches_per_run_ * arguments_.micro_batch);
  if (runs == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(used, " images are fewer than the ", batches_per_run_ * arguments_.micro_batch,
                     " of one run; raise --train-images, or lower --device-iterations, "
                     "--accumulation or --micro-batch"));
  }
  for (uint32_t epoch = 0; epoch < arguments_.epochs; ++epoch) {
    const Clock::time_point start = Clock::now();
    const std::vector<uint32_t> order = EpochOrder(used, arguments_.seed, epoch);
    double epoch_loss = 0;
    size_t correct = 0;
    VPOD_RETURN_IF_ERROR(Fill(data, order, 0, 0));
    for (size_t run = 0; run < runs; ++run) {
      const auto slot = static_cast<uint32_t>(run % 2);
      // The next data are put in place while the IPUs work.
      auto next = std::async(std::launch::async, [&, run] {
        return run + 1 < runs ? Fill(data, order, run + 1, 1 - slot) : absl::OkStatus();
      });
      const absl::Status status = RunOnce("train", slot);
      VPOD_RETURN_IF_ERROR(next.get());
      VPOD_RETURN_IF_ERROR(status);

      const uint32_t transfers = arguments_.device_iterations * arguments_.accumulation;
      std::vector<float> ours;
      std::vector<int> hits(1);
      for (uint32_t r = 0; r < place_.local; ++r) {
        VPOD_ASSIGN_OR_RETURN(const auto losses, session_.Stream<float>("loss", r, slot));
        VPOD_ASSIGN_OR_RETURN(const auto marks, session_.Stream<int32_t>("correct", r, slot));
        ours.insert(ours.end(), losses.begin(), losses.end());
        for (int32_t mark : marks) hits[0] += mark;
      }
      const std::vector<float> all = Gather(ours, place_, popdist::Type::FLOAT, "loss");
      for (int hit : Gather(hits, place_, popdist::Type::INT, "correct"))
        correct += static_cast<size_t>(hit);
      // Loss of each weight update: the mean over its micro-batches, always added in the same
      // order.
      for (uint32_t d = 0; d < arguments_.device_iterations; ++d) {
        double sum = 0;
        for (uint32_t a = 0; a < arguments_.accumulation; ++a) {
          for (uint32_t r = 0; r < place_.total; ++r) {
            sum += all[size_t{r} * transfers + d * arguments_.accumulation + a];
          }
        }
        last_loss_ = sum / static_cast<double>(batches_per_step_);
        epoch_loss += last_loss_;
        losses_ << last_loss_ << "\n";
      }
      ShowProgress(epoch, run + 1, runs);
    }
    errno = 0;  // the reason of an earlier failure is not known any more
    if (losses_.is_open() && !losses_.flush()) {
      return absl::UnavailableError(absl::StrCat("cannot write --loss-file ", arguments_.loss_file,
                                                 errno == 0 ? "" : ": ",
                                                 errno == 0 ? "" : std::strerror(errno)));
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const size_t images = runs * batches_per_run_ * arguments_.micro_batch;
    images_trained_ += images;
    if (place_.instance == 0) {
      std::printf("epoch %u/%u: loss %.4f, train accuracy %.2f %%, %.0f images/s\n", epoch + 1,
                  arguments_.epochs,
                  epoch_loss / static_cast<double>(runs * arguments_.device_iterations),
                  100.0 * static_cast<double>(correct) / static_cast<double>(images),
                  static_cast<double>(images) / seconds);
      std::fflush(stdout);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<double> Trainer::Evaluate(const Dataset& data) {
  std::vector<uint32_t> order(data.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  const size_t per_run = batches_per_run_ * arguments_.micro_batch;
  size_t correct = 0;
  for (size_t run = 0; run * per_run < data.size(); ++run) {
    VPOD_RETURN_IF_ERROR(Fill(data, order, run, 0));
    VPOD_RETURN_IF_ERROR(RunOnce("evaluate", 0));
    std::vector<int> hits(1);
    for (uint32_t r = 0; r < place_.local; ++r) {
      VPOD_ASSIGN_OR_RETURN(const auto marks, session_.Stream<int32_t>("correct", r));
      for (size_t k = 0; k < marks.size(); ++k) {
        const auto t = static_cast<uint32_t>(k / arguments_.micro_batch);
        const size_t position =
            BatchIndex(run, r, t) * arguments_.micro_batch + k % arguments_.micro_batch;
        if (position < data.size()) hits[0] += marks[k];
      }
    }
    for (int hit : Gather(hits, place_, popdist::Type::INT, "correct"))
      correct += static_cast<size_t>(hit);
  }
  return static_cast<double>(correct) / static_cast<double>(data.size());
}

compiler::Model ModelOf(const Arguments& arguments, const Place& place) {
  Model model = BuildModel(arguments);
  compiler::CompileOptions options;
  options.total_replicas = place.total;
  // To find NaN, each operation by its own name.
  options.fusion = !arguments.no_fusion && !arguments.check_finite;
  options.programs = {
      {.name = "train",
       .device_iterations = arguments.device_iterations,
       .accumulation = arguments.accumulation,
       .loss = model.loss,
       .optimizer = compiler::SgdOptions{.learning_rate = arguments.learning_rate,
                                         .momentum = arguments.momentum}},
      {.name = "evaluate",
       .device_iterations = arguments.device_iterations * arguments.accumulation},
  };
  return {std::move(model.graph), std::move(options)};
}

model::OptionNames OwnOptions() {
  model::OptionNames names = model::NoOptions();
  names.micro_batch = "--micro-batch";
  names.accumulation = "--accumulation";
  return names;
}

// Changes the arguments as advice says. InvalidArgument: no argument does it.
absl::Status Follow(model::MemoryAdvice advice, Arguments& arguments) {
  if (advice == model::MemoryAdvice::kMoreAccumulation)
    return AccumulateMore(arguments.micro_batch, arguments.accumulation);
  return absl::InvalidArgumentError("no argument does it");
}

absl::Status Run(const Arguments& arguments, const Place& place) {
  std::ofstream loss_file;
  if (!arguments.loss_file.empty() && place.instance == 0) {
    loss_file.open(arguments.loss_file);
    if (!loss_file)
      return absl::InvalidArgumentError(absl::StrCat(
          "cannot write --loss-file ", arguments.loss_file, ": ", std::strerror(errno)));
  }
  if (!arguments.dump_passes.empty() && place.instance == 0) {
    std::error_code error;
    std::filesystem::create_directories(arguments.dump_passes, error);
    if (error) {
      return absl::InvalidArgumentError(absl::StrCat("cannot make the directory of --dump-passes ",
                                                     arguments.dump_passes, ": ", error.message()));
    }
  }
  VPOD_ASSIGN_OR_RETURN(const Dataset train, LoadFashionMnist(arguments.data, "train"));
  VPOD_ASSIGN_OR_RETURN(const Dataset test, LoadFashionMnist(arguments.data, "t10k"));
  compiler::Model model = ModelOf(arguments, place);
  compiler::CompileOptions& options = model.options;
  if (place.instance == 0) options.dump_passes = arguments.dump_passes;  // all compile the same
  options.front = FrontOf(OwnOptions(), arguments, Follow,
                          [=](const Arguments& each) { return ModelOf(each, place); });
  VPOD_ASSIGN_OR_RETURN(
      const compiler::Compiled compiled,
      compiler::CompileCached(model.graph, options, arguments.executable_cache_path,
                              CompilationBar(place)));
  VPOD_ASSIGN_OR_RETURN(auto device, arguments.use_ipu_model
                                         ? session::CreateIpuModel({.replicas = place.local})
                                         : session::AttachDevice({.replicas = place.local}));
  const std::string device_name = device->name();
  VPOD_ASSIGN_OR_RETURN(const auto session,
                        session::Session::Create(std::move(device), compiled,
                                                 {.check_finite = arguments.check_finite,
                                                  .sharing = !arguments.no_sharing}));
  if (place.instance == 0) {
    std::printf(
        "Fashion-MNIST: %zu training images, %u replicas x %u accumulation x micro-batch %u on "
        "%s%s\n",
        std::min(train.size(), arguments.train_images), place.total, arguments.accumulation,
        arguments.micro_batch, device_name.c_str(),
        place.instances > 1
            ? absl::StrCat(" and those of ", place.instances - 1, " more instances").c_str()
            : "");
    std::fflush(stdout);
  }
  loss_file.precision(17);
  Trainer trainer(arguments, place, *session, loss_file);
  const Clock::time_point start = Clock::now();
  VPOD_RETURN_IF_ERROR(trainer.Train(train));
  const double wall = std::chrono::duration<double>(Clock::now() - start).count();
  const double modelled = trainer.modelled_seconds();
  VPOD_ASSIGN_OR_RETURN(const double accuracy, trainer.Evaluate(test));
  if (place.instance == 0) {
    std::printf("test accuracy %.2f %%\n", 100 * accuracy);
    std::printf(
        "training: wall time %.2f s (%.0f images/s), modelled IPU time %.3f s (%.0f images/s)\n",
        wall, static_cast<double>(trainer.images_trained()) / wall, modelled,
        static_cast<double>(trainer.images_trained()) / modelled);
  }
  return absl::OkStatus();
}

Place FindPlace(Arguments& arguments, bool replicas_given) {
  Place place;
  if (!popdist::isPopdistEnvSet()) {
    place.total = place.local = arguments.replicas;
    return place;
  }
  place = {popdist::getNumTotalReplicas(), popdist::getNumLocalReplicas(),
           popdist::getReplicaIndexOffset(), popdist::getInstanceIndex(),
           popdist::getNumInstances()};
  if (replicas_given && arguments.replicas != place.total && place.instance == 0) {
    std::fprintf(stderr,
                 "fashion_mnist: warning: --replicas %u ignored, poprun gives %u replicas\n",
                 arguments.replicas, place.total);
  }
  if (!popdist::checkNumIpusPerReplica(1)) {
    throw popdist::popdist_error(
        "fashion_mnist needs 1 IPU per replica; start poprun with --ipus-per-replica 1");
  }
  return place;
}

// Unlike CLI::Range also refuses what is no number at all, and what overflows one.
CLI::Validator Within(double low, double high) {
  const std::string range = absl::StrCat(low, " to ", high);
  return CLI::Validator(
      [=](const std::string& text) {
        double value = 0;
        const bool good =
            absl::SimpleAtod(text, &value) && value >= low && value <= high;  // NaN is not
        return good ? "" : absl::StrCat(text, " is not a number of ", range);
      },
      range);
}

int Main(int argc, char** argv) {
  base::CheckStdoutAtExit();
  Arguments arguments;
  CLI::App app("Trains a convolutional classifier on Fashion-MNIST on virtual IPUs.",
               "fashion_mnist");
  auto* replicas =
      app.add_option("--replicas", arguments.replicas, "Replicas, when not started by poprun")
          ->transform(base::WholeNumber(1, 64))
          ->capture_default_str();
  app.add_flag("--use-ipu-model", arguments.use_ipu_model, "Run in this process, without a POD")
      ->disable_flag_override();
  app.add_option("--epochs", arguments.epochs, "Times that all training images are shown")
      ->transform(base::WholeNumber(1, 1000))
      ->capture_default_str();
  app.add_option("--micro-batch", arguments.micro_batch, "Images that a replica computes at once")
      ->transform(base::WholeNumber(1, 1024))
      ->capture_default_str();
  app.add_option("--accumulation", arguments.accumulation,
                 "Micro-batches per weight update and replica")
      ->transform(base::WholeNumber(1, 1024))
      ->capture_default_str();
  app.add_option("--device-iterations", arguments.device_iterations,
                 "Weight updates per call of the IPUs")
      ->transform(base::WholeNumber(1, 1024))
      ->capture_default_str();
  app.add_option("--learning-rate", arguments.learning_rate, "Step of a weight update")
      ->check(Within(0, 1000))
      ->capture_default_str();
  app.add_option("--momentum", arguments.momentum, "Share of the last step that the next one keeps")
      ->check(Within(0, 0.999))
      ->capture_default_str();
  app.add_option("--seed", arguments.seed, "Seed of the weights and of the order of the images")
      ->transform(base::WholeNumber(0, std::numeric_limits<uint64_t>::max()))
      ->capture_default_str();
  app.add_option("--train-images", arguments.train_images, "Use only this many images")
      ->transform(base::WholeNumber(1, 60000))
      ->capture_default_str();
  app.add_option("--data", arguments.data, "Directory of the data set")->capture_default_str();
  app.add_option("--loss-file", arguments.loss_file, "Write the loss of every weight update here");
  app.add_flag("--check-finite", arguments.check_finite,
               "End at the first operation that gives NaN or infinity; slow");
  app.add_option("--executable-cache-path", arguments.executable_cache_path,
                 "Directory in which compiled executables are kept for the next start")
      ->envname("POPDIST_EXECUTABLE_CACHE_PATH");
  app.add_option("--dump-passes", arguments.dump_passes,
                 "Directory for the text of the program after each pass of the compiler");
  app.add_flag("--no-fusion", arguments.no_fusion,
               "Compile every operation by itself, which changes no loss")
      ->disable_flag_override();
  app.add_flag("--no-sharing", arguments.no_sharing,
               "Give each replica its own copy of the weights; changes no result");
  if (const auto code = base::ParseCommandLine(app, {argv + 1, argv + argc}); code.has_value())
    return *code;
  absl::Status status;
  bool mpi = false;
  try {
    const Place place = FindPlace(arguments, replicas->count() > 0);
    if (place.instances > 1 && !arguments.use_ipu_model) {
      popdist::registerDefaultBackend();
      popdist::initializeBackend();
      mpi = true;
    }
    status = Run(arguments, place);
    if (status.ok() && mpi) popdist::finalizeBackend();
  } catch (const popdist::popdist_error& error) {
    status = absl::InternalError(error.what());
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "fashion_mnist: error: %s\n", base::OneLine(status.message()).c_str());
  std::fflush(nullptr);
  // Not through MPI_Finalize, which would wait for the others.
  if (mpi) _exit(1);
  return 1;
}

}  // namespace
}  // namespace vpod::examples

int main(int argc, char** argv) { return vpod::examples::Main(argc, argv); }
