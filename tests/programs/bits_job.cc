// Trains a model of bits_models.h on the IPUs that poprun gave it. Each instance writes its bits,
// as .npz, to the results file with its number behind.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "client/ipuof/ipuof_device.h"
#include "client/popdist/context.hpp"
#include "client/popdist/job.h"
#include "client/vipu/ipuof_config.h"
#include "device/base/status.h"
#include "tests/programs/bits_models.h"
#include "tests/programs/bits_training.h"

namespace vpod::testing {
namespace {

absl::Status Run(BitsOptions options, const std::string& results) {
  options.replicas = popdist::getNumTotalReplicas();
  options.offset = popdist::getReplicaIndexOffset();
  VPOD_ASSIGN_OR_RETURN(const auto partition, vipu::FindActivePartition());
  const auto devices = static_cast<uint32_t>(partition.config.devices_size());
  VPOD_ASSIGN_OR_RETURN(
      auto device,
      ipuof::AttachDevice(partition, {popdist::ThisJobMember(popdist::getNumLocalReplicas(), 1),
                                      static_cast<int>(popdist::getDeviceId(devices))}));
  VPOD_ASSIGN_OR_RETURN(const Bits bits, TrainForBits(options, std::move(device)));
  return session::WriteNpz(absl::StrCat(results, ".", popdist::getInstanceIndex()), bits);
}

int Main(int argc, char** argv) {
  BitsOptions options;
  bool half = false, no_fusion = false, no_sharing = false, stochastic = false;
  std::string results;
  CLI::App app("Trains a model and writes its bits.", "bits_job");
  app.add_option("--model", options.model)->check(CLI::IsMember(&BitsModels()));
  app.add_flag("--half", half, "float16 instead of float32");
  app.add_flag("--no-fusion", no_fusion);
  app.add_flag("--no-sharing", no_sharing);
  app.add_flag("--stochastic-rounding", stochastic);
  app.add_option("--results", results)->required();
  CLI11_PARSE(app, argc, argv);
  if (half) options.type = program::v1::FLOAT16;
  options.fusion = !no_fusion;
  options.sharing = !no_sharing;
  if (stochastic) options.rounding = compiler::Rounding::kStochastic;
  absl::Status status;
  try {
    status = Run(options, results);
  } catch (const popdist::popdist_error& error) {
    status = absl::InternalError(error.what());
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "bits_job: error: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace vpod::testing

int main(int argc, char** argv) { return vpod::testing::Main(argc, argv); }
