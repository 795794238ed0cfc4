#include "server/controller/users.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "device/base/file.h"
#include "server/controller/access_key.h"
#include "server/controller/show_key.h"

namespace vpod::controller {
namespace {

namespace fs = std::filesystem;

vipuadmin::User User(const std::string& id, bool admin = false) {
  vipuadmin::User user;
  user.set_id(id);
  user.set_admin(admin);
  return user;
}

class UsersTest : public testing::Test {
 protected:
  UsersTest()
      : directory_(testing::TempDir() + "/" +
                   testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    Reopen();
  }
  ~UsersTest() override { fs::remove_all(directory_); }

  void Reopen() {
    users_.reset();
    store_.reset();
    auto store = Store::Open(directory_ + "/db", Store::OpenMode::kOpenOrCreate);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    auto users = Users::Load(*store_);
    ASSERT_TRUE(users.ok()) << users.status();
    users_ = *std::move(users);
  }
  std::string Create(const vipuadmin::User& user) {
    const auto key = users_->IssueKey();
    EXPECT_TRUE(key.ok()) << key.status();
    if (!key.ok()) return "";
    const absl::Status status = users_->Create(user, key->kept, commit_);
    EXPECT_TRUE(status.ok()) << status;
    return key->key;
  }
  bool Admitted(const std::string& id, const std::string& key) {
    return ShowKey(*users_, id, key).ok();
  }

  const std::string directory_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Users> users_;
  const CommitChanges commit_ = [this](const std::vector<Change>& changes) {
    return store_->Commit(changes);
  };
};

TEST(AccessKeyTest, HasElevenCharactersOfTheAlphabetAllOfWhichOccur) {
  std::set<char> seen;
  std::set<std::string> keys;
  for (int i = 0; i < 500; ++i) {
    const std::string key = NewAccessKey();
    EXPECT_EQ(key.size(), 11u);
    seen.insert(key.begin(), key.end());
    keys.insert(key);
  }
  EXPECT_EQ(keys.size(), 500u);
  EXPECT_EQ(std::string(seen.begin(), seen.end()),
            "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz");
}

TEST(AccessKeyTest, HashesAreSalted) {
  const auto a = HashAccessKey("685X_K4uCzN"), b = HashAccessKey("685X_K4uCzN");
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE(a->hash, b->hash);
  EXPECT_TRUE(IsAccessKey(*a, "685X_K4uCzN"));
  EXPECT_TRUE(IsAccessKey(*b, "685X_K4uCzN"));
  EXPECT_FALSE(IsAccessKey(*a, "685X_K4uCzn"));
  EXPECT_FALSE(IsAccessKey(*a, ""));
}

TEST_F(UsersTest, KeyOpensAndNothingElseDoes) {
  const std::string key = Create(User("alice"));
  const std::string other = Create(User("bob"));
  for (int round = 0; round < 2; ++round) {  // hashed, then remembered
    EXPECT_TRUE(Admitted("alice", key));
    EXPECT_FALSE(Admitted("alice", other));
    EXPECT_FALSE(Admitted("alice", ""));
    EXPECT_FALSE(Admitted("Alice", key));
    EXPECT_FALSE(Admitted("", ""));
  }
  const absl::Status wrong = ShowKey(*users_, "alice", other).status();
  EXPECT_EQ(wrong, absl::UnauthenticatedError("Wrong user id or access key."));
  EXPECT_EQ(ShowKey(*users_, "nobody", other).status(), wrong);
}

// As many wrong keys as a client cares to show, for a user's name and for names that nobody has.
TEST_F(UsersTest, WrongKeysKeepNobodyElseWaiting) {
  Create(User("mallory"));
  const std::string key = Create(User("alice"));
  constexpr int kCalls = 1000;
  std::atomic<int> tried = 0, refused = 0;
  for (int i = 0; i < kCalls; ++i) {
    users_->Authenticate(i % 2 == 0 ? "mallory" : "nobody" + std::to_string(i),
                         "wrong" + std::to_string(i), [&](const absl::StatusOr<Caller>& caller) {
                           ++(absl::IsResourceExhausted(caller.status()) ? refused : tried);
                         });
  }
  EXPECT_GT(refused, 0) << "more than may wait";
  const int before = tried;
  EXPECT_TRUE(Admitted("alice", key));
  const int meanwhile = tried - before;
  while (tried + refused < kCalls) std::this_thread::yield();
  // Trials under way, one more turn of each of the two, and trials that ended just before or after.
  EXPECT_LE(meanwhile, 20);
}

// All instances of a job may log in at once, more of them than trials may wait.
TEST_F(UsersTest, EqualKeysAreTriedOnce) {
  const std::string key = Create(User("alice"));
  constexpr int kCalls = 1000;
  std::atomic<int> admitted = 0, ended = 0;
  for (int i = 0; i < kCalls; ++i) {
    users_->Authenticate("alice", key, [&](const absl::StatusOr<Caller>& caller) {
      admitted += caller.ok();
      ++ended;
    });
  }
  while (ended < kCalls) std::this_thread::yield();
  EXPECT_EQ(admitted, kCalls);
}

// Calls that share a trial take memory, too. Trials of other keys come first, so that the calls
// wait together.
TEST_F(UsersTest, SoManyCallsOfAUserWait) {
  Create(User("mallory"));
  const std::string key = Create(User("alice"));
  std::atomic<int> refused = 0, ended = 0;
  int calls = 0;
  const auto ask = [&](const std::string& wrong) {
    ++calls;
    users_->Authenticate("mallory", wrong, [&](const absl::StatusOr<Caller>& caller) {
      refused += absl::IsResourceExhausted(caller.status());
      ++ended;
    });
  };
  for (int i = 0; i < 60; ++i) ask("wrong" + std::to_string(i));
  while (refused == 0 && calls < 200000) ask("wrong");
  EXPECT_GT(refused, 0);
  EXPECT_GE(calls, 2048) << "a large job may log in at once";
  EXPECT_TRUE(Admitted("alice", key)) << "each user has calls of her own";
  while (ended < calls) std::this_thread::yield();
  EXPECT_EQ(ShowKey(*users_, "mallory", "wrong").status().code(),
            absl::StatusCode::kUnauthenticated)
      << "answered calls count no longer";
}

TEST_F(UsersTest, RecognizesKeysThatWereAuthenticated) {
  const std::string key = Create(User("alice"));
  const absl::Status wrong = absl::UnauthenticatedError("Wrong user id or access key.");
  EXPECT_EQ(users_->Recognize("alice", key).status(), wrong) << "not tried yet";
  ASSERT_TRUE(Admitted("alice", key));
  EXPECT_EQ(users_->Recognize("alice", key)->user_id, "alice");
  EXPECT_EQ(users_->Recognize("alice", key + "x").status(), wrong);
  EXPECT_EQ(users_->Recognize("bob", key).status(), wrong);
  ASSERT_TRUE(users_->Remove("alice", commit_).ok());
  EXPECT_EQ(users_->Recognize("alice", key).status(), wrong);
}

// A key that is tried before and after it becomes the user's is judged by what it was then.
TEST_F(UsersTest, TrialsGoByTheKeyThatTheUserHad) {
  const std::string old = Create(User("alice"));
  const auto key = users_->IssueKey();
  ASSERT_TRUE(key.ok()) << key.status();
  std::atomic<int> before = -1;
  users_->Authenticate("alice", key->key,
                       [&](const absl::StatusOr<Caller>& caller) { before = caller.ok(); });
  vipuadmin::UpdateUserRequest request;
  request.set_id("alice");
  ASSERT_TRUE(users_->Update(request, &key->kept, commit_).ok());
  EXPECT_TRUE(Admitted("alice", key->key));
  while (before < 0) std::this_thread::yield();
  EXPECT_EQ(before, 0);
}

TEST_F(UsersTest, StayInTheStoreWithoutTheirKeys) {
  const std::string key = Create(User("alice", true));
  Reopen();
  EXPECT_TRUE(Admitted("alice", key));
  EXPECT_TRUE(users_->Find("alice")->admin);
  EXPECT_EQ(users_->Create(User("alice"), {}, commit_).message(), "User alice already exists.");
  for (const auto& entry : fs::directory_iterator(directory_)) {
    EXPECT_EQ(base::ReadFile(entry.path()).find(key), std::string::npos) << entry.path();
  }
}

TEST_F(UsersTest, NewKeyEndsTheOldOneAtOnce) {
  const std::string old = Create(User("alice"));
  ASSERT_TRUE(Admitted("alice", old));
  vipuadmin::UpdateUserRequest request;
  request.set_id("alice");
  const auto key = users_->IssueKey();
  ASSERT_TRUE(key.ok()) << key.status();
  ASSERT_TRUE(users_->Update(request, &key->kept, commit_).ok());
  EXPECT_FALSE(Admitted("alice", old));
  EXPECT_TRUE(Admitted("alice", key->key));
  Reopen();
  EXPECT_FALSE(Admitted("alice", old));
  EXPECT_TRUE(Admitted("alice", key->key));
}

// A call that was authenticated and then waited is one of the old key, or of the user before.
TEST_F(UsersTest, WhoeverHasAnotherKeyIsAnotherCaller) {
  const std::string old = Create(User("alice"));
  const auto before = ShowKey(*users_, "alice", old);
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_TRUE(*ShowKey(*users_, "alice", old) == *before) << "remembered";
  EXPECT_TRUE(*users_->Find("alice") == *before);
  const auto key = users_->IssueKey();
  ASSERT_TRUE(key.ok()) << key.status();
  vipuadmin::UpdateUserRequest request;
  request.set_id("alice");
  ASSERT_TRUE(users_->Update(request, &key->kept, commit_).ok());
  EXPECT_FALSE(*users_->Find("alice") == *before);
  const auto after = ShowKey(*users_, "alice", key->key);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_TRUE(*users_->Find("alice") == *after);
  ASSERT_TRUE(users_->Remove("alice", commit_).ok());
  Create(User("alice"));
  EXPECT_FALSE(*users_->Find("alice") == *after) << "a namesake";
}

TEST_F(UsersTest, AllocationsLimitUsersUntilLifted) {
  vipuadmin::User limited = User("alice");
  limited.mutable_allocation_ids()->add_names("a2");
  limited.mutable_allocation_ids()->add_names("a1");
  Create(limited);
  Create(User("bob"));
  EXPECT_TRUE(users_->Find("alice")->MayUse("a1"));
  EXPECT_FALSE(users_->Find("alice")->MayUse("a3"));
  EXPECT_TRUE(users_->Find("bob")->MayUse("a3"));
  vipuadmin::UpdateUserRequest request;
  request.set_id("alice");
  request.mutable_allocation_ids();  // none at all
  ASSERT_TRUE(users_->Update(request, nullptr, commit_).ok());
  EXPECT_FALSE(users_->Find("alice")->MayUse("a1"));
  request.set_all_allocations(true);
  EXPECT_TRUE(absl::IsInvalidArgument(users_->Update(request, nullptr, commit_)));
  request.clear_allocation_ids();
  ASSERT_TRUE(users_->Update(request, nullptr, commit_).ok());
  EXPECT_TRUE(users_->Find("alice")->MayUse("a1"));
}

TEST_F(UsersTest, AllocationNamesItsUsers) {
  for (const char* id : {"alice", "bob", "carol"}) {
    vipuadmin::User user = User(id);
    user.mutable_allocation_ids();
    Create(user);
  }
  Create(User("dave"));  // may use all and is not named
  EXPECT_TRUE(users_->SetUsersOf("a1", {"bob", "alice", "dave"}, commit_).ok());
  EXPECT_EQ(users_->UsersOf("a1"), (std::vector<std::string>{"alice", "bob"}));
  EXPECT_TRUE(users_->SetUsersOf("a1", {"carol"}, commit_).ok());
  Reopen();
  EXPECT_EQ(users_->UsersOf("a1"), (std::vector<std::string>{"carol"}));
  EXPECT_EQ(users_->SetUsersOf("a1", {"alice", "eve"}, commit_).message(),
            "User eve does not exist.");
  EXPECT_EQ(users_->UsersOf("a1"), (std::vector<std::string>{"carol"}));
  EXPECT_FALSE(users_->Get("dave")->has_allocation_ids());
}

TEST_F(UsersTest, WhatCannotBeCommittedIsNotTakenOver) {
  const std::string key = Create(User("alice", true));
  const CommitChanges fail = [](const std::vector<Change>&) {
    return absl::ResourceExhaustedError("disk full");
  };
  vipuadmin::UpdateUserRequest limit;
  limit.set_id("alice");
  limit.mutable_allocation_ids();
  EXPECT_FALSE(users_->Create(User("bob"), {}, fail).ok());
  EXPECT_FALSE(users_->Update(limit, nullptr, fail).ok());
  Create(User("boss", true));
  EXPECT_FALSE(users_->Remove("alice", fail).ok());
  EXPECT_EQ(users_->List().size(), 2u);
  EXPECT_TRUE(Admitted("alice", key));
  EXPECT_FALSE(users_->Find("alice")->allocation_ids.has_value());
}

TEST_F(UsersTest, LastAdministratorStays) {
  EXPECT_FALSE(users_->HasAdmin());
  Create(User("root", true));
  Create(User("alice"));
  EXPECT_TRUE(users_->HasAdmin());
  EXPECT_EQ(users_->Remove("root", commit_).message(),
            "User root is the last administrator; create another first.");
  const std::string key = Create(User("boss", true));
  EXPECT_TRUE(Admitted("boss", key));
  EXPECT_TRUE(users_->Remove("root", commit_).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(users_->Remove("boss", commit_)));
  EXPECT_TRUE(users_->Remove("alice", commit_).ok());
  EXPECT_EQ(users_->Remove("alice", commit_).message(), "User alice does not exist.");
}

TEST_F(UsersTest, RemovedUserIsOutAtOnceAndForGood) {
  Create(User("root", true));
  const std::string key = Create(User("alice"));
  ASSERT_TRUE(Admitted("alice", key));
  ASSERT_TRUE(users_->Remove("alice", commit_).ok());
  EXPECT_FALSE(Admitted("alice", key));
  EXPECT_FALSE(users_->Find("alice").ok());
  Create(User("alice"));  // a namesake has another key
  EXPECT_FALSE(Admitted("alice", key));
}

}  // namespace
}  // namespace vpod::controller
