#include "client/vipu/ipuof_config.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/vipu/config.h"
#include "client/vipu/ipuof_json.h"
#include "client/vipu/pod_home.h"
#include "client/vipu/subset.h"
#include "device/base/counted.h"
#include "device/base/file.h"
#include "device/base/id_order.h"
#include "device/base/object_id.h"
#include "device/base/status.h"
#include "device/base/text.h"

namespace vpod::vipu {
namespace {

namespace fs = std::filesystem;

constexpr char kController[] = "Controller";

std::string FileName(const std::string& partition_id, uint32_t gcd, uint32_t num_gcds) {
  return num_gcds == 1 ? absl::StrCat(partition_id, ".conf")
                       : absl::StrCat(partition_id, "_gcd", gcd, ".conf");
}

absl::StatusOr<vipuuser::PartitionConfig> ReadFile(const std::string& path) {
  const auto text = base::ReadNamedFile(path);
  if (!text.ok()) return absl::InvalidArgumentError(text.status().message());
  auto config = ParseIpuofJson(*text);
  if (!config.ok())
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", config.status().message()));
  return config;
}

// By host and port.
using Controllers = std::map<std::string, Client>;

// Why a file does not count: its controller, whom it names, is away or has no such partition any
// more. Empty: it counts.
std::string Obsolete(const vipuuser::PartitionConfig& config, Controllers& controllers) {
  const std::string controller = Attribute(config, kController);
  if (controller.empty()) return "";  // not ours: believed
  const auto parsed = DiscoverConfig({.host = controller});
  if (!parsed.ok()) return "";
  Client& client =
      controllers.try_emplace(controller, *parsed, std::chrono::seconds(3)).first->second;
  const auto status = client.GetPartitionStatus(Attribute(config, "Partition Id"));
  if (absl::IsUnavailable(status.status()) || absl::IsDeadlineExceeded(status.status()))
    return absl::StrCat("its controller ", controller, " does not answer");
  const bool removed =
      absl::IsNotFound(status.status()) || (status.ok() && status->state() == vipuuser::PS_REMOVED);
  return removed ? "its partition was removed" : "";
}

// GCDs of a partition as its controller has them now; negative: all.
absl::StatusOr<std::vector<ActivePartition>> AskFor(const std::string& id, int64_t gcd,
                                                    Client& client) {
  VPOD_ASSIGN_OR_RETURN(const auto status, client.GetPartitionStatus(id));
  const bool releasing = status.state() == vipuuser::PS_RELEASING;
  absl::Status usable;
  if (status.state() == vipuuser::PS_ACTIVE) {
    auto config = client.GetPartitionConfig(id, gcd);
    if (config.ok()) return std::vector{Describe(*std::move(config), client.config().address())};
    // It asks for the number when there are several.
    if (gcd >= 0 || !absl::IsInvalidArgument(config.status())) return config.status();
  } else {
    // Scripts look for these words (spec/vipu.md 12).
    usable = absl::FailedPreconditionError(absl::StrCat(
        "partition is not ACTIVE: ", id, " (state ", vipuuser::PartitionState_Name(status.state()),
        status.message().empty() ? "" : ": ", status.message(), ")"));
    if (status.state() != vipuuser::PS_ERROR && !releasing) return usable;
  }
  VPOD_ASSIGN_OR_RETURN(vipuuser::Partition partition, client.GetPartition(id));
  std::vector<ActivePartition> gcds;
  for (vipuuser::PartitionConfig& config : *partition.mutable_gcds()) {
    ActivePartition described = Describe(std::move(config), client.config().address());
    described.usable = usable;
    described.releasing = releasing;
    if (gcd < 0 || described.gcd == gcd) gcds.push_back(std::move(described));
  }
  usable.Update(absl::NotFoundError(absl::StrCat("Partition ", id, " has no such GCD.")));
  if (gcds.empty()) return usable;
  return gcds;
}

// The IPUs that a file has, in what the controller says of their GCD.
absl::StatusOr<ActivePartition> SameIpus(const ActivePartition& stale, ActivePartition fresh) {
  const Subset subset(stale);
  if (subset.is_whole()) return fresh;
  vipuuser::PartitionConfig whole = fresh.config;
  fresh.config.clear_devices();
  for (vipuuser::IpuofDevice& device : *whole.mutable_devices()) {
    if (subset.NumberOf(device.routing_id()).has_value())
      *fresh.config.add_devices() = std::move(device);
  }
  if (fresh.config.devices_size() == stale.config.devices_size()) return fresh;
  return absl::FailedPreconditionError(absl::StrCat(
      "the IPUoF configuration has ",
      base::Counted(static_cast<uint64_t>(stale.config.devices_size()), "IPU"), ", of which ",
      fresh.config.devices_size(), " are still in partition ", stale.partition_id));
}

// Asks the controller for the present generation, because a file may be of an earlier one.
absl::StatusOr<ActivePartition> Renew(ActivePartition stale) {
  if (stale.controller.empty()) return stale;
  VPOD_ASSIGN_OR_RETURN(ClientConfig config, DiscoverConfig({.host = stale.controller}));
  config.source = stale.file;
  Client client(config, std::chrono::seconds(10));
  auto fresh = AskFor(stale.partition_id, stale.gcd, client);
  // The user of a shared file needs no account at the controller.
  if (absl::IsUnauthenticated(fresh.status()) || absl::IsPermissionDenied(fresh.status()))
    return stale;
  VPOD_RETURN_IF_ERROR(fresh.status());
  return SameIpus(stale, std::move(fresh->front()));
}

// The partition that is chosen; empty: none is.
absl::StatusOr<std::string> ChosenPartition() {
  constexpr char kVariable[] = "IPUOF_VIPU_API_PARTITION_ID";
  std::string id = Environment(kVariable);
  const absl::Status good = id.empty() ? absl::OkStatus() : base::CheckObjectId(id);
  if (good.ok()) return id;
  return absl::InvalidArgumentError(absl::StrCat(kVariable, ": ", good.message()));
}

absl::StatusOr<std::vector<ActivePartition>> FromController() {
  VPOD_ASSIGN_OR_RETURN(std::string id, ChosenPartition());
  VPOD_ASSIGN_OR_RETURN(const ClientConfig config, DiscoverConfig({}));
  uint32_t timeout = 120;
  if (const std::string text = Environment("IPUOF_VIPU_API_TIMEOUT");
      !text.empty() && (!absl::SimpleAtoi(text, &timeout) || timeout < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("IPUOF_VIPU_API_TIMEOUT is '", text,
                                                   "', must be a number of seconds of 1 or more"));
  }
  Client client(config, std::chrono::seconds(timeout));
  if (id.empty()) {
    VPOD_ASSIGN_OR_RETURN(const auto partitions, client.ListPartitions());
    if (partitions.size() != 1) {
      return absl::NotFoundError(absl::StrCat(
          partitions.size(), " partitions are visible; set IPUOF_VIPU_API_PARTITION_ID"));
    }
    id = partitions[0].requirements().id();
  }
  const std::string gcd_text = Environment("IPUOF_VIPU_API_GCD_ID");
  int gcd = -1;
  if (!gcd_text.empty() && (!absl::SimpleAtoi(gcd_text, &gcd) || gcd < 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("IPUOF_VIPU_API_GCD_ID is '", gcd_text, "', must be a number"));
  }
  return AskFor(id, gcd, client);
}

// Sites name their files as they like. Hidden files and copies are not meant: what is written here
// has such a name until it is complete.
bool MayBeConfiguration(const std::string& name) {
  return !absl::StartsWith(name, ".") && !absl::EndsWith(name, "~") &&
         !absl::EndsWith(name, ".new") && !absl::StrContains(name, ".conf.");
}

// Whether a file says by its name that it is one.
bool IsNamedConfiguration(const std::string& path) {
  return absl::EndsWith(path, ".conf") || absl::EndsWith(path, ".config");
}

// Files of a directory, and what speaks against those that do not count.
struct Found {
  std::vector<std::pair<std::string, vipuuser::PartitionConfig>> current;  // by path
  std::string objection;  // the last one; empty: none
};

// The files of partition `id`, or of any partition.
Found LookInto(const std::string& directory, const std::string& id) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    if (MayBeConfiguration(entry.path().filename().string()) && entry.is_regular_file(error))
      paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  Found found;
  Controllers controllers;
  for (const std::string& path : paths) {
    auto config = ReadFile(path);
    if (!config.ok() && !IsNamedConfiguration(path)) continue;
    if (config.ok() && !id.empty() && Attribute(*config, "Partition Id") != id) continue;
    const std::string objection =
        config.ok() ? Obsolete(*config, controllers) : std::string(config.status().message());
    if (objection.empty()) {
      found.current.emplace_back(path, *std::move(config));
      continue;
    }
    const std::string text = config.ok() ? absl::StrCat(path, " skipped: ", objection)
                                         : absl::StrCat("skipped: ", objection);  // names the path
    std::fprintf(stderr, "warning: %s\n", text.c_str());
    // Nobody knows which partition a file is of that cannot be read.
    if (config.ok() || id.empty()) found.objection = text;
  }
  return found;
}

constexpr char kHowToChoose[] =
    "choose one with IPUOF_VIPU_API_PARTITION_ID and IPUOF_VIPU_API_GCD_ID, or name its file with "
    "IPUOF_CONFIG_PATH";

// The GCDs of the only partition that was found.
absl::StatusOr<std::vector<ActivePartition>> Choose(Found found, const std::string& directory) {
  const std::string gcd_text = Environment("IPUOF_VIPU_API_GCD_ID");
  std::set<std::string> partitions, gcds;
  if (!gcd_text.empty()) {
    std::set<std::string, base::IdOrder> known;
    for (const auto& [path, config] : found.current) known.insert(Attribute(config, "GCD Id"));
    std::erase_if(found.current,
                  [&](const auto& item) { return Attribute(item.second, "GCD Id") != gcd_text; });
    if (found.current.empty()) {
      return absl::NotFoundError(
          absl::StrCat("no GCD '", base::Printable(gcd_text, 64), "' in ", directory,
                       ", as IPUOF_VIPU_API_GCD_ID asks; GCDs: ", absl::StrJoin(known, ", ")));
    }
  }
  for (const auto& [path, config] : found.current) {
    partitions.insert(Attribute(config, "Partition Id"));
    gcds.insert(Attribute(config, "GCD Id"));
  }
  if (partitions.size() != 1 || gcds.size() != found.current.size()) {
    return absl::NotFoundError(absl::StrCat(found.current.size(), " IPUoF configurations in ",
                                            directory, "; ", kHowToChoose));
  }
  std::vector<ActivePartition> active;
  for (auto& [path, config] : found.current) {
    VPOD_ASSIGN_OR_RETURN(active.emplace_back(), Renew(Describe(std::move(config))));
    active.back().file = path;
  }
  std::sort(active.begin(), active.end(),
            [](const auto& a, const auto& b) { return a.gcd < b.gcd; });
  return active;
}

// Files of a partition.
std::vector<fs::path> FilesOf(const std::string& partition_id) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(IpuofDirectory(), error)) {
    const std::string name = entry.path().filename().string();
    if (name != partition_id + ".conf" &&
        !(absl::StartsWith(name, partition_id + "_gcd") && absl::EndsWith(name, ".conf")))
      continue;
    if (!entry.is_regular_file(error)) continue;
    // "p1_gcd7.conf" may also be the only file of a partition of that name.
    const auto config = ReadFile(entry.path().string());
    const std::string owner = config.ok() ? Attribute(*config, "Partition Id") : "";
    if (owner.empty() || owner == partition_id) files.push_back(entry.path());
  }
  return files;
}

}  // namespace

std::string IpuofDirectory() {
  if (const std::string named = Environment("IPUOF_CONFIG_DIR"); !named.empty()) return named;
  if (const auto pod = FindChosenPod(); pod.ok() && pod->has_value())
    return absl::StrCat((*pod)->home, "/", kPodIpuofDirectory);
  const std::string home = Environment("HOME");
  return home.empty() ? "" : home + "/.ipuof.conf.d";
}

absl::Status CheckIpuofDirectory() {
  const std::string directory = IpuofDirectory();
  if (directory.empty()) {
    return absl::FailedPreconditionError(
        "there is nowhere to write the IPUoF file: neither IPUOF_CONFIG_DIR nor HOME is set");
  }
  std::error_code error;
  fs::create_directories(directory, error);
  if (fs::is_directory(directory, error) && access(directory.c_str(), W_OK) == 0)
    return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot write to ", directory, ", where the IPUoF file belongs"));
}

absl::Status WriteIpuofFiles(const vipuuser::Partition& partition,
                             const std::string& controller_address) {
  const std::string directory = IpuofDirectory();
  VPOD_RETURN_IF_ERROR(CheckIpuofDirectory());
  std::error_code error;
  const bool shared = partition.requirements().shared();
  std::set<fs::path> current;
  for (uint32_t gcd = 0; gcd < partition.requirements().num_gcds(); ++gcd) {
    vipuuser::PartitionConfig config = partition.gcds(static_cast<int>(gcd));
    (*config.mutable_attributes())[kController] = controller_address;
    // A file that others may read has no key in it: users of the devices get it from the
    // controller.
    if (shared) config.clear_fabric_key();
    const std::string path = absl::StrCat(
        directory, "/",
        FileName(partition.requirements().id(), gcd, partition.requirements().num_gcds()));
    VPOD_RETURN_IF_ERROR(base::ReplaceFile(path, IpuofJson(config), shared ? 0644 : 0600));
    current.insert(path);
  }
  for (const fs::path& file : FilesOf(partition.requirements().id())) {
    if (!current.contains(file)) fs::remove(file, error);
  }
  return absl::OkStatus();
}

void RemoveIpuofFiles(const std::string& partition_id) {
  for (const fs::path& file : FilesOf(partition_id)) {
    std::error_code ignored;
    fs::remove(file, ignored);
  }
}

bool HasIpuofFiles(const std::string& partition_id) { return !FilesOf(partition_id).empty(); }

ActivePartition Describe(vipuuser::PartitionConfig config, const std::string& controller) {
  ActivePartition active;
  active.partition_id = Attribute(config, "Partition Id");
  (void)!absl::SimpleAtoi(Attribute(config, "Partition generation"), &active.generation);
  (void)!absl::SimpleAtoi(Attribute(config, "GCD Id"), &active.gcd);
  if (!absl::SimpleAtoi(Attribute(config, "Number of GCDs"), &active.num_gcds)) active.num_gcds = 1;
  const auto ipus = static_cast<uint32_t>(config.devices_size());
  // Files of other makers do not say. IPUs that begin with the first are taken for all of them.
  if (!absl::SimpleAtoi(Attribute(config, kGcdIpus), &active.gcd_ipus) && ipus > 0)
    active.gcd_ipus = config.devices().rbegin()->routing_id() == ipus - 1 ? ipus : 0;
  active.controller = controller.empty() ? Attribute(config, kController) : controller;
  active.gcd_was_given = !Environment("IPUOF_VIPU_API_GCD_ID").empty();
  active.config = std::move(config);
  return active;
}

// Where files of partitions may be, the preferred one first. A user who has chosen a POD or named
// a directory does not mean the IPUs of another POD. As with controllers, that in ~/.vpod comes
// last.
std::vector<std::string> IpuofDirectories() {
  std::vector<std::string> directories = {IpuofDirectory()};
  if (const auto chosen = FindChosenPod(); chosen.ok() && chosen->has_value()) return directories;
  directories.push_back("/etc/ipuof.conf.d");
  if (!Environment("IPUOF_CONFIG_DIR").empty()) return directories;
  if (const auto pod = HomeOfPod(kDefaultPod); pod.ok())
    directories.push_back(absl::StrCat(*pod, "/", kPodIpuofDirectory));
  return directories;
}

absl::StatusOr<ActivePartition> FindActivePartition() {
  VPOD_ASSIGN_OR_RETURN(ActivePartition partition, FindPartitionToInspect());
  VPOD_RETURN_IF_ERROR(partition.usable);
  return partition;
}

absl::StatusOr<ActivePartition> FindPartitionToInspect() {
  VPOD_ASSIGN_OR_RETURN(std::vector<ActivePartition> gcds, FindGcdsToInspect());
  if (gcds.size() == 1) return std::move(gcds.front());
  VPOD_RETURN_IF_ERROR(gcds.front().usable);
  return absl::NotFoundError(absl::StrCat("partition ", gcds.front().partition_id, " has ",
                                          gcds.size(), " GCDs; ", kHowToChoose));
}

absl::StatusOr<std::vector<ActivePartition>> FindGcdsToInspect() {
  if (!Environment(kOfflineVariable).empty())
    return absl::FailedPreconditionError("no IPUs: started by poprun --offline-mode");
  if (const std::string path = Environment("IPUOF_CONFIG_PATH"); !path.empty()) {
    VPOD_ASSIGN_OR_RETURN(auto config, ReadFile(path));
    ActivePartition active = Describe(std::move(config));
    // A file that others may read has no key.
    if (active.config.fabric_key().empty()) {
      if (auto renewed = Renew(active); renewed.ok()) active = *std::move(renewed);
    }
    active.file = path;
    return std::vector{std::move(active)};
  }
  if (!Environment("IPUOF_VIPU_API_HOST").empty()) return FromController();
  VPOD_RETURN_IF_ERROR(CheckPodEnvironment());
  VPOD_ASSIGN_OR_RETURN(const std::string id, ChosenPartition());
  std::string objection;
  for (const std::string& directory : IpuofDirectories()) {
    Found found = LookInto(directory, id);
    if (!found.current.empty()) return Choose(std::move(found), directory);
    if (objection.empty()) objection = std::move(found.objection);
  }
  if (!objection.empty())
    return absl::NotFoundError(absl::StrCat("no active partition: ", objection));
  // Named, but without a file here: the controller of `vipu` knows it.
  if (!id.empty()) return FromController();
  return absl::NotFoundError(
      "no active partition, set IPUOF_VIPU_API_PARTITION_ID or create one with 'vipu create "
      "partition'");
}

}  // namespace vpod::vipu
