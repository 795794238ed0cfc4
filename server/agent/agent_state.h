// State that an agent keeps of its partitions, leases and attaches; for its own sources only.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/agent/agent.h"
#include "server/agent/traffic.h"
#include "server/agent/wiring.h"

namespace vpod::agent {

// An IPU as a member of a partition.
struct Agent::Member {
  static constexpr uint32_t kElsewhere = ~0u;
  uint32_t ipu = kElsewhere;  // index in the agent: 4 × machine + number; kElsewhere: on a peer
  uint32_t gcd = 0;
  uint32_t routing_id = 0;
  bool here() const { return ipu != kElsewhere; }
};

struct Agent::Partition {
  vipuagent::AgentPartition spec;
  std::vector<std::vector<Member>> gcds;  // by routing id
  std::shared_ptr<const Wiring> wiring;   // null: its IPUs are not joined in a way we know
};

// The holders of an IPU. It outlives partitions: an IPU whose last kernels still run has its old
// owner, whatever the controller has made of its partition meanwhile.
struct Agent::Owner {
  LeasePtr holder;    // runs programs on it
  LeasePtr reserver;  // keeps it for a job (poprun's parent device)
};

// Result of a Load on a lease. Calls of one client may meet on several threads, so each holds the
// objects it works on, and they outlive another Load and the end of the lease.
struct Agent::Loaded {
  engine::Reservation text;  // of the program's own memory; outlives the engine
  std::shared_ptr<engine::Engine> engine;
  // Replaced by ShareStreams under the agent's lock; copies in progress keep the one they found.
  std::shared_ptr<shm::Segment> streams;
  std::vector<std::vector<MachineTraffic>> traffic;  // by program; machines are the agent's
};

struct Agent::Lease {
  std::string id;
  ipuof::v1::AttachOpen open;
  // The user whose fabric key opened the lease; empty: the partition's own secret did.
  std::string user;
  uint64_t taken_at = 0;  // the partition's generation when it was taken
  std::chrono::steady_clock::time_point attached_at = std::chrono::steady_clock::now();
  LeaseEvents events;
  std::vector<uint32_t> ipus;       // of the device that are here
  std::vector<uint32_t> units;      // of the instance that run here: local replica × IPUs + IPU
  std::vector<uint32_t> unit_ipus;  // theirs
  std::shared_ptr<fabric::Job> job;
  std::shared_ptr<engine::LeaseGroup> group;  // of the job's leases here
  int liveness_fd = -1;  // pidfd of the bound process, for a second look before refusing others
  pid_t pid = 0;         // of the bound process, as this host knows it
  std::optional<uid_t> local_user;  // who has used the lease at the local socket
  // Until when the client is waited for that said it would bind the lease; none: it has.
  std::optional<std::chrono::steady_clock::time_point> binds_until;
  // The ticker's, for the reservers.
  std::optional<std::chrono::steady_clock::time_point> stopped_since;
  bool told_stopped = false;
  // Of a reserver: instances whose processes have ended, as its holder says, and their names.
  std::map<uint32_t, std::string> ended_instances;

  std::shared_ptr<Loaded> loaded;  // set by Load; guarded by the agent's mutex, as what follows
  // Set while no configuration names the lease's partition: as it was.
  std::shared_ptr<const Partition> unclaimed;
  std::string store;  // of the controller whose configuration it attached to
  bool pulsed = false;
  std::atomic<bool> releasing = false;  // Load looks at it without the mutex, to end early
  std::chrono::steady_clock::time_point released_at;  // when it began to be
  bool loading = false;                               // an executable is on its way, or prepared
  bool preparing = false;                             // by Load
  bool running = false;
  // Something works on the lease: its IPUs are not free before that ends.
  bool busy() const { return running || preparing; }
  uint32_t runs = 0;  // for simulated errors

  // The user whose key opened the lease, or else the user that the process declares.
  const std::string& UserName() const { return user.empty() ? open.process().user() : user; }
};

struct Agent::PendingAttach {
  ipuof::v1::AttachOpen open;
  LeaseEvents events;
  AttachDone done;
  std::chrono::steady_clock::time_point deadline;  // of waiting for kernels to end
};

}  // namespace vpod::agent
