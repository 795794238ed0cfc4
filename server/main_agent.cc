// vipu-agent: holds IPU-Machines and serves them.
#include <grpcpp/grpcpp.h>
#include <malloc.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/arch/hardware.h"
#include "device/base/exit_code.h"
#include "device/base/status.h"
#include "device/base/text.h"
#include "server/agent/agent.h"
#include "server/agent/local_listener.h"
#include "server/agent_process_options.h"
#include "server/announcer.h"
#include "server/http/exporter.h"
#include "server/http/machine_exporter.h"
#include "server/rpc/agent_services.h"
#include "server/rpc/bounded_listener.h"
#include "server/rpc/call_guard.h"
#include "server/rpc/daemon.h"
#include "server/rpc/fabric_service.h"
#include "server/rpc/grpc_transport.h"
#include "server/rpc/liveness.h"

namespace vpod {
namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "vipu-agent: error: %s\n", base::OneLine(status.message()).c_str());
  return base::ExitCode(status);
}

std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

// TLS, or nothing when no file is named.
absl::StatusOr<std::optional<base::Tls>> MemberTls(const base::TlsFiles& files) {
  if (files.empty()) return std::nullopt;
  VPOD_ASSIGN_OR_RETURN(base::Tls tls, base::ReadTls(files));
  if (!base::IsServerCertificate(tls.certificate)) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.certificate, " is a client's certificate; agents need a server's"));
  }
  return tls;
}

// The machines' addresses; those of a POD are claimed by the process of its first machine.
absl::StatusOr<rpc::AddressPair> Addresses(const AgentProcessOptions& options) {
  if (!options.agent.management_ip.empty()) return rpc::AddressPair();
  return options.ContinuesPod() ? rpc::AddressPairOf(options.addresses)
                                : rpc::ClaimAddressPair(options.addresses);
}

// A machine with an address of its own shows its metrics there, if that is allowed.
std::string ExporterAddress(const AgentProcessOptions& options, const std::string& listen) {
  const std::string own = absl::StrCat(HostOf(listen), ":2112");
  const bool has_own = options.listen_on_machine || !rpc::IsOnLoopback(listen);
  return has_own && (rpc::IsOnLoopback(own) || options.insecure_listen) ? own : "127.0.0.1:2112";
}

// A server and the listener that feeds it.
struct Served {
  std::shared_ptr<rpc::BoundedListener> listener;
  std::unique_ptr<grpc::Server> server;
};

// Clients send messages of a mebibyte, and there may be a client for each IPU.
rpc::ConnectionLimits LimitsFor(uint32_t num_machines) {
  const uint64_t ipus = uint64_t{num_machines} * arch::kIpusPerMachine;
  return {.incomplete_bytes = std::max(rpc::ConnectionLimits().incomplete_bytes, 2 * ipus << 20)};
}

// The server on `listen`, which then names the port that it has.
absl::StatusOr<Served> StartServer(agent::Agent& agent, const std::optional<base::Tls>& tls,
                                   rpc::AgentServices& services, grpc::Service& fabric_service,
                                   const rpc::ConnectionLimits& limits, std::string& listen) {
  grpc::ServerBuilder builder;
  VPOD_ASSIGN_OR_RETURN(auto listener, rpc::BoundedListener::Open(
                                           listen, rpc::GuardedCredentials(tls), builder, limits));
  const int port = listener->port();
  builder.SetMaxReceiveMessageSize(16 << 20);
  // Calls of one connection: a process may hold thousands of leases, each with calls of its own.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 1 << 14);
  services.RegisterOn(builder, listener.get());
  builder.RegisterService(&fabric_service);
  // Peers send keepalives once a second.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  agent.SetEndpoint(listen);  // before anyone asks; of port 0 nobody knows
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return absl::UnavailableError(absl::StrCat("cannot serve on ", listen));
  const std::string endpoint = absl::StrCat(HostOf(listen), ":", port);
  if (std::exchange(listen, endpoint) != endpoint) agent.SetEndpoint(endpoint);
  listener->Start();
  return Served{std::move(listener), std::move(server)};
}

// Below the 5 s within which a signal ends the agent, whatever its kernels do.
constexpr std::chrono::seconds kEndPatience{4};

// Until a signal stops it. InvalidArgument: the usage was wrong.
absl::Status Serve(AgentProcessOptions options, const std::optional<base::Tls>& tls) {
  const auto addresses = Addresses(options);
  if (!addresses.ok()) return absl::FailedPreconditionError(addresses.status().message());
  options.agent.management_prefix = addresses->management_prefix;
  options.agent.data_prefix = addresses->data_prefix;
  options.agent.encrypted_fabric = tls.has_value();
  VPOD_ASSIGN_OR_RETURN(const auto agent, agent::Agent::Create(options.agent));
  std::string listen = options.listen;
  if (options.listen_on_machine) {
    const vipuagent::Machine machine = agent->DescribeMachines().front();
    listen = absl::StrCat(machine.host(), ":", machine.port());
    VPOD_RETURN_IF_ERROR(rpc::CheckEndPointOption("--listen-on-machine", listen,
                                                  options.MayListenBeyondLoopback(),
                                                  rpc::kTlsOrInsecureListen));
  }
  VPOD_ASSIGN_OR_RETURN(const auto local_listener, agent::LocalListener::Open(*agent));
  rpc::Liveness liveness;
  VPOD_ASSIGN_OR_RETURN(
      const auto metrics,
      http::StartExporter(options.metrics_listen, ExporterAddress(options, listen),
                          http::MachineRoutes(*agent, [&] { return liveness.Status(); })));

  // Before the agent that uses it, and after whatever may call it.
  rpc::GrpcPeerGateway peers(tls);
  // Where nothing may go to other hosts in clear, nothing comes from them either.
  const std::string fabric_host =
      options.agent.require_encrypted_fabric ? "127.0.0.1" : HostOf(listen);
  VPOD_ASSIGN_OR_RETURN(
      auto sockets, fabric::SocketTransport::Create(
                        fabric_host, [agent = agent.get()](absl::string_view header, size_t bytes) {
                          return agent->OnFabricMessage(header, bytes);
                        }));
  agent->SetPeers(&peers, std::make_unique<rpc::GrpcTransport>(tls), std::move(sockets));
  rpc::AgentServices services(*agent, tls);
  const std::unique_ptr<grpc::Service> fabric_service = rpc::MakeFabricService(*agent);
  VPOD_ASSIGN_OR_RETURN(const auto served,
                        StartServer(*agent, tls, services, *fabric_service,
                                    LimitsFor(options.agent.num_machines), listen));
  spdlog::info(
      "{} machines of type {} at {}, metrics at {}, memory limit {} MiB, {} compute threads",
      options.agent.num_machines, options.agent.machine_type, listen, metrics->endpoint(),
      options.agent.memory_limit_bytes >> 20, agent->executors().compute_threads());
  {
    // An exporter on loopback is no use to a site that reaches this agent from elsewhere.
    const bool hidden = !rpc::IsOnLoopback(listen) && rpc::IsOnLoopback(metrics->endpoint());
    Announcer announcer({.controller = options.controller,
                         .endpoint = listen,
                         .metrics_endpoint = hidden ? "" : metrics->endpoint()},
                        tls, *agent);
    const auto beats = agent->executors().Every(std::chrono::seconds(1), [&] { liveness.Beat(); });
    rpc::NotifyReady();
    // The lease does not exist, and the agent says so.
    liveness.Start(
        {.questions = {{served.listener->LocalEndpoint(), "/vpod.ipuof.v1.Ipuof/GetCounters"}},
         .tls = tls,
         .is_excused = [&] { return agent->gate().closed(); }});
    spdlog::info("stopping on signal {}", rpc::WaitForStopSignal());
    liveness.Stop();
    rpc::EndWithin(kEndPatience);
  }
  agent->gate().OpenForEver();
  served.listener->Close();
  served.server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  agent->Stop();
  peers.Stop();
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  // Memory of clients' data that was refused or used goes back to the host. Left alone, the
  // allocator learns from large blocks to keep them.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  rpc::BlockStopSignals();
  rpc::AllowManyDescriptors();
  auto options = ParseAgentProcessOptions(argc, argv);
  if (!options.ok()) return Fail(options.status());
  if (!options->has_value()) return 0;
  if (absl::Status status = rpc::SetUpLog((*options)->log_level, (*options)->log_file);
      !status.ok())
    return Fail(status);
  const auto tls = MemberTls((*options)->tls_files);
  if (!tls.ok()) return Fail(tls.status());
  const absl::Status status = Serve(**std::move(options), *tls);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace
}  // namespace vpod

int main(int argc, char** argv) { return vpod::Main(argc, argv); }
