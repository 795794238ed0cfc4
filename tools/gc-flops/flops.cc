#include "tools/gc-flops/flops.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "device/arch/hardware.h"
#include "device/base/status.h"
#include "tools/device_check/program_builder.h"

namespace vpod::tools {
namespace {

namespace v1 = program::v1;

constexpr uint32_t kRepeats = 4;
constexpr int64_t kRows = 8192;
constexpr int64_t kPanelOutputs = 16;
constexpr int64_t kPanelsAcross = 92, kPanelsDeep = 16;  // one a tile
static_assert(kPanelsAcross * kPanelsDeep == arch::kTilesPerIpu);

// Inputs of a panel.
int64_t Depth(v1::DataType type) { return type == v1::FLOAT16 ? 16 : 8; }

// Powers of two: products and their sums are exact in both types.
constexpr double kLeft = 0.5, kRight = 0.25;

ProgramBuilder BuildProgram(v1::DataType type) {
  const int64_t depth = kPanelsDeep * Depth(type), outputs = kPanelsAcross * kPanelOutputs;
  ProgramBuilder builder;
  const uint32_t left = builder.Tensor({type, {kRows, depth}});
  const uint32_t right = builder.Tensor({type, {depth, outputs}});
  const uint32_t product = builder.Tensor({type, {kRows, outputs}});
  const uint32_t extreme = builder.Tensor({type, {}});
  const uint32_t extremes = builder.Stream("extremes", Direction::kFromDevice, {type, {}}, 2);
  Steps multiply = builder.Function();
  multiply.MatMul(left, right, product);
  builder.Program("multiply").Repeat(kRepeats, multiply);
  Steps prepare = builder.Program("prepare");
  prepare.Fill(left, kLeft);
  prepare.Fill(right, kRight);
  Steps check = builder.Program("check");
  for (const v1::ReduceOperator op : {v1::MIN, v1::MAX}) {
    check.Reduce(op, product, extreme, {0, 1});
    check.StreamOut(extremes, extreme);
  }
  return builder;
}

// Smallest and largest element of the product must be the one value that all elements have.
template <class T>
absl::Status CheckProduct(session::Session& session, T expected) {
  VPOD_RETURN_IF_ERROR(session.Run("check").status());
  for (uint32_t ipu = 0; ipu < session.device().local_replicas(); ++ipu) {
    VPOD_ASSIGN_OR_RETURN(const auto extremes, session.Stream<T>("extremes", ipu));
    if (extremes[0] == expected && extremes[1] == expected) continue;
    return absl::DataLossError(absl::StrCat("IPU ", ipu, " of the device multiplied wrongly"));
  }
  return absl::OkStatus();
}

absl::Status CheckProduct(session::Session& session, v1::DataType type) {
  const double expected = static_cast<double>(kPanelsDeep * Depth(type)) * kLeft * kRight;
  if (type == v1::FLOAT32) return CheckProduct<float>(session, static_cast<float>(expected));
  // 32 = 2^5 in IEEE binary16: exponent 5 + 15, no fraction.
  return CheckProduct<uint16_t>(session, (5 + 15) << 10);
}

}  // namespace

absl::StatusOr<FlopsReport> MeasureFlops(std::unique_ptr<session::Device> device,
                                         v1::DataType type) {
  const ProgramBuilder builder = BuildProgram(type);
  const model::Topology topology = TopologyOf(*device);
  VPOD_ASSIGN_OR_RETURN(const auto compiled, builder.Compile());
  VPOD_ASSIGN_OR_RETURN(const auto session, session::Session::Create(std::move(device), compiled));
  VPOD_RETURN_IF_ERROR(session->Run("prepare").status());
  const WallTimer timer;
  VPOD_ASSIGN_OR_RETURN(const auto cycles, RunCounted(*session, "multiply"));
  FlopsReport report;
  report.wall_seconds = timer.Seconds();
  VPOD_RETURN_IF_ERROR(CheckProduct(*session, type));

  const base::Cycles slowest = *std::max_element(cycles.begin(), cycles.end());
  const model::Cost price = model::PriceProgram(builder.executable(), 0, 0, topology);
  const base::Cycles amp_price = model::AmpPanelCycles(kRows, type) * kRepeats;
  const base::Cycles amp_cycles = slowest - (price.total() - amp_price);
  report.precision = type == v1::FLOAT16 ? "FP16" : "FP32";
  report.clock_hz = topology.clock_hz;
  report.seconds = static_cast<double>(slowest.value()) / topology.clock_hz;
  report.teraflops =
      price.flops * topology.clock_hz / static_cast<double>(amp_cycles.value()) / 1e12;
  report.wall_teraflops = price.flops / report.wall_seconds / 1e12;
  return report;
}

std::string FlopsText(const FlopsReport& report, bool wall) {
  std::string text = absl::StrFormat("Flops per IPU (%s): %g teraFLOPS (took: %g seconds)\n",
                                     report.precision, report.teraflops, report.seconds);
  if (wall) {
    absl::StrAppendFormat(&text, "Host per IPU (%s): %g teraFLOPS (took: %g seconds)\n",
                          report.precision, report.wall_teraflops, report.wall_seconds);
  }
  absl::StrAppendFormat(&text, "IPU clock speed: %.0f MHz\n", report.clock_hz / 1e6);
  return text;
}

Rows FlopsRows(uint32_t device_id, const FlopsReport& report, bool wall) {
  Rows rows = {{"device_id", absl::StrCat(device_id)},
               {"precision", report.precision},
               {"teraflops_per_ipu", AllDigits(report.teraflops)},
               {"duration_seconds", AllDigits(report.seconds)},
               {"ipu_clock_speed_mhz", absl::StrFormat("%.0f", report.clock_hz / 1e6)}};
  if (wall) {
    rows.push_back({"wall_teraflops_per_ipu", AllDigits(report.wall_teraflops)});
    rows.push_back({"wall_duration_seconds", AllDigits(report.wall_seconds)});
  }
  return rows;
}

}  // namespace vpod::tools
