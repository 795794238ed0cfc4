#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "device/arch/device_id.h"
#include "device/arch/hardware.h"
#include "device/base/random_id.h"
#include "device/base/status.h"
#include "server/controller/controller.h"
#include "server/controller/placement.h"

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

// The free positions of a cluster's default allocation, for a request still without size.
PlacementRequest RoomIn(const store::StoredCluster& cluster,
                        const std::map<std::pair<std::string, uint32_t>, std::string>& used) {
  PlacementRequest request;
  request.allocation_id = cluster.id();
  request.ipus_per_ild = static_cast<uint32_t>(cluster.agent_ids_size()) /
                         cluster.num_ipulinkdomains() * arch::kIpusPerMachine;
  for (const std::string& agent : cluster.agent_ids()) {
    for (uint32_t p = 0; p < arch::kIpusPerMachine; ++p) {
      request.free.push_back(!used.contains({agent, arch::IpuNumberOfPosition(p)}));
    }
  }
  return request;
}

}  // namespace

absl::StatusOr<Controller::Partition*> Controller::FindPartition(const std::string& id) {
  const auto it = partitions_.find(id);
  if (it == partitions_.end())
    return absl::NotFoundError(absl::StrCat("Partition ", id, " does not exist."));
  return &it->second;
}

std::map<std::pair<std::string, uint32_t>, std::string> Controller::IpusInUse(
    const std::string& ignored) {
  std::map<std::pair<std::string, uint32_t>, std::string> used;
  for (const auto& [id, partition] : partitions_) {
    if (id == ignored) continue;
    for (const store::StoredIpu& ipu : partition.stored.ipus())
      used[{ipu.agent_id(), ipu.pcie_id()}] = id;
  }
  return used;
}

absl::Status Controller::CompleteRequirements(const store::StoredCluster& cluster,
                                              vipuuser::PartitionRequirements& r) {
  const auto invalid = [](auto... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  const uint32_t size = r.size();
  const uint32_t ild_ipus = static_cast<uint32_t>(cluster.agent_ids_size()) /
                            cluster.num_ipulinkdomains() * arch::kIpusPerMachine;
  if (!arch::IsPowerOfTwo(size)) {
    if (size == 0 || size > (1u << 30))
      return invalid(size, " IPUs requested, give a power of two of 1 or more.");
    return invalid(
        size, " IPUs requested, sizes are powers of two (next: ", arch::NextPowerOfTwo(size), ").");
  }
  const uint32_t ilds = size > ild_ipus ? (size + ild_ipus - 1) / ild_ipus : 1;
  if (r.num_ilds() != 0 && r.num_ilds() != ilds) {
    return invalid(size, " IPUs of cluster ", cluster.id(), " lie in ", ilds, " IPU-Link domains; ",
                   r.num_ilds(), " requested.");
  }
  r.set_num_ilds(ilds);
  if (r.num_gcds() == 0) r.set_num_gcds(ilds);
  if (r.num_gcds() > size || size % r.num_gcds() != 0) {
    return invalid("Number of GCDs must divide the size. ", r.num_gcds(), " GCDs of ", size,
                   " IPUs requested.");
  }
  if (r.num_gcds() < ilds)
    return invalid("A partition over ", ilds, " ILDs needs at least ", ilds, " GCDs.");
  if (r.num_replicas() == 0) r.set_num_replicas(r.num_gcds());
  if (r.num_replicas() % r.num_gcds() != 0) {
    return invalid("Number of replicas must be a multiple of the number of GCDs. ",
                   r.num_replicas(), " replicas, ", r.num_gcds(), " GCDs requested.");
  }
  if (!r.sync_type().empty() && CanonicalSyncType(r.sync_type()).empty()) {
    return invalid("Sync type '", r.sync_type(), "' is none of pod-native-default, c2-compatible.");
  }
  const std::string sync = r.sync_type().empty() ? "" : CanonicalSyncType(r.sync_type());
  if (r.reconfigurable()) {
    if (!sync.empty() && sync != "ST_C2_COMPATIBLE" && !r.has_index()) {
      return invalid("Reconfigurable partitions need sync type c2-compatible.");
    }
    if (ilds > 1) return invalid("Reconfigurable partitions cannot use GW-Links.");
    r.set_sync_type("ST_C2_COMPATIBLE");
  } else {
    r.set_sync_type(sync.empty() ? "ST_POD_NATIVE_DEFAULT" : sync);
  }
  const bool whole_ilds = size % ild_ipus == 0;
  const bool torus = cluster.topology() == "torus";
  std::string routing = CanonicalRouting(r.ipu_link_routing());
  if (routing.empty()) routing = !whole_ilds ? "DNC" : torus ? "RINGSWNC" : "SWNC";
  if (routing != "DNC" && routing != "SWNC" && routing != "RINGSWNC" && routing != "BTNC") {
    return invalid("Routing '", r.ipu_link_routing(), "' is none of dnc, swnc, ringswnc, btnc.");
  }
  if (routing == "RINGSWNC" && !(whole_ilds && torus)) {
    return invalid("Routing RINGSWNC needs whole IPU-Link domains of a torus cluster.");
  }
  r.set_ipu_link_routing(routing);
  const std::string gw = CanonicalRouting(r.gw_link_routing());
  if (!gw.empty() && gw != "DEFAULT" && gw != "RING") {
    return invalid("GW routing '", r.gw_link_routing(), "' is none of default, ring.");
  }
  r.set_gw_link_routing(gw.empty() ? "DEFAULT" : gw);
  r.set_cluster_id(cluster.id());
  r.set_allocation_id(cluster.id());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<store::StoredIpu>> Controller::PlaceIn(
    const store::StoredCluster& cluster, const vipuuser::PartitionRequirements& r,
    const std::string& ignored) {
  PlacementRequest request = RoomIn(cluster, IpusInUse(ignored));
  request.size = r.size();
  request.index = r.has_index() ? static_cast<int64_t>(r.index().index()) : -1;
  VPOD_ASSIGN_OR_RETURN(const uint32_t first, Place(request));
  std::vector<store::StoredIpu> ipus;
  const uint32_t per_gcd = r.size() / r.num_gcds();
  for (uint32_t i = 0; i < r.size(); ++i) {
    const uint32_t position = first + i;
    store::StoredIpu ipu;
    ipu.set_agent_id(cluster.agent_ids(static_cast<int>(position / arch::kIpusPerMachine)));
    ipu.set_pcie_id(arch::IpuNumberOfPosition(position % arch::kIpusPerMachine));
    ipu.set_gcd_id(i / per_gcd);
    ipu.set_routing_id(i % per_gcd);
    ipu.set_ild(position / request.ipus_per_ild);
    ipus.push_back(std::move(ipu));
  }
  return ipus;
}

absl::StatusOr<std::vector<store::StoredIpu>> Controller::Plan(vipuuser::PartitionRequirements& r,
                                                               const std::string& ignored) {
  // Each cluster has its default allocation only, so either name chooses the cluster.
  const std::string wanted = r.allocation_id().empty() ? r.cluster_id() : r.allocation_id();
  if (!wanted.empty() && !clusters_.contains(wanted)) {
    return absl::NotFoundError(absl::StrCat(r.allocation_id().empty() ? "Cluster " : "Allocation ",
                                            wanted, " does not exist."));
  }
  if (clusters_.empty())
    return absl::FailedPreconditionError("There is no cluster; create one first.");
  absl::Status refusal;
  for (const auto& [id, cluster] : clusters_) {
    if (!wanted.empty() && id != wanted) continue;
    vipuuser::PartitionRequirements attempt = r;
    absl::Status status = CompleteRequirements(cluster, attempt);
    if (status.ok()) {
      auto ipus = PlaceIn(cluster, attempt, ignored);
      if (ipus.ok()) {
        r = attempt;
        return ipus;
      }
      status = ipus.status();
    }
    // The most telling refusal: what is wrong with the request comes before what is full.
    if (refusal.ok() || absl::IsInvalidArgument(status)) refusal = status;
  }
  return refusal;
}

absl::StatusOr<std::string> Controller::CreatePartition(
    const vipuuser::CreatePartitionRequest& request, const std::string& user) {
  const std::string& id = request.requirements().id();
  VPOD_RETURN_IF_ERROR(CheckId(id));
  {
    base::MutexLock lock(mutex_);
    const auto existing = partitions_.find(id);
    if (existing != partitions_.end()) {
      if (!request.request_id().empty() &&
          existing->second.stored.request_id() == request.request_id())
        return id;
      return absl::AlreadyExistsError(absl::StrCat("Partition ", id, " already exists."));
    }
    Partition partition;
    *partition.stored.mutable_requirements() = request.requirements();
    VPOD_ASSIGN_OR_RETURN(const auto ipus, Plan(*partition.stored.mutable_requirements(), ""));
    for (const store::StoredIpu& ipu : ipus) *partition.stored.add_ipus() = ipu;
    partition.stored.set_created_by(user);
    partition.stored.set_created_at(std::time(nullptr));
    // A partition of a name used before must not be taken for the old one by a straggler.
    partition.stored.set_generation(
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                  std::chrono::system_clock::now().time_since_epoch())
                                  .count()));
    partition.stored.set_fabric_key(base::RandomId());
    partition.stored.set_request_id(request.request_id());
    partition.stored.set_disable_auto_reset(request.disable_auto_reset());
    partition.stored.set_relocatable(request.relocatable());
    VPOD_RETURN_IF_ERROR(store_->Put("partition", id, partition.stored.SerializeAsString()));
    Partition& stored = partitions_[id] = std::move(partition);
    removed_.erase(id);
    SetPending(stored);
  }
  Reconcile();
  return id;
}

absl::Status Controller::UpdatePartition(const vipuuser::PartitionRequirements& requirements) {
  {
    base::MutexLock lock(mutex_);
    VPOD_ASSIGN_OR_RETURN(Partition * partition, FindPartition(requirements.id()));
    store::StoredPartition next = partition->stored;
    *next.mutable_requirements() = requirements;
    if (requirements.allocation_id().empty() && requirements.cluster_id().empty()) {
      next.mutable_requirements()->set_cluster_id(partition->stored.requirements().cluster_id());
    }
    VPOD_ASSIGN_OR_RETURN(const auto ipus, Plan(*next.mutable_requirements(), requirements.id()));
    next.clear_ipus();
    for (const store::StoredIpu& ipu : ipus) *next.add_ipus() = ipu;
    next.set_generation(next.generation() + 1);
    next.set_fabric_key(base::RandomId());
    VPOD_RETURN_IF_ERROR(store_->Put("partition", requirements.id(), next.SerializeAsString()));
    MarkDirty(EndpointsOf(partition->stored));  // those it leaves must hear of it too
    partition->stored = std::move(next);
    SetPending(*partition);
  }
  Reconcile();
  return absl::OkStatus();
}

absl::Status Controller::ResetPartition(const std::string& id) {
  {
    base::MutexLock lock(mutex_);
    VPOD_ASSIGN_OR_RETURN(Partition * partition, FindPartition(id));
    store::StoredPartition next = partition->stored;
    next.set_generation(next.generation() + 1);
    next.set_fabric_key(base::RandomId());
    VPOD_RETURN_IF_ERROR(store_->Put("partition", id, next.SerializeAsString()));
    partition->stored = std::move(next);
    SetPending(*partition);
  }
  Reconcile();
  return absl::OkStatus();
}

absl::Status Controller::RemovePartition(const std::string& id) {
  {
    base::MutexLock lock(mutex_);
    VPOD_ASSIGN_OR_RETURN(Partition * partition, FindPartition(id));
    VPOD_RETURN_IF_ERROR(store_->Remove("partition", id));
    vipuuser::PartitionStatus status = DescribePartition(*partition, false).status();
    status.set_state(vipuuser::PS_REMOVED);
    removed_[id] = {std::move(status), options_.now()};
    MarkDirty(EndpointsOf(partition->stored));
    partitions_.erase(id);
  }
  Reconcile();
  return absl::OkStatus();
}

std::map<std::string, std::string> Controller::TargetOptions(
    const store::StoredPartition& partition) {
  const vipuuser::PartitionRequirements& r = partition.requirements();
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

vipuuser::PartitionConfig Controller::DescribeGcd(const Partition& partition, uint32_t gcd) {
  const vipuuser::PartitionRequirements& r = partition.stored.requirements();
  vipuuser::PartitionConfig config;
  for (const store::StoredIpu& ipu : partition.stored.ipus()) {
    if (ipu.gcd_id() != gcd) continue;
    vipuuser::IpuofDevice* device = config.add_devices();
    device->set_server_port(11000 + ipu.pcie_id());
    device->set_rdma_port(11100 + ipu.pcie_id());
    device->set_agent_id(ipu.agent_id());
    device->set_ild(ipu.ild());
    device->set_routing_id(ipu.routing_id());
    device->set_pcie_id(ipu.pcie_id());
    const auto agent = agents_.find(ipu.agent_id());
    const Registration* registration =
        agent == agents_.end() ? nullptr : RegistrationOf(agent->second);
    if (registration != nullptr) {
      device->set_ip(registration->machine.data_ip());
      device->set_endpoint(registration->endpoint);
    }
  }
  auto& attributes = *config.mutable_attributes();
  attributes["GCD Id"] = absl::StrCat(gcd);
  attributes["Partition Id"] = r.id();
  attributes["Partition generation"] = absl::StrCat(partition.stored.generation());
  attributes["Number of GCDs"] = absl::StrCat(r.num_gcds());
  attributes["Number of replicas"] = absl::StrCat(r.num_replicas());
  attributes["Reconfigurable"] = r.reconfigurable() ? "true" : "false";
  attributes["Sync type"] = r.sync_type();
  attributes["Routing type"] = r.ipu_link_routing();
  for (const auto& [key, value] : TargetOptions(partition.stored)) attributes[key] = value;
  config.set_fabric_key(partition.stored.fabric_key());
  return config;
}

vipuuser::Partition Controller::DescribePartition(const Partition& partition, bool with_gcds) {
  vipuuser::Partition result;
  *result.mutable_requirements() = partition.stored.requirements();
  vipuuser::PartitionStatus* status = result.mutable_status();
  status->set_state(partition.state);
  status->set_provisioning_state(partition.state == vipuuser::PS_PENDING ? vipuuser::PRS_BUSY
                                                                         : vipuuser::PRS_IDLE);
  status->set_error(partition.state == vipuuser::PS_ERROR
                        ? static_cast<uint32_t>(absl::StatusCode::kAborted)
                        : 0);
  status->set_message(partition.last_error);
  for (const auto& [key, value] : TargetOptions(partition.stored))
    (*status->mutable_target_options())[key] = value;
  status->set_num_ilds(partition.stored.requirements().num_ilds());
  status->set_created_by(partition.stored.created_by());
  status->set_created_at(partition.stored.created_at());
  status->set_generation(partition.stored.generation());
  if (with_gcds) {
    for (uint32_t gcd = 0; gcd < partition.stored.requirements().num_gcds(); ++gcd) {
      *result.add_gcds() = DescribeGcd(partition, gcd);
    }
  }
  return result;
}

std::vector<vipuuser::Partition> Controller::ListPartitions() {
  base::MutexLock lock(mutex_);
  std::vector<vipuuser::Partition> result;
  for (const auto& [id, partition] : partitions_)
    result.push_back(DescribePartition(partition, true));
  return result;
}

absl::StatusOr<vipuuser::Partition> Controller::GetPartition(const std::string& id) {
  base::MutexLock lock(mutex_);
  VPOD_ASSIGN_OR_RETURN(const Partition* partition, FindPartition(id));
  return DescribePartition(*partition, true);
}

absl::StatusOr<vipuuser::PartitionStatus> Controller::GetPartitionStatus(const std::string& id) {
  base::MutexLock lock(mutex_);
  const auto removed = removed_.find(id);
  if (removed != removed_.end()) return removed->second.first;
  VPOD_ASSIGN_OR_RETURN(const Partition* partition, FindPartition(id));
  return DescribePartition(*partition, false).status();
}

absl::StatusOr<vipuuser::PartitionConfig> Controller::GetPartitionConfig(
    const std::string& id, absl::StatusOr<uint32_t> gcd) {
  base::MutexLock lock(mutex_);
  VPOD_ASSIGN_OR_RETURN(const Partition* partition, FindPartition(id));
  const uint32_t gcds = partition->stored.requirements().num_gcds();
  if (!gcd.ok() && gcds > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("Partition has ", gcds, " GCDs; give a GCD id."));
  }
  const uint32_t number = gcd.ok() ? *gcd : 0;
  if (number >= gcds) {
    return absl::InvalidArgumentError(
        absl::StrCat("Partition has ", gcds, " GCDs; GCD ", number, " does not exist."));
  }
  if (partition->state != vipuuser::PS_ACTIVE) {
    return absl::FailedPreconditionError(
        absl::StrCat("Partition ", id, " is not ACTIVE (state ",
                     vipuuser::PartitionState_Name(partition->state).substr(3), ")."));
  }
  return DescribeGcd(*partition, number);
}

absl::StatusOr<uint32_t> Controller::AvailablePartitions(uint32_t size) {
  base::MutexLock lock(mutex_);
  if (!arch::IsPowerOfTwo(size)) return absl::InvalidArgumentError("Size must be a power of two.");
  const auto used = IpusInUse("");
  uint32_t available = 0;
  for (const auto& [id, cluster] : clusters_) {
    PlacementRequest request = RoomIn(cluster, used);
    request.size = size;
    for (auto first = Place(request); first.ok(); first = Place(request)) {
      std::fill_n(request.free.begin() + *first, size, false);
      ++available;
    }
  }
  return available;
}

}  // namespace vpod::controller
