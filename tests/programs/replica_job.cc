// A small replicated job that can be made to go wrong: the subject of the fault tests. Each
// instance trains a tiny model; instance 0 prints the loss of every run.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <stdexcept>

#include "client/compiler/compiler.h"
#include "client/ipuof/ipuof_device.h"
#include "client/popdist/backend.hpp"
#include "client/popdist/context.hpp"
#include "client/popdist/job.h"
#include "client/popdist/run.hpp"
#include "client/session/session.h"
#include "client/vipu/ipuof_config.h"
#include "device/base/status.h"

namespace vpod::testing {
namespace {

using program::v1::FLOAT32;

struct Arguments {
  int runs = 20;
  int pause_ms = 0;   // host work between runs
  int instance = -1;  // the one that goes wrong
  int at_run = 5;     // before this run
  uint32_t ipus = 1;  // IPUs of a replica, one layer on each
  uint32_t accumulation = 1;
  bool pipeline = false;  // the IPUs work on different micro-batches
  bool in_step = false;   // by popdist::run
  std::string losses;     // file for the losses
  std::string fault;      // kill, stop, throw, exit, fork, sleep, leave, label, late-label
  // Bad labels in the data fail a run, after which the job goes on.
  bool with_labels() const { return fault == "label" || fault == "late-label"; }
  // Nothing is trained: the labels are read when the replicas have met for the last time.
  bool late() const { return fault == "late-label"; }
};

void GoWrong(const std::string& fault) {
  std::printf("fault %s in pid %d\n", fault.c_str(), getpid());
  std::fflush(stdout);
  if (fault == "kill") raise(SIGKILL);
  if (fault == "stop") raise(SIGSTOP);
  if (fault == "throw") throw std::runtime_error("an exception of the application");
  if (fault == "exit") _exit(3);
  if (fault == "fork" && fork() == 0) {
    // The child holds our sockets open and outlives us.
    close(0), close(1), close(2);
    sleep(30);
    _exit(0);
  }
  if (fault == "fork") raise(SIGKILL);
  if (fault == "sleep") sleep(600);
}

absl::Status Run(const Arguments& arguments) {
  const uint32_t total = popdist::getNumTotalReplicas(), local = popdist::getNumLocalReplicas();
  const bool culprit = arguments.instance == static_cast<int>(popdist::getInstanceIndex());
  graph::Graph graph;
  graph::Tensor x = graph.Input("x", {FLOAT32, {4, 8}});
  for (uint32_t ipu = 0; ipu + 1 < arguments.ipus; ++ipu) {
    std::vector<float> weights(64, 0.01f * static_cast<float>(ipu + 1));
    for (size_t i = 0; i < 8; ++i) weights[i * 9] = 0.9f;
    x = graph.MatMul(x, graph.Variable("w" + std::to_string(ipu), {FLOAT32, {8, 8}}, weights));
    graph.SetIpu(ipu + 1);
  }
  const graph::Tensor w = graph.Variable("w", {FLOAT32, {8, 2}}, std::vector<float>(16, 0.1f));
  graph::Tensor loss = graph.MatMul(x, w);
  {
    const graph::Graph::Scope scope(graph, "loss");
    if (arguments.late()) loss = graph.AllReduce(program::v1::SUM, loss);
    loss = arguments.with_labels()
               ? graph.SoftmaxCrossEntropy(loss, graph.Input("labels", {program::v1::INT32, {4}}))
               : graph.Unary(program::v1::SQUARE, loss);
    loss = graph.Mean(loss);
  }
  if (culprit && arguments.fault == "program") {
    loss = graph.Multiply(loss, graph.Constant({FLOAT32, {}}, 2));
  }
  graph.Output("loss", loss);
  compiler::CompileOptions options;
  options.total_replicas = total;
  options.ipus_per_replica = arguments.ipus;
  if (arguments.pipeline) options.schedule = compiler::Schedule::kGrouped;
  options.programs = {{.name = "train"}};
  if (!arguments.late()) {
    compiler::ProgramSpec& train = options.programs[0];
    train.accumulation = arguments.accumulation;
    train.loss = loss;
    train.optimizer = compiler::SgdOptions{.learning_rate = 0.01f};
  }
  VPOD_ASSIGN_OR_RETURN(const auto compiled, compiler::Compile(graph, options));
  if (culprit && arguments.fault == "absent") {
    sleep(600);
  }
  VPOD_ASSIGN_OR_RETURN(const auto partition, vipu::FindActivePartition());
  ipuof::DeviceOptions device_options{popdist::ThisJobMember(local, arguments.ipus), -1};
  if (popdist::isPopdistEnvSet()) {
    device_options.device_id = static_cast<int>(
        popdist::getDeviceId(static_cast<uint32_t>(partition.config.devices_size())));
  }
  if (culprit && arguments.fault == "offset") {
    device_options.job.set_replica_offset(device_options.job.replica_offset() == 0 ? 1 : 0);
  }
  VPOD_ASSIGN_OR_RETURN(auto device, ipuof::AttachDevice(partition, device_options));
  VPOD_ASSIGN_OR_RETURN(const auto session, session::Session::Create(std::move(device), compiled));
  std::ofstream losses;
  if (!arguments.losses.empty() && popdist::getInstanceIndex() == 0) losses.open(arguments.losses);
  losses.precision(9);
  for (int run = 0; run < arguments.runs; ++run) {
    if (culprit && run == arguments.at_run) {
      if (arguments.fault == "leave") return absl::OkStatus();
      GoWrong(arguments.fault);
    }
    if (arguments.pause_ms > 0) usleep(static_cast<useconds_t>(arguments.pause_ms) * 1000);
    for (uint32_t r = 0; r < local; ++r) {
      VPOD_ASSIGN_OR_RETURN(auto data, session->Stream<float>("x", r));
      for (size_t i = 0; i < data.size(); ++i) {
        data[i] = static_cast<float>((run + i + popdist::getReplicaIndexOffset() + r) % 7) - 3;
      }
    }
    if (arguments.with_labels()) {
      VPOD_ASSIGN_OR_RETURN(auto labels, session->Stream<int32_t>("labels", 0));
      labels[3] = culprit && run == arguments.at_run ? 2 : 1;
    }
    const bool other = culprit && arguments.fault == "other-program" && run == arguments.at_run;
    const absl::Status status =
        (arguments.in_step ? popdist::run(*session, other ? "other" : "train", "of replica_job")
                           : session->Run("train"))
            .status();
    if (absl::IsInvalidArgument(status) && arguments.with_labels()) {
      std::printf("run %d: %s\n", run, std::string(status.message()).c_str());
      continue;
    }
    VPOD_RETURN_IF_ERROR(status);
    if (popdist::getInstanceIndex() == 0) {
      std::printf("run %d loss %.9g\n", run,
                  static_cast<double>((*session->Stream<float>("loss", 0))[0]));
      std::fflush(stdout);
      losses << run;
      const auto all = *session->Stream<float>("loss", 0);
      for (float each : all) losses << " " << each;
      losses << "\n";
    }
  }
  std::printf("instance %u finished\n", popdist::getInstanceIndex());
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("A replicated job that can be made to go wrong.", "replica_job");
  app.add_option("--runs", arguments.runs);
  app.add_option("--pause-ms", arguments.pause_ms);
  app.add_option("--instance", arguments.instance, "instance that goes wrong");
  app.add_option("--at-run", arguments.at_run);
  app.add_flag("--in-step", arguments.in_step, "run by popdist::run");
  app.add_option("--ipus", arguments.ipus, "IPUs of a replica");
  app.add_option("--accumulation", arguments.accumulation, "micro-batches of an update");
  app.add_flag("--pipeline", arguments.pipeline, "each IPU is a stage of a pipeline");
  app.add_option("--losses", arguments.losses, "file to which instance 0 writes its losses too");
  app.add_option("--fault", arguments.fault,
                 "kill, stop, throw, exit, fork, sleep, leave, label, late-label, other-program "
                 "(--in-step); program, "
                 "absent, offset before the first run");
  CLI11_PARSE(app, argc, argv);
  try {
    if (arguments.in_step) {
      popdist::registerDefaultBackend();
      popdist::initializeBackend();
    }
    const absl::Status status = Run(arguments);
    if (status.ok() && arguments.in_step) popdist::finalizeBackend();
    if (status.ok()) return 0;
    std::fprintf(stderr, "replica_job: error: %s\n", std::string(status.message()).c_str());
  } catch (const popdist::popdist_error& error) {
    std::fprintf(stderr, "replica_job: error: %s\n", error.what());
  }
  return 1;
}

}  // namespace
}  // namespace vpod::testing

int main(int argc, char** argv) { return vpod::testing::Main(argc, argv); }
