#include "tools/vpod/pod_references.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "device/base/status.h"

namespace vpod::tools {
namespace {

// "there are a1, a2", the first of them.
std::string Listed(const std::set<std::string>& ids) {
  constexpr size_t kNamed = 8;
  if (ids.empty()) return "there is none";
  const std::vector<std::string> all(ids.begin(), ids.end());
  const auto named = absl::MakeConstSpan(all).subspan(0, kNamed);
  return absl::StrCat(ids.size() == 1 ? "there is " : "there are ", absl::StrJoin(named, ", "),
                      ids.size() > kNamed ? absl::StrCat(", … of ", ids.size()) : "");
}

// Ids of one kind of object.
class Directory {
 public:
  Directory(const PodDescription& description, std::string kind, std::set<std::string> ids)
      : description_(description), kind_(std::move(kind)), ids_(std::move(ids)) {}

  // `object` names the id in the value of `key`; an empty id is none.
  absl::Status Check(const std::string& object, const std::string& key,
                     const std::string& id) const {
    if (id.empty() || ids_.contains(id)) return absl::OkStatus();
    return Missing(description_.PlaceOf(absl::StrCat(object, " ", key)), object, id);
  }
  // The same for a list of ids.
  template <class List>
  absl::Status CheckAll(const std::string& object, const std::string& key, const List& ids) const {
    for (const std::string& id : ids) {
      if (ids_.contains(id)) continue;
      return Missing(description_.PlaceOf(absl::StrCat(object, " ", key, " ", id)), object, id);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Missing(const std::string& place, const std::string& object,
                       const std::string& id) const {
    return absl::NotFoundError(
        absl::StrCat(place, object, ": there is no ", kind_, " ", id, "; ", Listed(ids_)));
  }

  const PodDescription& description_;
  const std::string kind_;
  const std::set<std::string> ids_;
};

template <class Objects>
void AddIds(const Objects& objects, std::set<std::string>& ids) {
  for (const auto& object : objects) ids.insert(object.id());
}

}  // namespace

absl::Status CheckReferences(const PodDescription& description, const KnownIds& of_pod) {
  std::set<std::string> cluster_ids = of_pod.clusters, allocation_ids = of_pod.allocations;
  AddIds(description.clusters, cluster_ids);
  AddIds(description.allocations, allocation_ids);
  // The default allocation of a cluster has its id.
  allocation_ids.insert(cluster_ids.begin(), cluster_ids.end());
  const Directory agents(description, "agent", of_pod.agents);
  const Directory clusters(description, "cluster", cluster_ids);
  const Directory allocations(description, "allocation", allocation_ids);
  for (const auto& cluster : description.clusters) {
    VPOD_RETURN_IF_ERROR(agents.CheckAll("cluster " + cluster.id(), "agents", cluster.agent_ids()));
  }
  for (const auto& allocation : description.allocations) {
    const std::string object = "allocation " + allocation.id();
    VPOD_RETURN_IF_ERROR(clusters.Check(object, "cluster", allocation.cluster_id()));
    VPOD_RETURN_IF_ERROR(agents.CheckAll(object, "agents", allocation.agent_ids()));
  }
  for (const auto& user : description.users) {
    VPOD_RETURN_IF_ERROR(
        allocations.CheckAll("user " + user.id(), "allocations", user.allocation_ids().names()));
  }
  for (const auto& partition : description.partitions) {
    const std::string object = "partition " + partition.requirements().id();
    VPOD_RETURN_IF_ERROR(
        allocations.Check(object, "allocation", partition.requirements().allocation_id()));
    VPOD_RETURN_IF_ERROR(clusters.Check(object, "cluster", partition.requirements().cluster_id()));
  }
  return absl::OkStatus();
}

}  // namespace vpod::tools
