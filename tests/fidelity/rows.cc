#include "tests/fidelity/rows.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/plan/plan.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"
#include "device/arch/hardware.h"
#include "device/base/status.h"
#include "tools/device_check/program_builder.h"
#include "tools/gc-flops/flops.h"
#include "tools/gc-hosttraffictest/traffic.h"
#include "tools/link_test/link_traffic.h"
#include "tools/vpod/arguments.h"

namespace vpod::fidelity {
namespace {

namespace v1 = program::v1;

// Cycles of the program "run" on one IPU.
absl::StatusOr<base::Cycles> Run(const tools::ProgramBuilder& builder) {
  VPOD_ASSIGN_OR_RETURN(auto device, session::CreateIpuModel({.compute_threads = 2}));
  VPOD_ASSIGN_OR_RETURN(const auto compiled, builder.Compile());
  VPOD_ASSIGN_OR_RETURN(const auto session, session::Session::Create(std::move(device), compiled));
  return session->Run("run");
}

// 2.2: [rows,16] x [16,16] on each tile, in place. The measurement has no sync and control.
absl::Status AddAmpCurve(Report& report) {
  report.Head("AMP, cycles of [N,16] x [16,16] in float16 (2.2)");
  const std::pair<int64_t, double> measured[] = {
      {16, 402},   {32, 461},   {64, 584},    {96, 716},    {128, 845},
      {256, 1352}, {512, 2381}, {1024, 4424}, {1536, 6476}, {2048, 8525}};
  for (const auto& [rows, cycles] : measured) {
    tools::ProgramBuilder builder;
    constexpr int64_t kTiles = 1472;
    const uint32_t left = builder.Tensor({v1::FLOAT16, {kTiles, rows, 16}}),
                   right = builder.Tensor({v1::FLOAT16, {kTiles, 16, 16}}),
                   product = builder.Tensor({v1::FLOAT16, {kTiles, rows, 16}});
    builder.Program("run").MatMul(left, right, product, v1::FLOAT16);
    tools::Steps prepare = builder.Program("prepare");
    prepare.Fill(left, 1);
    prepare.Fill(right, 1);
    VPOD_ASSIGN_OR_RETURN(const base::Cycles run, Run(builder));
    report.Check(absl::StrCat("N = ", rows),
                 static_cast<double>(run.value() - arch::kControlCyclesPerStep), cycles, "sets F4");
  }
  return absl::OkStatus();
}

// 3.3: what 24 MiB from the host add.
absl::Status AddStreams(Report& report) {
  report.Head("Streams, cycles (3.3)");
  const auto cycles = [](int64_t mebibytes) -> absl::StatusOr<double> {
    tools::ProgramBuilder builder;
    const program::TensorType type{v1::UINT8, {mebibytes << 20}};
    const uint32_t tensor = builder.Tensor(type);
    const uint32_t stream = builder.Stream("in", tools::Direction::kToDevice, type);
    builder.Program("run").StreamIn(stream, tensor);
    VPOD_ASSIGN_OR_RETURN(const base::Cycles run, Run(builder));
    return static_cast<double>(run.value());
  };
  VPOD_ASSIGN_OR_RETURN(const double less, cycles(24));
  VPOD_ASSIGN_OR_RETURN(const double more, cycles(48));
  report.Check("48 MiB less 24 MiB", more - less, 4628154, "sets F2");
  return absl::OkStatus();
}

// 3.3: two IPUs of a rung, and both sides of the buffers of streams.
absl::Status AddLinks(Report& report) {
  report.Head("Links and host traffic as the tools measure them, Gb/s (3.3)");
  VPOD_ASSIGN_OR_RETURN(auto machine,
                        session::CreateIpuModel({.ipus_per_replica = 4, .compute_threads = 2}));
  VPOD_ASSIGN_OR_RETURN(const tools::LinkTest test,
                        tools::LoadPairTraffic(*machine, 4, 2, 3, {.iterations = 100}));
  VPOD_ASSIGN_OR_RETURN(const tools::LinkTraffic traffic, test(0));
  report.Check("gc-iputraffictest, devices 2 and 3", traffic.gbps(), 423.3, "sets F1");
  VPOD_ASSIGN_OR_RETURN(auto device, session::CreateIpuModel({.compute_threads = 2}));
  VPOD_ASSIGN_OR_RETURN(const tools::HostTrafficReport host,
                        tools::MeasureHostTraffic(std::move(device), {.iterations = 1000}));
  // F2 is taken from three of the tile sides and from the streams above, F23 from host sides.
  struct Sides {
    double host;
    const char* host_remark;
    double tile;
    const char* tile_remark;
  };
  const std::map<std::string, Sides> published = {
      {"host_to_buffer_to_tile", {56.5, "F2", 26.4, "sets F2"}},
      {"host_from_buffer_from_tile", {23.5, "sets F23", 30.0, "sets F2"}},
      {"host_to_buffer_from_tile", {21.8, "sets F23", 24.6, "sets F2"}},
      {"host_from_buffer_to_tile", {40.2, "sets F23", 26.9, "F2"}}};
  for (const tools::HostTraffic& way : host.ways) {
    const Sides& sides = published.at(way.key);
    const std::string what = absl::StrCat("gc-hosttraffictest, 32 tiles, ", way.description);
    report.Check(absl::StrCat(what, ", host side"), way.host_gbps, sides.host, sides.host_remark);
    report.Check(absl::StrCat(what, ", tile side"), way.tile_gbps, sides.tile, sides.tile_remark);
  }
  return absl::OkStatus();
}

// gc-tools.md 7
absl::Status AddTools(Report& report) {
  report.Head("gc-flops on a Bow IPU, teraFLOPS");
  VPOD_ASSIGN_OR_RETURN(auto device,
                        session::CreateIpuModel({.machine_type = "bow2000", .compute_threads = 2}));
  VPOD_ASSIGN_OR_RETURN(const tools::FlopsReport flops,
                        tools::MeasureFlops(std::move(device), v1::FLOAT32));
  report.Add("FP32", flops.teraflops, 87.1078);
  return absl::OkStatus();
}

// The plan that a command line asks for.
absl::StatusOr<plan::Plan> PlanOf(const std::string& words) {
  tools::Arguments arguments;
  std::vector<std::string> command = absl::StrSplit(absl::StrCat("plan ", words), ' ');
  if (tools::ParseArguments(std::move(command), arguments).has_value())
    return absl::InternalError(absl::StrCat("'vpod plan ", words, "' is refused"));
  plan::PlanRequest request = arguments.plan.request;
  request.pod = arguments.plan.systems.pods[0];
  request.machine_type = arguments.plan.systems.machine_types[0];
  return plan::MakePlan(request);
}

// A published rate of a model, and the command that predicts it.
struct Rate {
  const char* what;
  std::string command;  // behind vpod plan
  double items_per_second;
  double items_per_row = 1;
};

absl::Status AddRates(const char* title, const std::vector<Rate>& rates, Report& report) {
  report.Head(title);
  for (const Rate& rate : rates) {
    VPOD_ASSIGN_OR_RETURN(const plan::Plan plan, PlanOf(rate.command));
    report.Add(rate.what, rate.items_per_row * plan.items_per_second, rate.items_per_second);
    report.Command(rate.command, plan.fits.ok());
  }
  return absl::OkStatus();
}

// 8.1, 8.2 and the recipe of 8.4.
absl::Status AddResNet50(Report& report) {
  const std::string recipe =
      "resnet50 --uint8-images --precision 16-half-partials --memory-proportion 0.15 --recompute "
      "pipeline --checkpoints layer1.0,layer1.2,layer2.0,layer2.2,layer3.0,layer3.3 ";
  VPOD_RETURN_IF_ERROR(AddRates(
      "ResNet-50 training, images/s (8.1, 8.2)",
      {
          {"MLPerf v1.0, POD16", recipe + "--micro-batch 20 --accumulation 6 --pod 16", 27636},
          {"MLPerf v1.1, POD16",
           recipe + "--optimizer lars --micro-batch 20 --accumulation 10 --pod 16", 29646},
          {"MLPerf v1.1, POD128",
           recipe + "--optimizer lars --micro-batch 20 --accumulation 2 --pod 128", 185488},
          {"MLPerf v2.0, Bow Pod16",
           recipe + "--optimizer lars --micro-batch 22 --accumulation 10 --pod 16 --machine-type "
                    "bow2000",
           43274},
          {"PyTorch, Bow Pod16",
           recipe + "--micro-batch 16 --accumulation 64 --pod 16 --machine-type bow2000", 37061},
      },
      report));
  report.Head("ResNet-50 training on one IPU, memory in MB (8.3)");
  const std::string command =
      "resnet50 --uint8-images --precision 16-half-partials --micro-batch 6 --accumulation 44 "
      "--pod 4";
  VPOD_ASSIGN_OR_RETURN(const plan::Plan plan, PlanOf(command));
  report.Add("micro-batch 6, as PopTorch's example has it (assumed)",
             static_cast<double>(plan.memory[0].value()) / 1e6, 801);
  report.Command(command, plan.fits.ok());
  return absl::OkStatus();
}

// The published cycles contain those of the weights: `cycles_per_run` and `weight_transfer_cycles`
// of the command with --json. 8.3: two IPUs, whose split is not published, with the recomputation
// that PopTorch pipelines have.
absl::Status AddResNet101(Report& report) {
  struct Row {
    const char* what;
    std::string options;
    double mebibytes, cycles;
  };
  const std::string recipe =
      "resnet101 --pod 4 --replicas 1 --ipus-per-replica 2 --stages layer3.4 --micro-batch 64 "
      "--image-size 64 --classes 10 --recompute pipeline ";
  const Row rows[] = {{"accumulation 3", "--accumulation 3", 4.5, 60111417},
                      {"accumulation 8", "--accumulation 8", 12.0, 95653315},
                      {"accumulation 8, 4 device iterations",
                       "--accumulation 8 --device-iterations 4", 48.0, 283021420},
                      {"the same with images of 8 bits",
                       "--accumulation 8 --device-iterations 4 --uint8-images", 24.0, 278393266}};
  report.Head("ResNet-101 on two pipelined IPUs, 64 x 64 pixels, micro-batch 64 (8.3)");
  for (const Row& row : rows) {
    VPOD_ASSIGN_OR_RETURN(const plan::Plan plan, PlanOf(recipe + row.options));
    const model::Timeline& timeline = plan.timeline();
    report.Add(absl::StrCat("cycles with weights to and from the host, ", row.what),
               static_cast<double>((timeline.end() + plan.weight_transfers).value()), row.cycles);
    report.Exact(absl::StrCat("host to device, MiB, ", row.what),
                 static_cast<double>(timeline.ipus[0].cost.from_host.value()) / (1 << 20),
                 row.mebibytes, "follows from the shapes");
    report.Command(recipe + row.options, plan.fits.ok());
  }
  const auto fits = [&](const char* what, const std::string& options,
                        const char* published) -> absl::Status {
    VPOD_ASSIGN_OR_RETURN(const plan::Plan plan, PlanOf(recipe + options));
    report.Note(what, plan.fits.ok() ? "yes" : "no", published);
    return absl::OkStatus();
  };
  VPOD_RETURN_IF_ERROR(
      fits("precision 32.32 with accumulation 3 fits", "--accumulation 3 --precision 32", "no"));
  return fits("precision 16.16 with accumulation 3 fits", "--accumulation 3", "yes");
}

// As the tutorial of 8.3 finds it, with the networks of client/examples/hands_on.
absl::Status AddSplitResNet50(Report& report) {
  report.Head("ResNet-50 on two IPUs (8.3)");
  const auto rate = [](const std::string& options) -> absl::StatusOr<double> {
    VPOD_ASSIGN_OR_RETURN(const plan::Plan plan,
                          PlanOf("resnet50 --pod 4 --replicas 1 --image-size 64 --classes 10 "
                                 "--micro-batch 8 --accumulation 8" +
                                 options));
    return plan.items_per_second;
  };
  const std::string split = " --ipus-per-replica 2 --stages layer3.0 --schedule ";
  VPOD_ASSIGN_OR_RETURN(const double one, rate(""));
  VPOD_ASSIGN_OR_RETURN(const double sharded, rate(split + "sharded"));
  VPOD_ASSIGN_OR_RETURN(const double pipelined, rate(split + "grouped"));
  report.Note("sharded is slower than one IPU", sharded < one ? "yes" : "no", "yes");
  report.Note("pipelined with accumulation is faster", pipelined > one ? "yes" : "no", "yes");
  return absl::OkStatus();
}

// 8.1, 8.2 and 8.4. The GELU is that of PopART's programs. Sequences are counted as they are before
// packing, two in a row of 512 tokens; 76 tokens of a row are predicted. BERT-Base: 3 IPUs of four
// have 4 layers each (assumed).
absl::Status AddBert(Report& report) {
  const std::string
      recipe = "--precision 16-half-partials --recompute pipeline --optimizer lamb --gelu tanh ",
      large = absl::StrCat("bert-large ", recipe,
                           "--sequence-length 512 --predictions 76 "
                           "--tensor-sharding ");
  return AddRates(
      "BERT training, sequences/s (8.1, 8.2)",
      {{"BERT-Large MLPerf v1.1, POD16",
        large + "--pod 16 --ipus-per-replica 4 --stages 9,13,13,13 --micro-batch 2 --accumulation "
                "192 --memory-proportion 0.23 --attention-dropout 0 --off-chip-optimizer-state",
        1524, 2},
       {"BERT-Large MLPerf v1.1, POD64",
        large + "--pod 64 --ipus-per-replica 8 --stages 3,4,6,7,7,7,7,7 --micro-batch 2 "
                "--accumulation 96 --memory-proportion 0.25 --attention-dropout 0",
        4808, 2},
       {"BERT-Large MLPerf v2.0, Bow Pod16",
        large + "--pod 16 --machine-type bow2000 --ipus-per-replica 8 --stages 2,6,6,6,7,7,7,7 "
                "--micro-batch 3 --accumulation 256 --memory-proportion 1",
        2304, 2},
       {"BERT-Base phase 1, Bow Pod16 (micro-batch assumed)",
        absl::StrCat("bert-base ", recipe,
                     "--pod 16 --machine-type bow2000 --ipus-per-replica 4 --sequence-length 128 "
                     "--predictions 20 --micro-batch 32 --accumulation 512"),
        16391}},
      report);
}

// 8.2 and the recipe of 8.4.
absl::Status AddEfficientNet(Report& report) {
  return AddRates(
      "EfficientNet training, images/s (8.2)",
      {{"EfficientNet-B4 with groups of 16, Bow Pod16",
        "efficientnet-b4-g16 --pod 16 --machine-type bow2000 --ipus-per-replica 4 --stages "
        "features.2.2,features.4.2,features.6.0 --micro-batch 5 --accumulation 40 --image-size 380 "
        "--uint8-images --precision 16-half-partials --recompute pipeline",
        9000}},
      report);
}

// In percent.
double Error(double predicted, double published) {
  return std::abs(100 * (predicted / published - 1));
}

}  // namespace

absl::Status AddRows(Report& report) {
  VPOD_RETURN_IF_ERROR(AddAmpCurve(report));
  VPOD_RETURN_IF_ERROR(AddStreams(report));
  VPOD_RETURN_IF_ERROR(AddLinks(report));
  VPOD_RETURN_IF_ERROR(AddTools(report));
  VPOD_RETURN_IF_ERROR(AddResNet50(report));
  VPOD_RETURN_IF_ERROR(AddResNet101(report));
  VPOD_RETURN_IF_ERROR(AddSplitResNet50(report));
  VPOD_RETURN_IF_ERROR(AddBert(report));
  VPOD_RETURN_IF_ERROR(AddEfficientNet(report));
  return absl::OkStatus();
}

void Report::Print(const std::string& what, double predicted, double published,
                   const char* remark) const {
  if (quiet_) return;
  std::printf("%-76s %14.6g %14.6g %8.1f %%%s%s\n", what.c_str(), predicted, published,
              100 * (predicted / published - 1), *remark == '\0' ? "" : "  ", remark);
}

void Report::Add(const std::string& what, double predicted, double published) {
  Print(what, predicted, published, "");
  errors_[family_].push_back(Error(predicted, published));
}

void Report::Check(const std::string& what, double predicted, double published, const char* why) {
  Print(what, predicted, published, why);
  worst_check_ = std::max(worst_check_, Error(predicted, published));
}

void Report::Exact(const std::string& what, double predicted, double published, const char* why) {
  Print(what, predicted, published, why);
  exact_figures_agree_ = exact_figures_agree_ && predicted == published;
}

void Report::Command(const std::string& words, bool fits) const {
  if (!quiet_) std::printf("    vpod plan %s%s\n", words.c_str(), fits ? "" : "  (does not fit)");
}

void Report::Note(const std::string& what, const std::string& predicted,
                  const std::string& published) {
  notes_agree_ = notes_agree_ && predicted == published;
  if (!quiet_) std::printf("%-76s %14s %14s\n", what.c_str(), predicted.c_str(), published.c_str());
}

void Report::Head(const char* title) {
  family_ = title;
  if (!quiet_) std::printf("\n%-76s %14s %14s %10s\n", title, "predicted", "published", "error");
}

void Report::End() const {
  std::printf("\nMedian without a family of rows\n");
  for (const auto& [left_out, unused] : errors_)
    std::printf("%-76s %5.1f %%\n", left_out.c_str(), Median(AllBut(left_out)));
  std::printf("\nmedian %.1f %%, worst %.1f %%, %zu rows\n", median(), worst(), rows());
}

Report::Errors Report::AllBut(const std::string& left_out) const {
  Errors all;
  for (const auto& [family, errors] : errors_) {
    if (family != left_out) all.insert(all.end(), errors.begin(), errors.end());
  }
  std::sort(all.begin(), all.end());
  return all;
}

double Report::Median(const Errors& sorted) {
  const size_t n = sorted.size();
  return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

}  // namespace vpod::fidelity
