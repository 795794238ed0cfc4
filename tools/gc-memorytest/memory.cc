#include "tools/gc-memorytest/memory.h"

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "tools/device_check/program_builder.h"

namespace vpod::tools {
namespace {

namespace v1 = program::v1;

constexpr uint32_t kWords = kMemoryElementBytes / sizeof(uint32_t);  // of an element
constexpr uint32_t kTileShift = 18;  // a tile has fewer than 2^18 words
static_assert(kTestableElements * kWords <= 1u << kTileShift);

std::string Write(uint32_t element) { return absl::StrCat("write ", element); }
std::string Read(uint32_t element) { return absl::StrCat("read ", element); }

// A tensor is one memory element of every tile: a row a tile.
ProgramBuilder BuildProgram(uint32_t elements) {
  const program::TensorType type{v1::UINT32, {arch::kTilesPerIpu, kWords}};
  ProgramBuilder builder;
  const uint32_t in = builder.Stream("in", Direction::kToDevice, type);
  const uint32_t out = builder.Stream("out", Direction::kFromDevice, type);
  for (uint32_t element = 0; element < elements; ++element) {
    const uint32_t tensor = builder.Tensor(type);
    builder.Program(Write(element)).StreamIn(in, tensor);
    builder.Program(Read(element)).StreamOut(out, tensor);
  }
  return builder;
}

// The words of an element: unlike all others of the IPU, flipped by `mask`.
class Pattern {
 public:
  Pattern(uint32_t element, uint32_t mask) : first_(element * kWords), mask_(mask) {}
  uint32_t At(uint32_t tile, uint32_t word) const {
    return (tile << kTileShift | (first_ + word)) ^ mask_;
  }

 private:
  const uint32_t first_, mask_;
};

absl::StatusOr<base::Cycles> WriteElement(session::Session& session, uint32_t element,
                                          uint32_t mask) {
  const Pattern pattern(element, mask);
  VPOD_ASSIGN_OR_RETURN(const auto words, session.Stream<uint32_t>("in", 0));
  for (uint32_t tile = 0; tile < arch::kTilesPerIpu; ++tile) {
    uint32_t* row = words.data() + size_t{tile} * kWords;
    for (uint32_t word = 0; word < kWords; ++word) row[word] = pattern.At(tile, word);
  }
  return session.Run(Write(element));
}

absl::StatusOr<base::Cycles> ReadElement(session::Session& session, uint32_t element, uint32_t mask,
                                         std::optional<TileFault>& fault) {
  const Pattern pattern(element, mask);
  VPOD_ASSIGN_OR_RETURN(const base::Cycles cycles, session.Run(Read(element)));
  VPOD_ASSIGN_OR_RETURN(const auto words, session.Stream<uint32_t>("out", 0));
  for (uint32_t tile = 0; tile < arch::kTilesPerIpu && !fault.has_value(); ++tile) {
    const uint32_t* row = words.data() + size_t{tile} * kWords;
    for (uint32_t word = 0; word < kWords; ++word) {
      const uint32_t expected = pattern.At(tile, word);
      if (row[word] == expected) continue;
      const uint32_t address = kFirstDataAddress + element * kMemoryElementBytes + word * 4;
      fault = TileFault{0, tile, address, expected, row[word]};
      break;
    }
  }
  return cycles;
}

}  // namespace

absl::StatusOr<TileTestReport> TestMemory(std::unique_ptr<session::Device> device, uint32_t ipu,
                                          uint32_t elements) {
  const double clock_hz = device->clock_hz();
  VPOD_ASSIGN_OR_RETURN(const auto compiled, BuildProgram(elements).Compile());
  VPOD_ASSIGN_OR_RETURN(const auto session, session::Session::Create(std::move(device), compiled));
  TileTestReport report;
  base::Cycles cycles;
  const WallTimer timer;
  for (const uint32_t mask : {0u, ~0u}) {
    for (uint32_t element = 0; element < elements; ++element) {
      VPOD_ASSIGN_OR_RETURN(const base::Cycles run, WriteElement(*session, element, mask));
      cycles += run;
    }
    for (uint32_t element = 0; element < elements && !report.fault.has_value(); ++element) {
      VPOD_ASSIGN_OR_RETURN(const base::Cycles run,
                            ReadElement(*session, element, mask, report.fault));
      cycles += run;
    }
    if (report.fault.has_value()) break;
  }
  if (report.fault.has_value()) report.fault->ipu = ipu;
  report.seconds = static_cast<double>(cycles.value()) / clock_hz;
  report.wall_seconds = timer.Seconds();
  return report;
}

}  // namespace vpod::tools
