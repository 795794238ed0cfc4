#include "tools/gc-hosttraffictest/traffic.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "device/arch/hardware.h"
#include "device/base/status.h"
#include "tools/device_check/program_builder.h"

namespace vpod::tools {
namespace {

namespace v1 = program::v1;
using Json = nlohmann::ordered_json;

constexpr uint32_t kWordsPerTile = kTransferBlocks * 64 / sizeof(uint32_t);
constexpr uint32_t kIterationsPerTransfer = 125;
constexpr uint32_t kTransfersPerRun = 4;

// Which way data go on each side of the buffer.
struct Way {
  const char* key;
  const char* description;
  bool host_reads, tiles_read;
};
constexpr Way kWays[] = {
    {"host_from_buffer_from_tile", "host <- buffer <- tile", true, false},
    {"host_to_buffer_to_tile", "host -> buffer -> tile", false, true},
    {"host_to_buffer_from_tile", "host -> buffer <- tile", false, false},
    {"host_from_buffer_to_tile", "host <- buffer -> tile", true, true},
};

// Each transfer has a tensor of its own on the IPU, so that what the tiles hold can be compared.
ProgramBuilder BuildProgram(uint32_t tiles, uint32_t transfers) {
  const program::TensorType type{v1::UINT32, {kIterationsPerTransfer, tiles, kWordsPerTile}};
  ProgramBuilder builder;
  const uint32_t in = builder.Stream("to tiles", Direction::kToDevice, type, transfers, tiles);
  const uint32_t out = builder.Stream("from tiles", Direction::kFromDevice, type, transfers, tiles);
  Steps read = builder.Program("tiles read"), write = builder.Program("tiles write");
  for (uint32_t i = 0; i < transfers; ++i) {
    const uint32_t tensor = builder.Tensor(type);
    read.StreamIn(in, tensor);
    write.StreamOut(out, tensor);
  }
  return builder;
}

// The host's side of the buffers of all IPUs together, in a machine no more than its port carries.
double HostBytesPerSecond(const Way& way, uint32_t num_ipus) {
  double of_ipu = way.host_reads ? arch::kHostReadBytesPerSecond : arch::kHostBytesPerSecond;
  if (!way.tiles_read) of_ipu = std::min(of_ipu, arch::kHostBytesPerSecondBesideWrites);
  const uint32_t machines = (num_ipus + arch::kIpusPerMachine - 1) / arch::kIpusPerMachine;
  return std::min(num_ipus * of_ipu, machines * arch::kHostPortBytesPerSecond);
}

class Measurement {
 public:
  Measurement(std::unique_ptr<session::Session> session, uint32_t runs)
      : session_(std::move(session)),
        num_ipus_(session_->device().local_replicas()),
        clock_hz_(session_->device().clock_hz()),
        runs_(runs) {}

  // Host data of `words` words that differ from those of any other seed.
  void MakeData(size_t words, uint32_t seed) {
    data_.resize(words);
    for (size_t i = 0; i < words; ++i)
      data_[i] = static_cast<uint32_t>(i) * 2654435761u + seed * 0x9e3779b9u;
  }

  absl::Status HostWrites() {
    for (uint32_t ipu = 0; ipu < num_ipus_; ++ipu) {
      VPOD_ASSIGN_OR_RETURN(const auto buffer, session_->Stream<uint32_t>("to tiles", ipu));
      std::memcpy(buffer.data(), data_.data(), data_.size() * sizeof(uint32_t));
    }
    return absl::OkStatus();
  }

  absl::Status HostReads() {
    for (uint32_t ipu = 0; ipu < num_ipus_; ++ipu) {
      VPOD_ASSIGN_OR_RETURN(const auto buffer, session_->Stream<uint32_t>("from tiles", ipu));
      if (std::equal(buffer.begin(), buffer.end(), data_.begin(), data_.end())) continue;
      return absl::DataLossError(
          absl::StrCat("data that IPU ", ipu, " of the device sent came back wrong"));
    }
    return absl::OkStatus();
  }

  // Sends data from the host to the tiles and back.
  absl::Status RoundTrip() {
    VPOD_RETURN_IF_ERROR(HostWrites());
    VPOD_RETURN_IF_ERROR(session_->Run("tiles read").status());
    VPOD_RETURN_IF_ERROR(session_->Run("tiles write").status());
    return HostReads();
  }

  absl::StatusOr<HostTraffic> Measure(const Way& way) {
    HostTraffic traffic{.key = way.key, .description = way.description};
    base::Cycles cycles;
    for (uint32_t run = 0; run < runs_; ++run) {
      const bool host_first = !way.host_reads;
      if (host_first) VPOD_RETURN_IF_ERROR(HostSide(way, traffic));
      const WallTimer timer;
      VPOD_ASSIGN_OR_RETURN(const base::Cycles run_cycles,
                            session_->Run(way.tiles_read ? "tiles read" : "tiles write"));
      traffic.wall_tile_seconds += timer.Seconds();
      cycles += run_cycles;
      if (!host_first) VPOD_RETURN_IF_ERROR(HostSide(way, traffic));
    }
    // Data that the host read was compared above; data that it or the tiles wrote is compared now.
    VPOD_RETURN_IF_ERROR(RoundTrip());
    Model(way, cycles, traffic);
    return traffic;
  }

 private:
  absl::Status HostSide(const Way& way, HostTraffic& traffic) {
    const WallTimer timer;
    VPOD_RETURN_IF_ERROR(way.host_reads ? HostReads() : HostWrites());
    traffic.wall_host_seconds += timer.Seconds();
    return absl::OkStatus();
  }

  void Model(const Way& way, base::Cycles cycles, HostTraffic& traffic) const {
    const uint64_t bytes = uint64_t{runs_} * num_ipus_ * data_.size() * sizeof(uint32_t);
    const double host_seconds = static_cast<double>(bytes) / HostBytesPerSecond(way, num_ipus_);
    const double tile_seconds = static_cast<double>(cycles.value()) / clock_hz_;
    traffic.host_bytes = traffic.tile_bytes = bytes;
    traffic.seconds = std::max(host_seconds, tile_seconds);
    traffic.host_gbps = static_cast<double>(bytes) * 8e-9 / host_seconds;
    traffic.tile_gbps = static_cast<double>(bytes) * 8e-9 / tile_seconds;
  }

  const std::unique_ptr<session::Session> session_;
  const uint32_t num_ipus_;
  const double clock_hz_;
  const uint32_t runs_;
  std::vector<uint32_t> data_;
};

Rows ConfigurationRows(const HostTrafficReport& report) {
  return {{"number_of_ipus", absl::StrCat(report.num_ipus)},
          {"tile_transfers_enabled", "true"},
          {"tiles_per_ipu", absl::StrCat(report.options.tiles_per_ipu)},
          {"transfer_size_64byte_blocks", absl::StrCat(kTransferBlocks)},
          {"iterations", absl::StrCat(report.options.iterations)},
          {"host_transfers_enabled", "true"}};
}

Rows TrafficRows(const HostTraffic& traffic, bool wall) {
  Rows rows = {{"description", traffic.description},
               {"duration_seconds", AllDigits(traffic.seconds)},
               {"host_data_transferred_bytes", absl::StrCat(traffic.host_bytes)},
               {"tile_data_transferred_bytes", absl::StrCat(traffic.tile_bytes)},
               {"host_transfer_speed_gbps", AllDigits(traffic.host_gbps)},
               {"tile_transfer_speed_gbps", AllDigits(traffic.tile_gbps)}};
  if (wall) {
    rows.push_back({"wall_host_seconds", AllDigits(traffic.wall_host_seconds)});
    rows.push_back({"wall_tile_seconds", AllDigits(traffic.wall_tile_seconds)});
  }
  return rows;
}

Json ObjectOf(const Rows& rows) {
  Json json;
  for (const auto& [key, value] : rows) json[key] = value;
  return json;
}

}  // namespace

absl::StatusOr<HostTrafficReport> MeasureHostTraffic(std::unique_ptr<session::Device> device,
                                                     const HostTrafficOptions& options) {
  const uint32_t transfers =
      (options.iterations + kIterationsPerTransfer - 1) / kIterationsPerTransfer;
  const uint32_t per_run = std::min(transfers, kTransfersPerRun);
  const uint32_t runs = (transfers + per_run - 1) / per_run;
  const size_t words_per_run =
      size_t{per_run} * kIterationsPerTransfer * options.tiles_per_ipu * kWordsPerTile;

  HostTrafficReport report{.options = options, .num_ipus = device->local_replicas()};
  report.options.iterations = runs * per_run * kIterationsPerTransfer;
  VPOD_ASSIGN_OR_RETURN(const auto compiled,
                        BuildProgram(options.tiles_per_ipu, per_run).Compile());
  VPOD_ASSIGN_OR_RETURN(auto session, session::Session::Create(std::move(device), compiled));
  Measurement measurement(std::move(session), runs);
  uint32_t seed = 0;
  for (const Way& way : kWays) {
    measurement.MakeData(words_per_run, ++seed);
    VPOD_RETURN_IF_ERROR(measurement.RoundTrip());
    VPOD_ASSIGN_OR_RETURN(HostTraffic traffic, measurement.Measure(way));
    report.ways.push_back(std::move(traffic));
  }
  return report;
}

std::string HostTrafficText(const HostTrafficReport& report, bool wall) {
  std::string text;
  for (const auto& [key, value] : ConfigurationRows(report))
    absl::StrAppend(&text, key, ": ", value, "\n");
  for (const HostTraffic& traffic : report.ways) {
    const Rows rows = TrafficRows(traffic, wall);
    absl::StrAppend(&text, rows[0].second, "\n");
    for (size_t i = 1; i < rows.size(); ++i)
      absl::StrAppend(&text, "  ", rows[i].first, ": ", rows[i].second, "\n");
  }
  return text;
}

std::string HostTrafficJson(const HostTrafficReport& report, bool wall) {
  Json json;
  json["configuration"] = ObjectOf(ConfigurationRows(report));
  for (const HostTraffic& traffic : report.ways)
    json["repeat_0"][traffic.key] = ObjectOf(TrafficRows(traffic, wall));
  return json.dump(1) + "\n";
}

}  // namespace vpod::tools
