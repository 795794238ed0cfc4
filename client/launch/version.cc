#include "client/launch/version.h"

#include <google/protobuf/stubs/common.h>
#include <grpcpp/grpcpp.h>

#include <boost/version.hpp>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/base/version.h"

namespace vpod::launch {

std::string VersionText(const std::string& format) {
  const auto dotted = [](int major, int minor, int patch) {
    return absl::StrCat(major, ".", minor, ".", patch);
  };
  const std::string ours = absl::StrCat(base::kSdkVersion, " (virtual IPU-POD)");
  std::vector<std::pair<std::string, std::string>> versions = {{"POPRUN", ours}, {"POPDIST", ours}};
  if (absl::StartsWith(format, "full-")) {
    versions.insert(
        versions.end(),
        {{"Boost", dotted(BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100)},
         {"gRPC", grpc::Version()},
         {"Protobuf", google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION)},
         {"nlohmann-json", dotted(NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                                  NLOHMANN_JSON_VERSION_PATCH)}});
  }
  if (absl::EndsWith(format, "json")) {
    nlohmann::ordered_json json;
    for (const auto& [name, version] : versions) json[name] = version;
    return json.dump(2) + "\n";
  }
  std::string text;
  for (const auto& [name, version] : versions)
    absl::StrAppend(&text, name, " version ", version, "\n");
  return text;
}

}  // namespace vpod::launch
