#include "server/controller/permissions.h"

#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include "proto/fabric/v1/fabric.pb.h"
#include "proto/ipuof/v1/ipuof.pb.h"
#include "proto/telemetry/v1/telemetry.pb.h"
#include "proto/vipu/v1/vipuadmin.pb.h"
#include "proto/vipu/v1/vipuagent.pb.h"
#include "proto/vipu/v1/vipuuser.pb.h"

namespace vpod::controller {
namespace {

// Every call of the contracts.
std::set<std::string> Methods() {
  std::set<std::string> methods;
  for (const google::protobuf::FileDescriptor* file :
       {vipuuser::GetServerInfoRequest::descriptor()->file(),
        vipuadmin::CreateUserRequest::descriptor()->file(),
        vipuagent::RegisterRequest::descriptor()->file(),
        ipuof::v1::AttachRequest::descriptor()->file(),
        telemetry::v1::GetPartitionLinksRequest::descriptor()->file(),
        fabric::v1::JobRequest::descriptor()->file()}) {
    EXPECT_GT(file->service_count(), 0) << file->name();
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m)
        methods.insert(file->service(s)->method(m)->full_name());
    }
  }
  return methods;
}

TEST(PermissionsTest, EveryCallHasOneRuleAndEveryRuleACall) {
  std::set<std::string> ruled;
  for (const Permission& permission : Permissions())
    EXPECT_TRUE(ruled.insert(std::string(permission.method)).second) << permission.method;
  EXPECT_EQ(ruled, Methods());
}

TEST(PermissionsTest, CallWithoutARuleIsRefused) {
  EXPECT_TRUE(absl::IsPermissionDenied(PermissionOf("vipuuser.VipuUser.NewCall").status()));
  EXPECT_TRUE(absl::IsPermissionDenied(PermissionOfPath("/vipuuser.VipuUser/NewCall").status()));
}

TEST(PermissionsTest, PathsLeadToTheRulesOfTheirCalls) {
  const auto permission = PermissionOfPath("/vpod.ipuof.v1.Ipuof/GetCounters");
  ASSERT_TRUE(permission.ok()) << permission.status();
  EXPECT_EQ(permission->method, "vpod.ipuof.v1.Ipuof.GetCounters");
}

const Caller kAdmin{.user_id = "root", .admin = true};
const Caller kOwner{.user_id = "alice", .allocation_ids = {{"a1"}}};
const Caller kColleague{.user_id = "bob", .allocation_ids = {{"a1", "a2"}}};
const Caller kOtherUser{.user_id = "eve", .allocation_ids = {{"a2"}}};
const Caller kNowhere{.user_id = "new", .allocation_ids = std::set<std::string>()};
const Caller kUnlimited{.user_id = "carol"};

TEST(CheckCallerTest, AdministrationIsForAdministratorsAndAgentsForDaemons) {
  const Permission create{"", Rule::kAdmin, "create agent"};
  EXPECT_TRUE(CheckCaller(create, kAdmin).ok());
  EXPECT_EQ(CheckCaller(create, kOwner).message(), "User alice may not create agent.");
  EXPECT_TRUE(absl::IsPermissionDenied(CheckCaller(create, kOwner)));
  EXPECT_FALSE(CheckCaller({"", Rule::kMember, "register"}, kAdmin).ok());
  for (const Rule rule : {Rule::kAnyone, Rule::kUser, Rule::kAllocation, Rule::kOwner})
    EXPECT_TRUE(CheckCaller({"", rule, ""}, kOtherUser).ok());
}

TEST(CheckPartitionTest, RulesByRole) {
  const PartitionAccess own{"p1", "a1", "alice", false}, shared{"p2", "a1", "alice", true};
  struct Row {
    Rule rule;
    PartitionAccess partition;
    bool admin, owner, colleague, other, nowhere, unlimited;
  };
  const Row rows[] = {
      {Rule::kAllocation, own, true, true, true, false, false, true},
      {Rule::kOwner, own, true, true, false, false, false, false},
      {Rule::kOwner, shared, true, true, false, false, false, false},
      // Only the creator uses the devices, unless they are shared (spec/vipu.md 5).
      {Rule::kDevices, own, false, true, false, false, false, false},
      {Rule::kDevices, shared, true, true, true, false, false, true},
  };
  for (const Row& row : rows) {
    const auto allowed = [&](const Caller& caller) {
      return CheckPartition({"", row.rule, "touch partition"}, caller, row.partition).ok();
    };
    const std::string where =
        row.partition.id + ", rule " + std::to_string(static_cast<int>(row.rule));
    EXPECT_EQ(allowed(kAdmin), row.admin) << where;
    EXPECT_EQ(allowed(kOwner), row.owner) << where;
    EXPECT_EQ(allowed(kColleague), row.colleague) << where;
    EXPECT_EQ(allowed(kOtherUser), row.other) << where;
    EXPECT_EQ(allowed(kNowhere), row.nowhere) << where;
    EXPECT_EQ(allowed(kUnlimited), row.unlimited) << where;
  }
}

TEST(CheckPartitionTest, ACreatorWithoutTheAllocationHasLostThePartition) {
  const Caller creator{.user_id = "alice", .allocation_ids = {{"a2"}}};
  for (const bool shared : {false, true}) {
    const PartitionAccess partition{"p1", "a1", "alice", shared};
    EXPECT_FALSE(MayUseDevices(creator, partition));
    for (const Rule rule : {Rule::kAllocation, Rule::kDevices, Rule::kOwner})
      EXPECT_FALSE(CheckPartition({"", rule, "touch partition"}, creator, partition).ok());
  }
}

TEST(CheckPartitionTest, RefusalNamesUserCallAndPartition) {
  EXPECT_EQ(CheckPartition({"", Rule::kAllocation, "reset partition"}, kOtherUser,
                           {"p1", "a1", "alice", false})
                .message(),
            "User eve may not reset partition p1.");
}

}  // namespace
}  // namespace vpod::controller
