// A process of agents in its controller's eyes.
#pragma once

#include <condition_variable>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "device/base/mutex.h"
#include "device/base/tls.h"
#include "proto/vipu/v1/vipuagent.grpc.pb.h"
#include "server/agent/agent.h"

namespace vpod {

// Registers the machines with the controller and tells it that they live, once a second or as it
// wishes; stops when destroyed. The agent outlives it. Heartbeats have a thread and a connection of
// their own, and where processors are busy, the thread goes before those of clients' calls.
class Announcer {
 public:
  struct Options {
    std::string controller;        // host:port of vipu-server
    std::string endpoint;          // host:port at which the process serves
    std::string metrics_endpoint;  // host:port; empty: none that others reach
  };
  Announcer(const Options& options, const std::optional<base::Tls>& tls, agent::Agent& agent);
  ~Announcer();

 private:
  void Loop();
  void Log(const grpc::Status& status) const;
  bool IsStopping();
  // Registers, or sends a heartbeat.
  grpc::Status Call(vipuagent::VipuRegistry::Stub& stub, bool& registered);
  grpc::Status Announce(grpc::ClientContext& context, vipuagent::VipuRegistry::Stub& stub,
                        bool& registered);
  void TakeNames(const vipuagent::HeartbeatReply& reply);
  std::unique_ptr<vipuagent::VipuRegistry::Stub> Connect() const;

  const std::string controller_;
  const std::optional<base::Tls> tls_;
  agent::Agent& agent_;
  vipuagent::RegisterRequest registration_;
  std::string names_version_;  // of the machines' ids, as last heard
  std::chrono::milliseconds interval_{1000};
  base::Mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;  // under way
  std::thread thread_;
};

}  // namespace vpod
