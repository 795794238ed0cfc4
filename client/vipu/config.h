// Where the controller is and who we are: one order for all tools of the POD (spec/vipu.md 4).
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "device/base/tls.h"

namespace vpod::vipu {

struct ClientConfig {
  std::string host = "localhost";
  uint32_t port = 8090;
  std::string user_id;           // empty: the OS user
  std::string access_key;        // sent over TLS only
  std::optional<base::Tls> tls;  // unset: the controller and its agents speak without
  std::string source;  // for people: "--api-host", "IPUOF_VIPU_API_HOST", a file name, "default"

  std::string address() const;  // host:port
};

// Flags of the command line; empty fields were not given.
struct ConfigFlags {
  std::string host;  // also host:port
  std::string port;
  std::string user_id;
  std::string access_key;
  std::string config_file;
  base::TlsFiles tls;
};

// Order: flags, IPUOF_VIPU_API_HOST/_PORT, VIPU_CLI_API_HOST/_PORT, --config or VIPU_CLI_CONFIG
// (replaces the other files), the POD of VPOD_HOME or else of `vpod use`, ~/.vipu.hcl,
// /etc/vipu/vipu-cli.hcl, the POD in ~/.vpod, localhost:8090. The port is that of the host's
// source; --api-port and VIPU_CLI_API_PORT without a host go with the host of the next source.
// User, access key and TLS files come from flags, VIPU_CLI_API_USER_ID and so on, and a file that
// names the controller found or none: what was given for one controller is not shown to another.
// FailedPrecondition: a named file cannot be read. InvalidArgument: a port out of range, a line
// that is not `key="value"`, TLS files that do not fit, VPOD_HOME or `vpod use` without a POD,
// VPOD_HOME other than the one that `vpod env` was evaluated for.
absl::StatusOr<ClientConfig> DiscoverConfig(const ConfigFlags& flags);

// How the agents that a controller (host:port; empty: the one of DiscoverConfig) has named are
// reached: as it is.
absl::StatusOr<std::optional<base::Tls>> TlsOf(const std::string& controller);

// Text of a client file: one key="value" a line, no blanks around the sign, since scripts cut it.
// User and access key are in it when there is a key.
std::string HclText(const ClientConfig& config);
// Writes such a file for its owner's eyes only (mode 0600); it is there wholly or not at all.
absl::Status WriteSecretHcl(const std::string& path, const ClientConfig& config);

// An environment variable, or the empty string.
std::string Environment(const char* name);
// Login name of the OS user, or the uid if a header cannot carry the name.
std::string OsUserName();

}  // namespace vpod::vipu
