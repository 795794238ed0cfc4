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
// Rows, channels and outputs of the product on a tile: large enough that little else takes time.
constexpr int64_t kRows = 1024, kChannels = 32, kOutputs = 32;

// Powers of two: products and their sums are exact in both types.
constexpr double kLeft = 0.5, kRight = 0.25;

// The same bytes in both types.
int64_t RowsOf(v1::DataType type) { return type == v1::FLOAT16 ? kRows : kRows / 2; }

ProgramBuilder BuildProgram(v1::DataType type) {
  constexpr auto kTiles = int64_t{arch::kTilesPerIpu};
  const int64_t rows = RowsOf(type);
  ProgramBuilder builder;
  const uint32_t left = builder.Tensor({type, {kTiles, rows, kChannels}});
  const uint32_t right = builder.Tensor({type, {kTiles, kChannels, kOutputs}});
  const uint32_t product = builder.Tensor({type, {kTiles, rows, kOutputs}});
  const uint32_t extreme = builder.Tensor({type, {}});
  const uint32_t extremes = builder.Stream("extremes", Direction::kFromDevice, {type, {}}, 2);
  Steps multiply = builder.Function();
  multiply.MatMul(left, right, product, type);
  builder.Program("multiply").Repeat(kRepeats, multiply);
  Steps prepare = builder.Program("prepare");
  prepare.Fill(left, kLeft);
  prepare.Fill(right, kRight);
  Steps check = builder.Program("check");
  for (const v1::ReduceOperator op : {v1::MIN, v1::MAX}) {
    check.Reduce(op, product, extreme, {0, 1, 2});
    check.StreamOut(extremes, extreme);
  }
  return builder;
}

double Operations(v1::DataType type) {
  return 2.0 * kRepeats * arch::kTilesPerIpu *
         static_cast<double>(RowsOf(type) * kChannels * kOutputs);
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
  static_assert(kChannels * kLeft * kRight == 4);
  if (type == v1::FLOAT32) return CheckProduct<float>(session, 4);
  // 4 = 2^2 in IEEE binary16: exponent 2 + 15, no fraction.
  return CheckProduct<uint16_t>(session, (2 + 15) << 10);
}

}  // namespace

absl::StatusOr<FlopsReport> MeasureFlops(std::unique_ptr<session::Device> device,
                                         v1::DataType type) {
  const double clock_hz = TopologyOf(*device).clock_hz;
  VPOD_ASSIGN_OR_RETURN(const auto compiled, BuildProgram(type).Compile());
  VPOD_ASSIGN_OR_RETURN(const auto session, session::Session::Create(std::move(device), compiled));
  VPOD_RETURN_IF_ERROR(session->Run("prepare").status());
  const WallTimer timer;
  VPOD_ASSIGN_OR_RETURN(const auto cycles, RunCounted(*session, "multiply"));
  FlopsReport report;
  report.wall_seconds = timer.Seconds();
  VPOD_RETURN_IF_ERROR(CheckProduct(*session, type));

  const base::Cycles slowest = *std::max_element(cycles.begin(), cycles.end());
  report.precision = type == v1::FLOAT16 ? "FP16" : "FP32";
  report.clock_hz = clock_hz;
  report.seconds = static_cast<double>(slowest.value()) / clock_hz;
  report.teraflops = Operations(type) / report.seconds / 1e12;
  report.wall_teraflops = Operations(type) / report.wall_seconds / 1e12;
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
