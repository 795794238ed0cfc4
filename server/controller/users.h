// Users, their access keys and the allocations they may use (spec/vipu.md 8.3). Kept in the store.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/base/id_order.h"
#include "device/base/mutex.h"
#include "proto/vipu/v1/vipuadmin.pb.h"
#include "server/controller/access_key.h"
#include "server/controller/permissions.h"
#include "server/controller/store/state.pb.h"
#include "server/controller/store/store.h"
#include "server/controller/turns.h"

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

  // The user who shows the key. Unauthenticated without saying whether user or key is wrong. Takes
  // tens of milliseconds for the first call of a user, and for wrong keys; a few at a time, and
  // users take turns. ResourceExhausted if too many calls wait.
  absl::StatusOr<Caller> Authenticate(const std::string& id, const std::string& access_key);
  // A user who was authenticated. Unauthenticated when removed since.
  absl::StatusOr<Caller> Find(const std::string& id);
  bool HasAdmin();

 private:
  Users();
  absl::StatusOr<store::StoredUser*> FindUser(const std::string& id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Put(store::StoredUser user, const CommitChanges& commit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string verified_key_;  // of the hashes below; new in every process
  Turns hashing_;  // bounds the memory and time that keys, also wrong ones, can take
  base::Mutex mutex_;
  std::map<std::string, store::StoredUser, base::IdOrder> users_ ABSL_GUARDED_BY(mutex_);
  // Cheap keyed hashes of keys that were found right, by user.
  std::map<std::string, std::string> verified_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vpod::controller
