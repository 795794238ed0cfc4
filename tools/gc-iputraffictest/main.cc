// gc-iputraffictest: bandwidth and data over the links between IPUs.
#include <algorithm>
#include <csignal>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/ipuof/ipuof_device.h"
#include "client/ipuof/telemetry.h"
#include "client/vipu/ipuof_config.h"
#include "device/arch/device_id.h"
#include "device/base/random_id.h"
#include "device/base/status.h"
#include "tools/gc-iputraffictest/report.h"
#include "tools/gc_options.h"
#include "tools/link_test/partition_links.h"

namespace vpod::tools {
namespace {

constexpr char kTool[] = "gc-iputraffictest";
constexpr uint32_t kMaxIpusPerProgram = 16;
// With --all-links: pairs within two rungs and what replicas exchange take every link.
constexpr uint32_t kIpusOfTwoRungs = 4;

volatile std::sig_atomic_t interrupted = 0;

struct Options {
  DeviceOption device0, device1;
  bool all_links = false, single_ipu = false, loopback = false;
  bool forever = false, json = false, wall = false;
  int verbosity = 0;
  LinkTrafficOptions traffic;
};

// The smallest group of IPUs that the test needs: `count` from `first` on.
absl::StatusOr<arch::IpuRange> GroupOf(const Options& options, uint32_t num_ipus) {
  const uint32_t a = options.device0.id, b = options.device1.id;
  if (options.all_links) return arch::IpuRange{0, num_ipus};
  for (uint32_t id : {a, b}) {
    if (id >= num_ipus) {
      return absl::OutOfRangeError(
          absl::StrCat("device ", id, " is not a single IPU; single IPUs are 0 to ", num_ipus - 1));
    }
  }
  if (options.single_ipu) return arch::IpuRange{a, 1};
  uint32_t size = 2;
  while (a / size != b / size) size *= 2;
  if (size > kMaxIpusPerProgram) {
    return absl::InvalidArgumentError(absl::StrCat("the smallest device with IPUs ", a, " and ", b,
                                                   " has ", size, " IPUs; a program spans ",
                                                   kMaxIpusPerProgram, " at most"));
  }
  return arch::IpuRange{a / size * size, size};
}

absl::StatusOr<LinkTest> Load(session::Device& device, const Options& options,
                              const arch::IpuRange& group, uint32_t per_replica) {
  if (options.all_links)
    return LoadAllLinks(device, per_replica, device.local_replicas(), options.traffic);
  if (options.single_ipu) return LoadOwnTraffic(device, options.traffic);
  return LoadPairTraffic(device, group.count, options.device0.id - group.first,
                         options.device1.id - group.first, options.traffic);
}

// Telemetry of the IPUs that take part.
absl::StatusOr<std::vector<telemetry::v1::IpuTelemetry>> Look(const Options& options) {
  VPOD_ASSIGN_OR_RETURN(const auto partition, ipuof::LookAtActiveGcd());
  std::vector<telemetry::v1::IpuTelemetry> ipus;
  for (const auto& ipu : partition.ipus) {
    if (options.all_links || ipu.routing_id() == options.device0.id ||
        (!options.single_ipu && ipu.routing_id() == options.device1.id))
      ipus.push_back(ipu);
  }
  return ipus;
}

absl::Status Test(const Options& options) {
  VPOD_ASSIGN_OR_RETURN(const auto partition, vipu::FindActivePartition());
  const auto num_ipus = static_cast<uint32_t>(partition.config.devices_size());
  if (num_ipus < 2 && !options.single_ipu) {
    return absl::FailedPreconditionError(
        absl::StrCat("partition ", partition.partition_id, " has one IPU and no links"));
  }
  VPOD_ASSIGN_OR_RETURN(const arch::IpuRange group, GroupOf(options, num_ipus));
  const uint32_t per_replica =
      std::min(group.count, options.all_links ? kIpusOfTwoRungs : kMaxIpusPerProgram);
  ipuof::DeviceOptions attach;
  VPOD_ASSIGN_OR_RETURN(const uint32_t device_id, arch::DeviceOfIpus(num_ipus, group));
  attach.device_id = static_cast<int>(device_id);
  attach.monitoring = true;
  attach.job.set_job_id(base::RandomId());
  attach.job.set_num_instances(1);
  attach.job.set_local_replicas(group.count / per_replica);
  attach.job.set_total_replicas(group.count / per_replica);
  attach.job.set_ipus_per_replica(per_replica);
  VPOD_ASSIGN_OR_RETURN(const auto device, ipuof::AttachDevice(partition, attach));
  if (options.verbosity > 0)
    std::fprintf(stderr, "%s: attached %s\n", kTool, device->name().c_str());
  VPOD_ASSIGN_OR_RETURN(const LinkTest test, Load(*device, options, group, per_replica));
  uint32_t round = 0;
  do {
    IpuTrafficReport report;
    VPOD_ASSIGN_OR_RETURN(const auto before, LinksOf(partition));
    VPOD_ASSIGN_OR_RETURN(report.traffic, test(round++));
    VPOD_ASSIGN_OR_RETURN(const auto after, LinksOf(partition));
    VPOD_ASSIGN_OR_RETURN(report.ipus, Look(options));
    report.wall = options.wall;
    if (!options.all_links) {
      report.device0 = absl::StrCat(options.device0.id);
      if (!options.single_ipu) report.device1 = absl::StrCat(options.device1.id);
    }
    std::fputs((options.json ? IpuTrafficJson(report) : IpuTrafficText(report)).c_str(), stdout);
    if (options.verbosity > 1) {
      for (const auto& ipu : report.ipus)
        std::fprintf(stderr, "%s: IPU %u at %lu cycles\n", kTool, ipu.routing_id(), ipu.cycles());
    }
    std::fflush(stdout);
    if (report.traffic.errors > 0) {
      return absl::DataLossError(absl::StrCat(report.traffic.errors, " words arrived wrong in ",
                                              options.traffic.iterations, " iterations"));
    }
    if (const auto idle = IdleLinks(partition.config, before, after);
        options.all_links && !idle.empty()) {
      return absl::DataLossError(
          absl::StrCat(idle.size(), " links carried nothing: ", absl::StrJoin(idle, ", ")));
    }
  } while (options.forever && !interrupted);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Options wanted;
  NumberOption iterations;
  bool verbose = false, very_verbose = false;
  po::options_description options("Allowed options");
  options.add_options()("help,h", "help")("version", "version")          //
      ("device0", po::value(&wanted.device0), "IPU that sends")          //
      ("device1", po::value(&wanted.device1), "IPU that sends it back")  //
      ("all-links", po::bool_switch(&wanted.all_links),
       "every link of the partition")  //
      ("single-ipu", po::bool_switch(&wanted.single_ipu),
       "within device0, over its exchange")  //
      ("loopback", po::bool_switch(&wanted.loopback),
       "from device0 over its partner back to itself")               //
      ("forever", po::bool_switch(&wanted.forever), "until Ctrl-C")  //
      ("iterations,i", po::value(&iterations),
       "64 KB transfers per tile (1000; with --all-links 100)")  //
      ("high-power", po::bool_switch(&wanted.traffic.high_power),
       "multiply matrices meanwhile (AMP)")                         //
      ("verbose,v", po::bool_switch(&verbose), "say what is done")  //
      ("very-verbose", po::bool_switch(&very_verbose), "say more")  //
      ("json-output,j", po::bool_switch(&wanted.json), "JSON")      //
      ("wall", po::bool_switch(&wanted.wall), "figures of the emulating host too");
  po::variables_map values;
  if (const int code = ParseGcOptions(kTool, argc, argv, options, values); code >= 0) return code;
  if (values.count("iterations") == 0) iterations.value = wanted.all_links ? 100 : 1000;
  if (const absl::Status range = CheckRange("iterations", iterations, 1, 1'000'000); !range.ok())
    return UsageError(kTool, std::string(range.message()));
  wanted.traffic.iterations = iterations.value;
  wanted.verbosity = very_verbose ? 2 : verbose ? 1 : 0;
  const bool has0 = values.count("device0") > 0, has1 = values.count("device1") > 0;
  const int modes = wanted.all_links + wanted.single_ipu + wanted.loopback + has1;
  if (modes != 1 || has0 == wanted.all_links)
    return UsageError(kTool,
                      "give --device0 with one of --device1, --single-ipu, --loopback; or "
                      "--all-links alone");
  if (wanted.forever && wanted.json) return UsageError(kTool, "--forever has no JSON output");
  if (wanted.loopback) wanted.device1.id = wanted.device0.id ^ 1;
  if (wanted.single_ipu) wanted.device1.id = wanted.device0.id;
  if (has1 && wanted.device0.id == wanted.device1.id)
    return UsageError(kTool, "--device0 and --device1 must differ");
  if (wanted.forever) std::signal(SIGINT, [](int) { interrupted = 1; });
  const absl::Status status = Test(wanted);
  return status.ok() ? 0 : GcError(kTool, status);
}

}  // namespace
}  // namespace vpod::tools

int main(int argc, char** argv) { return vpod::tools::Main(argc, argv); }
