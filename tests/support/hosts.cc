#include "tests/support/hosts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "device/base/file.h"

namespace vpod::testing {
TestHosts::TestHosts(int machines, Security security)
    : machines_(machines),
      pod_(0),
      prefix_("vpod" + std::to_string(getpid()) + "-"),
      security_(security) {
  auto& environment = pod_.environment();
  environment["VPOD_NETNS_PREFIX"] = prefix_;
  environment["PATH"] += ":/usr/sbin:/sbin";
  environment["VIPU_CLI_API_HOST"] = Address("ctl");
  environment["VIPU_CLI_API_PORT"] = "8090";
  const Outcome up = Network(Words{"up", prefix_} + HostNames());
  if (up.code != 0) {
    error_ = "network namespaces cannot be made here: " + up.err;
    return;
  }
  if (security_ == Security::kSecure) SetUpSecurity();
  StartController();
  agents_.resize(static_cast<size_t>(machines_));
  for (int machine = 1; machine <= machines_; ++machine) StartAgent(machine);
  CreateCluster();
}

TestHosts::~TestHosts() {
  for (int machine = 1; machine <= static_cast<int>(agents_.size()); ++machine)
    StopAgent(machine, SIGTERM);
  StopController(SIGTERM);
  if (::testing::Test::HasFailure()) {
    for (int machine = 1; machine <= machines_; ++machine)
      fprintf(stderr, "--- agent %d\n%s\n", machine, AgentLog(machine).c_str());
  }
  Network({"down", prefix_});
}

Words TestHosts::HostNames() const {
  Words names = {"ctl", "login"};
  for (int machine = 1; machine <= machines_; ++machine)
    names.push_back("h" + std::to_string(machine));
  return names;
}

std::string TestHosts::Address(const std::string& host) {
  const int number = host == "ctl" ? 1 : host == "login" ? 2 : 2 + std::stoi(host.substr(1));
  return "10.77.0." + std::to_string(number);
}

Outcome TestHosts::Network(const Words& words) {
  return pod_.Run(Words{Program("tests/support/netns/network")} + words);
}

void TestHosts::SetLink(const std::string& host, const std::string& state) {
  const std::string port = Address(host).substr(Address(host).rfind('.') + 1);
  const Outcome set =
      pod_.Run({"ip", "-netns", prefix_ + "switch", "link", "set", "port" + port, state});
  EXPECT_EQ(set.code, 0) << set.err;
}

std::unique_ptr<Command> TestHosts::StartOn(const std::string& host, const Words& words) {
  return pod_.Start(Words{"ip", "netns", "exec", prefix_ + host} + words);
}

Outcome TestHosts::RunOn(const std::string& host, const Words& words) {
  return StartOn(host, words)->Wait();
}

Words TestHosts::Poprun(int instances, int replicas, int ipus_per_replica,
                        const std::string& hosts) const {
  return {"poprun",
          "--host=" + (hosts.empty() ? "h[1-" + std::to_string(machines_) + "]" : hosts),
          "--launch-agent",
          Program("tests/support/netns/launch-agent"),
          "--host-subnet=10.77.0.0/24",
          "--num-instances",
          std::to_string(instances),
          "--num-replicas",
          std::to_string(replicas),
          "--ipus-per-replica",
          std::to_string(ipus_per_replica)};
}

void TestHosts::SetUpSecurity() {
  const std::string certs = pod_.directory() + "/certs";
  std::string addresses;
  for (const std::string& host : HostNames())
    addresses += (addresses.empty() ? "" : ",") + Address(host);
  const Outcome made = RunOn("ctl", Words{"vipu-server", "--init", "--secure", "--tls-hosts",
                                          addresses, "--default-user-id", "root"} +
                                        StorageOptions());
  const std::string label = "Access Key is: ";
  const size_t at = made.out.find(label);
  ASSERT_NE(at, std::string::npos) << made.err;
  access_key_ = made.out.substr(at + label.size(), made.out.find('\n', at) - at - label.size());
  auto& environment = pod_.environment();
  environment["VIPU_CLI_TLS_CA"] = certs + "/client/ca.crt";
  environment["VIPU_CLI_TLS_CERT"] = certs + "/client/client.crt";
  environment["VIPU_CLI_TLS_KEY"] = certs + "/client/client.key";
  const absl::Status written =
      base::ReplaceFile(environment["HOME"] + "/.vipu.hcl",
                        "api-user-id=\"root\"\napi-access-key=\"" + access_key_ + "\"\n", 0600);
  EXPECT_TRUE(written.ok()) << written;
}

Words TestHosts::StorageOptions() const {
  Words options = {"--config", "/dev/null", "--storage", pod_.directory() + "/vipu-server.db"};
  if (security_ == Security::kSecure)
    options = options + Words{"--certs-dir", pod_.directory() + "/certs"};
  return options;
}

void TestHosts::StartController() {
  controller_ =
      StartOn("ctl", Words{"vipu-server", "--user-api-listen", Address("ctl") + ":8090",
                           "--metrics-listen", "127.0.0.1:0",
                           security_ == Security::kSecure ? "--secure" : "--insecure-listen"} +
                         StorageOptions());
  EXPECT_TRUE(controller_->WaitForOutput("serving users")) << controller_->Err();
}

void TestHosts::StopController(int signal) {
  if (controller_ == nullptr) return;
  controller_->Signal(signal);
  controller_->Wait(std::chrono::seconds(20));
  controller_.reset();
}

void TestHosts::StartAgent(int machine) {
  const std::string address = Address("h" + std::to_string(machine));
  const std::string certs = pod_.directory() + "/certs/server/";
  const Words security = security_ == Security::kSecure
                             ? Words{"--tls-ca",           certs + "ca.crt", "--tls-cert",
                                     certs + "server.crt", "--tls-key",      certs + "server.key"}
                             : Words{"--insecure-listen"};
  agents_[static_cast<size_t>(machine - 1)] = StartOn(
      "h" + std::to_string(machine),
      Words{"vipu-agent", "--listen", address + ":8080", "--host", address, "--first-machine",
            std::to_string(machine - 1), "--controller", Address("ctl") + ":8090", "--memory-limit",
            "1024", "--log-file", pod_.directory() + "/agent" + std::to_string(machine) + ".log"} +
          security);
  // It registers as soon as it serves.
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (AgentLog(machine).find(" machines of type ") != std::string::npos) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  ADD_FAILURE() << "agent " << machine << " does not start";
}

void TestHosts::StopAgent(int machine, int signal) {
  auto& agent = agents_[static_cast<size_t>(machine - 1)];
  if (agent == nullptr) return;
  agent->Signal(signal);
  agent->Wait(std::chrono::seconds(20));
  agent.reset();
}

void TestHosts::CreateCluster() {
  // Agents register within a second or two of their start.
  std::string agents;
  for (int machine = 1; machine <= machines_; ++machine) {
    const std::string id = "ag" + std::to_string(machine);
    const Outcome created = Login({"vipu-admin", "create", "agent", id, "--host",
                                   Address("h" + std::to_string(machine)), "--port", "8080"});
    EXPECT_EQ(created.code, 0) << created.err;
    agents += (agents.empty() ? "" : ",") + id;
  }
  const Outcome created = Login({"vipu-admin", "create", "cluster", "hosts", "--agents", agents});
  EXPECT_EQ(created.code, 0) << created.err;
}

std::string TestHosts::AgentLog(int machine) const {
  return base::ReadFile(pod_.directory() + "/agent" + std::to_string(machine) + ".log");
}

bool TestHosts::AwaitState(const std::string& partition, const std::string& state) {
  return Within(kSoon, [&] {
    const Outcome got = Login({"vipu", "get", "partition", partition});
    return got.out.find("Partition state      | " + state) != std::string::npos;
  });
}

}  // namespace vpod::testing
