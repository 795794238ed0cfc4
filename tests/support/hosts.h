// Hosts with a network of their own: network namespaces behind a bridge. A controller runs on
// `ctl`, an agent with one IPU-Machine on each of h1, h2, …, and users work on `login`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/command.h"
#include "tests/support/pod.h"

namespace vpod::testing {

class TestHosts {
 public:
  // Secure: with TLS and access keys; users of all hosts share a home with the administrator's
  // file.
  enum class Security { kNone, kSecure };
  // Sets up the network and starts the daemons; `error()` says why it could not, as in a container
  // without the right to make namespaces.
  explicit TestHosts(int machines, Security security = Security::kNone);
  ~TestHosts();

  // Empty when all is well.
  const std::string& error() const { return error_; }
  TestPod& pod() { return pod_; }  // its directory and environment; no POD runs there
  static std::string Address(const std::string& host);

  // Runs on a host, with the environment that users of `login` have.
  Outcome RunOn(const std::string& host, const std::vector<std::string>& words);
  std::unique_ptr<Command> StartOn(const std::string& host, const std::vector<std::string>& words);
  Outcome Login(const std::vector<std::string>& words) { return RunOn("login", words); }
  // poprun for login, over all machines' hosts or those named.
  std::vector<std::string> Poprun(int instances, int replicas, int ipus_per_replica = 1,
                                  const std::string& hosts = "") const;

  // Machines have numbers 1, 2, …
  void StartAgent(int machine);
  void StopAgent(int machine, int signal);
  void StartController();
  void StopController(int signal);
  // Takes a host off the network, and back.
  void Cut(const std::string& host) { SetLink(host, "down"); }
  void Mend(const std::string& host) { SetLink(host, "up"); }
  pid_t AgentPid(int machine) const { return agents_[static_cast<size_t>(machine - 1)]->pid(); }
  // The administrator's; empty without security.
  const std::string& access_key() const { return access_key_; }
  // Returns an agent's log.
  std::string AgentLog(int machine) const;
  // Waits until `list partitions` shows the state; false after half a minute.
  bool AwaitState(const std::string& partition, const std::string& state);

 private:
  std::vector<std::string> HostNames() const;
  Outcome Network(const std::vector<std::string>& words);
  void SetLink(const std::string& host, const std::string& state);
  void CreateCluster();
  void SetUpSecurity();
  std::vector<std::string> StorageOptions() const;

  const int machines_;
  TestPod pod_;
  const std::string prefix_;
  const Security security_;
  std::string error_, access_key_;
  std::unique_ptr<Command> controller_;
  std::vector<std::unique_ptr<Command>> agents_;
};

}  // namespace vpod::testing
