// Users, their access keys and the allocations they may use (spec/vipu.md 8.3). Kept in the store.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/base/id_order.h"
#include "device/base/mutex.h"
#include "proto/vipu/v1/vipuadmin.pb.h"
#include "server/controller/access_key.h"
#include "server/controller/fair_queue.h"
#include "server/controller/permissions.h"
#include "server/controller/store/state.pb.h"
#include "server/controller/store/store.h"

namespace vpod::controller {

// Writes changes to the store, with whatever else belongs to them; all of it or nothing.
using CommitChanges = std::function<absl::Status(std::vector<Change>)>;

// Thread-safe. The controller checks that an allocation exists, and that a user who goes has no
// partitions. A change is handed to `commit`, which must not call back, and is taken over if that
// succeeds.
class Users {
 public:
  // Reads the users.
  static absl::StatusOr<std::unique_ptr<Users>> Load(Store& store);

  // A key for a user to be. Takes tens of milliseconds.
  absl::StatusOr<IssuedKey> IssueKey() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Create(const vipuadmin::User& user, const KeyHash& key, const CommitChanges& commit);
  // By id, without numbers of partitions.
  std::vector<vipuadmin::User> List();
  absl::StatusOr<vipuadmin::User> Get(const std::string& id);
  // `key` is the new one, or null.
  absl::Status Update(const vipuadmin::UpdateUserRequest& request, const KeyHash* key,
                      const CommitChanges& commit);
  // FailedPrecondition for the last administrator.
  absl::Status Remove(const std::string& id, const CommitChanges& commit);

  // Gives the allocation to the named users whose allocations are limited, and takes it from all
  // other limited users.
  absl::Status SetUsersOf(const std::string& allocation_id, const std::vector<std::string>& users,
                          const CommitChanges& commit);
  // Users named for the allocation, by id.
  std::vector<std::string> UsersOf(const std::string& allocation_id);

  // Tells `done` who shows the key: at once if the key was right before, else later on another
  // thread, because a trial of a key takes tens of milliseconds; users take turns at trials.
  // Unauthenticated without saying whether user or key is wrong; ResourceExhausted if too many
  // trials wait, or too many calls for them; Unavailable after EndTrials.
  using Authenticated = std::function<void(const absl::StatusOr<Caller>&)>;
  void Authenticate(const std::string& id, const std::string& access_key, const Authenticated& done)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends trials: calls that wait for one are Unavailable, and so are later ones. Before the server
  // ends, which waits for its calls.
  void EndTrials() { hashing_.Close(); }
  // The user of a key that was authenticated, and is the user's still. Unauthenticated for every
  // other key. Takes no time.
  absl::StatusOr<Caller> Recognize(const std::string& id, const std::string& access_key)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // A user who was authenticated. Unauthenticated when removed since.
  absl::StatusOr<Caller> Find(const std::string& id);
  bool HasAdmin();

 private:
  Users();
  absl::StatusOr<store::StoredUser*> FindUser(const std::string& id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Put(store::StoredUser user, const CommitChanges& commit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // A trial of a key: the user's id, the hash of the right key when it began, and the digest of the
  // key that is tried.
  using Trial = std::tuple<std::string, std::string, std::string>;
  // Calls that wait for a trial. All instances of a job may show their key before it was tried.
  struct Waiting {
    std::string party;  // in whose name the trial waits in the queue
    std::vector<Authenticated> calls;
  };
  std::string DigestOf(const std::string& access_key) const;
  absl::StatusOr<Caller> RecognizeDigest(const std::string& id, const std::string& digest)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Caller> Try(const Trial& trial, const KeyHash& kept, const std::string& access_key)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void End(const Trial& trial, const absl::StatusOr<Caller>& caller) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string digest_key_;  // of the digests below; new in every process
  base::Mutex mutex_;
  std::map<std::string, store::StoredUser, base::IdOrder> users_ ABSL_GUARDED_BY(mutex_);
  // Digests of keys that were found right, by user.
  std::map<std::string, std::string> verified_ ABSL_GUARDED_BY(mutex_);
  std::map<Trial, Waiting> trials_ ABSL_GUARDED_BY(mutex_);
  // How many calls wait for trials, by party.
  std::map<std::string, size_t> calls_ ABSL_GUARDED_BY(mutex_);
  FairQueue hashing_;  // bounds the memory and time that keys, also wrong ones, can take
};

}  // namespace vpod::controller
