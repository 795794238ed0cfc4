#include "tools/vpod/pod_shape.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "device/arch/device_id.h"
#include "device/base/status.h"
#include "device/base/text.h"

namespace vpod::tools {
namespace {

constexpr char kOneProcess[] = "one", kProcesses[] = "processes";  // agents

// Values of a JSON object by their keys. What is wrong with the first bad one is kept.
class Values {
 public:
  explicit Values(const nlohmann::json& object) : object_(object) {}

  template <class Number>
  void Take(const char* key, uint64_t low, uint64_t high, Number& into) {
    const auto value = object_.find(key);
    if (value == object_.end()) return;
    const bool fits = value->is_number_unsigned() && value->get<uint64_t>() >= low &&
                      value->get<uint64_t>() <= high;
    if (!fits) return Refuse(key, *value, absl::StrCat("a whole number from ", low, " to ", high));
    into = static_cast<Number>(value->get<uint64_t>());
  }
  void Take(const char* key, std::string& into) {
    const auto value = object_.find(key);
    if (value == object_.end()) return;
    if (!value->is_string()) return Refuse(key, *value, "a text");
    into = value->get<std::string>();
  }
  void Take(const char* key, bool& into) {
    const auto value = object_.find(key);
    if (value == object_.end()) return;
    if (!value->is_boolean()) return Refuse(key, *value, "true or false");
    into = value->get<bool>();
  }
  void Need(const char* key) {
    if (!object_.contains(key)) status_.Update(Wrong(absl::StrCat("it has no ", key)));
  }
  void Refuse(const char* key, const nlohmann::json& value, absl::string_view allowed) {
    const std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    status_.Update(
        Wrong(absl::StrCat(key, " is ", base::Printable(text, 64), ", must be ", allowed)));
  }
  const absl::Status& status() const { return status_; }

 private:
  static absl::Status Wrong(const std::string& what) { return absl::InvalidArgumentError(what); }

  const nlohmann::json& object_;
  absl::Status status_;
};

// As vipu-agent takes them with --addresses.
bool IsAddressPrefix(absl::string_view text) {
  int octet = 0;
  return absl::ConsumePrefix(&text, "127.") && absl::SimpleAtoi(text, &octet) && octet >= 10 &&
         octet <= 252 && octet % 2 == 0 && text == absl::StrCat(octet);
}

}  // namespace

absl::Status CheckShape(const PodShape& shape, const ShapeNames& names) {
  if (shape.ipus < arch::kIpusPerMachine || shape.ipus > arch::kMaxIpusPerPod ||
      !arch::IsPowerOfTwo(shape.ipus)) {
    return absl::InvalidArgumentError(absl::StrCat(
        names.ipus, " ", shape.ipus, ": the size must be a power of two from 4 to 65536"));
  }
  VPOD_RETURN_IF_ERROR(arch::FindMachineType(base::Printable(shape.machine_type, 64)).status());
  const std::string& topology = shape.cluster_topology;
  if (!topology.empty() && topology != "looped" && topology != "switched") {
    return absl::InvalidArgumentError(absl::StrCat(names.cluster_topology, " ",
                                                   base::Printable(topology, 64),
                                                   ": it must be looped or switched"));
  }
  if (shape.racks() == 1 && !topology.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(names.cluster_topology, " ", topology,
                                                   " needs two racks or more, i.e. ", names.ipus,
                                                   " 128 or larger"));
  }
  if (shape.metrics_port == shape.api_port) {
    return absl::InvalidArgumentError(absl::StrCat(names.metrics_port, " ", shape.metrics_port,
                                                   " is the controller's port; give another"));
  }
  return absl::OkStatus();
}

std::string ShapeText(const PodShape& shape) {
  const nlohmann::json json = {{"ipus", shape.ipus},
                               {"machine_type", shape.machine_type},
                               {"api_port", shape.api_port},
                               {"metrics_port", shape.metrics_port},
                               {"memory_limit_mib", shape.memory_limit_mib},
                               {"addresses", shape.addresses},
                               {"cluster_topology", shape.cluster_topology},
                               {"agents", shape.agent_per_machine ? kProcesses : kOneProcess},
                               {"described_clusters", shape.described_clusters},
                               {"unfinished", shape.unfinished},
                               {"secure", shape.secure}};
  return json.dump(2) + "\n";
}

absl::StatusOr<PodShape> ParseShape(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("it is not a JSON object");
  PodShape shape;
  std::string agents = kOneProcess;
  Values values(json);
  for (const char* key : {"ipus", "machine_type", "api_port"}) values.Need(key);
  values.Take("ipus", arch::kIpusPerMachine, arch::kMaxIpusPerPod, shape.ipus);
  values.Take("machine_type", shape.machine_type);
  values.Take("api_port", 1, kLastPort, shape.api_port);
  values.Take("metrics_port", 0, kLastPort, shape.metrics_port);
  values.Take("memory_limit_mib", 0, kMostMemoryMib, shape.memory_limit_mib);
  values.Take("cluster_topology", shape.cluster_topology);
  values.Take("addresses", shape.addresses);
  values.Take("agents", agents);
  values.Take("described_clusters", shape.described_clusters);
  values.Take("unfinished", shape.unfinished);
  values.Take("secure", shape.secure);
  if (!shape.addresses.empty() && !IsAddressPrefix(shape.addresses))
    values.Refuse("addresses", shape.addresses, "127.10, 127.12 … 127.252");
  if (agents != kOneProcess && agents != kProcesses)
    values.Refuse("agents", agents, "one or processes");
  VPOD_RETURN_IF_ERROR(values.status());
  shape.agent_per_machine = agents == kProcesses;
  if (shape.cluster_topology == kOneRack) shape.cluster_topology.clear();
  VPOD_RETURN_IF_ERROR(CheckShape(shape, kKeyNames));
  return shape;
}

}  // namespace vpod::tools
