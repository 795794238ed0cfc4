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
  // `options` are further ones of both daemons.
  explicit SecurePod(const std::vector<std::string>& options = {});
  ~SecurePod();

  bool ready() const { return ready_; }
  const std::string& key(const std::string& user) { return keys_[user]; }
  const std::map<std::string, std::string>& keys() const { return keys_; }
  std::string server() const { return "127.0.0.1:" + std::to_string(pod_.port()); }
  const std::string& agent() const { return agent_endpoint_; }
  int server_pid() const { return static_cast<int>(server_->pid()); }
  int agent_pid() const { return static_cast<int>(agent_->pid()); }
  // What became of a daemon that does not answer: its last words on stderr.
  std::string LastWords() { return server_->Err() + agent_->Err(); }
  // Certificates of the role "client" or "server".
  base::Tls Certificates(const std::string& role) const;
  vipu::ClientConfig ConfigOf(const std::string& user);
  // Creates alice's partition p1 if it is not there, and waits for it.
  void EnsurePartition();
  // Text of a daemon's log: "server" or "agent".
  std::string Log(const std::string& daemon) const;
  // A command in the shell of a user.
  Outcome RunAs(const std::string& user, const std::vector<std::string>& words);
  const TestPod& pod() const { return pod_; }

 private:
  bool SetUp();

  TestPod pod_{0};
  std::unique_ptr<Command> server_, agent_;
  std::map<std::string, std::string> keys_;
  std::string agent_endpoint_;
  bool ready_ = false;
};

// A call of any method with one message of any bytes. Of what it answers, only the status counts.
grpc::Status CallRaw(grpc::Channel& channel, const google::protobuf::MethodDescriptor& method,
                     const std::string& bytes,
                     const std::map<std::string, std::string>& metadata = {});

// Calls of the services that the controller, or an agent, serves.
std::vector<const google::protobuf::MethodDescriptor*> ControllerMethods();
std::vector<const google::protobuf::MethodDescriptor*> AgentMethods();

}  // namespace vpod::testing
