// Output of --showjson (spec/vipu.md 7): objects with the names of the contracts' fields, in the
// published shapes where there are some.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "proto/vipu/v1/vipuadmin.pb.h"
#include "proto/vipu/v1/vipuuser.pb.h"

namespace vpod::tools {

using Json = nlohmann::ordered_json;

// Fields in the order of the contract, numbers as numbers, enums by name, unset messages null.
// Points in time are text, "2023-05-04T09:12:41.250Z".
Json ToJson(const google::protobuf::Message& message);
// { "partition": { "id", "spec": { "ipus": [ … ], "num_gcds", "num_replicas", … } }, "state", … }
Json ToJson(const vipuuser::Partition& partition);
// { "spec": { "ipu_link_domains": [ { "ipus": [ … ] } ] }, … }
Json ToJson(const vipuadmin::Cluster& cluster);
Json ToJson(const vipuadmin::GetClusterReply& reply);
Json ToJson(const vipuadmin::User& user);
// With `pcie_id` of each IPU, and the time of the last heartbeat.
Json ToJson(const vipuadmin::Agent& agent);
Json ToJson(const vipuadmin::DiscoveredAgent& agent);
// With the time as text.
Json ToJson(const vipuadmin::Event& event);

// The same as YAML, in block style. Text is in quotes.
std::string Yaml(const Json& json);

template <class Message>
Json ToJson(const std::vector<Message>& messages) {
  Json list = Json::array();
  for (const Message& message : messages) list.push_back(ToJson(message));
  return list;
}

}  // namespace vpod::tools
