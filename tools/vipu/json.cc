#include "tools/vipu/json.h"

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/render/table.h"

namespace vpod::tools {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// One value of a field; `index` negative: the field is not repeated.
Json Value(const Message& message, const FieldDescriptor* field, int index) {
  const Reflection* reflection = message.GetReflection();
  const bool one = index < 0;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return one ? reflection->GetBool(message, field)
                 : reflection->GetRepeatedBool(message, field, index);
    case FieldDescriptor::CPPTYPE_UINT32:
      return one ? reflection->GetUInt32(message, field)
                 : reflection->GetRepeatedUInt32(message, field, index);
    case FieldDescriptor::CPPTYPE_UINT64:
      return one ? reflection->GetUInt64(message, field)
                 : reflection->GetRepeatedUInt64(message, field, index);
    case FieldDescriptor::CPPTYPE_INT32:
      return one ? reflection->GetInt32(message, field)
                 : reflection->GetRepeatedInt32(message, field, index);
    case FieldDescriptor::CPPTYPE_INT64:
      return one ? reflection->GetInt64(message, field)
                 : reflection->GetRepeatedInt64(message, field, index);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return one ? reflection->GetFloat(message, field)
                 : reflection->GetRepeatedFloat(message, field, index);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return one ? reflection->GetDouble(message, field)
                 : reflection->GetRepeatedDouble(message, field, index);
    case FieldDescriptor::CPPTYPE_ENUM:
      return (one ? reflection->GetEnum(message, field)
                  : reflection->GetRepeatedEnum(message, field, index))
          ->name();
    case FieldDescriptor::CPPTYPE_STRING:
      return one ? reflection->GetString(message, field)
                 : reflection->GetRepeatedString(message, field, index);
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      if (one && !reflection->HasField(message, field)) return nullptr;
      const Message& part = one ? reflection->GetMessage(message, field)
                                : reflection->GetRepeatedMessage(message, field, index);
      // A list that can be unset.
      if (const auto* names = dynamic_cast<const vipuadmin::Names*>(&part))
        return Json(std::vector<std::string>(names->names().begin(), names->names().end()));
      return ToJson(part);
    }
  }
  return nullptr;
}

// Protobuf's maps have no order of their own.
Json MapValue(const Message& message, const FieldDescriptor* field) {
  std::map<std::string, Json> sorted;
  const Reflection* reflection = message.GetReflection();
  for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
    const Message& entry = reflection->GetRepeatedMessage(message, field, i);
    const auto* descriptor = entry.GetDescriptor();
    sorted[Value(entry, descriptor->map_key(), -1).get<std::string>()] =
        Value(entry, descriptor->map_value(), -1);
  }
  Json object = Json::object();
  for (auto& [key, value] : sorted) object[key] = std::move(value);
  return object;
}

// When a heartbeat of this age came; null for none.
Json SeenAt(int64_t age_ms) {
  if (age_ms < 0) return nullptr;
  return render::UtcTimeMillis(absl::ToUnixMillis(absl::Now()) - age_ms);
}

bool IsBlock(const Json& json) { return json.is_structured() && !json.empty(); }

// A key as it is, or in quotes.
std::string YamlKey(const std::string& key) {
  const bool plain = std::all_of(key.begin(), key.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == ' ';
  });
  return plain && !key.empty() && absl::ascii_isalpha(static_cast<unsigned char>(key[0]))
             ? key
             : Json(key).dump();
}

void AppendYaml(const Json& json, size_t indent, std::string& text) {
  const std::string margin(indent, ' ');
  if (json.is_array()) {
    for (const Json& item : json) {
      if (!IsBlock(item)) {
        absl::StrAppend(&text, margin, "- ", item.dump(), "\n");
        continue;
      }
      std::string block;
      AppendYaml(item, indent + 2, block);
      absl::StrAppend(&text, margin, "- ", block.substr(indent + 2));
    }
    return;
  }
  for (const auto& [key, value] : json.items()) {
    absl::StrAppend(&text, margin, YamlKey(key), ":");
    if (IsBlock(value)) {
      text += "\n";
      AppendYaml(value, indent + 2, text);
    } else {
      absl::StrAppend(&text, " ", value.dump(), "\n");
    }
  }
}

Json Ipu(const std::string& agent_id, uint32_t pcie_id) {
  return {{"agent_id", agent_id}, {"pcie_id", pcie_id}};
}

}  // namespace

Json ToJson(const Message& message) {
  Json object = Json::object();
  const auto* descriptor = message.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    Json& value = object[field->name()];
    if (field->is_map()) {
      value = MapValue(message, field);
    } else if (field->is_repeated()) {
      value = Json::array();
      const int size = message.GetReflection()->FieldSize(message, field);
      for (int j = 0; j < size; ++j) value.push_back(Value(message, field, j));
    } else {
      value = Value(message, field, -1);
    }
  }
  return object;
}

Json ToJson(const vipuuser::Partition& partition) {
  const vipuuser::PartitionRequirements& r = partition.requirements();
  Json ipus = Json::array();
  for (const auto& gcd : partition.gcds()) {
    for (const auto& device : gcd.devices())
      ipus.push_back(Ipu(device.agent_id(), device.pcie_id()));
  }
  Json spec = {{"ipus", ipus}, {"num_gcds", r.num_gcds()}, {"num_replicas", r.num_replicas()}};
  const Json requirements = ToJson(static_cast<const Message&>(r));
  for (const auto& [key, value] : requirements.items()) {
    if (key != "id" && !spec.contains(key)) spec[key] = value;
  }
  Json object = {{"partition", {{"id", r.id()}, {"spec", spec}}}};
  const vipuuser::PartitionStatus& status = partition.status();
  const Json fields = ToJson(static_cast<const Message&>(status));
  for (const auto& [key, value] : fields.items())
    object[key == "message" ? "last_error" : key] = value;
  object["created_at"] = render::UtcTime(status.created_at());
  return object;
}

Json ToJson(const vipuadmin::Cluster& cluster) {
  const int ilds = static_cast<int>(std::max(1u, cluster.num_ipulinkdomains()));
  const int per_ild = cluster.agent_ids_size() / ilds;
  Json domains = Json::array();
  for (int ild = 0; ild < ilds; ++ild) {
    Json ipus = Json::array();
    for (int i = 0; i < per_ild; ++i) {
      for (uint32_t pcie_id : {3u, 2u, 1u, 0u})
        ipus.push_back(Ipu(cluster.agent_ids(ild * per_ild + i), pcie_id));
    }
    domains.push_back({{"ipus", ipus}});
  }
  Json object = ToJson(static_cast<const Message&>(cluster));
  object["spec"] = {{"ipu_link_domains", domains}};
  return object;
}

Json ToJson(const vipuadmin::User& user) {
  Json object = ToJson(static_cast<const Message&>(user));
  object["created_at"] = render::UtcTime(user.created_at());
  return object;
}

Json ToJson(const vipuadmin::Agent& agent) {
  Json object = ToJson(static_cast<const Message&>(agent));
  for (Json& ipu : object["ipus"]) ipu["pcie_id"] = ipu["index"];
  object["seen_at"] = SeenAt(agent.last_seen_ms());
  return object;
}

Json ToJson(const vipuadmin::DiscoveredAgent& agent) {
  Json object = ToJson(static_cast<const Message&>(agent));
  object["seen_at"] = SeenAt(agent.last_seen_ms());
  return object;
}

Json ToJson(const vipuadmin::Event& event) {
  Json object = ToJson(static_cast<const Message&>(event));
  object["time"] = render::UtcTimeMillis(event.time_ms());
  return object;
}

Json ToJson(const vipuadmin::GetClusterReply& reply) {
  Json object = ToJson(reply.cluster());
  object["agents"] = Json::array();
  for (const auto& agent : reply.agents()) object["agents"].push_back(ToJson(agent));
  return object;
}

std::string Yaml(const Json& json) {
  if (!IsBlock(json)) return json.dump() + "\n";
  std::string text;
  AppendYaml(json, 0, text);
  return text;
}

}  // namespace vpod::tools
