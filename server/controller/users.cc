#include "server/controller/users.h"

#include <algorithm>
#include <ctime>
#include <future>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/id_order.h"
#include "device/base/random_id.h"
#include "device/base/secret.h"
#include "device/base/sha256.h"
#include "device/base/status.h"

namespace vpod::controller {
namespace {

constexpr char kKind[] = "user";
// Two parties of the queue are not users. No user can have such an id.
constexpr char kUnknown[] = "(unknown)", kIssuing[] = "(new keys)";
// A user who waits for 64 trials has waited for about a second.
constexpr size_t kMostWaiting = 64, kMostTogether = 1024;
// Calls of a party that wait for its trials, all with one key or not. The largest jobs have half as
// many instances; each call takes some 10 KiB until it is answered.
constexpr size_t kMostCalls = 2048;

// Each takes a processor for tens of milliseconds, and 16 MiB.
size_t HashesAtOnce() { return std::clamp<size_t>(std::thread::hardware_concurrency(), 2, 4); }

Caller CallerOf(const store::StoredUser& user) {
  Caller caller{.user_id = user.id(), .admin = user.admin()};
  if (user.limited())
    caller.allocation_ids.emplace(user.allocation_ids().begin(), user.allocation_ids().end());
  caller.key_hash = user.key_hash();
  return caller;
}

vipuadmin::User Describe(const store::StoredUser& user) {
  vipuadmin::User result;
  result.set_id(user.id());
  result.set_admin(user.admin());
  result.set_created_at(user.created_at());
  if (user.limited()) *result.mutable_allocation_ids()->mutable_names() = user.allocation_ids();
  return result;
}

using AllocationIds = std::set<std::string, base::IdOrder>;

void Limit(const AllocationIds& allocation_ids, store::StoredUser& user) {
  user.set_limited(true);
  user.clear_allocation_ids();
  for (const std::string& id : allocation_ids) user.add_allocation_ids(id);
}

AllocationIds AllocationsOf(const store::StoredUser& user) {
  return {user.allocation_ids().begin(), user.allocation_ids().end()};
}

void SetKey(const KeyHash& key, store::StoredUser& user) {
  user.set_key_salt(key.salt);
  user.set_key_hash(key.hash);
}

absl::StatusOr<IssuedKey> NewKey() {
  IssuedKey issued{.key = NewAccessKey(), .kept = {}};
  VPOD_ASSIGN_OR_RETURN(issued.kept, HashAccessKey(issued.key));
  return issued;
}

absl::Status WrongCredentials() {
  return absl::UnauthenticatedError("Wrong user id or access key.");
}

}  // namespace

Users::Users()
    : digest_key_(base::RandomBytes(32)), hashing_(HashesAtOnce(), kMostWaiting, kMostTogether) {}

absl::StatusOr<std::unique_ptr<Users>> Users::Load(Store& store) {
  std::unique_ptr<Users> users(new Users);
  VPOD_ASSIGN_OR_RETURN(const auto rows, store.Load(kKind));
  base::MutexLock lock(users->mutex_);
  for (const auto& [id, data] : rows) {
    if (!users->users_[id].ParseFromString(data))
      return absl::DataLossError(absl::StrCat("storage: user ", id, " is damaged"));
  }
  return users;
}

absl::StatusOr<store::StoredUser*> Users::FindUser(const std::string& id) {
  const auto it = users_.find(id);
  if (it == users_.end()) return absl::NotFoundError(absl::StrCat("User ", id, " does not exist."));
  return &it->second;
}

absl::Status Users::Put(store::StoredUser user, const CommitChanges& commit) {
  VPOD_RETURN_IF_ERROR(commit({{kKind, user.id(), user.SerializeAsString()}}));
  users_[user.id()] = std::move(user);
  return absl::OkStatus();
}

absl::StatusOr<IssuedKey> Users::IssueKey() {
  const auto issued = std::make_shared<std::promise<absl::StatusOr<IssuedKey>>>();
  VPOD_RETURN_IF_ERROR(hashing_.Add(kIssuing, [issued](const absl::Status& turn) {
    issued->set_value(turn.ok() ? NewKey() : absl::StatusOr<IssuedKey>(turn));
  }));
  return issued->get_future().get();
}

absl::Status Users::Create(const vipuadmin::User& user, const KeyHash& key,
                           const CommitChanges& commit) {
  store::StoredUser stored;
  stored.set_id(user.id());
  stored.set_admin(user.admin());
  stored.set_created_at(std::time(nullptr));
  if (user.has_allocation_ids()) {
    const auto& names = user.allocation_ids().names();
    Limit({names.begin(), names.end()}, stored);
  }
  SetKey(key, stored);
  base::MutexLock lock(mutex_);
  if (users_.contains(user.id()))
    return absl::AlreadyExistsError(absl::StrCat("User ", user.id(), " already exists."));
  return Put(std::move(stored), commit);
}

std::vector<vipuadmin::User> Users::List() {
  base::MutexLock lock(mutex_);
  std::vector<vipuadmin::User> result;
  for (const auto& [id, user] : users_) result.push_back(Describe(user));
  return result;
}

absl::StatusOr<vipuadmin::User> Users::Get(const std::string& id) {
  base::MutexLock lock(mutex_);
  VPOD_ASSIGN_OR_RETURN(const store::StoredUser* user, FindUser(id));
  return Describe(*user);
}

absl::Status Users::Update(const vipuadmin::UpdateUserRequest& request, const KeyHash* key,
                           const CommitChanges& commit) {
  if (request.has_allocation_ids() && request.all_allocations()) {
    return absl::InvalidArgumentError("Give --allocations or --all-allocations, not both.");
  }
  base::MutexLock lock(mutex_);
  VPOD_ASSIGN_OR_RETURN(const store::StoredUser* user, FindUser(request.id()));
  store::StoredUser next = *user;
  if (request.has_allocation_ids()) {
    const auto& names = request.allocation_ids().names();
    Limit({names.begin(), names.end()}, next);
  } else if (request.all_allocations()) {
    next.set_limited(false);
    next.clear_allocation_ids();
  }
  if (key != nullptr) SetKey(*key, next);
  VPOD_RETURN_IF_ERROR(Put(std::move(next), commit));
  if (key != nullptr) verified_.erase(request.id());
  return absl::OkStatus();
}

absl::Status Users::Remove(const std::string& id, const CommitChanges& commit) {
  base::MutexLock lock(mutex_);
  VPOD_ASSIGN_OR_RETURN(const store::StoredUser* user, FindUser(id));
  const auto admins = std::count_if(users_.begin(), users_.end(),
                                    [](const auto& item) { return item.second.admin(); });
  if (user->admin() && admins == 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("User ", id, " is the last administrator; create another first."));
  }
  VPOD_RETURN_IF_ERROR(commit({{kKind, id, std::nullopt}}));
  verified_.erase(id);
  users_.erase(id);
  return absl::OkStatus();
}

absl::Status Users::SetUsersOf(const std::string& allocation_id,
                               const std::vector<std::string>& users, const CommitChanges& commit) {
  const std::set<std::string> named(users.begin(), users.end());
  base::MutexLock lock(mutex_);
  for (const std::string& id : named) VPOD_RETURN_IF_ERROR(FindUser(id).status());
  std::map<std::string, store::StoredUser> next;
  std::vector<Change> changes;
  for (const auto& [id, user] : users_) {
    if (!user.limited()) continue;
    AllocationIds allocations = AllocationsOf(user);
    const bool changed = named.contains(id) ? allocations.insert(allocation_id).second
                                            : allocations.erase(allocation_id) > 0;
    if (!changed) continue;
    Limit(allocations, next[id] = user);
    changes.push_back({kKind, id, next[id].SerializeAsString()});
  }
  VPOD_RETURN_IF_ERROR(commit(std::move(changes)));
  for (auto& [id, user] : next) users_[id] = std::move(user);
  return absl::OkStatus();
}

std::vector<std::string> Users::UsersOf(const std::string& allocation_id) {
  base::MutexLock lock(mutex_);
  std::vector<std::string> result;
  for (const auto& [id, user] : users_) {
    if (user.limited() && AllocationsOf(user).contains(allocation_id)) result.push_back(id);
  }
  return result;
}

std::string Users::DigestOf(const std::string& access_key) const {
  return base::Sha256Hex(digest_key_ + access_key);
}

absl::StatusOr<Caller> Users::RecognizeDigest(const std::string& id, const std::string& digest) {
  const auto user = users_.find(id);
  const auto known = verified_.find(id);
  if (user == users_.end() || known == verified_.end() || !base::IsSecret(known->second, digest))
    return WrongCredentials();
  return CallerOf(user->second);
}

absl::StatusOr<Caller> Users::Recognize(const std::string& id, const std::string& access_key) {
  const std::string digest = DigestOf(access_key);
  base::MutexLock lock(mutex_);
  return RecognizeDigest(id, digest);
}

void Users::Authenticate(const std::string& id, const std::string& access_key,
                         const Authenticated& done) {
  const std::string digest = DigestOf(access_key);
  // A key of a user who does not exist is tried as well, so that it takes as much time as a wrong
  // key. All such users are one party.
  KeyHash kept{std::string(16, '\0'), std::string(32, '\0')};
  std::string party = kUnknown;
  Trial trial;
  absl::StatusOr<Caller> caller;
  {
    base::MutexLock lock(mutex_);
    caller = RecognizeDigest(id, digest);
    if (!caller.ok()) {
      if (const auto user = users_.find(id); user != users_.end()) {
        party = id;
        kept = {user->second.key_salt(), user->second.key_hash()};
      }
      trial = {id, kept.hash, digest};
      size_t& calls = calls_[party];
      if (calls < kMostCalls) {
        ++calls;
        Waiting& waiting = trials_[trial];
        waiting.party = party;
        waiting.calls.push_back(done);
        if (waiting.calls.size() > 1) return;
      } else {
        caller = FairQueue::TooMany();
      }
    }
  }
  if (caller.ok() || absl::IsResourceExhausted(caller.status())) return done(caller);
  const absl::Status added = hashing_.Add(
      party, [this, trial, kept = std::move(kept), access_key](const absl::Status& turn) {
        End(trial, turn.ok() ? Try(trial, kept, access_key) : turn);
      });
  if (!added.ok()) End(trial, added);
}

absl::StatusOr<Caller> Users::Try(const Trial& trial, const KeyHash& kept,
                                  const std::string& access_key) {
  if (!IsAccessKey(kept, access_key)) return WrongCredentials();
  const auto& [id, hash, digest] = trial;
  base::MutexLock lock(mutex_);
  const auto user = users_.find(id);
  // The user was removed or has a new key since the trial began.
  if (user == users_.end() || user->second.key_hash() != hash) return WrongCredentials();
  verified_[id] = digest;
  return CallerOf(user->second);
}

void Users::End(const Trial& trial, const absl::StatusOr<Caller>& caller) {
  Waiting waiting;
  {
    base::MutexLock lock(mutex_);
    const auto it = trials_.find(trial);
    std::swap(waiting, it->second);
    trials_.erase(it);
    const auto calls = calls_.find(waiting.party);
    calls->second -= waiting.calls.size();
    if (calls->second == 0) calls_.erase(calls);
  }
  for (const Authenticated& done : waiting.calls) done(caller);
}

absl::StatusOr<Caller> Users::Find(const std::string& id) {
  base::MutexLock lock(mutex_);
  const auto it = users_.find(id);
  if (it == users_.end()) return WrongCredentials();
  return CallerOf(it->second);
}

bool Users::HasAdmin() {
  base::MutexLock lock(mutex_);
  return std::any_of(users_.begin(), users_.end(),
                     [](const auto& item) { return item.second.admin(); });
}

}  // namespace vpod::controller
