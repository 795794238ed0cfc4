#include "server/agent/admission.h"

#include <gtest/gtest.h>

namespace vpod::agent {
namespace {

vipuagent::AgentPartition Partition(const std::string& key,
                                    const std::vector<std::string>& endpoints) {
  vipuagent::AgentPartition partition;
  partition.set_id("p1");
  partition.set_fabric_key(key);
  for (const std::string& endpoint : endpoints) partition.add_peers()->set_endpoint(endpoint);
  return partition;
}

TEST(AdmitTest, OnlyThePartitionsKeyOpensIt) {
  const auto partition = Partition("5e1a", {"10.1.2.1:4000"});
  EXPECT_TRUE(Admit(partition, "5e1a", false, "10.1.2.1:4000").ok());
  EXPECT_EQ(Admit(partition, "", false, "10.1.2.1:4000").status(),
            absl::UnauthenticatedError("no fabric key for partition p1; fetch its IPUoF "
                                       "configuration again"));
  for (const char* wrong : {"5e1", "5e1a5", "5e1b", "p1"}) {
    EXPECT_EQ(Admit(partition, wrong, false, "10.1.2.1:4000").status(),
              absl::UnauthenticatedError("wrong fabric key for partition p1; fetch its IPUoF "
                                         "configuration again"));
  }
  EXPECT_EQ(Admit(Partition("", {}), "", false, "10.1.2.1:4000").status(),
            absl::FailedPreconditionError("partition p1 has no fabric key; reset the partition "
                                          "to give it one"));
}

TEST(AdmitTest, AKeyNamesItsUser) {
  const auto partition = Partition("5e1a", {});
  const auto user = [&](const std::string& key) { return Admit(partition, key, false, "h:1"); };
  for (const char* name : {"alice", "a.b-c_d", "bob", ""}) {
    const std::string key = FabricKeyFor("5e1a", name);
    EXPECT_EQ(user(key).value_or("refused"), name);
    EXPECT_EQ(key.find_first_not_of("0123456789abcdef"), std::string::npos) << key;
    EXPECT_FALSE(user(FabricKeyFor("5e1b", name)).ok()) << "of another secret";
  }
  EXPECT_EQ(user("5e1a").value_or("refused"), "");  // an agent
  // Another user's name behind one's own proof, and what is no key at all.
  const std::string alice = FabricKeyFor("5e1a", "alice"), bob = FabricKeyFor("5e1a", "bob");
  for (const std::string& wrong :
       {alice.substr(0, 32) + bob.substr(32), alice.substr(0, 32), alice + "00", alice + "0",
        alice.substr(1), std::string(32, 'z') + "616c", std::string(64, '0')}) {
    EXPECT_TRUE(absl::IsUnauthenticated(user(wrong).status())) << wrong;
  }
}

TEST(AdmitTest, TensorsStayOnTheHostWhereThatIsAskedFor) {
  const auto spread = Partition("5e1a", {"10.1.2.1:4000", "10.1.2.2:4000"});
  EXPECT_TRUE(Admit(spread, "5e1a", false, "10.1.2.1:4000").ok());
  EXPECT_EQ(Admit(spread, "5e1a", true, "10.1.2.1:4000").status().message(),
            "partition p1 has IPUs on 10.1.2.2:4000 too, and tensors would travel there in clear; "
            "this agent runs with --require-encrypted-fabric");
  EXPECT_TRUE(Admit(Partition("5e1a", {"10.1.2.1:4000"}), "5e1a", true, "10.1.2.1:4000").ok());
  EXPECT_TRUE(
      Admit(Partition("5e1a", {"10.1.2.1:4000", "10.1.2.1:4001"}), "5e1a", true, "10.1.2.1:4000")
          .ok());
  EXPECT_TRUE(
      Admit(Partition("5e1a", {"127.0.0.1:4000", "127.10.0.2:1"}), "5e1a", true, "127.0.0.1:4000")
          .ok());
}

}  // namespace
}  // namespace vpod::agent
