// Users: what becomes of their rights with allocations and partitions, and what is logged.
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "server/controller/controller_fixture.h"
#include "server/controller/show_key.h"

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
  absl::Status SetUsers(const std::string& allocation, const std::vector<std::string>& users,
                        vipuadmin::JobsOfUser jobs = vipuadmin::JOBS_UNDECIDED) {
    vipuadmin::UpdateAllocationRequest request;
    request.set_id(allocation);
    request.set_jobs(jobs);
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
            "FAILED_PRECONDITION: User alice is in use by partition p1. The change takes rights to "
            "it from user alice: give --end-jobs to end the user's jobs, or --keep-jobs to let "
            "them go on.");
  EXPECT_EQ(controller_->ListUsers()[0].num_partitions(), 1u);
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
  EXPECT_TRUE(ShowKey(controller_->users(), "alice", *key).ok());
  ASSERT_TRUE(SetUsers("c1", {}).ok());
  ASSERT_TRUE(controller_->RemoveUser("alice", "root").ok());
  EXPECT_EQ(EventsOf("user boss"), (Texts{"created as administrator for all allocations"}));
  EXPECT_EQ(EventsOf("user bob"), (Texts{"created for allocations c1"}));
  EXPECT_EQ(EventsOf("user alice"),
            (Texts{"created for no allocation", "updated: new access key, for all allocations",
                   "removed"}));
  EXPECT_EQ(EventsOf("allocation c1"), (Texts{"updated to no users"}));
  EXPECT_TRUE(CreateAllocation("a", "ag0", {"bob"}).ok());
  EXPECT_EQ(EventsOf("allocation a"), (Texts{"created with 1 agent of cluster c1, users bob"}));
  Start();
  EXPECT_EQ(EventsOf("user bob"), (Texts{"created for allocations c1"}));
  vipuadmin::ListEventsRequest newest;
  newest.set_limit(1);
  EXPECT_EQ((*controller_->ListEvents(newest))[0].user, "root");
}

// An administrator who was removed while the call waited.
TEST_F(AccountsTest, ChangesOfRightsAskWhetherTheCallerIsStillCurrent) {
  CreatePod(2);
  ASSERT_TRUE(CreateLimited("alice", {"c1"}).ok());
  ASSERT_TRUE(CreateAllocation("kept", "ag1", {"alice"}).ok());
  const absl::Status gone = absl::UnauthenticatedError("gone");
  int asked = 0;
  const CallerCheck check = [&] {
    ++asked;
    return gone;
  };
  const size_t events = controller_->ListEvents({})->size();
  vipuadmin::User mallory;
  mallory.set_id("mallory");
  mallory.set_admin(true);
  vipuadmin::UpdateUserRequest user;
  user.set_id("alice");
  user.set_new_access_key(true);
  user.set_all_allocations(true);
  vipuadmin::Allocation allocation;
  allocation.set_id("a");
  allocation.set_cluster_id("c1");
  allocation.add_agent_ids("ag0");
  vipuadmin::UpdateAllocationRequest users;
  users.set_id("kept");
  users.mutable_user_ids();
  EXPECT_EQ(controller_->CreateUser(mallory, "boss", check).status(), gone);
  EXPECT_EQ(controller_->UpdateUser(user, "boss", check).status(), gone);
  EXPECT_EQ(controller_->RemoveUser("alice", "boss", vipuadmin::JOBS_END, check), gone);
  EXPECT_EQ(controller_->CreateAllocation(allocation, "boss", check), gone);
  EXPECT_EQ(controller_->UpdateAllocation(users, "boss", check), gone);
  EXPECT_EQ(controller_->RemoveAllocation("kept", "boss", check), gone);
  EXPECT_EQ(controller_->Backup("boss", check).status(), gone);
  EXPECT_EQ(asked, 7) << "each asks once";
  // Nor is anybody told what there is.
  EXPECT_EQ(controller_->RemoveUser("nobody", "boss", vipuadmin::JOBS_END, check), gone);
  EXPECT_EQ(controller_->RemoveAllocation("nothing", "boss", check), gone);
  EXPECT_EQ(Listed(), "c1: alice, kept: alice");
  EXPECT_EQ(controller_->ListUsers().size(), 1u);
  EXPECT_FALSE(controller_->users().Find("alice")->MayUse("elsewhere"));
  EXPECT_EQ(controller_->ListEvents({})->size(), events);
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
    request.set_jobs(vipuadmin::JOBS_GO_ON);
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
  ASSERT_TRUE(SetUsers("c1", {"alice"}, vipuadmin::JOBS_GO_ON).ok());
  expect_replaced("left out of the allocation");
  ASSERT_TRUE(SetUsers("c1", {"alice", "bob"}).ok());
  ASSERT_TRUE(controller_->RemoveUser("bob", "root", vipuadmin::JOBS_GO_ON).ok());
  expect_replaced("removal");
  ASSERT_TRUE(controller_->RemoveUser("eve", "root").ok());
  EXPECT_EQ(key("shared"), of_shared) << "she could not use it";
  Start();
  EXPECT_EQ(key("shared"), of_shared) << "what was said is on the disk";
}

// What becomes of alice's partitions, "own" and "shared", and what the agents are told, by what the
// administrator says.
class LostRightsTest : public AccountsTest {
 protected:
  struct Told {
    std::string creator;  // of the partition; empty: it was removed
    bool new_key = false, ends_alice = false, ends_all = false;
    bool operator==(const Told&) const = default;
    friend std::ostream& operator<<(std::ostream& out, const Told& told) {
      return out << "creator '" << told.creator << "' new key " << told.new_key << " ends alice's "
                 << told.ends_alice << " ends all " << told.ends_all;
    }
  };

  void SetUp() override {
    CreatePod(3);
    ASSERT_TRUE(CreateLimited("alice", {"c1"}).ok());
    ASSERT_TRUE(CreateLimited("bob", {"c1"}).ok());
    for (const std::string id : {"own", "shared", "others"}) {
      vipuuser::CreatePartitionRequest request;
      *request.mutable_requirements() = Wanted(id, 2);
      request.mutable_requirements()->set_shared(id == "shared");
      ASSERT_TRUE(
          controller_->CreatePartition(request, Anyone(id == "others" ? "bob" : "alice")).ok());
      gateway_.ConfirmAll();
      keys_[id] = Get(id).gcds(0).fabric_key();
    }
  }
  // What the agent is told by the configuration that is on its way.
  Told ToldOf(const std::string& id) {
    Told told;
    for (const auto& call : gateway_.calls) {
      for (const auto& spec : call.request.partitions()) {
        if (spec.id() != id) continue;
        told.new_key = spec.fabric_key() != keys_[id];
        const auto ended = spec.ended_before().find("alice");
        told.ends_alice = ended != spec.ended_before().end() && ended->second == spec.generation();
        told.ends_all = spec.config_generation() == spec.generation();
      }
      for (const auto& removed : call.request.removed()) told.ends_all |= removed.id() == id;
    }
    const auto partition = controller_->GetPartition(id);
    if (partition.ok()) told.creator = partition->status().created_by();
    return told;
  }
  absl::Status NewKey(vipuadmin::JobsOfUser jobs) {
    vipuadmin::UpdateUserRequest request;
    request.set_id("alice");
    request.set_new_access_key(true);
    request.set_jobs(jobs);
    return controller_->UpdateUser(request, "root").status();
  }
  absl::Status Limit(vipuadmin::JobsOfUser jobs) {
    vipuadmin::UpdateUserRequest request;
    request.set_id("alice");
    request.mutable_allocation_ids();
    request.set_jobs(jobs);
    return controller_->UpdateUser(request, "root").status();
  }

  std::map<std::string, std::string> keys_;
};

TEST_F(LostRightsTest, NothingChangesBeforeItIsSaidWhatBecomesOfJobs) {
  for (const absl::Status& refused :
       {NewKey(vipuadmin::JOBS_UNDECIDED), Limit(vipuadmin::JOBS_UNDECIDED),
        SetUsers("c1", {"bob"}), controller_->RemoveUser("alice", "root")}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_NE(refused.message().find(" is in use by partition own. The change takes rights to it "
                                     "from user alice: give --end-jobs"),
              std::string::npos)
        << refused;
  }
  EXPECT_TRUE(gateway_.calls.empty());
  EXPECT_TRUE(controller_->users().Find("alice")->MayUse("c1"));
  for (const auto& [id, key] : keys_) EXPECT_EQ(Get(id).gcds(0).fabric_key(), key);
}

TEST_F(LostRightsTest, ANewAccessKeyMakesFabricKeysVoid) {
  ASSERT_TRUE(NewKey(vipuadmin::JOBS_GO_ON).ok());
  for (const std::string id : {"own", "shared"})
    EXPECT_EQ(ToldOf(id), (Told{.creator = "alice", .new_key = true})) << id;
  gateway_.ConfirmAll();
  ASSERT_TRUE(NewKey(vipuadmin::JOBS_END).ok());
  for (const std::string id : {"own", "shared"})
    EXPECT_EQ(ToldOf(id), (Told{.creator = "alice", .new_key = true, .ends_alice = true})) << id;
  EXPECT_EQ(ToldOf("others"), (Told{.creator = "bob"}));
  // The leases end also if the agent hears of it from the next controller, or after the next loss.
  Start();
  Register(0, 3);
  EXPECT_TRUE(ToldOf("own").new_key);
  EXPECT_EQ(Get("own").status().created_by(), "alice");
  ASSERT_FALSE(gateway_.calls.empty());
  for (const auto& spec : gateway_.calls.front().request.partitions())
    EXPECT_EQ(spec.ended_before().count("alice"), spec.id() == "others" ? 0u : 1u) << spec.id();
}

// The partition of two agents of which one does not take what it is told.
class RefusedRightsTest : public AccountsTest {
 protected:
  void SetUp() override {
    CreatePodOfTwoProcesses();
    ASSERT_TRUE(CreateLimited("alice", {"c1"}).ok());
  }
  // Gives alice a new key and has her jobs end.
  void EndJobs() {
    vipuadmin::UpdateUserRequest request;
    request.set_id("alice");
    request.set_new_access_key(true);
    request.set_jobs(vipuadmin::JOBS_END);
    const auto key = controller_->UpdateUser(request, "root");
    ASSERT_TRUE(key.ok()) << key.status();
  }
  // Whether the only partition of the call has to end alice's jobs.
  static bool EndsJobs(const FakeGateway::Call& call) {
    return call.request.partitions_size() == 1 &&
           call.request.partitions(0).ended_before().contains("alice");
  }
};

TEST_F(RefusedRightsTest, AnAgentThatRefusesANewKeyIsAskedAgainAndTheOthersAreTold) {
  CreateActive(Wanted("p1", 8));
  EndJobs();
  ASSERT_EQ(gateway_.calls.size(), 2u);
  const FakeGateway::Call refused = gateway_.Answer(absl::InvalidArgumentError("not now"));
  EXPECT_TRUE(EndsJobs(refused));
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);
  EXPECT_EQ(StatusOf("p1").message(), "not now");
  ASSERT_EQ(gateway_.calls.size(), 1u) << "not at once";
  EndJobs();  // the one that has refused hears of it, the other one when it has answered
  ASSERT_EQ(gateway_.calls.size(), 2u);
  std::set<std::string> told;
  for (int i = 0; i < 3; ++i) {
    const FakeGateway::Call call = gateway_.Answer();
    EXPECT_TRUE(EndsJobs(call)) << call.endpoint;
    if (call.request.partitions(0).generation() == StatusOf("p1").generation())
      told.insert(call.endpoint);
  }
  EXPECT_EQ(told, (std::set<std::string>{"process-1", "process-2"}));
  EXPECT_TRUE(gateway_.calls.empty());
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(StatusOf("p1").message(), "");
}

TEST_F(RefusedRightsTest, AnAgentThatGoesOnRefusingANewKeyIsAskedByEveryTick) {
  CreateActive(Wanted("p1", 4));
  EndJobs();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(gateway_.calls.size(), 1u);
    EXPECT_TRUE(EndsJobs(gateway_.Answer(absl::InvalidArgumentError("not now"))));
    EXPECT_TRUE(gateway_.calls.empty()) << "not at once";
    controller_->Tick();
  }
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
}

// Partitions of one agent are told singly once it has refused several; the first is in nobody's
// way.
TEST_F(RefusedRightsTest, ARefusedKeyKeepsNoOtherPartitionWaiting) {
  for (const char* id : {"p1", "p2", "p3"}) CreateActive(Wanted(id, 1));
  EndJobs();
  const absl::Status refusal = absl::InvalidArgumentError("not p1");
  EXPECT_EQ(gateway_.Answer(refusal).request.partitions_size(), 3);
  EXPECT_EQ(gateway_.Answer(refusal).request.partitions(0).id(), "p1");
  controller_->Tick();
  for (const std::string id : {"p2", "p3", "p1"}) {
    ASSERT_EQ(gateway_.calls.size(), 1u);
    const FakeGateway::Call call = gateway_.Answer();
    EXPECT_TRUE(EndsJobs(call));
    EXPECT_EQ(call.request.partitions(0).id(), id);
    EXPECT_EQ(StateOf(id), vipuuser::PS_ACTIVE);
  }
  EXPECT_TRUE(gateway_.calls.empty());
}

// An agent that has refused the partition itself is no reason to tell the others nothing.
TEST_F(RefusedRightsTest, ThePartitionOfAnAgentThatRefusedItIsToldAgain) {
  ASSERT_TRUE(Create("p1", 8).ok());
  gateway_.Answer(absl::InvalidArgumentError("no such machine"));
  gateway_.ConfirmAll();
  ASSERT_EQ(StateOf("p1"), vipuuser::PS_ERROR);
  EndJobs();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);
  ASSERT_EQ(gateway_.calls.size(), 2u);
  for (const FakeGateway::Call& call : gateway_.calls) EXPECT_TRUE(EndsJobs(call)) << call.endpoint;
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
}

// The ways in which a creator loses all rights to a partition.
enum class Way { kLimited, kLeftOut, kRemoved };
class CreatorLosesTest : public LostRightsTest, public testing::WithParamInterface<Way> {
 protected:
  absl::Status Change(vipuadmin::JobsOfUser jobs) {
    switch (GetParam()) {
      case Way::kLimited:
        return Limit(jobs);
      case Way::kLeftOut:
        return SetUsers("c1", {"bob"}, jobs);
      case Way::kRemoved:
        return controller_->RemoveUser("alice", "root", jobs);
    }
    return absl::InternalError("no such way");
  }
};

TEST_P(CreatorLosesTest, PartitionsAreHandedOverWhenJobsGoOn) {
  EXPECT_EQ(Text(Change(vipuadmin::JOBS_GO_ON)), "OK: ");
  for (const std::string id : {"own", "shared"}) {
    EXPECT_EQ(ToldOf(id), (Told{.creator = "root", .new_key = true})) << id;
    const Texts events = EventsOf("partition " + id);
    EXPECT_EQ(events[events.size() - 2],
              absl::StrCat("handed over to root: ",
                           GetParam() == Way::kLeftOut ? "allocation c1" : "user alice",
                           " was changed; jobs of alice go on"));
  }
  EXPECT_EQ(ToldOf("others"), (Told{.creator = "bob"}));
}

TEST_P(CreatorLosesTest, UnsharedPartitionsGoWhenJobsEnd) {
  EXPECT_EQ(Text(Change(vipuadmin::JOBS_END)), "OK: ");
  EXPECT_EQ(ToldOf("own"), (Told{.ends_all = true}));
  EXPECT_EQ(controller_->GetPartitionStatus("own")->state(), vipuuser::PS_REMOVED);
  EXPECT_EQ(ToldOf("shared"), (Told{.creator = "root", .new_key = true, .ends_alice = true}));
  EXPECT_EQ(ToldOf("others"), (Told{.creator = "bob"}));
}

INSTANTIATE_TEST_SUITE_P(Ways, CreatorLosesTest,
                         testing::Values(Way::kLimited, Way::kLeftOut, Way::kRemoved));

TEST_F(LostRightsTest, NobodyIsHandedOverWhatTheyLose) {
  EXPECT_EQ(Text(controller_->RemoveUser("alice", "alice", vipuadmin::JOBS_GO_ON)),
            "FAILED_PRECONDITION: Partition own would be handed over to user alice, who loses it "
            "by this change; have another administrator make it.");
  EXPECT_TRUE(controller_->GetUser("alice").ok());
}

// A controller that cannot write has taken nothing from anybody.
TEST_F(LostRightsTest, WhatCannotBeCommittedIsNotTaken) {
  StartAfter(
      "CREATE TRIGGER partitions_stay BEFORE INSERT ON objects WHEN NEW.kind = 'partition'"
      " BEGIN SELECT RAISE(ABORT, 'refused'); END;");
  Register(0, 3);
  gateway_.ConfirmAll();
  EXPECT_FALSE(NewKey(vipuadmin::JOBS_END).ok());
  EXPECT_FALSE(controller_->RemoveUser("alice", "root", vipuadmin::JOBS_END).ok());
  EXPECT_TRUE(gateway_.calls.empty());
  EXPECT_EQ(Get("own").status().created_by(), "alice");
  EXPECT_TRUE(controller_->GetUser("alice").ok());
}

}  // namespace
}  // namespace vpod::controller
