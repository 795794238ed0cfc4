#include "tools/vpod/apply.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/vipu/client.h"
#include "client/vipu/ipuof_config.h"
#include "device/base/status.h"
#include "tools/vipu/json.h"
#include "tools/vpod/pod_references.h"

namespace vpod::tools {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Whether a description says something about a field.
bool IsDescribed(const Message& described, const FieldDescriptor* field) {
  const auto* reflection = described.GetReflection();
  if (field->is_repeated()) return reflection->FieldSize(described, field) > 0;
  return reflection->HasField(described, field) || field->name() == "admin";  // false by default
}

// Names of routings are taken in any case, and the order of a set is of no importance.
Json Canonical(const Json& value, bool ordered) {
  if (value.is_string()) return absl::AsciiStrToLower(value.get<std::string>());
  if (!value.is_array() || ordered) return value;
  Json sorted = value;
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

// The key of a field in the file.
std::string KeyOf(const std::string& field) {
  static const std::map<std::string, std::string> keys = {
      {"agent_ids", "agents"},
      {"allocation_id", "allocation"},
      {"allocation_ids", "allocations"},
      {"cluster_id", "cluster"},
      {"gw_link_routing", "gw_routing"},
      {"ipu_link_routing", "routing"},
      {"num_ipulinkdomains", "ipu_link_domains"}};
  const auto key = keys.find(field);
  return key == keys.end() ? field : key->second;
}

// A phrase for each field that is not as described.
std::vector<std::string> Differences(const std::string& object, const Message& described,
                                     const Message& existing, bool ordered = false) {
  std::vector<std::string> differences;
  const Json wanted = ToJson(described), there = ToJson(existing);
  for (int i = 0; i < described.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = described.GetDescriptor()->field(i);
    const std::string& name = field->name();
    if (!IsDescribed(described, field) ||
        Canonical(wanted[name], ordered) == Canonical(there[name], ordered))
      continue;
    differences.push_back(absl::StrCat(object, " has ", KeyOf(name), " ", there[name].dump(),
                                       " instead of ", wanted[name].dump()));
  }
  return differences;
}

template <class Object>
std::set<std::string> Ids(const std::vector<Object>& objects) {
  std::set<std::string> ids;
  for (const Object& object : objects) ids.insert(object.id());
  return ids;
}

class Applier {
 public:
  Applier(const Pod& pod, const PodShape& shape, const PodDescription& description,
          const std::function<void(const std::string&)>& made)
      : pod_(pod), client_(ApiOf(shape)), description_(description), made_(made) {}

  absl::Status Apply() {
    VPOD_RETURN_IF_ERROR(LookAround());
    if (!differences_.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the POD in ", pod_.home(), " is not as described: ", absl::StrJoin(differences_, "; ")));
    }
    for (const auto& cluster : description_.clusters)
      VPOD_RETURN_IF_ERROR(
          Make("cluster " + cluster.id(), [&] { return client_.CreateCluster(cluster); }));
    for (const auto& allocation : description_.allocations) {
      VPOD_RETURN_IF_ERROR(Make("allocation " + allocation.id(),
                                [&] { return client_.CreateAllocation(allocation); }));
    }
    for (const auto& user : description_.users) {
      if (existing_.contains("user " + user.id())) VPOD_RETURN_IF_ERROR(RenewMissingKey(user));
      VPOD_RETURN_IF_ERROR(Make("user " + user.id(), [&] { return CreateUser(user); }));
    }
    for (const auto& partition : description_.partitions) {
      const std::string& id = partition.requirements().id();
      VPOD_RETURN_IF_ERROR(
          Make("partition " + id, [&] { return client_.CreatePartition(partition); }));
    }
    for (const auto& partition : description_.partitions)
      VPOD_RETURN_IF_ERROR(AwaitPartition(partition.requirements().id()));
    return absl::OkStatus();
  }

 private:
  // Finds what is there, and what of it is not as described. NotFound: an id in the description
  // leads to nothing.
  absl::Status LookAround() {
    VPOD_ASSIGN_OR_RETURN(const auto clusters, client_.ListClusters());
    VPOD_ASSIGN_OR_RETURN(const auto allocations, client_.ListAllAllocations());
    VPOD_ASSIGN_OR_RETURN(const auto users, client_.ListUsers());
    VPOD_ASSIGN_OR_RETURN(const auto partitions, client_.ListPartitions());
    VPOD_ASSIGN_OR_RETURN(const auto agents, client_.ListAgents());
    VPOD_RETURN_IF_ERROR(CheckReferences(
        description_,
        {.agents = Ids(agents), .clusters = Ids(clusters), .allocations = Ids(allocations)}));
    std::vector<vipuuser::PartitionRequirements> wanted, requirements;
    for (const auto& partition : description_.partitions)
      wanted.push_back(partition.requirements());
    for (const auto& partition : partitions) requirements.push_back(partition.requirements());
    Compare("cluster", description_.clusters, clusters, /*ordered=*/true);
    Compare("allocation", description_.allocations, allocations);
    Compare("user", description_.users, users);
    Compare("partition", wanted, requirements);
    return absl::OkStatus();
  }

  template <class Object>
  void Compare(const std::string& what, const std::vector<Object>& described,
               const std::vector<Object>& existing, bool ordered = false) {
    std::map<std::string, const Object*> by_id;
    for (const Object& object : existing) by_id[object.id()] = &object;
    for (const Object& object : described) {
      const auto there = by_id.find(object.id());
      if (there == by_id.end()) continue;
      const std::string name = absl::StrCat(what, " ", object.id());
      existing_.insert(name);
      for (std::string& difference : Differences(name, object, *there->second, ordered))
        differences_.push_back(std::move(difference));
    }
  }

  absl::Status Make(const std::string& object, const std::function<absl::Status()>& create) {
    if (existing_.contains(object)) return absl::OkStatus();
    const absl::Status status = create();
    if (!status.ok()) return Named(object, status);
    made_(object);
    return absl::OkStatus();
  }

  // The key cannot be asked for again, so it is in a file before anything is said. A file without a
  // key comes first: it says of an attempt that ends here that nobody has the key.
  absl::Status CreateUser(const vipuadmin::User& user) {
    VPOD_RETURN_IF_ERROR(WriteKey(user, ""));
    const auto key = client_.CreateUser(user);
    if (key.ok()) return WriteKey(user, *key);
    unlink(pod_.UserConfig(user.id()).c_str());
    return key.status();
  }
  // Makes a new key if an earlier attempt was interrupted before it could write the key. If there
  // is no file at all, somebody has moved it, and the key stays as it is.
  absl::Status RenewMissingKey(const vipuadmin::User& user) {
    if (pod_.KeyOf(user.id()) != Pod::UserKey::kNone) return absl::OkStatus();
    // The administrator, as whom we call, has one.
    const vipu::ClientConfig& own = client_.config();
    if (user.id() == own.user_id && !own.access_key.empty()) return WriteKey(user, own.access_key);
    vipuadmin::UpdateUserRequest request;
    request.set_id(user.id());
    request.set_new_access_key(true);
    request.set_jobs(vipuadmin::JOBS_GO_ON);  // nobody has lost a key: it was never handed out
    VPOD_ASSIGN_OR_RETURN(const std::string key, client_.UpdateUser(request));
    return WriteKey(user, key);
  }
  absl::Status WriteKey(const vipuadmin::User& user, const std::string& key) {
    vipu::ClientConfig config = client_.config();
    config.user_id = user.id();
    config.access_key = key;
    return vipu::WriteSecretHcl(pod_.UserConfig(user.id()), config);
  }

  absl::Status AwaitPartition(const std::string& id) {
    absl::Status status = client_.WaitUntilActive(id);
    if (!status.ok()) return Named("partition " + id, status);
    if (vipu::HasIpuofFiles(id)) return absl::OkStatus();
    VPOD_ASSIGN_OR_RETURN(const auto partition, client_.GetPartition(id));
    return vipu::WriteIpuofFiles(partition, client_.config().address());
  }

  absl::Status Named(const std::string& object, const absl::Status& status) const {
    return absl::Status(status.code(),
                        absl::StrCat(description_.PlaceOf(object), object, ": ", status.message()));
  }

  const Pod& pod_;
  vipu::Client client_;
  const PodDescription& description_;
  const std::function<void(const std::string&)>& made_;
  std::set<std::string> existing_;  // "partition p1"
  std::vector<std::string> differences_;
};

}  // namespace

absl::Status ApplyDescription(const Pod& pod, const PodShape& shape,
                              const PodDescription& description,
                              const std::function<void(const std::string&)>& made) {
  if (description.clusters.empty() && description.allocations.empty() &&
      description.users.empty() && description.partitions.empty())
    return absl::OkStatus();
  // Files of partitions go where those who use this POD look for them.
  setenv("IPUOF_CONFIG_DIR", pod.IpuofDirectory().c_str(), 1);
  return Applier(pod, shape, description, made).Apply();
}

}  // namespace vpod::tools
