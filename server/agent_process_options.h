// Options of vipu-agent from its command line and environment.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "device/base/tls.h"
#include "server/agent/agent.h"

namespace vpod {

struct AgentProcessOptions {
  agent::AgentOptions agent;  // addresses of machines without --host are left to be claimed
  std::string controller = "127.0.0.1:8090";
  std::string listen = "127.0.0.1:0";  // port 0: a free one
  std::string metrics_listen;          // empty: port 2112, or a free one if it is taken
  std::string addresses;               // --addresses, e.g. "127.10"; empty: any free ones
  std::string log_level = "info";
  std::string log_file;  // empty: stderr
  bool insecure_listen = false;
  bool listen_on_machine = false;  // at the address of the first machine, in place of `listen`
  base::TlsFiles tls_files;

  bool MayListenBeyondLoopback() const { return !tls_files.empty() || insecure_listen; }
  // Machines after the first ones of a POD, whose addresses another process claims.
  bool ContinuesPod() const { return agent.first_machine.value_or(0) > 0; }
};

// The options; nothing when help was asked for and given. InvalidArgument: wrong usage, the
// message says what to do.
absl::StatusOr<std::optional<AgentProcessOptions>> ParseAgentProcessOptions(
    int argc, const char* const* argv);

}  // namespace vpod
