// A secure POD of two machines for tests: the real vipu-server and vipu-agent with TLS, an
// administrator, users, two allocations and a partition.
#pragma once

#include <google/protobuf/descriptor.h>
#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/vipu/client.h"
#include "device/base/tls.h"
#include "tests/support/pod.h"

namespace vpod::testing {

// Users: root (administrator), alice (owner of p1, allocation a1), bob (a1), eve (a2).
class SecurePod {
 public:
  enum class Agents { kOneProcess, kProcessForEach };
  // `options` are further ones of all daemons. With a process for each machine, tensors between the
  // machines travel as they do between hosts, a1 has both machines, and p1 has their eight IPUs.
  explicit SecurePod(const std::vector<std::string>& options = {},
                     Agents agents = Agents::kOneProcess);
  ~SecurePod();

  bool ready() const { return ready_; }
  const std::string& key(const std::string& user) { return keys_[user]; }
  const std::map<std::string, std::string>& keys() const { return keys_; }
  std::string server() const { return "127.0.0.1:" + std::to_string(pod_.port()); }
  const std::string& agent(size_t number = 0) const { return agents_[number].endpoint; }
  size_t agents() const { return agents_.size(); }
  int server_pid() const { return static_cast<int>(server_->pid()); }
  int agent_pid(size_t number = 0) const {
    return static_cast<int>(agents_[number].process->pid());
  }
  // Returns the daemons' stderr, in case one does not answer.
  std::string LastWords() { return server_->Err() + agents_[0].process->Err(); }
  // Certificates of the role "client" or "server".
  base::Tls Certificates(const std::string& role) const;
  vipu::ClientConfig ConfigOf(const std::string& user);
  // Creates alice's partition p1 if it is not there, and waits for it.
  void EnsurePartition();
  // Text of a daemon's log: "server", "agent0", "agent1".
  std::string Log(const std::string& daemon) const;
  // A command in the shell of a user.
  Outcome RunAs(const std::string& user, const std::vector<std::string>& words);
  std::unique_ptr<Command> StartAs(const std::string& user, const std::vector<std::string>& words);
  const TestPod& pod() const { return pod_; }

 private:
  struct AgentProcess {
    std::string endpoint;
    std::unique_ptr<Command> process;
  };
  void StartAgent(int machines, const std::vector<std::string>& options);
  bool SetUp();
  bool CreateClusters();
  void Become(const std::string& user);

  TestPod pod_{0};
  const Agents layout_;
  std::unique_ptr<Command> server_;
  std::vector<AgentProcess> agents_;
  std::map<std::string, std::string> keys_;
  bool ready_ = false;
};

// Calls a method with one message of any bytes. Only the status of the answer counts.
grpc::Status CallRaw(grpc::Channel& channel, const google::protobuf::MethodDescriptor& method,
                     const std::string& bytes,
                     const std::map<std::string, std::string>& metadata = {});

// Calls of the services that the controller, or an agent, serves.
std::vector<const google::protobuf::MethodDescriptor*> ControllerMethods();
std::vector<const google::protobuf::MethodDescriptor*> AgentMethods();

}  // namespace vpod::testing
