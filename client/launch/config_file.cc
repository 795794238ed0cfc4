#include "client/launch/config_file.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "device/base/file.h"

namespace vpod::launch {
namespace {

namespace fs = std::filesystem;

// Options about the files themselves or instead of a run have no place in a file.
bool BelongsInFile(const std::string& name) {
  for (const char* other : {"import-config", "export-config", "overwrite-config", "help", "version",
                            "version-format"}) {
    if (name == other) return false;
  }
  return true;
}

// Two ways to say one thing: the one given takes the other's place.
std::string Counterpart(const std::string& name) {
  if (name == "host") return "hostfile";
  if (name == "hostfile") return "host";
  if (name == "numa-aware") return "process-placement";
  if (name == "process-placement") return "numa-aware";
  return name;
}

}  // namespace

absl::Status ImportConfig(const std::string& path,
                          const std::function<bool(const std::string&)>& is_option,
                          GivenOptions& given) {
  const auto wrong = [](auto... parts) {
    return absl::InvalidArgumentError(absl::StrCat("--import-config: ", parts...));
  };
  const auto text = base::ReadNamedFile(path);
  if (!text.ok())
    return absl::FailedPreconditionError(
        absl::StrCat("--import-config: ", text.status().message()));
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  if (!json.is_object()) return wrong(path, " is not a JSON object of options");
  GivenOptions imported;
  for (const auto& [name, value] : json.items()) {
    if (!is_option(name)) return wrong("unrecognised option '--", name, "'");
    if (!BelongsInFile(name)) return wrong("option '--", name, "' belongs on the command line");
    for (const auto& item : value.is_array() ? value : nlohmann::json::array({value})) {
      if (!item.is_string()) return wrong("option '", name, "' is not a string");
      imported[name].push_back(item.get<std::string>());
    }
  }
  std::erase_if(imported,
                [&](const auto& item) { return given.contains(Counterpart(item.first)); });
  given.merge(imported);
  return absl::OkStatus();
}

absl::Status ExportConfig(const std::string& path, bool overwrite, const GivenOptions& given) {
  std::error_code error;
  if (fs::exists(path, error) && !overwrite) {
    return absl::InvalidArgumentError(
        absl::StrCat("--export-config: ", path, " exists; --overwrite-config=yes replaces it"));
  }
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, values] : given) {
    if (!BelongsInFile(name)) continue;
    if (values.size() == 1) {
      json[name] = values[0];
    } else {
      json[name] = values;
    }
  }
  const auto target = base::OutputPath(path);
  const absl::Status written =
      target.ok() ? base::ReplaceFile(*target, json.dump(2) + "\n", 0644) : target.status();
  if (written.ok()) return written;
  return absl::FailedPreconditionError(absl::StrCat("--export-config: ", written.message()));
}

}  // namespace vpod::launch
