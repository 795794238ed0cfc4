// gc-gwlinkstraffictest: data over the GW-Links of a partition that spans IPU-Link domains. Started
// once for each GCD, with the GCD's configuration; the processes exchange patterns between their
// IPUs, and each verifies what came back.
#include <algorithm>
#include <cstdio>
#include <set>

#include "absl/strings/str_cat.h"
#include "client/ipuof/ipuof_device.h"
#include "client/vipu/ipuof_config.h"
#include "device/base/status.h"
#include "tools/gc-gwlinkstraffictest/report.h"
#include "tools/gc_options.h"
#include "tools/link_test/partition_links.h"

namespace vpod::tools {
namespace {

constexpr char kTool[] = "gc-gwlinkstraffictest";
constexpr uint32_t kMaxIpusPerProgram = 16;

struct Options {
  bool json = false;
  LinkTrafficOptions traffic;
};

bool HasGwLinks(const std::vector<telemetry::v1::LinkTelemetry>& links) {
  return std::any_of(links.begin(), links.end(),
                     [](const auto& link) { return link.kind() == "GW-Link"; });
}

// Data-plane addresses of the machines whose IPUs send.
std::set<std::string> MachinesOf(const vipu::ActivePartition& partition, uint32_t per_replica,
                                 bool single_ipu) {
  std::set<std::string> machines;
  const int step = single_ipu ? static_cast<int>(per_replica) : 1;
  for (int i = 0; i < partition.config.devices_size(); i += step)
    machines.insert(partition.config.devices(i).ip());
  return machines;
}

absl::StatusOr<std::vector<GwLinkResult>> Test(const Options& options) {
  VPOD_ASSIGN_OR_RETURN(const auto partition, vipu::FindActivePartition());
  VPOD_ASSIGN_OR_RETURN(const auto before, LinksOf(partition));
  if (!HasGwLinks(before) || partition.num_gcds < 2) {
    return absl::FailedPreconditionError(
        absl::StrCat("partition ", partition.partition_id,
                     " has no GW-Links; it needs two IPU-Link domains, a GCD for each, and not to "
                     "be reconfigurable"));
  }
  const auto gcd_ipus = static_cast<uint32_t>(partition.config.devices_size());
  const uint32_t per_replica = std::min(gcd_ipus, kMaxIpusPerProgram);
  const uint32_t replicas = gcd_ipus / per_replica;
  ipuof::DeviceOptions attach;
  attach.job.set_job_id(
      absl::StrCat(kTool, "-", partition.partition_id, "-", partition.generation));
  attach.job.set_num_instances(partition.num_gcds);
  attach.job.set_instance_index(partition.gcd);
  attach.job.set_replica_offset(partition.gcd * replicas);
  attach.job.set_local_replicas(replicas);
  attach.job.set_total_replicas(partition.num_gcds * replicas);
  attach.job.set_ipus_per_replica(per_replica);
  VPOD_ASSIGN_OR_RETURN(const auto device, ipuof::AttachDevice(partition, attach));
  VPOD_ASSIGN_OR_RETURN(
      const LinkTest test,
      LoadBetweenInstances(*device, per_replica, partition.num_gcds, options.traffic));
  VPOD_ASSIGN_OR_RETURN(const LinkTraffic traffic, test(/*round=*/0));
  VPOD_ASSIGN_OR_RETURN(const auto after, LinksOf(partition));
  return GwLinkResults(before, after,
                       MachinesOf(partition, per_replica, options.traffic.single_ipu), traffic);
}

int Main(int argc, char** argv) {
  Options wanted;
  NumberOption iterations{100};
  po::options_description options("Allowed options");
  options.add_options()("help,h", "help")("version,v", "version")  //
      ("single-ipu", po::bool_switch(&wanted.traffic.single_ipu),
       "the first of 16 IPUs of each GCD instead of all")  //
      ("iterations,i", po::value(&iterations)->default_value(iterations),
       "exchanges between the IPUs")  //
      ("json-output,j", po::bool_switch(&wanted.json), "JSON");
  po::variables_map values;
  if (const int code = ParseGcOptions(kTool, argc, argv, options, values); code >= 0) return code;
  if (const absl::Status range = CheckRange("iterations", iterations, 1, 1'000'000); !range.ok())
    return UsageError(kTool, std::string(range.message()));
  wanted.traffic.iterations = iterations.value;
  const auto links = Test(wanted);
  if (!links.ok()) return GcError(kTool, links.status());
  std::fputs((wanted.json ? GwLinksJson(*links) : GwLinksText(*links)).c_str(), stdout);
  return AllPassed(*links) ? 0 : 1;
}

}  // namespace
}  // namespace vpod::tools

int main(int argc, char** argv) { return vpod::tools::Main(argc, argv); }
