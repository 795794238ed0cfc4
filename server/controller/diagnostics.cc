// Calls of administrators to find faults, and to bring them about.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "server/controller/controller.h"
#include "server/controller/test_cluster.h"

namespace vpod::controller {
namespace {

bool IsOfIpu(vipuagent::Fault fault) {
  return fault == vipuagent::IPU_ERROR || fault == vipuagent::OVER_TEMPERATURE ||
         fault == vipuagent::MEMORY_PARITY;
}

// "injected LINK_DOWN on IPU3.NLC_E_0A", "injected IPU_ERROR IPUSOFTERR on IPU 2 of partition p1".
// `partition` has the IPU; null: none.
std::string FaultText(const vipuagent::InjectRequest& fault, const Partition* partition) {
  std::string place = !fault.link().empty() ? absl::StrCat(" on ", fault.link()) : "";
  if (fault.fault() == vipuagent::FAULT_NONE) return absl::StrCat("faults cleared", place);
  if (IsOfIpu(fault.fault())) {
    const bool has_name = fault.fault() == vipuagent::IPU_ERROR;
    place =
        absl::StrCat(has_name ? absl::StrCat(" ", fault.error()) : "", " on IPU ", fault.pcie_id(),
                     partition == nullptr ? "" : absl::StrCat(" of partition ", partition->id()));
  }
  return absl::StrCat("injected ", vipuagent::Fault_Name(fault.fault()), place);
}

}  // namespace

absl::StatusOr<ClusterUnderTest> Controller::PrepareTest(
    const vipuadmin::TestClusterRequest& request) {
  base::MutexLock lock(mutex_);
  VPOD_ASSIGN_OR_RETURN(const Cluster* cluster, FindCluster(request.id()));
  const bool active =
      std::any_of(cluster->partitions.begin(), cluster->partitions.end(),
                  [](const auto& item) { return item.second->state == vipuuser::PS_ACTIVE; });
  if (active && !request.force()) {
    return absl::FailedPreconditionError(
        absl::StrCat("Cluster ", request.id(),
                     " has active partitions. Tests disturb their jobs; --force tests all the "
                     "same."));
  }
  ClusterUnderTest result;
  VPOD_ASSIGN_OR_RETURN(
      result.shape,
      arch::MakeShape(static_cast<uint32_t>(cluster->agents.size()),
                      std::max(1u, cluster->stored.num_ipulinkdomains()),
                      cluster->stored.topology(), cluster->stored.cluster_topology()));
  for (const Agent* agent : cluster->agents) {
    const auto address = AddressOf(*agent);
    result.machines.push_back({agent->stored.id(), agent->stored.host(),
                               address.ok() ? address->endpoint : std::string()});
  }
  return result;
}

void Controller::RecordTest(const std::string& cluster_id, const vipuadmin::TestClusterReply& row) {
  base::MutexLock lock(mutex_);
  Cluster* cluster = state_.FindCluster(cluster_id);  // null: removed meanwhile
  if (cluster != nullptr) cluster->last_tests[row.test()] = row;
}

absl::Status Controller::TestCluster(
    const vipuadmin::TestClusterRequest& request,
    const std::function<bool(const vipuadmin::TestClusterReply&)>& row,
    const IsCancelled& is_cancelled, const std::string& user) {
  VPOD_ASSIGN_OR_RETURN(const ClusterUnderTest cluster, PrepareTest(request));
  const AgentCalls calls = {
      [this](const std::string& endpoint, const std::string& host) {
        return gateway_->DescribeMachine(endpoint, host);
      },
      [this](const std::string& endpoint, const vipuagent::TestLinkRequest& test) {
        return gateway_->TestLink(endpoint, test);
      },
      is_cancelled};
  int failures = 0;
  VPOD_RETURN_IF_ERROR(controller::TestCluster(cluster, calls,
                                               {request.tests().begin(), request.tests().end()},
                                               [&](const vipuadmin::TestClusterReply& reply) {
                                                 failures += reply.failures_size();
                                                 RecordTest(request.id(), reply);
                                                 return row(reply);
                                               }));
  base::MutexLock lock(mutex_);
  events_.Add(
      failures == 0 ? Severity::kInfo : Severity::kError, absl::StrCat("cluster ", request.id()),
      failures == 0 ? "tested: all well" : absl::StrCat("tested: ", failures, " failures"), user);
  return absl::OkStatus();
}

absl::Status Controller::Inject(const vipuadmin::InjectRequest& request, const std::string& user) {
  MachineAddress address;
  {
    base::MutexLock lock(mutex_);
    VPOD_ASSIGN_OR_RETURN(const Agent* agent, FindAgent(request.agent_id()));
    VPOD_ASSIGN_OR_RETURN(address, AddressOf(*agent));
  }
  vipuagent::InjectRequest fault = request.fault();
  fault.set_host(address.host);
  const absl::Status injected = gateway_->Inject(address.endpoint, fault);
  if (IsSilence(injected)) return Silent(request.agent_id());
  VPOD_RETURN_IF_ERROR(injected);
  base::MutexLock lock(mutex_);
  const Agent* agent = state_.FindAgent(request.agent_id());  // null: removed meanwhile
  const Partition* partition = agent != nullptr && IsOfIpu(fault.fault())
                                   ? state_.PartitionOfIpu(*agent, fault.pcie_id())
                                   : nullptr;
  return Commit({}, absl::StrCat("agent ", request.agent_id()), user, FaultText(fault, partition));
}

}  // namespace vpod::controller
