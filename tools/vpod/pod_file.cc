#include "tools/vpod/pod_file.h"

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/arch/device_id.h"
#include "device/arch/hardware.h"
#include "device/base/file.h"
#include "device/base/object_id.h"
#include "device/base/status.h"
#include "device/base/text.h"

namespace vpod::tools {
namespace {

constexpr uint32_t kMostMachines = arch::kMaxIpusPerPod / arch::kIpusPerMachine;

int LineOf(const YAML::Node& node) {
  return std::max(node.Mark().line, 0) + 1;  // an empty file has none
}

// "pod.yaml:7: what" for the node's line.
absl::Status Wrong(const YAML::Node& node, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(LineOf(node), ": ", what));
}

// Takes the value of a key, or says what is wrong with it.
using Take = std::function<absl::Status(const std::string& key, const YAML::Node& value)>;
using Keys = std::map<std::string, Take>;

absl::StatusOr<std::string> Text(const std::string& key, const YAML::Node& value) {
  if (value.IsScalar() && !value.Scalar().empty() && base::IsTextLine(value.Scalar()))
    return value.Scalar();
  return Wrong(value, absl::StrCat(key, " must be a word"));
}

absl::StatusOr<uint32_t> Number(const std::string& key, const YAML::Node& value, uint32_t low,
                                uint32_t high) {
  uint32_t number = 0;
  if (value.IsScalar() && absl::SimpleAtoi(value.Scalar(), &number) && number >= low &&
      number <= high)
    return number;
  return Wrong(value, absl::StrCat(key, " must be a number of ", low, " to ", high));
}

absl::StatusOr<bool> Boolean(const std::string& key, const YAML::Node& value) {
  bool yes = false;
  if (value.IsScalar() && YAML::convert<bool>::decode(value, yes)) return yes;
  return Wrong(value, absl::StrCat(key, " must be true or false"));
}

Take TextInto(std::function<void(const std::string&)> set, std::vector<std::string> allowed = {}) {
  return [=](const std::string& key, const YAML::Node& value) -> absl::Status {
    VPOD_ASSIGN_OR_RETURN(const std::string text, Text(key, value));
    if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), text) == allowed.end())
      return Wrong(value, absl::StrCat(key, " must be one of ", absl::StrJoin(allowed, ", ")));
    set(text);
    return absl::OkStatus();
  };
}

// The id of an object, of this file or of the POD.
absl::StatusOr<std::string> Id(const std::string& key, const YAML::Node& value) {
  VPOD_ASSIGN_OR_RETURN(std::string id, Text(key, value));
  const absl::Status valid = base::CheckObjectId(id);
  if (!valid.ok()) return Wrong(value, absl::StrCat(key, ": ", valid.message()));
  return id;
}

Take IdInto(std::function<void(const std::string&)> set) {
  return [=](const std::string& key, const YAML::Node& value) -> absl::Status {
    VPOD_ASSIGN_OR_RETURN(const std::string id, Id(key, value));
    set(id);
    return absl::OkStatus();
  };
}

Take NumberInto(std::function<void(uint32_t)> set, uint32_t low, uint32_t high) {
  return [=](const std::string& key, const YAML::Node& value) -> absl::Status {
    VPOD_ASSIGN_OR_RETURN(const uint32_t number, Number(key, value, low, high));
    set(number);
    return absl::OkStatus();
  };
}

Take BooleanInto(std::function<void(bool)> set) {
  return [=](const std::string& key, const YAML::Node& value) -> absl::Status {
    VPOD_ASSIGN_OR_RETURN(const bool yes, Boolean(key, value));
    set(yes);
    return absl::OkStatus();
  };
}

// A list of ids.
Take IdsInto(std::function<void(const std::string&)> add) {
  return [=](const std::string& key, const YAML::Node& value) -> absl::Status {
    if (!value.IsSequence()) return Wrong(value, absl::StrCat(key, " must be a list"));
    for (const YAML::Node& item : value) {
      VPOD_ASSIGN_OR_RETURN(const std::string id, Id(key, item));
      add(id);
    }
    return absl::OkStatus();
  };
}

// Every key of a mapping once, and none that is not known.
absl::Status TakeKeys(const std::string& what, const YAML::Node& node, const Keys& keys) {
  if (!node.IsMap()) return Wrong(node, absl::StrCat(what, " must have lines of key: value"));
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const YAML::Node &key_node = entry.first, &value = entry.second;
    const std::string key = key_node.IsScalar() ? key_node.Scalar() : "";
    const auto known = keys.find(key);
    if (known == keys.end()) {
      const auto name = [](std::string* out, const auto& entry) { out->append(entry.first); };
      return Wrong(key_node, absl::StrCat(what, " has no key '", base::Printable(key),
                                          "'; known are ", absl::StrJoin(keys, ", ", name)));
    }
    if (!seen.insert(key).second) return Wrong(key_node, absl::StrCat(key, " is given twice"));
    VPOD_RETURN_IF_ERROR(known->second(key, value));
  }
  return absl::OkStatus();
}

// Notes where an object, its values and the ids in its lists are.
void NoteLines(const std::string& object, const YAML::Node& node,
               std::map<std::string, int>& lines) {
  lines[object] = LineOf(node);
  for (const auto& entry : node) {
    const std::string value = absl::StrCat(object, " ", entry.first.Scalar());
    lines[value] = LineOf(entry.second);
    if (!entry.second.IsSequence()) continue;
    for (const YAML::Node& item : entry.second)
      lines[absl::StrCat(value, " ", item.Scalar())] = LineOf(item);
  }
}

// Objects with ids of their own. `what` has an article: "a cluster".
Take ObjectsInto(const std::string& what, std::vector<std::string> required,
                 std::function<Keys()> next, std::map<std::string, int>& lines) {
  return [=, &lines](const std::string& key, const YAML::Node& list) -> absl::Status {
    if (!list.IsSequence()) return Wrong(list, absl::StrCat(key, " must be a list"));
    std::set<std::string> ids;
    for (const YAML::Node& node : list) {
      VPOD_RETURN_IF_ERROR(TakeKeys(what, node, next()));
      for (const std::string& needed : required) {
        if (!node[needed].IsDefined()) return Wrong(node, absl::StrCat(what, " needs ", needed));
      }
      if (!ids.insert(node["id"].Scalar()).second)
        return Wrong(node, absl::StrCat(what, " ", node["id"].Scalar(), " is described twice"));
      const std::string kind = what.substr(what.find(' ') + 1);
      NoteLines(absl::StrCat(kind, " ", node["id"].Scalar()), node, lines);
    }
    return absl::OkStatus();
  };
}

Keys ClusterKeys(vipuadmin::Cluster& cluster) {
  return {
      {"id", IdInto([&](const auto& text) { cluster.set_id(text); })},
      {"agents", IdsInto([&](const auto& agent) { cluster.add_agent_ids(agent); })},
      {"ipu_link_domains",
       NumberInto([&](uint32_t number) { cluster.set_num_ipulinkdomains(number); }, 1, 1024)},
      {"topology",
       TextInto([&](const auto& text) { cluster.set_topology(text); }, {"mesh", "torus"})},
      {"cluster_topology", TextInto([&](const auto& text) { cluster.set_cluster_topology(text); },
                                    {"none", "mesh", "looped", "switched"})}};
}

Keys AllocationKeys(vipuadmin::Allocation& allocation) {
  return {{"id", IdInto([&](const auto& text) { allocation.set_id(text); })},
          {"cluster", IdInto([&](const auto& text) { allocation.set_cluster_id(text); })},
          {"agents", IdsInto([&](const auto& agent) { allocation.add_agent_ids(agent); })}};
}

Keys UserKeys(vipuadmin::User& user) {
  return {{"id", IdInto([&](const auto& text) { user.set_id(text); })},
          {"admin", BooleanInto([&](bool yes) { user.set_admin(yes); })},
          {"allocations", IdsInto([&](const auto& allocation) {
             user.mutable_allocation_ids()->add_names(allocation);
           })}};
}

Keys PartitionKeys(vipuuser::CreatePartitionRequest& request) {
  vipuuser::PartitionRequirements& r = *request.mutable_requirements();
  return {
      {"id", IdInto([&](const auto& text) { r.set_id(text); })},
      {"size", NumberInto([&](uint32_t number) { r.set_size(number); }, 1, arch::kMaxIpusPerPod)},
      {"allocation", IdInto([&](const auto& text) { r.set_allocation_id(text); })},
      {"cluster", IdInto([&](const auto& text) { r.set_cluster_id(text); })},
      {"reconfigurable", BooleanInto([&](bool yes) { r.set_reconfigurable(yes); })},
      {"num_gcds",
       NumberInto([&](uint32_t number) { r.set_num_gcds(number); }, 1, arch::kMaxIpusPerPod)},
      {"num_replicas",
       NumberInto([&](uint32_t number) { r.set_num_replicas(number); }, 1, arch::kMaxIpusPerPod)},
      {"num_ilds", NumberInto([&](uint32_t number) { r.set_num_ilds(number); }, 1, 1024)},
      {"index", NumberInto([&](uint32_t number) { r.mutable_index()->set_index(number); }, 0,
                           arch::kMaxIpusPerPod)},
      {"sync_type", TextInto([&](const auto& text) { r.set_sync_type(text); })},
      {"routing", TextInto([&](const auto& text) { r.set_ipu_link_routing(text); })},
      {"gw_routing", TextInto([&](const auto& text) { r.set_gw_link_routing(text); })},
      {"shared", BooleanInto([&](bool yes) { r.set_shared(yes); })},
      {"relocatable", BooleanInto([&](bool yes) { request.set_relocatable(yes); })},
      {"auto_reset", BooleanInto([&](bool yes) { request.set_disable_auto_reset(!yes); })},
  };
}

// Appends an object and gives the keys that fill it.
template <class Object>
std::function<Keys()> Next(std::vector<Object>& objects, Keys (*keys)(Object&)) {
  return [&objects, keys] { return keys(objects.emplace_back()); };
}

Take MachinesInto(PodRequest& request) {
  return [&](const std::string& key, const YAML::Node& value) -> absl::Status {
    VPOD_ASSIGN_OR_RETURN(const uint32_t machines, Number(key, value, 1, kMostMachines));
    if (!arch::IsPowerOfTwo(machines))
      return Wrong(value, absl::StrCat(key, " must be a power of two"));
    request.ipus = machines * arch::kIpusPerMachine;
    return absl::OkStatus();
  };
}

Keys PodKeys(PodDescription& pod) {
  PodRequest& request = pod.request;
  return {
      {"name", TextInto([&](const auto& text) { pod.name = text; })},
      {"machines", MachinesInto(request)},
      {"machine_type",
       TextInto([&](const auto& text) { request.machine_type = text; }, {"m2000", "bow2000"})},
      {"cluster_topology", TextInto([&](const auto& text) { request.cluster_topology = text; },
                                    {"looped", "switched"})},
      {"agents",
       TextInto([&](const auto& text) { request.agent_per_machine = text == "processes"; },
                {"one", "processes"})},
      {"memory_limit",
       NumberInto([&](uint32_t number) { request.memory_limit_mib = number; }, 1, kMostMemoryMib)},
      {"api_port", NumberInto([&](uint32_t number) { request.api_port = number; }, 1, 65535)},
      {"metrics_port",
       NumberInto([&](uint32_t number) { request.metrics_port = number; }, 1, 65535)},
      {"secure", BooleanInto([&](bool yes) { request.secure = yes; })},
      {"clusters",
       ObjectsInto("a cluster", {"id", "agents"}, Next(pod.clusters, ClusterKeys), pod.lines)},
      {"allocations", ObjectsInto("an allocation", {"id", "cluster", "agents"},
                                  Next(pod.allocations, AllocationKeys), pod.lines)},
      {"users", ObjectsInto("a user", {"id"}, Next(pod.users, UserKeys), pod.lines)},
      {"partitions",
       ObjectsInto("a partition", {"id", "size"}, Next(pod.partitions, PartitionKeys), pod.lines)},
  };
}

}  // namespace

std::string PodDescription::PlaceOf(const std::string& what) const {
  const auto line = lines.find(what);
  return line == lines.end() ? "" : absl::StrCat(path, ":", line->second, ": ");
}

absl::StatusOr<PodDescription> ParsePodFile(const std::string& path, const std::string& text) {
  PodDescription pod;
  pod.path = path;
  absl::Status status;
  try {
    status = TakeKeys("a POD", YAML::Load(text), PodKeys(pod));
  } catch (const YAML::DeepRecursion& error) {
    status = absl::InvalidArgumentError(
        absl::StrCat(error.mark.line + 1, ": lists or maps lie too deep in each other"));
  } catch (const YAML::Exception& error) {  // the library's own words
    status = absl::InvalidArgumentError(absl::StrCat(error.mark.line + 1, ": ", error.msg));
  }
  if (!status.ok())
    return absl::InvalidArgumentError(absl::StrCat(path, ":", std::string(status.message())));
  pod.request.described_clusters = !pod.clusters.empty();
  return pod;
}

absl::StatusOr<PodDescription> ReadPodFile(const std::string& path) {
  constexpr size_t kMostBytes = 1 << 20;
  VPOD_ASSIGN_OR_RETURN(const std::string text, base::ReadNamedFile(path, kMostBytes));
  return ParsePodFile(path, text);
}

}  // namespace vpod::tools
