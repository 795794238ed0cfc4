// A local POD: one vipu-server and one vipu-agent in the background, and their state directory.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/vipu/config.h"
#include "client/vipu/pod_home.h"
#include "device/base/tls.h"
#include "device/base/unique_fd.h"
#include "proto/vipu/v1/vipuadmin.pb.h"
#include "tools/vpod/pod_shape.h"

namespace vpod::tools {

// Where its controller is, and who we are to it.
vipu::ClientConfig ApiOf(const PodShape& shape);

// The port of the variables that `vpod env` has set in this shell for the POD in a directory; 0: it
// has set none for that POD.
uint32_t PortInEnvironmentOf(const std::string& home);

// Options given to `vpod up`. The others are as the existing POD has them, or as PodShape says.
struct PodRequest {
  std::optional<uint32_t> ipus, api_port, metrics_port;
  std::optional<std::string> machine_type, cluster_topology;
  std::optional<uint64_t> memory_limit_mib;
  std::optional<bool> agent_per_machine, described_clusters, secure;
};

class RestoreAttempt;

class Pod {
 public:
  explicit Pod(std::string home) : home_(std::move(home)) {}

  const std::string& home() const { return home_; }
  std::string ServerPidFile() const { return home_ + "/vipu-server.pid"; }
  // Name of agent process `agent`: vipu-agent.<number>, and vipu-agent for the first.
  static std::string AgentName(uint32_t agent);
  std::string AgentPidFile(uint32_t agent = 0) const;
  std::string ServerLog() const { return home_ + "/vipu-server.log"; }
  std::string AgentLog(uint32_t agent = 0) const;
  std::string ClientConfig() const { return home_ + "/" + vipu::kPodClientFile; }
  // Where a user of the POD finds the access key.
  std::string UserConfig(const std::string& user) const {
    return absl::StrCat(home_, "/", user, ".", vipu::kPodClientFile);
  }
  // Whether that file is there and has a key; a call that was interrupted leaves one without.
  enum class UserKey { kNoFile, kNone, kThere };
  UserKey KeyOf(const std::string& user) const;
  // Certificates of a secure POD.
  std::string CertificatesDirectory() const { return home_ + "/vipu-certs"; }
  std::string Storage() const { return home_ + "/vipu-server.db"; }
  std::string IpuofDirectory() const { return home_ + "/" + vipu::kPodIpuofDirectory; }
  // With the IPUoF files of the partitions that a user of the POD may use.
  std::string IpuofDirectoryOf(const std::string& user) const {
    return absl::StrCat(home_, "/", user, ".", vipu::kPodIpuofDirectory);
  }

  int ServerPid() const;
  int AgentPid(uint32_t agent = 0) const;
  // Names the first daemon that a signal has stopped, and how it goes on; empty: there is none.
  std::string StoppedDaemon(const PodShape& shape) const;
  // All processes of the POD run; they may be ending.
  bool Running(const PodShape& shape) const;
  // Returns the reasons why a POD is not whole, a phrase each: a process that does not run or
  // answer, or is ending; machines that are not up, a cluster that an interrupted `vpod up` has not
  // made. Asks the controller, for two seconds at most.
  std::vector<std::string> Missing(const PodShape& shape) const;
  // NotFound: no POD was brought up here. DataLoss: what says so is damaged, or a restore that was
  // begun here has not ended.
  absl::StatusOr<PodShape> Shape() const;

  // Brings the POD up and waits until all its machines answer. Restores the state of a POD that was
  // killed, starts what one that runs in part is missing, and finishes what an interrupted call has
  // begun. On failure it stops what it started. FailedPrecondition: another POD is there.
  struct Brought {
    PodShape shape;
    bool was_up = false;  // nothing was done
  };
  absl::StatusOr<Brought> Up(const PodRequest& request);
  // Stops it and forgets its partitions; with `keep`, Up restores it. False when there was none;
  // Unavailable: another command works on it.
  absl::StatusOr<bool> Down(bool keep);
  // The same, and removes its logs and its directory. FailedPrecondition: files that are not the
  // POD's keep the directory.
  absl::StatusOr<bool> Delete();
  // The POD becomes that of a backup in a directory, which has what CopyFiles copies and a backup
  // of the storage; Up starts it then. The attempt is one to restore this POD. Returns what
  // vipu-server says about the storage. FailedPrecondition: another POD is here. A refusal changes
  // nothing; a failure in the midst of it leaves the mark of the attempt.
  absl::StatusOr<std::string> Replace(const std::string& directory, RestoreAttempt& attempt);
  // Copies the files that make the POD what it is, without the storage.
  absl::Status CopyFiles(const std::string& to) const;
  // Lines for `eval`; of a secure POD those of a user of it, or of the administrator.
  // InvalidArgument: no user can have that id; NotFound: the user has no key here.
  absl::StatusOr<std::string> EnvironmentText(const PodShape& shape, const std::string& user) const;
  // Brings the directory of a user's IPUoF files up to date: it gets a file for every partition
  // whose devices the user may use now, and loses those of other partitions. A POD that does not
  // answer leaves the files as they are. Files of later partitions come from those who create them.
  absl::Status RenewIpuofFilesOf(const std::string& user, const PodShape& shape) const;
  // Held by who changes something, or must not be disturbed. Unavailable: another holds it, or
  // nothing can be written.
  absl::StatusOr<base::UniqueFd> Lock() const;

 private:
  enum class Then { kKeep, kForget, kRemoveDirectory };
  absl::StatusOr<bool> Stop(Then then);
  // Shape, also of a POD that is restored in part.
  absl::StatusOr<PodShape> ShapeAsItIs() const;
  // The POD that a request means. FailedPrecondition: it is not the one that is there.
  absl::StatusOr<PodShape> Wanted(const PodRequest& request) const;
  absl::Status CheckSame(const PodShape& wanted, const PodShape& existing) const;
  bool AnyAgentLives() const;
  // Keeps the controller's port while it starts; of a new POD the first that is free, unless one
  // was asked for. Unavailable: it is in use.
  absl::StatusOr<base::UniqueFd> KeepApiPort(const PodRequest& request, PodShape& shape) const;
  absl::Status Start(PodShape& shape);
  // Makes the storage of a secure POD, its certificates and its administrator.
  absl::Status SetUpAccess(PodShape& shape) const;
  // Reads the administrator's key and certificates. DataLoss: they are lost.
  absl::Status TakeAdministrator(PodShape& shape) const;
  base::TlsFiles ServerCertificate() const;
  // Client files get the port and the certificates of the POD in this directory.
  absl::Status RenewClientFiles(const PodShape& shape) const;
  // Whether the POD of a backup can take this one's place.
  absl::Status CheckIsSame(const Pod& other, const PodShape& wanted) const;
  absl::Status StartServer(const PodShape& shape);
  absl::Status StartAgent(const PodShape& shape, uint32_t agent, const std::string& program);
  // Waits until `machines` machines have registered.
  absl::StatusOr<std::vector<vipuadmin::DiscoveredAgent>> AwaitMachines(const PodShape& shape,
                                                                        uint32_t machines) const;
  // Waits until daemons that were told to end have ended.
  void AwaitEndingDaemons() const;
  bool StopAgents(const std::set<std::string>& but = {}) const;  // pid files of those that go on
  absl::Status WaitForServer(const PodShape& shape) const;
  // Takes the machines in, and makes a cluster of them unless a file describes others.
  absl::Status AddAgents(const PodShape& shape) const;
  absl::Status WaitForAgents(const PodShape& shape) const;
  absl::Status WriteFiles(const PodShape& shape) const;
  std::vector<std::string> Files() const;
  void RemoveState() const;
  absl::Status RemoveDirectory() const;

  const std::string home_;
};

}  // namespace vpod::tools
