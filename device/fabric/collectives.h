// Collectives among replicas on several processes. Each piece of the result is computed by one
// process, which hands it to the others that need it. On one host the pieces are read and written
// where they lie, in shared segments; otherwise results travel through the transport, and before
// them partial results travel: each process reduces its own replicas as far as they make up whole
// nodes of the canonical tree (tree_reduce.h). Between IPU-Link domains these are combined on the
// way (relays.h). Either way the bits are those of one process.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "device/base/mutex.h"
#include "device/fabric/buffers.h"
#include "device/fabric/collective.h"
#include "device/fabric/job.h"
#include "device/fabric/transport.h"

namespace vpod::fabric {

// A process that hosts units of the job.
struct Site {
  std::string endpoint;         // by which the job's parts name it; empty: this process
  std::vector<uint32_t> units;  // global, ascending
  uint32_t domain = 0;          // IPU-Link domain of its IPUs
  std::string name = {};        // for messages, e.g. "agent ag1 at 10.1.2.2:8080"
};

// One end of a copy between units on two processes.
struct CrossCopy {
  uint32_t from_unit = 0, to_unit = 0;  // global
  std::byte* data = nullptr;            // of the unit that is here
  size_t arena_offset = 0;              // of `data` in that unit's memory
  size_t bytes = 0;
  uint64_t clock = 0;
  absl::Status failure;  // the reason, if the run has failed on the unit that is here
  // Names the IPU at the other end, for messages. Called while the copy waits; takes no lock.
  std::function<std::string()> name_other;
  std::shared_ptr<void> keep_alive;
};

struct CollectivesOptions {
  std::string token;  // 32 characters; names the job and shows that a sender belongs to it
  uint32_t total_replicas = 1;
  uint32_t ipus_per_replica = 1;
  std::vector<Site> sites;  // by their first unit
  size_t here = 0;          // this process's place among them
  // Memory of the other sites' units, mapped, by unit; empty: bytes travel through the transport.
  std::map<uint32_t, absl::Span<std::byte>> arenas;
  std::shared_ptr<void> mappings;  // keeps them
  Transport* transport = nullptr;  // outlives the object
  std::string address;             // where we take the job's messages, for the others
  std::shared_ptr<void> binding;   // open there as long as it lives
  Compute compute;
  std::function<void(const absl::Status&)> fail;  // ends the job everywhere
};

// Thread-safe. Callbacks come from any thread, without a lock held.
class Collectives : public std::enable_shared_from_this<Collectives> {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Collectives(CollectivesOptions options);

  // Where this process takes the job's messages.
  const std::string& address() const { return options_.address; }
  // All processes are ready; `address_of` says by endpoint where they take messages. Before
  // anything runs.
  void Begin(const std::map<std::string, std::string>& address_of);

  // All units of this process on the key's channel and in its group have arrived.
  void Run(const RendezvousKey& key, Collective collective, Completed done);
  // A copy whose other end is on another process.
  void Copy(const RendezvousKey& key, CrossCopy copy, Completed done);
  bool IsHere(uint32_t unit) const { return site_of_[unit] == options_.here; }
  bool shared_memory() const { return !options_.arenas.empty(); }

  // A message of the job, see collectives_impl.h.
  Landing OnMessage(absl::string_view header, size_t bytes);
  // Everything that waits ends with `cause`, now and later.
  void Fail(const absl::Status& cause);
  // Why a message could not be sent, once that is `patience` ago: who was lost is for the job's
  // record to say, which learns of it by then. OK while all can be reached.
  absl::Status Unreachable(Clock::time_point now, Clock::duration patience);
  // Units for which something here has waited `patience`; `fresh` when some wait was not reported
  // before.
  struct Overdue {
    std::set<uint32_t> units;
    bool fresh = false;
  };
  Overdue FindOverdue(Clock::time_point now, Clock::duration patience);
  // Whether a collective here, of run `first_run` or a later one, waits for one of `count` replicas
  // on other processes.
  bool AwaitsReplicas(uint32_t first, uint32_t count, uint64_t first_run);
  // The other ends for which copies here have waited `patience`. One that comes late again in the
  // same run is named when it has been waited for twice as long as the last time: stages of a
  // pipeline may just be slow.
  struct LateEnd {
    uint32_t unit;
    std::string text;  // "replica 3: IPU 5 on agent ag1 … has not come to the exchange for 5 s"
  };
  std::vector<LateEnd> FindLateEnds(Clock::time_point now, Clock::duration patience);

 private:
  struct Operation;
  struct Header;
  struct Source;
  using OperationPtr = std::shared_ptr<Operation>;

  OperationPtr Find(const RendezvousKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fails when a site does something else than we do.
  absl::Status Check(const Operation& operation) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls `visit` with each unit on another process for which an operation here waits.
  template <class Visit>
  void ForEachAwaitedUnit(const Operation& operation, const Visit& visit) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether a site hosts a member of the group of `key`; which members, by position.
  std::vector<bool> MembersOf(size_t site, const RendezvousKey& key) const;
  // All sites have come to the operation.
  void Start(const OperationPtr& operation);
  // One of the things that the operation waits for is done.
  void Done(const OperationPtr& operation, const absl::Status& status);
  void Send(size_t site, const Header& header, absl::Span<const std::byte> payload,
            std::function<void(absl::Status)> sent);
  // A message that nothing waits for. Its payload is the reason, if the run has failed.
  void Tell(size_t site, const Header& header, const absl::Status& failure = {});
  // Takes that payload of a message, if it has one, then calls `then`.
  Landing TakeFailure(const OperationPtr& operation, size_t bytes, std::function<void()> then);
  void NoteUnreachable(size_t site, const absl::Status& status);
  Header HeaderFor(const Operation& operation, int kind, size_t piece = 0) const;
  void OnReady(const OperationPtr& operation, const Header& header);

  // collectives_shared.cc
  void RunShared(const OperationPtr& operation);
  void TellFinished(const OperationPtr& operation);
  void OnFinished(const OperationPtr& operation, size_t site);

  // collectives_messages.cc
  size_t CountMessageWork(const Operation& operation) const;
  std::vector<TreeNode> NodesSent(const Operation& operation, size_t site, size_t piece) const;
  void PostReduce(const OperationPtr& operation, size_t piece);
  void Reduce(const OperationPtr& operation, size_t piece);
  absl::StatusOr<std::vector<Source>> SourcesOf(const OperationPtr& operation, size_t piece);
  void SendPartials(const OperationPtr& operation, size_t piece,
                    const std::vector<Source>& sources);
  void Combine(const OperationPtr& operation, size_t piece, const std::vector<Source>& sources);
  void CopyAndSend(const OperationPtr& operation, size_t piece);
  void SendResult(const OperationPtr& operation, size_t piece, absl::Span<const std::byte> result,
                  BufferPtr buffer);
  Landing OnPartials(const OperationPtr& operation, const Header& header, size_t bytes);
  Landing OnResult(const OperationPtr& operation, const Header& header, size_t bytes);

  // collectives_copy.cc
  // The unit at the other end, if the copy waits for it.
  std::optional<uint32_t> AwaitedEnd(const Operation& operation) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendCopy(const OperationPtr& operation);
  void OnCopyReady(const OperationPtr& operation, const Header& header);
  Landing OnCopyData(const OperationPtr& operation, const Header& header, size_t bytes);
  Landing OnCopyFailed(const OperationPtr& operation, size_t bytes);

  const CollectivesOptions options_;
  std::vector<size_t> site_of_;         // by unit
  std::vector<std::string> addresses_;  // by site; set before anything is sent
  BufferPool buffers_;
  base::Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  absl::Status unreachable_ ABSL_GUARDED_BY(mutex_);  // the first of its kind
  Clock::time_point unreachable_since_ ABSL_GUARDED_BY(mutex_);
  std::map<RendezvousKey, OperationPtr> operations_ ABSL_GUARDED_BY(mutex_);
  struct Wait {
    uint64_t run = 0;
    Clock::duration waited{};
  };
  std::map<uint32_t, Wait> reported_ ABSL_GUARDED_BY(mutex_);  // the last, by unit
};

// Length of the token that begins every header, by which the job of a message is found.
inline constexpr size_t kTokenBytes = Transport::kTokenBytes;

}  // namespace vpod::fabric
