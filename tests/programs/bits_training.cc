#include "tests/programs/bits_training.h"

#include "absl/strings/str_cat.h"
#include "client/session/session.h"
#include "device/base/status.h"
#include "tests/programs/bits_models.h"

namespace vpod::testing {
namespace {

// A model as a program.
struct Training {
  compiler::Compiled compiled;
  std::vector<RandomStream> streams;
};

absl::StatusOr<Training> CompileModel(const BitsOptions& options) {
  const BitsModel& model = BitsModels().at(options.model);
  graph::Graph graph;
  const TrainedClassifier trained = AddClassifier(nn::Builder(graph, {.seed = 5, .training = true}),
                                                  model.classifier, model.batch, options.type);
  compiler::ProgramSpec spec{.name = "train",
                             .device_iterations = model.iterations,
                             .accumulation = options.accumulation(),
                             .loss = trained.loss,
                             .optimizer = model.optimizer,
                             .clip_norm = model.clip_norm};
  if (options.type == program::v1::FLOAT16) spec.loss_scale = 128;
  VPOD_ASSIGN_OR_RETURN(compiler::Compiled compiled,
                        compiler::Compile(graph, {.total_replicas = options.replicas,
                                                  .fusion = options.fusion,
                                                  .rounding = options.rounding,
                                                  .programs = {std::move(spec)}}));
  return Training{std::move(compiled), trained.streams};
}

// Micro-batches of a run for each replica.
uint32_t Transfers(const BitsOptions& options) {
  return BitsModels().at(options.model).iterations * options.accumulation();
}

// The number in the job of a replica's micro-batch: device iteration, accumulation step, replica.
uint32_t NumberOf(const BitsOptions& options, uint32_t run, uint32_t local, uint32_t transfer) {
  return (run * Transfers(options) + transfer) * options.replicas + options.offset + local;
}

absl::Status FillStreams(const BitsOptions& options, const std::vector<RandomStream>& streams,
                         uint32_t run, session::Session& session) {
  for (uint32_t replica = 0; replica < session.device().local_replicas(); ++replica) {
    for (uint32_t transfer = 0; transfer < Transfers(options); ++transfer) {
      std::mt19937_64 random(NumberOf(options, run, replica, transfer));
      for (const RandomStream& stream : streams) {
        VPOD_ASSIGN_OR_RETURN(const auto all, session.Stream<uint32_t>(stream.name, replica));
        const size_t elements = all.size() / Transfers(options);
        Draw(stream, random, all.subspan(transfer * elements, elements));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ReadLosses(const BitsOptions& options, uint32_t run, session::Session& session,
                        Bits& bits) {
  for (uint32_t replica = 0; replica < session.device().local_replicas(); ++replica) {
    VPOD_ASSIGN_OR_RETURN(const auto losses, session.Stream<float>("loss", replica));
    for (uint32_t transfer = 0; transfer < losses.size(); ++transfer) {
      bits[absl::StrCat("loss ", NumberOf(options, run, replica, transfer))] =
          session::FloatArray({1}, losses.subspan(transfer, 1));
    }
  }
  return absl::OkStatus();
}

bool BelongsToAReplica(const std::string& variable) {
  return variable.find("running_") != std::string::npos ||
         variable.find("num_batches_tracked") != std::string::npos ||
         variable.rfind("random/", 0) == 0;
}

absl::Status ReadVariable(const BitsOptions& options, const std::string& variable,
                          session::Session& session, Bits& bits) {
  for (uint32_t replica = 0; replica < session.device().local_replicas(); ++replica) {
    VPOD_ASSIGN_OR_RETURN(const auto values, session.ReadFloats(variable, replica));
    session::Array array = session::FloatArray({static_cast<int64_t>(values.size())}, values);
    const std::string name = BelongsToAReplica(variable)
                                 ? absl::StrCat(kOfReplica, options.offset + replica, " ", variable)
                                 : variable;
    const auto [first, is_new] = bits.try_emplace(name, array);
    if (first->second.bytes != array.bytes)
      return absl::InternalError(absl::StrCat("replicas differ in variable ", name));
  }
  return absl::OkStatus();
}

}  // namespace

uint32_t BitsOptions::updates() const { return kRuns * BitsModels().at(model).iterations; }

absl::StatusOr<Bits> TrainForBits(const BitsOptions& options,
                                  std::unique_ptr<session::Device> device) {
  VPOD_ASSIGN_OR_RETURN(const Training training, CompileModel(options));
  VPOD_ASSIGN_OR_RETURN(
      const auto session,
      session::Session::Create(std::move(device), training.compiled, {.sharing = options.sharing}));
  Bits bits;
  for (uint32_t run = 0; run < BitsOptions::kRuns; ++run) {
    VPOD_RETURN_IF_ERROR(FillStreams(options, training.streams, run, *session));
    VPOD_RETURN_IF_ERROR(session->Run("train").status());
    VPOD_RETURN_IF_ERROR(ReadLosses(options, run, *session, bits));
  }
  for (const auto& [name, initial] : training.compiled.initial_values)
    VPOD_RETURN_IF_ERROR(ReadVariable(options, name, *session, bits));
  return bits;
}

}  // namespace vpod::testing
