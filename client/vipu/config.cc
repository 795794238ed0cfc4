#include "client/vipu/config.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "device/base/status.h"

namespace vpod::vipu {
namespace {

// Reads `key = "value"` lines; blanks and # comments are allowed. NotFound when the file does not
// exist.
absl::StatusOr<std::map<std::string, std::string>> ReadHcl(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read configuration file ", path));
  std::map<std::string, std::string> values;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    absl::string_view text = absl::StripAsciiWhitespace(line);
    if (text.empty() || text[0] == '#') continue;
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(text, absl::MaxSplits('=', 1));
    absl::string_view value = absl::StripAsciiWhitespace(parts.second);
    const size_t end =
        value.empty() || value[0] != '"' ? absl::string_view::npos : value.find('"', 1);
    const absl::string_view rest =
        end == absl::string_view::npos ? "" : absl::StripAsciiWhitespace(value.substr(end + 1));
    if (end == absl::string_view::npos || !(rest.empty() || rest[0] == '#')) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " line ", number, " is not key=\"value\""));
    }
    value = value.substr(1, end - 1);
    values[std::string(absl::StripAsciiWhitespace(parts.first))] = std::string(value);
  }
  return values;
}

// Host, or host:port, and a separate port.
absl::Status SetAddress(std::string host, const std::string& port, const std::string& source,
                        ClientConfig& config) {
  std::string port_text = port;
  const size_t colon = host.rfind(':');
  if (colon != std::string::npos && host.find(':') == colon) {
    if (port_text.empty()) port_text = host.substr(colon + 1);
    host.resize(colon);
  }
  config.host = host.empty() ? "localhost" : host;
  config.port = 8090;
  config.source = source;
  if (!port_text.empty() &&
      (!absl::SimpleAtoi(port_text, &config.port) || config.port < 1 || config.port > 65535)) {
    return absl::InvalidArgumentError(
        absl::StrCat("port '", port_text, "' from ", source, " is no number of 1 to 65535"));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> TakeFile(const std::string& path, bool required, ClientConfig& config) {
  const auto values = ReadHcl(path);
  if (absl::IsNotFound(values.status())) {
    if (required) return absl::InvalidArgumentError(values.status().message());
    return false;
  }
  if (!values.ok()) return values.status();
  const auto get = [&](const char* key) {
    const auto it = values->find(key);
    return it == values->end() ? std::string() : it->second;
  };
  config.user_id = get("api-user-id");
  config.access_key = get("api-access-key");
  if (get("api-host").empty()) {
    if (required) return absl::InvalidArgumentError(absl::StrCat(path, " has no api-host"));
    return false;
  }
  VPOD_RETURN_IF_ERROR(SetAddress(get("api-host"), get("api-port"), path, config));
  return true;
}

absl::Status FindAddress(const ConfigFlags& flags, ClientConfig& config) {
  if (!flags.host.empty() || !flags.port.empty())
    return SetAddress(flags.host, flags.port, "--api-host", config);
  for (const char* prefix : {"IPUOF_VIPU_API_", "VIPU_CLI_API_"}) {
    const std::string host = Environment(absl::StrCat(prefix, "HOST").c_str());
    if (host.empty()) continue;
    return SetAddress(host, Environment(absl::StrCat(prefix, "PORT").c_str()),
                      absl::StrCat(prefix, "HOST"), config);
  }
  const std::string named =
      flags.config_file.empty() ? Environment("VIPU_CLI_CONFIG") : flags.config_file;
  if (!named.empty()) return TakeFile(named, true, config).status();
  for (const std::string& path :
       {absl::StrCat(Environment("HOME"), "/.vipu.hcl"), std::string("/etc/vipu/vipu-cli.hcl")}) {
    VPOD_ASSIGN_OR_RETURN(const bool found, TakeFile(path, false, config));
    if (found) return absl::OkStatus();
  }
  config.source = "default";
  return absl::OkStatus();
}

}  // namespace

std::string ClientConfig::address() const { return absl::StrCat(host, ":", port); }

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string OsUserName() {
  const passwd* entry = getpwuid(getuid());
  return entry == nullptr ? absl::StrCat(getuid()) : entry->pw_name;
}

absl::StatusOr<ClientConfig> DiscoverConfig(const ConfigFlags& flags) {
  ClientConfig config;
  VPOD_RETURN_IF_ERROR(FindAddress(flags, config));
  const auto override_with = [](std::string& field, const std::string& flag, const char* variable) {
    const std::string value = flag.empty() ? Environment(variable) : flag;
    if (!value.empty()) field = value;
  };
  override_with(config.user_id, flags.user_id, "VIPU_CLI_API_USER_ID");
  override_with(config.access_key, flags.access_key, "VIPU_CLI_API_ACCESS_KEY");
  if (config.user_id.empty()) config.user_id = OsUserName();
  return config;
}

std::string HclText(const ClientConfig& config) {
  return absl::StrCat("api-host=\"", config.host, "\"\napi-port=\"", config.port, "\"\n");
}

}  // namespace vpod::vipu
