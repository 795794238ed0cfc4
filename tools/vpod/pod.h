// A local POD: one vipu-server and one vipu-agent in the background, and their state directory.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace vpod::tools {

// VPOD_HOME, else ~/.vpod.
std::string PodHome();

// What `vpod up` was asked for; kept in <home>/pod.json.
struct PodShape {
  uint32_t ipus = 16;  // a multiple of 4, a power of two
  std::string machine_type = "m2000";
  uint32_t api_port = 8090;
  uint64_t memory_limit_mib = 0;  // 0: three quarters of the host's memory
  std::string addresses;          // management prefix, e.g. 127.10; set when the POD is up
};

class Pod {
 public:
  explicit Pod(std::string home) : home_(std::move(home)) {}

  const std::string& home() const { return home_; }
  std::string ServerPidFile() const { return home_ + "/vipu-server.pid"; }
  std::string AgentPidFile() const { return home_ + "/vipu-agent.pid"; }
  std::string ServerLog() const { return home_ + "/vipu-server.log"; }
  std::string AgentLog() const { return home_ + "/vipu-agent.log"; }
  std::string ClientConfig() const { return home_ + "/vipu-cli.hcl"; }
  std::string IpuofDirectory() const { return home_ + "/ipuof.conf.d"; }

  int ServerPid() const;
  int AgentPid() const;
  bool Running() const { return ServerPid() > 0 && AgentPid() > 0; }
  // NotFound: no POD was brought up here.
  absl::StatusOr<PodShape> Shape() const;

  // Brings the POD up and waits until all its machines answer. Restores the state of a POD that was
  // killed. On failure everything started is stopped again.
  absl::Status Up(PodShape shape);
  // Stops it and forgets its partitions. False when nothing ran.
  bool Down();
  // Lines for `eval`.
  std::string EnvironmentText(const PodShape& shape) const;

 private:
  absl::Status Start(PodShape& shape, bool restoring);
  absl::Status WaitForServer(const PodShape& shape) const;
  absl::Status CreateObjects(PodShape& shape, bool restoring) const;
  absl::Status WriteFiles(const PodShape& shape) const;
  void RemoveState() const;

  const std::string home_;
};

}  // namespace vpod::tools
