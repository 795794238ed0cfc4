// gc-gwlinkstraffictest: data over the GW-Links of a partition that spans IPU-Link domains. An
// instance for each GCD exchanges patterns with the others and verifies what came back. Started
// with the configuration of one GCD it is that instance, and the others are started likewise;
// otherwise it is all of them.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <thread>

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

uint32_t IpusPerReplica(const vipu::ActivePartition& gcd) {
  return std::min(static_cast<uint32_t>(gcd.config.devices_size()), kMaxIpusPerProgram);
}

bool HasGwLinks(const std::vector<telemetry::v1::LinkTelemetry>& links) {
  return std::any_of(links.begin(), links.end(),
                     [](const auto& link) { return link.kind() == "GW-Link"; });
}

// Data-plane addresses of the machines whose IPUs send.
void AddMachines(const vipu::ActivePartition& gcd, bool single_ipu,
                 std::set<std::string>& machines) {
  const int step = single_ipu ? static_cast<int>(IpusPerReplica(gcd)) : 1;
  for (int i = 0; i < gcd.config.devices_size(); i += step)
    machines.insert(gcd.config.devices(i).ip());
}

// The GCD that the environment names, or else all GCDs of the active partition.
absl::StatusOr<std::vector<vipu::ActivePartition>> FindGcds() {
  constexpr char kGcd[] = "IPUOF_VIPU_API_GCD_ID";
  std::vector<vipu::ActivePartition> gcds(1);
  const bool named =
      !vipu::Environment("IPUOF_CONFIG_PATH").empty() || !vipu::Environment(kGcd).empty();
  if (!named) setenv(kGcd, "0", 1);
  VPOD_ASSIGN_OR_RETURN(gcds[0], vipu::FindActivePartition());
  if (named) return gcds;
  setenv("IPUOF_VIPU_API_PARTITION_ID", gcds[0].partition_id.c_str(), 1);
  for (uint32_t gcd = 1; gcd < gcds[0].num_gcds; ++gcd) {
    setenv(kGcd, absl::StrCat(gcd).c_str(), 1);
    VPOD_ASSIGN_OR_RETURN(gcds.emplace_back(), vipu::FindActivePartition());
  }
  return gcds;
}

// Attaches to a GCD as the job's instance of its number.
absl::StatusOr<std::unique_ptr<session::Device>> Attach(const vipu::ActivePartition& gcd) {
  const uint32_t per_replica = IpusPerReplica(gcd);
  const uint32_t replicas = static_cast<uint32_t>(gcd.config.devices_size()) / per_replica;
  ipuof::DeviceOptions attach;
  attach.job.set_job_id(absl::StrCat(kTool, "-", gcd.partition_id, "-", gcd.generation));
  attach.job.set_num_instances(gcd.num_gcds);
  attach.job.set_instance_index(gcd.gcd);
  attach.job.set_replica_offset(gcd.gcd * replicas);
  attach.job.set_local_replicas(replicas);
  attach.job.set_total_replicas(gcd.num_gcds * replicas);
  attach.job.set_ipus_per_replica(per_replica);
  return ipuof::AttachDevice(gcd, attach);
}

// Takes the device, so that the other instances learn of a failure at once.
absl::StatusOr<LinkTraffic> RunInstance(const vipu::ActivePartition& gcd,
                                        std::unique_ptr<session::Device> device,
                                        const LinkTrafficOptions& options) {
  VPOD_ASSIGN_OR_RETURN(const LinkTest test,
                        LoadBetweenInstances(*device, IpusPerReplica(gcd), gcd.num_gcds, options));
  return test(/*round=*/0);
}

// Returns the result of all instances together, or the first error.
absl::StatusOr<LinkTraffic> RunInstances(const std::vector<vipu::ActivePartition>& gcds,
                                         const LinkTrafficOptions& options) {
  std::vector<std::unique_ptr<session::Device>> devices;
  for (const vipu::ActivePartition& gcd : gcds) {
    VPOD_ASSIGN_OR_RETURN(devices.emplace_back(), Attach(gcd));
  }
  std::vector<absl::StatusOr<LinkTraffic>> results(gcds.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < gcds.size(); ++i) {
    threads.emplace_back(
        [&, i] { results[i] = RunInstance(gcds[i], std::move(devices[i]), options); });
  }
  for (std::thread& thread : threads) thread.join();
  LinkTraffic all;
  for (const auto& result : results) {
    VPOD_RETURN_IF_ERROR(result.status());
    all.errors += result->errors;
    all.seconds = std::max(all.seconds, result->seconds);
  }
  return all;
}

absl::StatusOr<std::vector<GwLinkResult>> Test(const LinkTrafficOptions& options) {
  VPOD_ASSIGN_OR_RETURN(const auto gcds, FindGcds());
  VPOD_ASSIGN_OR_RETURN(const auto before, LinksOf(gcds[0]));
  if (!HasGwLinks(before) || gcds[0].num_gcds < 2) {
    return absl::FailedPreconditionError(
        absl::StrCat("partition ", gcds[0].partition_id,
                     " has no GW-Links; it needs two IPU-Link domains, a GCD for each, and not to "
                     "be reconfigurable"));
  }
  std::set<std::string> machines;
  for (const vipu::ActivePartition& gcd : gcds) AddMachines(gcd, options.single_ipu, machines);
  VPOD_ASSIGN_OR_RETURN(const LinkTraffic traffic, RunInstances(gcds, options));
  VPOD_ASSIGN_OR_RETURN(const auto after, LinksOf(gcds[0]));
  return GwLinkResults(before, after, machines, traffic);
}

int Main(int argc, char** argv) {
  bool json = false;
  LinkTrafficOptions traffic;
  NumberOption iterations{100};
  po::options_description options("Allowed options");
  options.add_options()("help,h", "help")("version,v", "version")  //
      ("single-ipu", po::bool_switch(&traffic.single_ipu),
       "the first of 16 IPUs of each GCD instead of all")  //
      ("iterations,i", po::value(&iterations)->default_value(iterations),
       "exchanges between the IPUs")  //
      ("json-output,j", po::bool_switch(&json), "JSON");
  po::variables_map values;
  if (const int code = ParseGcOptions(kTool, argc, argv, options, values); code >= 0) return code;
  if (const absl::Status range = CheckRange("iterations", iterations, 1, 1'000'000); !range.ok())
    return UsageError(kTool, std::string(range.message()));
  traffic.iterations = iterations.value;
  const auto links = Test(traffic);
  if (!links.ok()) return GcError(kTool, links.status());
  std::fputs((json ? GwLinksJson(*links) : GwLinksText(*links)).c_str(), stdout);
  return AllPassed(*links) ? 0 : 1;
}

}  // namespace
}  // namespace vpod::tools

int main(int argc, char** argv) { return vpod::tools::Main(argc, argv); }
