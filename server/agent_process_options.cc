#include "server/agent_process_options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "device/base/command_line.h"
#include "device/base/host_name.h"
#include "device/base/status.h"
#include "device/base/whole_number.h"
#include "server/flag_values.h"
#include "server/rpc/daemon.h"

namespace vpod {
namespace {

void AddOptions(CLI::App& app, AgentProcessOptions& options, uint64_t& memory_limit_mib) {
  agent::AgentOptions& agent = options.agent;
  const CLI::Validator host([](const std::string& name) { return base::HostTrouble(name); }, "");
  app.add_option("--machines", agent.num_machines, "Number of IPU-Machines, 1 to 65534")
      ->transform(base::WholeNumber(1, agent::kMostMachines))
      ->capture_default_str();
  app.add_option("--machine-type", agent.machine_type, "m2000 or bow2000")->capture_default_str();
  app.add_option("--controller", options.controller, "host:port of vipu-server")
      ->capture_default_str();
  app.add_option("--listen", options.listen, "host:port to serve on; port 0 takes a free one")
      ->capture_default_str();
  app.add_option(
      "--metrics-listen", options.metrics_listen,
      "host:port of the metrics; default: 127.0.0.1:2112, or a free port if it is taken");
  app.add_flag("--insecure-listen", options.insecure_listen,
               "Allow end-points beyond loopback without TLS");
  app.add_option("--tls-ca", options.tls_files.ca, "Certificate of the POD's authority");
  app.add_option("--tls-cert", options.tls_files.certificate, "Certificate of a server of the POD");
  app.add_option("--tls-key", options.tls_files.key, "Its key");
  app.add_flag("--require-encrypted-fabric", agent.require_encrypted_fabric,
               "Refuse jobs whose tensors would travel to other hosts in clear");
  app.add_flag("--listen-on-machine", options.listen_on_machine,
               "Serve on the management address and port of the first machine");
  app.add_option("--addresses", options.addresses,
                 "Management addresses to take, e.g. 127.10; default: any free ones");
  app.add_option(
         "--first-machine", agent.first_machine,
         "Number of the first machine in its POD (0; with --host one made of the address). If it "
         "is above 0, --addresses names the addresses of the whole POD")
      ->transform(base::WholeNumber(0, agent::kMostMachines - 1));
  app.add_option("--host", agent.management_ip,
                 "Management address of the only machine, on a host of its own")
      ->check(host);
  app.add_option("--data-host", agent.data_ip, "Its data-plane address (default: --host)")
      ->check(host);
  app.add_option("--memory-limit", memory_limit_mib, "MiB of host memory for loaded programs")
      ->transform(base::WholeNumber(1, uint64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--compute-threads", agent.compute_threads, "Compute threads; 0 means one a core")
      ->transform(base::WholeNumber(0, 4096))
      ->capture_default_str();
  app.add_option("--log-level", options.log_level, "trace, debug, info, warn, error or off")
      ->capture_default_str();
  app.add_option("--log-file", options.log_file, "Log file; default stderr");
}

absl::Status CheckOptions(const AgentProcessOptions& options) {
  const std::string& listen = options.listen;
  VPOD_RETURN_IF_ERROR(rpc::CheckEndPointOption(
      "--listen", listen, options.MayListenBeyondLoopback(), rpc::kTlsOrInsecureListen));
  VPOD_RETURN_IF_ERROR(
      rpc::CheckEndPointOption("--controller", options.controller, /*allowed_beyond=*/true, ""));
  // The controller and other agents are told this address.
  for (const char* anywhere : {"0.0.0.0", "[::]", "*"}) {
    if (listen.substr(0, listen.rfind(':')) != anywhere) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen ", listen, " does not name a host; use an address that others can reach"));
  }
  if (!options.metrics_listen.empty())
    VPOD_RETURN_IF_ERROR(rpc::CheckEndPointOption("--metrics-listen", options.metrics_listen,
                                                  options.insecure_listen, rpc::kInsecureListen));
  if (!options.addresses.empty())
    VPOD_RETURN_IF_ERROR(rpc::AddressPairOf(options.addresses).status());
  if (options.ContinuesPod() && options.addresses.empty() && options.agent.management_ip.empty())
    return absl::InvalidArgumentError("--first-machine needs --addresses or --host");
  const std::string& transport = options.agent.transport;
  if (transport.empty() || transport == "shm" || transport == "tcp") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("VPOD_TRANSPORT is '", transport, "', must be shm or tcp"));
}

}  // namespace

absl::StatusOr<std::optional<AgentProcessOptions>> ParseAgentProcessOptions(
    int argc, const char* const* argv) {
  AgentProcessOptions options;
  uint64_t memory_limit_mib = options.agent.memory_limit_bytes >> 20;
  CLI::App app("Holds virtual IPU-Machines and serves them to the controller and to programs.",
               "vipu-agent");
  AddOptions(app, options, memory_limit_mib);
  RefuseOtherFlagValues(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0)
      return absl::InvalidArgumentError(base::DescribeWrongUsage(app, error));
    app.exit(error);
    return std::nullopt;
  }
  options.agent.memory_limit_bytes = memory_limit_mib << 20;
  if (options.agent.data_ip.empty()) options.agent.data_ip = options.agent.management_ip;
  const char* transport = std::getenv("VPOD_TRANSPORT");
  if (transport != nullptr) options.agent.transport = transport;
  VPOD_RETURN_IF_ERROR(CheckOptions(options));
  return options;
}

}  // namespace vpod
