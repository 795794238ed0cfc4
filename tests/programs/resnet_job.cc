// Trains ResNet-18 for twenty updates on the replicas that poprun gave one instance, which may lie
// on several agents, and writes the losses of all micro-batches, one a line.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/compiler/compiler.h"
#include "client/ipuof/ipuof_device.h"
#include "client/models/resnet_training.h"
#include "client/popdist/context.hpp"
#include "client/popdist/job.h"
#include "client/vipu/ipuof_config.h"
#include "device/base/status.h"

namespace vpod::testing {
namespace {

absl::Status Run(program::v1::DataType type, models::ResNetTraining training,
                 const std::string& file_name) {
  if (popdist::getNumInstances() != 1)
    return absl::InvalidArgumentError("all replicas belong to one instance");
  training.replicas = popdist::getNumTotalReplicas();
  VPOD_ASSIGN_OR_RETURN(const auto partition, vipu::FindActivePartition());
  const auto devices = static_cast<uint32_t>(partition.config.devices_size());
  VPOD_ASSIGN_OR_RETURN(
      auto device,
      ipuof::AttachDevice(partition,
                          {popdist::ThisJobMember(training.replicas, training.ipus),
                           static_cast<int>(popdist::getDeviceId(devices, training.ipus))}));
  VPOD_ASSIGN_OR_RETURN(const std::vector<float> losses,
                        models::TrainResNet18(type, training, std::move(device)));
  std::ofstream file(file_name);
  file.precision(9);  // tells all values of float32 apart
  for (const float loss : losses) {
    // As text one NaN is equal to another.
    if (!std::isfinite(loss)) return absl::DataLossError(absl::StrCat("a loss is ", loss));
    file << loss << "\n";
  }
  if (!file.flush()) return absl::InternalError("cannot write the losses");
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const std::map<std::string, compiler::Schedule> schedules(std::begin(compiler::kScheduleNames),
                                                            std::end(compiler::kScheduleNames));
  models::ResNetTraining training;
  std::string precision = "32", schedule = "sharded", losses;
  CLI::App app("Trains ResNet-18 and writes its losses.", "resnet_job");
  app.add_option("--ipus", training.ipus, "IPUs of a replica, each a stage");
  app.add_option("--schedule", schedule)->check(CLI::IsMember(&schedules));
  app.add_option("--precision", precision, "bits of operations and weights")
      ->check(CLI::IsMember({"32", "16"}));
  app.add_option("--accumulation", training.accumulation, "micro-batches of an update");
  app.add_option("--losses", losses, "file for the losses")->required();
  CLI11_PARSE(app, argc, argv);
  training.schedule = schedules.at(schedule);
  absl::Status status;
  try {
    status = Run(precision == "16" ? program::v1::FLOAT16 : program::v1::FLOAT32, training, losses);
  } catch (const popdist::popdist_error& error) {
    status = absl::InternalError(error.what());
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "resnet_job: error: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace vpod::testing

int main(int argc, char** argv) { return vpod::testing::Main(argc, argv); }
