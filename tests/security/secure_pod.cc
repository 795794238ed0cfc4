#include "tests/security/secure_pod.h"

#include <gtest/gtest.h>

#include <thread>

#include "device/base/file.h"
#include "proto/fabric/v1/fabric.pb.h"
#include "proto/ipuof/v1/ipuof.pb.h"
#include "proto/telemetry/v1/telemetry.pb.h"
#include "proto/vipu/v1/vipuadmin.pb.h"
#include "proto/vipu/v1/vipuagent.pb.h"
#include "proto/vipu/v1/vipuuser.pb.h"
#include "tests/support/raw_call.h"

namespace vpod::testing {
namespace {

using Methods = std::vector<const google::protobuf::MethodDescriptor*>;

void Add(const google::protobuf::FileDescriptor* file, const std::string& service, Methods& into) {
  const auto* descriptor = file->FindServiceByName(service);
  for (int i = 0; i < descriptor->method_count(); ++i) into.push_back(descriptor->method(i));
}

vipuadmin::User UserOf(const std::string& id, const std::string& allocation) {
  vipuadmin::User user;
  user.set_id(id);
  user.mutable_allocation_ids()->add_names(allocation);
  return user;
}

// Until `done` holds or half a minute has passed.
template <class Done>
bool Await(const Done& done) {
  for (int i = 0; i < 600; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

}  // namespace

SecurePod::SecurePod(const std::vector<std::string>& options, Agents agents) : layout_(agents) {
  const std::string at = pod_.directory();
  const std::vector<std::string> common = {"vipu-server", "--config",   "/dev/null",
                                           "--secure",    "--storage",  at + "/vipu-server.db",
                                           "--certs-dir", at + "/certs"};
  std::vector<std::string> init = common;
  init.insert(init.end(), {"--init", "--default-user-id", "root"});
  const Outcome made = pod_.Run(init);
  EXPECT_EQ(made.code, 0) << made.err;
  const std::string label = "Access Key is: ";
  const size_t key = made.out.find(label);
  if (key == std::string::npos) return;
  keys_["root"] = made.out.substr(key + label.size(), 11);

  std::vector<std::string> server = common;
  server.insert(server.end(),
                {"--user-api-listen", this->server(), "--metrics-listen",
                 "127.0.0.1:" + std::to_string(FreePort()), "--log-file", at + "/server.log"});
  server.insert(server.end(), options.begin(), options.end());
  server_ = pod_.Start(server);
  if (agents == Agents::kOneProcess) {
    StartAgent(2, options);
  } else {
    pod_.environment()["VPOD_TRANSPORT"] = "tcp";
    for (int i = 0; i < 2; ++i) StartAgent(1, options);
  }
  ready_ = SetUp();
  EXPECT_TRUE(ready_) << Log("server") << Log("agent0");
}

void SecurePod::StartAgent(int machines, const std::vector<std::string>& options) {
  const std::string certs = pod_.directory() + "/certs/server/";
  const std::string log = pod_.directory() + "/agent" + std::to_string(agents_.size()) + ".log";
  const std::string endpoint = "127.0.0.1:" + std::to_string(FreePort());
  std::vector<std::string> agent = {"vipu-agent",
                                    "--machines",
                                    std::to_string(machines),
                                    "--controller",
                                    this->server(),
                                    "--listen",
                                    endpoint,
                                    "--metrics-listen",
                                    "127.0.0.1:" + std::to_string(FreePort()),
                                    "--tls-ca",
                                    certs + "ca.crt",
                                    "--tls-cert",
                                    certs + "server.crt",
                                    "--tls-key",
                                    certs + "server.key",
                                    "--log-file",
                                    log};
  agent.insert(agent.end(), options.begin(), options.end());
  agents_.push_back({endpoint, pod_.Start(agent)});
}

SecurePod::~SecurePod() {
  const auto end = [](Command& daemon) {
    daemon.Signal(SIGTERM);
    daemon.Wait(std::chrono::seconds(20));
  };
  // In order, so that neither has to complain about the other.
  for (const AgentProcess& agent : agents_) end(*agent.process);
  if (server_ != nullptr) end(*server_);
}

bool SecurePod::SetUp() {
  if (!CreateClusters()) return false;
  vipu::Client root(ConfigOf("root"), std::chrono::seconds(20));
  const std::string second = layout_ == Agents::kOneProcess ? "a2" : "a1";
  for (const auto& [user, allocation] :
       {std::pair("alice", std::string("a1")), std::pair("bob", std::string("a1")),
        std::pair("eve", second)}) {
    const auto key = root.CreateUser(UserOf(user, allocation));
    EXPECT_TRUE(key.ok()) << key.status();
    keys_[user] = key.value_or("");
  }
  EnsurePartition();
  return !::testing::Test::HasFailure();
}

// Clusters come with an allocation of the same name.
bool SecurePod::CreateClusters() {
  vipu::Client root(ConfigOf("root"), std::chrono::seconds(20));
  std::vector<vipuadmin::DiscoveredAgent> found;
  const bool there = Await([&] {
    auto agents = root.DiscoverAgents(false);
    if (agents.ok()) found = *std::move(agents);
    return found.size() == 2;
  });
  if (!there) return false;
  std::vector<vipuadmin::Cluster> clusters(layout_ == Agents::kOneProcess ? 2 : 1);
  absl::Status status;
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string id = "ag" + std::to_string(i + 1);
    status.Update(root.CreateAgent(id, found[i].host(), found[i].port()));
    clusters[i % clusters.size()].add_agent_ids(id);
  }
  for (size_t i = 0; i < clusters.size(); ++i) {
    clusters[i].set_id("a" + std::to_string(i + 1));
    clusters[i].set_num_ipulinkdomains(1);
    status.Update(root.CreateCluster(clusters[i]));
  }
  EXPECT_TRUE(status.ok()) << status;
  return status.ok();
}

base::Tls SecurePod::Certificates(const std::string& role) const {
  const std::string at = pod_.directory() + "/certs/" + role + "/";
  const auto tls = base::ReadTls({at + "ca.crt", at + role + ".crt", at + role + ".key"});
  EXPECT_TRUE(tls.ok()) << tls.status();
  return tls.value_or(base::Tls());
}

vipu::ClientConfig SecurePod::ConfigOf(const std::string& user) {
  vipu::ClientConfig config;
  config.host = "127.0.0.1";
  config.port = static_cast<uint32_t>(pod_.port());
  config.user_id = user;
  config.access_key = keys_[user];
  config.tls = Certificates("client");
  return config;
}

void SecurePod::EnsurePartition() {
  vipu::Client alice(ConfigOf("alice"), std::chrono::seconds(20));
  const auto there = alice.GetPartitionStatus("p1");
  if (there.ok() && there->state() == vipuuser::PS_ACTIVE) return;
  if (!there.ok() || there->state() == vipuuser::PS_REMOVED) {
    vipuuser::CreatePartitionRequest request;
    request.mutable_requirements()->set_id("p1");
    request.mutable_requirements()->set_size(layout_ == Agents::kOneProcess ? 1 : 8);
    request.mutable_requirements()->set_allocation_id("a1");
    const absl::Status created = alice.CreatePartition(request);
    EXPECT_TRUE(created.ok()) << created;
  }
  const absl::Status active = alice.WaitUntilActive("p1");
  EXPECT_TRUE(active.ok()) << active;
}

std::string SecurePod::Log(const std::string& daemon) const {
  return base::ReadFile(pod_.directory() + "/" + daemon + ".log");
}

void SecurePod::Become(const std::string& user) {
  auto& environment = pod_.environment();
  const base::TlsFiles files = Certificates("client").files;
  environment["VIPU_CLI_API_USER_ID"] = user;
  environment["VIPU_CLI_API_ACCESS_KEY"] = keys_[user];
  environment["VIPU_CLI_TLS_CA"] = files.ca;
  environment["VIPU_CLI_TLS_CERT"] = files.certificate;
  environment["VIPU_CLI_TLS_KEY"] = files.key;
}

Outcome SecurePod::RunAs(const std::string& user, const std::vector<std::string>& words) {
  Become(user);
  return pod_.Run(words);
}

std::unique_ptr<Command> SecurePod::StartAs(const std::string& user,
                                            const std::vector<std::string>& words) {
  Become(user);
  return pod_.Start(words);
}

grpc::Status CallRaw(grpc::Channel& channel, const google::protobuf::MethodDescriptor& method,
                     const std::string& bytes, const std::map<std::string, std::string>& metadata) {
  // The stub wants to share the channel, which outlives the call.
  return CallRaw(std::shared_ptr<grpc::Channel>(&channel, [](grpc::Channel*) {}),
                 "/" + method.service()->full_name() + "/" + method.name(), bytes, metadata);
}

Methods ControllerMethods() {
  Methods methods;
  Add(vipuuser::GetServerInfoRequest::descriptor()->file(), "VipuUser", methods);
  Add(vipuadmin::CreateUserRequest::descriptor()->file(), "VipuAdmin", methods);
  Add(vipuagent::RegisterRequest::descriptor()->file(), "VipuRegistry", methods);
  return methods;
}

Methods AgentMethods() {
  Methods methods;
  Add(vipuagent::RegisterRequest::descriptor()->file(), "VipuAgent", methods);
  Add(fabric::v1::JobRequest::descriptor()->file(), "Fabric", methods);
  Add(ipuof::v1::AttachRequest::descriptor()->file(), "Ipuof", methods);
  Add(telemetry::v1::GetPartitionLinksRequest::descriptor()->file(), "Telemetry", methods);
  return methods;
}

}  // namespace vpod::testing
