// Users, their access keys and the allocations they may use (spec/vipu.md 8.3). Kept in the store;
// a change is committed before it is reported.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/base/mutex.h"
#include "proto/vipu/v1/vipuadmin.pb.h"
#include "server/controller/permissions.h"
#include "server/controller/store/state.pb.h"
#include "server/controller/store/store.h"

namespace vpod::controller {

// Thread-safe. That an allocation exists, and that a user who goes has no partitions, is for the
// controller to see.
class Users {
 public:
  // Reads the users. The store outlives them.
  static absl::StatusOr<std::unique_ptr<Users>> Load(Store* store);

  // The new user's access key.
  absl::StatusOr<std::string> Create(const vipuadmin::User& user);
  // By id, without numbers of partitions.
  std::vector<vipuadmin::User> List();
  absl::StatusOr<vipuadmin::User> Get(const std::string& id);
  // The new access key, or nothing when none was asked for.
  absl::StatusOr<std::string> Update(const vipuadmin::UpdateUserRequest& request);
  // FailedPrecondition for the last administrator.
  absl::Status Remove(const std::string& id);

  // Those named among the users who may not use all allocations may use this one, others not.
  absl::Status SetUsersOf(const std::string& allocation_id, const std::vector<std::string>& users);
  // Users named for the allocation, by id.
  std::vector<std::string> UsersOf(const std::string& allocation_id);

  // Who shows the key. Unauthenticated without saying whether user or key is wrong. Takes tens of
  // milliseconds for the first call of a user, and for wrong keys; one at a time.
  absl::StatusOr<Caller> Authenticate(const std::string& id, const std::string& access_key);
  // A user who was authenticated. Unauthenticated when removed since.
  absl::StatusOr<Caller> Find(const std::string& id);
  bool HasAdmin();

 private:
  explicit Users(Store* store);
  absl::StatusOr<store::StoredUser*> FindUser(const std::string& id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Put(const store::StoredUser& user) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Store* const store_;
  const std::string verified_key_;  // of the hashes below; new in every process
  base::Mutex hashing_;             // bounds the memory that wrong keys can take
  base::Mutex mutex_;
  std::map<std::string, store::StoredUser> users_ ABSL_GUARDED_BY(mutex_);
  // Cheap keyed hashes of keys that were found right, by user.
  std::map<std::string, std::string> verified_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vpod::controller
