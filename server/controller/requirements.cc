#include "server/controller/requirements.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "device/arch/device_id.h"
#include "device/arch/hardware.h"
#include "device/base/counted.h"
#include "device/base/status.h"

namespace vpod::controller {
namespace {

// "ST_C2_COMPATIBLE" from any accepted spelling; empty when unknown.
std::string CanonicalSyncType(absl::string_view text) {
  std::string name = absl::AsciiStrToUpper(absl::StrReplaceAll(text, {{"-", "_"}}));
  if (name.rfind("ST_", 0) != 0) name = "ST_" + name;
  vipuuser::SyncType type;
  return vipuuser::SyncType_Parse(name, &type) ? name : "";
}

std::string CanonicalRouting(absl::string_view text) {
  return absl::AsciiStrToUpper(absl::StrReplaceAll(text, {{"-", ""}}));
}

template <class... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status CompleteSize(const ClusterFacts& cluster, vipuuser::PartitionRequirements& r) {
  const uint32_t size = r.size();
  if (!arch::IsPowerOfTwo(size)) {
    if (size == 0 || size > arch::kMaxIpusPerPod)
      return Invalid(size, " IPUs requested; use a power of two from 1 to ", arch::kMaxIpusPerPod,
                     ".");
    return Invalid(
        size, " IPUs requested, sizes are powers of two (next: ", arch::NextPowerOfTwo(size), ").");
  }
  const uint32_t ilds = (size - 1) / cluster.ipus_per_ild + 1;
  if (r.num_ilds() != 0 && r.num_ilds() != ilds) {
    return Invalid(base::Counted(size, "IPU"), " of cluster ", cluster.id, " lie in ",
                   base::Counted(ilds, "IPU-Link domain"), "; ", r.num_ilds(), " requested.");
  }
  if (ilds > 1 && !cluster.has_gw_links) {
    return Invalid(size, " IPUs lie in ", ilds,
                   " IPU-Link domains, and no GW-Links join those of "
                   "cluster ",
                   cluster.id, " (at most ", cluster.ipus_per_ild, " IPUs).");
  }
  r.set_num_ilds(ilds);
  return absl::OkStatus();
}

absl::Status CompleteGcds(vipuuser::PartitionRequirements& r) {
  const uint32_t size = r.size(), ilds = r.num_ilds();
  if (r.num_gcds() == 0) r.set_num_gcds(ilds);
  if (r.num_gcds() > size || size % r.num_gcds() != 0) {
    return Invalid("Number of GCDs must divide the size. ", base::Counted(r.num_gcds(), "GCD"),
                   " of ", base::Counted(size, "IPU"), " requested.");
  }
  if (r.num_gcds() < ilds)
    return Invalid("A partition over ", ilds, " ILDs needs at least ", ilds, " GCDs.");
  if (r.num_replicas() == 0) r.set_num_replicas(r.num_gcds());
  if (r.num_replicas() % r.num_gcds() != 0) {
    return Invalid("Number of replicas must be a multiple of the number of GCDs. ",
                   base::Counted(r.num_replicas(), "replica"), ", ",
                   base::Counted(r.num_gcds(), "GCD"), " requested.");
  }
  if (r.num_replicas() > size) {
    return Invalid("A replica needs an IPU; give at most ", base::Counted(size, "replica"), ". ",
                   base::Counted(r.num_replicas(), "replica"), " of ", base::Counted(size, "IPU"),
                   " requested.");
  }
  return absl::OkStatus();
}

absl::Status CompleteSync(vipuuser::PartitionRequirements& r) {
  const std::string sync = r.sync_type().empty() ? "" : CanonicalSyncType(r.sync_type());
  if (!r.sync_type().empty() && sync.empty()) {
    return Invalid("Unknown sync type '", r.sync_type(),
                   "'; use pod-native-default or c2-compatible.");
  }
  if (!r.reconfigurable()) {
    r.set_sync_type(sync.empty() ? "ST_POD_NATIVE_DEFAULT" : sync);
    return absl::OkStatus();
  }
  // Together with --index another type is silently replaced.
  if (!sync.empty() && sync != "ST_C2_COMPATIBLE" && !r.has_index())
    return Invalid("Reconfigurable partitions need sync type c2-compatible.");
  if (r.num_ilds() > 1) return Invalid("Reconfigurable partitions cannot use GW-Links.");
  r.set_sync_type("ST_C2_COMPATIBLE");
  return absl::OkStatus();
}

absl::Status CompleteRouting(const ClusterFacts& cluster, vipuuser::PartitionRequirements& r) {
  const bool whole_ilds = r.size() % cluster.ipus_per_ild == 0;
  std::string routing = CanonicalRouting(r.ipu_link_routing());
  if (routing.empty()) routing = !whole_ilds ? "DNC" : cluster.is_torus ? "RINGSWNC" : "SWNC";
  if (routing != "DNC" && routing != "SWNC" && routing != "RINGSWNC" && routing != "BTNC")
    return Invalid("Unknown routing '", r.ipu_link_routing(),
                   "'; use dnc, swnc, ringswnc or btnc.");
  if (routing == "RINGSWNC" && !(whole_ilds && cluster.is_torus))
    return Invalid("Routing RINGSWNC needs whole IPU-Link domains of a torus cluster.");
  r.set_ipu_link_routing(routing);
  const std::string gw = CanonicalRouting(r.gw_link_routing());
  if (!gw.empty() && gw != "DEFAULT" && gw != "RING")
    return Invalid("Unknown GW routing '", r.gw_link_routing(), "'; use default or ring.");
  // Within one ILD it says nothing.
  if (gw == "RING" && r.num_ilds() > 1 && r.num_ilds() != cluster.looped_ilds)
    return Invalid("GW routing RING needs all IPU-Link domains of a looped cluster.");
  r.set_gw_link_routing(gw.empty() ? "DEFAULT" : gw);
  return absl::OkStatus();
}

}  // namespace

absl::Status CompleteRequirements(const ClusterFacts& cluster, vipuuser::PartitionRequirements& r) {
  VPOD_RETURN_IF_ERROR(CompleteSize(cluster, r));
  VPOD_RETURN_IF_ERROR(CompleteGcds(r));
  VPOD_RETURN_IF_ERROR(CompleteSync(r));
  return CompleteRouting(cluster, r);
}

std::map<std::string, std::string> TargetOptions(const vipuuser::PartitionRequirements& r) {
  const std::string& routing = r.ipu_link_routing();
  return {
      {"ipuLinkDomainSize", absl::StrCat(r.size() / std::max(1u, r.num_ilds()))},
      {"ipuLinkConfiguration", routing == "DNC"    ? "default"
                               : routing == "BTNC" ? "barleyTwist"
                                                   : "slidingWindow"},
      {"ipuLinkTopology", routing == "RINGSWNC" ? "torus" : "mesh"},
      {"gatewayMode", "true"},
      {"instanceSize", absl::StrCat(r.size() / std::max(1u, r.num_gcds()))},
  };
}

std::string StateText(vipuuser::PartitionState state) {
  return vipuuser::PartitionState_Name(state).substr(3);
}

}  // namespace vpod::controller
