#include "tests/fidelity/rows.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/plan/plan.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"
#include "device/base/status.h"
#include "tools/device_check/program_builder.h"
#include "tools/gc-flops/flops.h"
#include "tools/gc-hosttraffictest/traffic.h"
#include "tools/link_test/link_traffic.h"

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
    constexpr double kControl = 50;  // F18
    report.Add(absl::StrCat("N = ", rows), static_cast<double>(run.value()) - kControl, cycles);
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
  report.Add("48 MiB less 24 MiB", more - less, 4628154);
  return absl::OkStatus();
}

// 3.3: two IPUs of a rung, and the tiles' side of streams.
absl::Status AddLinks(Report& report) {
  report.Head("Links and host traffic as the tools measure them, Gb/s (3.3)");
  VPOD_ASSIGN_OR_RETURN(auto machine,
                        session::CreateIpuModel({.ipus_per_replica = 4, .compute_threads = 2}));
  VPOD_ASSIGN_OR_RETURN(const tools::LinkTest test,
                        tools::LoadPairTraffic(*machine, 4, 2, 3, {.iterations = 100}));
  VPOD_ASSIGN_OR_RETURN(const tools::LinkTraffic traffic, test(0));
  report.Add("gc-iputraffictest, devices 2 and 3", traffic.gbps(), 423.3);
  VPOD_ASSIGN_OR_RETURN(auto device, session::CreateIpuModel({.compute_threads = 2}));
  VPOD_ASSIGN_OR_RETURN(const tools::HostTrafficReport host,
                        tools::MeasureHostTraffic(std::move(device), {.iterations = 1000}));
  const std::map<std::string, double> published = {{"host_to_buffer_to_tile", 26.4},
                                                   {"host_from_buffer_from_tile", 30.0},
                                                   {"host_to_buffer_from_tile", 24.6}};
  for (const tools::HostTraffic& way : host.ways) {
    const auto figure = published.find(way.key);
    if (figure == published.end()) continue;
    report.Add(absl::StrCat("gc-hosttraffictest, 32 tiles, ", way.description, ", tile side"),
               way.tile_gbps, figure->second);
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

plan::PlanRequest ResNet50(int64_t micro_batch, uint32_t accumulation, uint32_t pod) {
  plan::PlanRequest request{.network = {.name = "resnet50", .micro_batch = micro_batch},
                            .pod = pod};
  request.network.image_type = v1::UINT8;
  request.accumulation = accumulation;
  request.half_partials = true;
  return request;
}

// 8.1, 8.2 and the recipe of 8.4.
absl::Status AddResNet50(Report& report) {
  struct Row {
    const char* what;
    plan::PlanRequest request;
    double images_per_second;
  };
  std::vector<Row> rows = {{"MLPerf v1.0, POD16", ResNet50(20, 6, 16), 27636},
                           {"MLPerf v1.1, POD16", ResNet50(20, 10, 16), 29646},
                           {"MLPerf v1.1, POD128", ResNet50(20, 2, 128), 185488},
                           {"MLPerf v2.0, Bow Pod16", ResNet50(22, 10, 16), 43274},
                           {"PyTorch, Bow Pod16", ResNet50(16, 64, 16), 37061}};
  for (Row& row : rows) {
    row.request.memory_proportion = 0.15f;
    row.request.recomputation = compiler::Recomputation::kPipeline;
    row.request.network.checkpoints = {"layer1.0", "layer1.2", "layer2.0",
                                       "layer2.2", "layer3.0", "layer3.3"};
  }
  for (size_t i : {1, 2, 3}) rows[i].request.optimizer = compiler::LarsOptions{};
  for (size_t i : {3, 4}) rows[i].request.machine_type = "bow2000";
  report.Head("ResNet-50 training, images/s (8.1, 8.2)");
  for (const Row& row : rows) {
    VPOD_ASSIGN_OR_RETURN(const plan::Plan plan, plan::MakePlan(row.request));
    report.Add(row.what, plan.items_per_second, row.images_per_second);
  }
  report.Head("ResNet-50 training on one IPU, memory in MB (8.3)");
  VPOD_ASSIGN_OR_RETURN(const plan::Plan plan, plan::MakePlan(ResNet50(6, 44, 4)));
  report.Add("micro-batch 6", static_cast<double>(plan.memory[0].value()) / 1e6, 801);
  return absl::OkStatus();
}

// 8.3: two IPUs, whose split is not published, with the recomputation that PopTorch pipelines have.
struct Hands {
  uint32_t accumulation = 3, device_iterations = 1;
  v1::DataType type = v1::FLOAT16, image_type = v1::FLOAT16;
};
absl::StatusOr<plan::Plan> ResNet101(const Hands& hands) {
  plan::PlanRequest request{.network = {.name = "resnet101",
                                        .micro_batch = 64,
                                        .image_size = 64,
                                        .type = hands.type,
                                        .image_type = hands.image_type,
                                        .ipus = 2,
                                        .stages = {"layer3.4"}},
                            .pod = 2,
                            .accumulation = hands.accumulation,
                            .device_iterations = hands.device_iterations,
                            .recomputation = compiler::Recomputation::kPipeline};
  request.network.classes = 10;
  return plan::MakePlan(request);
}

absl::Status AddResNet101(Report& report) {
  struct Row {
    const char* what;
    Hands hands;
    double mebibytes, cycles;
  };
  const Row rows[] = {
      {"accumulation 3", {3, 1}, 4.5, 60111417},
      {"accumulation 8", {8, 1}, 12.0, 95653315},
      {"accumulation 8, 4 device iterations", {8, 4}, 48.0, 283021420},
      {"the same with images of 8 bits", {8, 4, v1::FLOAT16, v1::UINT8}, 24.0, 278393266}};
  report.Head("ResNet-101 on two pipelined IPUs, 64 x 64 pixels, micro-batch 64 (8.3)");
  for (const Row& row : rows) {
    VPOD_ASSIGN_OR_RETURN(const plan::Plan plan, ResNet101(row.hands));
    const model::Timeline& timeline = plan.timeline;
    report.Add(absl::StrCat("host to device, MiB, ", row.what),
               static_cast<double>(timeline.ipus[0].cost.from_host.value()) / (1 << 20),
               row.mebibytes);
    report.Add(absl::StrCat("cycles with weights to and from the host, ", row.what),
               static_cast<double>((timeline.end() + plan.weight_transfers).value()), row.cycles);
  }
  // The parts of these figures.
  VPOD_ASSIGN_OR_RETURN(const plan::Plan three, ResNet101(rows[0].hands));
  VPOD_ASSIGN_OR_RETURN(const plan::Plan eight, ResNet101(rows[1].hands));
  VPOD_ASSIGN_OR_RETURN(const plan::Plan single,
                        ResNet101({.type = v1::FLOAT32, .image_type = v1::FLOAT32}));
  const auto cycles = [](const plan::Plan& plan) {
    return static_cast<double>(plan.timeline.end().value());
  };
  const double each = (cycles(eight) - cycles(three)) / 5;
  report.Add("cycles of a micro-batch", each, 7108380);
  report.Add("cycles of ramps and update", cycles(three) - 3 * each, 5588998);
  report.Add("cycles of weights to and from the host",
             static_cast<double>(three.weight_transfers.value()), 33197280);
  const auto fits = [&](const char* what, const plan::Plan& plan, const char* published) {
    report.Note(what, plan.fits.ok() ? "yes" : "no", published);
  };
  fits("precision 32.32 with accumulation 3 fits", single, "no");
  fits("precision 16.16 with accumulation 3 fits", three, "yes");
  return absl::OkStatus();
}

// 8.1, 8.2 and 8.4. Sequences are counted as they are before packing, two in a row of 512 tokens;
// 76 tokens of a row are predicted. BERT-Base: 3 IPUs of four have 4 layers each (assumed).
absl::Status AddBert(Report& report) {
  struct Row {
    const char* what;
    plan::PlanRequest request;
    double sequences_per_second, sequences_per_row;
  };
  const auto large = [](uint32_t pod, uint32_t ipus, std::vector<std::string> half_layers,
                        int64_t micro_batch, uint32_t accumulation, float proportion) {
    plan::PlanRequest request{.network = {.name = "bert-large",
                                          .micro_batch = micro_batch,
                                          .sequence_length = 512,
                                          .predictions = 76,
                                          .ipus = ipus,
                                          .stages = std::move(half_layers)},
                              .pod = pod,
                              .accumulation = accumulation};
    request.memory_proportion = proportion;
    return request;
  };
  std::vector<Row> rows;
  rows.push_back({"BERT-Large MLPerf v1.1, POD16",
                  large(16, 4, {"9", "13", "13", "13"}, 2, 192, 0.23f), 1524, 2});
  rows.push_back({"BERT-Large MLPerf v1.1, POD64",
                  large(64, 8, {"3", "4", "6", "7", "7", "7", "7", "7"}, 2, 96, 0.25f), 4808, 2});
  rows.push_back({"BERT-Large MLPerf v2.0, Bow Pod16",
                  large(16, 8, {"2", "6", "6", "6", "7", "7", "7", "7"}, 3, 256, 1.0f), 2304, 2});
  for (size_t i : {0, 1}) rows[i].request.network.attention_dropout = 0;
  for (size_t i : {0, 1, 2}) rows[i].request.tensor_sharding = true;
  rows.push_back({"BERT-Base phase 1, Bow Pod16",
                  {.network = {.name = "bert-base",
                               .micro_batch = 32,
                               .sequence_length = 128,
                               .predictions = 20,
                               .ipus = 4},
                   .accumulation = 512},
                  16391,
                  1});
  for (size_t i : {2, 3}) rows[i].request.machine_type = "bow2000";
  rows[0].request.off_chip_optimizer_state = true;
  report.Head("BERT training, sequences/s (8.1, 8.2)");
  for (Row& row : rows) {
    row.request.half_partials = true;
    row.request.recomputation = compiler::Recomputation::kPipeline;
    row.request.optimizer = compiler::LambOptions{};
    VPOD_ASSIGN_OR_RETURN(const plan::Plan plan, plan::MakePlan(row.request));
    report.Add(row.what, row.sequences_per_row * plan.items_per_second, row.sequences_per_second);
  }
  return absl::OkStatus();
}

// 8.2 and the recipe of 8.4.
absl::Status AddEfficientNet(Report& report) {
  plan::PlanRequest request{.network = {.name = "efficientnet-b4-g16",
                                        .micro_batch = 5,
                                        .image_size = 380,
                                        .image_type = v1::UINT8,
                                        .ipus = 4,
                                        .stages = {"features.2.2", "features.4.2", "features.6.0"}},
                            .machine_type = "bow2000",
                            .accumulation = 40};
  request.half_partials = true;
  request.recomputation = compiler::Recomputation::kPipeline;
  report.Head("EfficientNet training, images/s (8.2)");
  VPOD_ASSIGN_OR_RETURN(const plan::Plan plan, plan::MakePlan(request));
  report.Add("EfficientNet-B4 with groups of 16, Bow Pod16", plan.items_per_second, 9000);
  return absl::OkStatus();
}

}  // namespace

absl::Status AddRows(Report& report) {
  VPOD_RETURN_IF_ERROR(AddAmpCurve(report));
  VPOD_RETURN_IF_ERROR(AddStreams(report));
  VPOD_RETURN_IF_ERROR(AddLinks(report));
  VPOD_RETURN_IF_ERROR(AddTools(report));
  VPOD_RETURN_IF_ERROR(AddResNet50(report));
  VPOD_RETURN_IF_ERROR(AddResNet101(report));
  VPOD_RETURN_IF_ERROR(AddBert(report));
  VPOD_RETURN_IF_ERROR(AddEfficientNet(report));
  return absl::OkStatus();
}

void Report::Add(const std::string& what, double predicted, double published) {
  const double error = 100 * (predicted / published - 1);
  if (!quiet_)
    std::printf("%-76s %14.6g %14.6g %8.1f %%\n", what.c_str(), predicted, published, error);
  errors_[family_].push_back(std::abs(error));
}

void Report::Note(const std::string& what, const std::string& predicted,
                  const std::string& published) {
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
  std::printf("\nmedian %.1f %%, worst %.1f %%, %zu rows\n", median(), worst(), AllBut("").size());
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
