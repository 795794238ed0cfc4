#include "client/vipu/config.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/vipu/pod_home.h"
#include "device/base/file.h"
#include "device/base/status.h"
#include "device/base/text.h"

namespace vpod::vipu {
namespace {

// Reads `key = "value"` lines; blanks and # comments are allowed. NotFound: the file cannot be
// read; FailedPrecondition: it is a directory or a device, or too large.
absl::StatusOr<std::map<std::string, std::string>> ReadHcl(const std::string& path) {
  constexpr size_t kMostBytes = 1 << 20;
  VPOD_ASSIGN_OR_RETURN(const std::string file, base::ReadNamedFile(path, kMostBytes));
  std::map<std::string, std::string> values;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(file, '\n')) {
    ++number;
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

// That a named file cannot be read is a failure; NotFound would say that it need not be there.
absl::Status OfNamedFile(const absl::Status& status) {
  return absl::IsNotFound(status) ? absl::FailedPreconditionError(status.message()) : status;
}

// Host, or host:port, and a separate port; each with the name of where it was read.
absl::Status SetAddress(std::string host, const std::string& port, const std::string& source,
                        const std::string& port_source, ClientConfig& config) {
  std::string port_text = port;
  const size_t colon = host.rfind(':');
  const bool has_port =
      colon != std::string::npos &&
      (host.find(':') == colon || (colon > 0 && host[colon - 1] == ']'));  // IPv6 in brackets
  if (has_port) {
    if (port_text.empty()) port_text = host.substr(colon + 1);
    host.resize(colon);
  } else if (colon != std::string::npos && host[0] != '[') {
    host = absl::StrCat("[", host, "]");
  }
  config.host = host.empty() ? "localhost" : host;
  config.port = 8090;
  config.source = source;
  if (!port_text.empty() &&
      (!absl::SimpleAtoi(port_text, &config.port) || config.port < 1 || config.port > 65535)) {
    return absl::InvalidArgumentError(absl::StrCat("port '", port_text, "' from ",
                                                   port.empty() ? source : port_source,
                                                   " must be a number from 1 to 65535"));
  }
  return absl::OkStatus();
}

// The controller's address as one source has it.
struct NamedAddress {
  std::string host, port;                // empty: not said
  std::string host_source, port_source;  // for people
};

absl::StatusOr<NamedAddress> AddressInFile(const std::string& path) {
  VPOD_ASSIGN_OR_RETURN(auto values, ReadHcl(path));
  return NamedAddress{values["api-host"], values["api-port"], path, path};
}

std::string NamedFile(const ConfigFlags& flags) {
  return flags.config_file.empty() ? Environment("VIPU_CLI_CONFIG") : flags.config_file;
}

// The files that are read unless another is named. A POD that was chosen comes first: it was asked
// for. The default one comes last.
std::vector<std::string> DefaultFiles() {
  std::vector<std::string> files;
  const auto chosen = FindChosenPod();
  const bool has_chosen = chosen.ok() && chosen->has_value();
  if (has_chosen) files.push_back(absl::StrCat((*chosen)->home, "/", kPodClientFile));
  if (const std::string home = Environment("HOME"); !home.empty())
    files.push_back(home + "/.vipu.hcl");
  files.push_back("/etc/vipu/vipu-cli.hcl");
  if (const auto pod = HomeOfPod(kDefaultPod); pod.ok() && !has_chosen)
    files.push_back(absl::StrCat(*pod, "/", kPodClientFile));
  return files;
}

// From flags and environment, in their order.
std::vector<NamedAddress> GivenAddresses(const ConfigFlags& flags) {
  std::vector<NamedAddress> given = {{flags.host, flags.port, "--api-host", "--api-port"}};
  for (const char* prefix : {"IPUOF_VIPU_API_", "VIPU_CLI_API_"}) {
    const std::string host = absl::StrCat(prefix, "HOST"), port = absl::StrCat(prefix, "PORT");
    given.push_back({Environment(host.c_str()), Environment(port.c_str()), host, port});
  }
  // IPUOF_VIPU_API_PORT says nothing without its host: programs then read a file.
  if (given[1].host.empty()) given.erase(given.begin() + 1);
  return given;
}

absl::StatusOr<NamedAddress> AddressOfFiles(const ConfigFlags& flags) {
  if (const std::string named = NamedFile(flags); !named.empty()) {
    const auto address = AddressInFile(named);
    if (!address.ok()) return OfNamedFile(address.status());
    if (address->host.empty())
      return absl::InvalidArgumentError(absl::StrCat(named, " has no api-host"));
    return address;
  }
  VPOD_ASSIGN_OR_RETURN(const auto chosen, FindChosenPod());
  std::error_code error;
  if (chosen.has_value() &&
      !std::filesystem::exists(absl::StrCat(chosen->home, "/", kPodClientFile), error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(chosen->how, ", where no POD is; 'vpod up' brings one up"));
  }
  for (const std::string& path : DefaultFiles()) {
    auto address = AddressInFile(path);
    if (absl::IsNotFound(address.status())) continue;
    if (!address.ok() || !address->host.empty()) return address;
  }
  return NamedAddress{"localhost", "", "default", ""};
}

// The port that goes with the host of `given[at]`: one said before or with that host, else that of
// a later source which names the same host. Empty: none is said.
NamedAddress PortFor(const std::vector<NamedAddress>& given, size_t at) {
  for (size_t i = 0; i < given.size(); ++i) {
    const bool counts = i <= at || given[i].host == given[at].host;
    if (counts && !given[i].port.empty()) return given[i];
  }
  return {};
}

absl::Status FindAddress(const ConfigFlags& flags, ClientConfig& config) {
  const std::vector<NamedAddress> given = GivenAddresses(flags);
  size_t at = 0;
  while (at < given.size() && given[at].host.empty()) ++at;
  if (at < given.size()) {
    if (given[at].host_source == "VIPU_CLI_API_HOST") VPOD_RETURN_IF_ERROR(CheckPodEnvironment());
    const NamedAddress port = PortFor(given, at);
    return SetAddress(given[at].host, port.port, given[at].host_source, port.port_source, config);
  }
  VPOD_ASSIGN_OR_RETURN(const NamedAddress found, AddressOfFiles(flags));
  const auto port = std::find_if(given.begin(), given.end(),
                                 [](const NamedAddress& each) { return !each.port.empty(); });
  const NamedAddress& source = port == given.end() ? found : *port;
  return SetAddress(found.host, source.port, found.host_source, source.port_source, config);
}

// Sets what is still empty of `config` and `tls` from a file, when it is about that controller.
absl::Status TakeCredentials(const std::string& path, ClientConfig& config, base::TlsFiles& tls) {
  VPOD_ASSIGN_OR_RETURN(const auto values, ReadHcl(path));
  const auto get = [&](const char* key) {
    const auto it = values.find(key);
    return it == values.end() ? std::string() : it->second;
  };
  ClientConfig other;
  const bool names_one = !get("api-host").empty();
  if (names_one && (!SetAddress(get("api-host"), get("api-port"), path, path, other).ok() ||
                    other.address() != config.address()))
    return absl::OkStatus();
  // The key of another user is of no use.
  if (config.user_id.empty()) config.user_id = get("api-user-id");
  if (config.access_key.empty() && config.user_id == get("api-user-id"))
    config.access_key = get("api-access-key");
  if (tls.empty()) tls = {get("tls-ca"), get("tls-cert"), get("tls-key")};
  return absl::OkStatus();
}

absl::Status FindCredentials(const ConfigFlags& flags, ClientConfig& config) {
  const auto choose = [](const std::string& flag, const char* variable) {
    return flag.empty() ? Environment(variable) : flag;
  };
  config.user_id = choose(flags.user_id, "VIPU_CLI_API_USER_ID");
  config.access_key = choose(flags.access_key, "VIPU_CLI_API_ACCESS_KEY");
  base::TlsFiles tls = {choose(flags.tls.ca, "VIPU_CLI_TLS_CA"),
                        choose(flags.tls.certificate, "VIPU_CLI_TLS_CERT"),
                        choose(flags.tls.key, "VIPU_CLI_TLS_KEY")};
  if (const std::string named = NamedFile(flags); !named.empty()) {
    const absl::Status taken = TakeCredentials(named, config, tls);
    if (!taken.ok()) return OfNamedFile(taken);
  } else {
    // Errors in these files do not matter, because the address did not come from them.
    for (const std::string& path : DefaultFiles()) TakeCredentials(path, config, tls).IgnoreError();
  }
  if (config.user_id.empty()) config.user_id = OsUserName();
  VPOD_RETURN_IF_ERROR(base::CheckHeaderWord("user id", config.user_id));
  if (!config.access_key.empty() && !base::IsHeaderWord(config.access_key))  // it is not shown
    return absl::InvalidArgumentError(
        absl::StrCat("the access key must have ", base::kHeaderWordRule));
  if (tls.empty()) return absl::OkStatus();
  VPOD_ASSIGN_OR_RETURN(config.tls, base::ReadTls(tls));
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
  const bool is_word = entry != nullptr && base::IsHeaderWord(entry->pw_name);
  return is_word ? entry->pw_name : absl::StrCat(getuid());
}

absl::StatusOr<ClientConfig> DiscoverConfig(const ConfigFlags& flags) {
  ClientConfig config;
  VPOD_RETURN_IF_ERROR(FindAddress(flags, config));
  VPOD_RETURN_IF_ERROR(FindCredentials(flags, config));
  return config;
}

absl::StatusOr<std::optional<base::Tls>> TlsOf(const std::string& controller) {
  VPOD_ASSIGN_OR_RETURN(ClientConfig config, DiscoverConfig({.host = controller}));
  return std::move(config.tls);
}

std::string HclText(const ClientConfig& config) {
  std::string text;
  const auto line = [&](const char* key, const std::string& value) {
    if (!value.empty()) absl::StrAppend(&text, key, "=\"", value, "\"\n");
  };
  line("api-host", config.host);
  line("api-port", absl::StrCat(config.port));
  if (!config.access_key.empty()) line("api-user-id", config.user_id);
  line("api-access-key", config.access_key);
  if (config.tls.has_value()) {
    line("tls-ca", std::filesystem::absolute(config.tls->files.ca));
    line("tls-cert", std::filesystem::absolute(config.tls->files.certificate));
    line("tls-key", std::filesystem::absolute(config.tls->files.key));
  }
  return text;
}

absl::Status WriteSecretHcl(const std::string& path, const ClientConfig& config) {
  return base::ReplaceFile(path, HclText(config), 0600);
}

}  // namespace vpod::vipu
