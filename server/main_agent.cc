// vipu-agent: holds IPU-Machines and serves them.
#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/grpc_connect.h"
#include "device/base/mutex.h"
#include "device/base/status.h"
#include "device/base/version.h"
#include "device/fabric/ucx_transport.h"
#include "proto/vipu/v1/vipuagent.grpc.pb.h"
#include "server/agent/agent.h"
#include "server/agent/local_door.h"
#include "server/http/exporter.h"
#include "server/http/machine_exporter.h"
#include "server/rpc/agent_services.h"
#include "server/rpc/call_guard.h"
#include "server/rpc/daemon.h"
#include "server/rpc/fabric_service.h"

namespace vpod {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "vipu-agent: error: %s\n", std::string(status.message()).c_str());
  return code;
}

// Registers the machines with the controller and tells it that they live, once a second or as it
// wishes; stops when destroyed.
class Announcer {
 public:
  Announcer(const std::string& controller, const std::optional<base::Tls>& tls,
            const std::string& endpoint, const std::string& fabric_address,
            const std::string& metrics_endpoint, agent::Agent& agent)
      : controller_(controller), tls_(tls), agent_(agent) {
    registration_.set_endpoint(endpoint);
    registration_.set_fabric_address(fabric_address);
    registration_.set_metrics_endpoint(metrics_endpoint);
    registration_.set_boot_id(agent.boot_id());
    registration_.set_version(base::kVersion);
    for (vipuagent::Machine& machine : agent.DescribeMachines())
      *registration_.add_machines() = std::move(machine);
    thread_ = std::thread([this] { Loop(); });
  }
  ~Announcer() {
    {
      base::MutexLock lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

 private:
  void Loop() {
    grpc::StatusCode state = grpc::StatusCode::OK;
    bool registered = false;
    auto stub = Connect();
    while (true) {
      // A process that hangs is silent.
      const grpc::Status status =
          agent_.gate().closed() ? grpc::Status::OK : Announce(*stub, registered);
      if (std::exchange(state, status.error_code()) != status.error_code()) Log(status);
      // A channel that failed reconnects ever more rarely, a new one at once.
      if (!status.ok()) stub = Connect();
      const bool at_once = status.ok() && !registered && !agent_.gate().closed();
      const auto pause = at_once       ? std::chrono::milliseconds(0)
                         : status.ok() ? interval_
                                       : std::chrono::milliseconds(1000);
      const auto next = std::chrono::steady_clock::now() + pause;
      base::MutexLock lock(mutex_);
      if (lock.WaitUntil(changed_, next, [&] { return stopping_; })) return;
    }
  }

  void Log(const grpc::Status& status) const {
    switch (status.error_code()) {
      case grpc::StatusCode::OK:
        return spdlog::info("controller reached");
      case grpc::StatusCode::ALREADY_EXISTS:
      case grpc::StatusCode::FAILED_PRECONDITION:
      case grpc::StatusCode::RESOURCE_EXHAUSTED:
        return spdlog::error("refused by the controller: {}", status.error_message());
      default:
        return spdlog::info("controller lost: {}.{}", status.error_message(),
                            base::TlsHint(tls_, status.error_message()));
    }
  }

  grpc::Status Announce(vipuagent::VipuRegistry::Stub& stub, bool& registered) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
    if (!registered) {
      vipuagent::RegisterReply reply;
      const grpc::Status status = stub.Register(&context, registration_, &reply);
      registered = status.ok();
      if (reply.heartbeat_interval_ms() > 0)
        interval_ = std::chrono::milliseconds(reply.heartbeat_interval_ms());
      names_version_.clear();
      // Another process has its machines: what runs on them here ends.
      if (status.error_code() == grpc::StatusCode::ALREADY_EXISTS) Disown();
      return status;
    }
    vipuagent::HeartbeatRequest request;
    request.set_endpoint(registration_.endpoint());
    request.set_boot_id(registration_.boot_id());
    request.set_names_version(names_version_);
    for (vipuagent::MachineHealth& health : agent_.Unwell())
      *request.add_unwell() = std::move(health);
    for (const auto& [partition, generation] : agent_.Detached()) {
      request.add_detached_partitions(partition);
      request.add_detached_generations(generation);
    }
    vipuagent::HeartbeatReply reply;
    const grpc::Status status = stub.Heartbeat(&context, request, &reply);
    registered = !reply.register_();
    if (status.ok() && registered && reply.names_version() != names_version_) TakeNames(reply);
    return status;
  }

  void Disown() {
    vipuagent::ConfigureRequest nothing;
    nothing.set_complete(true);
    agent_.Configure(nothing).IgnoreError();  // nothing in it can be refused
  }

  void TakeNames(const vipuagent::HeartbeatReply& reply) {
    std::map<std::string, std::string> id_by_host;
    for (const vipuagent::MachineName& name : reply.names())
      id_by_host[name.host()] = name.agent_id();
    agent_.SetAgentIds(std::move(id_by_host));
    names_version_ = reply.names_version();
  }

  std::unique_ptr<vipuagent::VipuRegistry::Stub> Connect() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return vipuagent::VipuRegistry::NewStub(
        base::Connect(controller_, base::Peer::kController, tls_, arguments));
  }

  const std::string controller_;
  const std::optional<base::Tls> tls_;
  agent::Agent& agent_;
  vipuagent::RegisterRequest registration_;
  std::string names_version_;  // of the machines' ids, as last heard
  std::chrono::milliseconds interval_{1000};
  base::Mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

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

std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

int Main(int argc, char** argv) {
  rpc::BlockStopSignals();
  rpc::AllowManyDescriptors();
  agent::AgentOptions options;
  std::string controller = "127.0.0.1:8090", listen = "127.0.0.1:0", log_level = "info", log_file,
              addresses_wanted, metrics_listen;
  uint64_t memory_limit_mib = options.memory_limit_bytes >> 20;
  bool insecure_listen = false, listen_on_machine = false;
  base::TlsFiles tls_files;
  CLI::App app("Holds virtual IPU-Machines and serves them to the controller and to programs.",
               "vipu-agent");
  app.add_option("--machines", options.num_machines, "Number of IPU-Machines, 1 to 65534")
      ->capture_default_str();
  app.add_option("--machine-type", options.machine_type, "m2000 or bow2000")->capture_default_str();
  app.add_option("--controller", controller, "host:port of vipu-server")->capture_default_str();
  app.add_option("--listen", listen, "host:port to serve on; port 0 takes a free one")
      ->capture_default_str();
  app.add_option(
      "--metrics-listen", metrics_listen,
      "host:port of the metrics; default: 127.0.0.1:2112, or a free port if it is taken");
  app.add_flag("--insecure-listen", insecure_listen,
               "Allow end-points beyond loopback without TLS");
  app.add_option("--tls-ca", tls_files.ca, "Certificate of the POD's authority");
  app.add_option("--tls-cert", tls_files.certificate, "Certificate of a server of the POD");
  app.add_option("--tls-key", tls_files.key, "Its key");
  app.add_flag("--require-encrypted-fabric", options.require_encrypted_fabric,
               "Refuse jobs whose tensors would travel to other hosts in clear");
  app.add_flag("--listen-on-machine", listen_on_machine,
               "Serve on the management address and port of the first machine");
  app.add_option("--addresses", addresses_wanted,
                 "Management addresses to take, e.g. 127.10; default: any free ones");
  app.add_option("--first-machine", options.first_machine,
                 "Number of the first machine in its POD; above 0 --addresses are those of the POD "
                 "(default: 0; with --host one made of the address)");
  app.add_option("--host", options.management_ip,
                 "Management address of the only machine, on a host of its own");
  app.add_option("--data-host", options.data_ip, "Its data-plane address (default: --host)");
  app.add_option("--memory-limit", memory_limit_mib, "MiB of host memory for loaded programs")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--compute-threads", options.compute_threads,
                 "Compute threads; 0 means one a core")
      ->capture_default_str();
  app.add_option("--log-level", log_level, "trace, debug, info, warn, error or off")
      ->capture_default_str();
  app.add_option("--log-file", log_file, "Log file; default stderr");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return Fail(
        absl::InvalidArgumentError(absl::StrCat(error.what(), ". Try 'vipu-agent --help'.")), 2);
  }
  options.memory_limit_bytes = memory_limit_mib << 20;
  if (absl::Status status = rpc::SetUpLog(log_level, log_file); !status.ok())
    return Fail(status, 2);
  const auto tls = MemberTls(tls_files);
  if (!tls.ok()) return Fail(tls.status(), 2);
  const bool allowed_beyond = tls->has_value() || insecure_listen;
  if (absl::Status status = rpc::CheckListenAddress(listen, allowed_beyond); !status.ok())
    return Fail(status, 2);
  // The controller and other agents are told this address.
  for (const char* anywhere : {"0.0.0.0", "[::]", "*"}) {
    if (HostOf(listen) != anywhere) continue;
    return Fail(absl::InvalidArgumentError(absl::StrCat(
                    "--listen ", listen, " names no host; give an address that others reach")),
                2);
  }
  // TLS does not reach the metrics.
  if (!metrics_listen.empty()) {
    const absl::Status status = rpc::CheckListenAddress(metrics_listen, insecure_listen);
    if (!status.ok()) return Fail(status, 2);
  }
  if (options.data_ip.empty()) options.data_ip = options.management_ip;
  const bool continues_pod = options.first_machine.value_or(0) > 0;
  if (continues_pod && addresses_wanted.empty() && options.management_ip.empty()) {
    return Fail(absl::InvalidArgumentError("--first-machine needs --addresses or --host"), 2);
  }
  absl::StatusOr<rpc::AddressPair> addresses = rpc::AddressPair();
  if (options.management_ip.empty()) {
    // Those of a POD are claimed by the process of its first machine.
    addresses = continues_pod ? rpc::AddressPairOf(addresses_wanted)
                              : rpc::ClaimAddressPair(addresses_wanted);
  }
  if (!addresses.ok()) return Fail(addresses.status(), 1);
  options.management_prefix = addresses->management_prefix;
  options.data_prefix = addresses->data_prefix;
  options.transport = Environment("VPOD_TRANSPORT");
  if (!options.transport.empty() && options.transport != "shm" && options.transport != "tcp") {
    return Fail(absl::InvalidArgumentError(absl::StrCat("VPOD_TRANSPORT is '", options.transport,
                                                        "', must be shm or tcp")),
                2);
  }
  auto agent = agent::Agent::Create(options);
  if (!agent.ok()) return Fail(agent.status(), 2);
  if (listen_on_machine) {
    const vipuagent::Machine machine = (*agent)->DescribeMachines().front();
    listen = absl::StrCat(machine.host(), ":", machine.port());
    if (absl::Status status = rpc::CheckListenAddress(listen, allowed_beyond); !status.ok())
      return Fail(status, 2);
  }
  auto door = agent::LocalDoor::Open(**agent);
  if (!door.ok()) return Fail(door.status(), 1);
  // A machine with an address of its own shows its metrics there, if that is allowed.
  const bool beyond = !rpc::CheckListenAddress(listen, false).ok();
  std::string exporter = absl::StrCat(HostOf(listen), ":2112");
  if (!(listen_on_machine || beyond) || !rpc::CheckListenAddress(exporter, insecure_listen).ok())
    exporter = "127.0.0.1:2112";
  auto metrics = http::StartExporter(metrics_listen, exporter, http::MachineRoutes(**agent));
  if (!metrics.ok()) return Fail(metrics.status(), 1);

  // Before the agent that uses it, and after whatever may call it.
  rpc::GrpcPeerGateway peers(*tls);
  auto transport =
      fabric::CreateUcxTransport({.host = HostOf(listen), .tcp_only = options.transport == "tcp"},
                                 [agent = agent->get()](absl::string_view header, size_t bytes) {
                                   return agent->OnFabricMessage(header, bytes);
                                 });
  if (!transport.ok()) return Fail(transport.status(), 1);
  const std::string fabric_address = (*transport)->address();
  (*agent)->SetPeers(&peers, *std::move(transport));
  rpc::AgentServices services(**agent, *tls);
  const std::unique_ptr<grpc::Service> fabric_service = rpc::MakeFabricService(**agent);
  grpc::ServerBuilder builder;
  int port = 0;
  // A port in use must be an error, not a share of somebody else's.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort(listen, rpc::GuardedCredentials(*tls), &port);
  builder.SetMaxReceiveMessageSize(16 << 20);
  services.RegisterOn(builder);
  builder.RegisterService(fabric_service.get());
  // Peers ask for signs of life once a second.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  (*agent)->SetEndpoint(listen);  // before anyone asks; port 0 becomes known later, to all
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return Fail(absl::UnavailableError(absl::StrCat("cannot listen on ", listen)), 1);
  }
  rpc::EndConnectionsOfLostHosts(port);
  const std::string endpoint = absl::StrCat(HostOf(listen), ":", port);
  if (endpoint != listen) (*agent)->SetEndpoint(endpoint);
  spdlog::info(
      "{} machines of type {} at {}, metrics at {}, memory limit {} MiB, {} compute threads",
      options.num_machines, options.machine_type, endpoint, (*metrics)->endpoint(),
      memory_limit_mib, (*agent)->executors().compute_threads());
  if (tls->has_value() && !options.require_encrypted_fabric) {
    spdlog::warn(
        "TLS guards calls, but tensors travel between agents in clear; "
        "--require-encrypted-fabric forbids that");
  }
  {
    // An exporter on loopback is no use to a site that reaches this agent from elsewhere.
    const std::string exporter_endpoint = (*metrics)->endpoint();
    const bool hidden = beyond && rpc::CheckListenAddress(exporter_endpoint, false).ok();
    Announcer announcer(controller, *tls, endpoint, fabric_address, hidden ? "" : exporter_endpoint,
                        **agent);
    rpc::NotifyReady();
    spdlog::info("stopping on signal {}", rpc::WaitForStopSignal());
  }
  (*agent)->gate().OpenForEver();
  server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  (*agent)->Stop();
  peers.Stop();
  return 0;
}

}  // namespace
}  // namespace vpod

int main(int argc, char** argv) { return vpod::Main(argc, argv); }
