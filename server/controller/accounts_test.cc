// Users: what becomes of their rights with allocations and partitions, and what is logged.
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "server/controller/controller_fixture.h"

namespace vpod::controller {
namespace {

class AccountsTest : public ControllerTest {
 protected:
  // A user who may use the allocations named.
  absl::Status CreateLimited(const std::string& id, const std::vector<std::string>& allocations) {
    vipuadmin::User user;
    user.set_id(id);
    user.mutable_allocation_ids();
    for (const std::string& allocation : allocations)
      user.mutable_allocation_ids()->add_names(allocation);
    return controller_->CreateUser(user, "root").status();
  }
  absl::Status CreateAllocation(const std::string& id, const std::string& agent,
                                const std::vector<std::string>& users) {
    vipuadmin::Allocation allocation;
    allocation.set_id(id);
    allocation.set_cluster_id("c1");
    allocation.add_agent_ids(agent);
    for (const std::string& user : users) allocation.add_user_ids(user);
    return controller_->CreateAllocation(allocation, "root");
  }
  absl::Status SetUsers(const std::string& allocation, const std::vector<std::string>& users) {
    vipuadmin::UpdateAllocationRequest request;
    request.set_id(allocation);
    request.mutable_user_ids();
    for (const std::string& user : users) request.mutable_user_ids()->add_names(user);
    return controller_->UpdateAllocation(request, "root");
  }
  // "a: alice bob, c1:"
  std::string Listed() {
    std::vector<std::string> words;
    for (const auto& allocation : controller_->ListAllocations())
      words.push_back(
          absl::StrJoin({allocation.id() + ":", absl::StrJoin(allocation.user_ids(), " ")},
                        allocation.user_ids().empty() ? "" : " "));
    return absl::StrJoin(words, ", ");
  }
};

using Texts = std::vector<std::string>;

TEST_F(AccountsTest, AllocationAndItsUsersAreCommittedTogetherOrNotAtAll) {
  CreatePod(2);
  ASSERT_TRUE(CreateLimited("alice", {"c1"}).ok());
  ASSERT_TRUE(CreateAllocation("kept", "ag1", {"alice"}).ok());
  EXPECT_EQ(Listed(), "c1: alice, kept: alice");
  StartAfter(
      "CREATE TRIGGER users_stay BEFORE INSERT ON objects WHEN NEW.kind = 'user'"
      " BEGIN SELECT RAISE(ABORT, 'refused'); END;");
  EXPECT_FALSE(CreateAllocation("a", "ag0", {"alice"}).ok());
  EXPECT_FALSE(SetUsers("kept", {}).ok());
  EXPECT_FALSE(controller_->RemoveAllocation("kept", "root").ok());
  for (int round = 0; round < 2; ++round) {  // here, and on disk
    EXPECT_EQ(Listed(), "c1: alice, kept: alice");
    StartAfter("DROP TRIGGER IF EXISTS users_stay;");
  }
  EXPECT_TRUE(CreateAllocation("a", "ag0", {"alice"}).ok());  // tried again
}

TEST_F(AccountsTest, RightsGoWithWhatTheyAreFor) {
  CreatePod(2);
  ASSERT_TRUE(CreateLimited("alice", {"c1"}).ok());
  ASSERT_TRUE(CreateAllocation("a", "ag0", {"alice"}).ok());
  ASSERT_TRUE(controller_->RemoveAllocation("a", "root").ok());
  ASSERT_TRUE(controller_->RemoveCluster("c1", "root").ok());
  EXPECT_EQ(controller_->GetUser("alice")->allocation_ids().names_size(), 0);
  ASSERT_TRUE(CreateCluster(ClusterOf("c1", 0, 2)).ok());
  EXPECT_EQ(Listed(), "c1:");  // a namesake is another one
}

TEST_F(AccountsTest, OnlyAllocationsThatAreThereCanBeUsed) {
  CreatePod(1);
  EXPECT_EQ(Text(CreateLimited("alice", {"c2"})), "NOT_FOUND: Allocation c2 does not exist.");
  EXPECT_EQ(Text(CreateAllocation("a", "ag0", {"alice"})), "NOT_FOUND: User alice does not exist.");
  EXPECT_EQ(Listed(), "c1:");
  EXPECT_EQ(Text(CreateLimited("no blanks", {})).substr(0, 17), "INVALID_ARGUMENT:");
}

TEST_F(AccountsTest, AUserWithPartitionsStays) {
  CreatePod(1);
  ASSERT_TRUE(CreateLimited("alice", {"c1"}).ok());
  CreateActive(Wanted("p1", 1));  // by alice
  EXPECT_EQ(controller_->ListUsers()[0].num_partitions(), 1u);
  EXPECT_EQ(Text(controller_->RemoveUser("alice", "root")),
            "FAILED_PRECONDITION: User alice is in use by partition p1.");
  ASSERT_TRUE(Remove("p1").ok());
  EXPECT_EQ(controller_->GetUser("alice")->num_partitions(), 0u);
  EXPECT_TRUE(controller_->RemoveUser("alice", "root").ok());
}

TEST_F(AccountsTest, ChangesAreLoggedButNoKeys) {
  CreatePod(2);
  vipuadmin::User root;
  root.set_id("boss");
  root.set_admin(true);
  ASSERT_TRUE(controller_->CreateUser(root, "root").ok());
  ASSERT_TRUE(CreateLimited("alice", {}).ok());
  ASSERT_TRUE(CreateLimited("bob", {"c1"}).ok());
  vipuadmin::UpdateUserRequest update;
  update.set_id("alice");
  update.set_new_access_key(true);
  update.set_all_allocations(true);
  const auto key = controller_->UpdateUser(update, "root");
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_TRUE(controller_->users().Authenticate("alice", *key).ok());
  ASSERT_TRUE(SetUsers("c1", {}).ok());
  ASSERT_TRUE(controller_->RemoveUser("alice", "root").ok());
  EXPECT_EQ(EventsOf("user boss"), (Texts{"created as administrator for all allocations"}));
  EXPECT_EQ(EventsOf("user bob"), (Texts{"created for allocations c1"}));
  EXPECT_EQ(EventsOf("user alice"),
            (Texts{"created for no allocation", "updated: new access key, for all allocations",
                   "removed"}));
  EXPECT_EQ(EventsOf("allocation c1"), (Texts{"updated to no users"}));
  EXPECT_TRUE(CreateAllocation("a", "ag0", {"bob"}).ok());
  EXPECT_EQ(EventsOf("allocation a"), (Texts{"created with 1 agents of cluster c1, users bob"}));
  Start();
  EXPECT_EQ(EventsOf("user bob"), (Texts{"created for allocations c1"}));
  vipuadmin::ListEventsRequest newest;
  newest.set_limit(1);
  EXPECT_EQ((*controller_->ListEvents(newest))[0].user, "root");
}

// Keys that a user may have fetched are replaced when the user may not use them any more, without
// ending anybody's job: the configuration's generation stays.
TEST_F(AccountsTest, KeysOfAUserWhoGoesAreReplaced) {
  CreatePod(3);
  ASSERT_TRUE(CreateLimited("alice", {"c1"}).ok());
  ASSERT_TRUE(CreateLimited("bob", {"c1"}).ok());
  ASSERT_TRUE(CreateLimited("eve", {}).ok());
  vipuuser::PartitionRequirements shared = Wanted("shared", 4), own = Wanted("own", 4);
  shared.set_shared(true);
  CreateActive(shared);  // of alice (fixture)
  CreateActive(own);
  const auto key = [&](const std::string& id) { return Get(id).gcds(0).fabric_key(); };
  const auto generation = [&](const std::string& id) {
    return Get(id).gcds(0).attributes().at("Partition generation");
  };
  const std::string of_own = key("own"), generations = generation("shared") + generation("own");
  std::string of_shared = key("shared");
  const auto expect_replaced = [&](const std::string& after) {
    EXPECT_NE(key("shared"), of_shared) << after;
    of_shared = key("shared");
    EXPECT_EQ(key("own"), of_own) << "bob has never had it";
    EXPECT_EQ(generation("shared") + generation("own"), generations) << "jobs would end";
    // Nobody is given the new key before the agents have it.
    EXPECT_EQ(StateOf("shared"), vipuuser::PS_PENDING) << after;
    ASSERT_FALSE(gateway_.calls.empty());
    for (const auto& spec : gateway_.calls.front().request.partitions()) {
      EXPECT_TRUE(spec.id() != "shared" || spec.fabric_key() == of_shared);
    }
    gateway_.ConfirmAll();
    EXPECT_EQ(StateOf("shared"), vipuuser::PS_ACTIVE) << after;
  };
  const auto update = [&](const auto& change) {
    vipuadmin::UpdateUserRequest request;
    request.set_id("bob");
    change(request);
    const auto updated = controller_->UpdateUser(request, "root");
    EXPECT_TRUE(updated.ok()) << updated.status();
  };
  update([](auto& request) { request.set_new_access_key(true); });
  expect_replaced("new access key");
  update([](auto& request) { request.set_all_allocations(true); });
  EXPECT_EQ(key("shared"), of_shared) << "more rights";
  update([](auto& request) { request.mutable_allocation_ids(); });
  expect_replaced("no allocation");
  update([](auto& request) { request.mutable_allocation_ids()->add_names("c1"); });
  EXPECT_EQ(key("shared"), of_shared);
  ASSERT_TRUE(SetUsers("c1", {"alice"}).ok());
  expect_replaced("left out of the allocation");
  ASSERT_TRUE(SetUsers("c1", {"alice", "bob"}).ok());
  ASSERT_TRUE(controller_->RemoveUser("bob", "root").ok());
  expect_replaced("removal");
  ASSERT_TRUE(controller_->RemoveUser("eve", "root").ok());
  EXPECT_EQ(key("shared"), of_shared) << "she could not use it";
  Start();
  EXPECT_EQ(key("shared"), of_shared) << "what was said is on the disk";
}

}  // namespace
}  // namespace vpod::controller
