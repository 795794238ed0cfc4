// Machines of different hosts have different identities.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "device/arch/device_id.h"
#include "server/agent/agent.h"

namespace vpod::agent {
namespace {

// As by vipu-agent@ADDRESS on hosts of one POD.
TEST(IdentityTest, MachinesOfTwoHostsDiffer) {
  std::set<std::string> serials, domains;
  const std::vector<std::string> hosts = {"10.1.2.1", "10.1.2.2", "10.1.3.1", "rack1-m1"};
  for (const std::string& host : hosts) {
    AgentOptions options;
    options.management_ip = options.data_ip = host;
    const auto agent = *Agent::Create(options);
    const auto described = agent->DescribeMachine(host);
    ASSERT_TRUE(described.ok()) << described.status();
    const auto& attributes = described->ipus(0).attributes();
    EXPECT_EQ(attributes.at("board serial number").size(), 17u);
    serials.insert(attributes.at("board serial number"));
    domains.insert(attributes.at("config domain"));
  }
  EXPECT_EQ(serials.size(), hosts.size());
  EXPECT_EQ(domains.size(), hosts.size());
}

TEST(IdentityTest, NumberInThePodHasTheLastWord) {
  AgentOptions options;
  options.management_ip = "10.1.2.1";
  options.first_machine = 3;
  const auto agent = *Agent::Create(options);
  EXPECT_EQ(agent->DescribeMachine("10.1.2.1")->ipus(0).attributes().at("board serial number"),
            arch::BoardSerial(3, 0));
}

}  // namespace
}  // namespace vpod::agent
