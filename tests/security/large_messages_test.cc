// Sixty-four messages at once, each as large as gRPC lets it be and made so that parsing it would
// take many times as much memory. Each daemon refuses them within a stated amount, and answers
// everybody else. The figures are printed: "attack: memory +N MiB".
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "client/vipu/client.h"
#include "device/base/grpc_connect.h"
#include "tests/security/secure_pod.h"
#include "tests/support/raw_call.h"
#include "tests/system/exhaustion.h"

namespace vpod::testing {
namespace {

using google::protobuf::MethodDescriptor;

// MiB. An agent ends the connections of messages that are not complete beyond 64 MiB, a controller
// beyond 128 MiB (incomplete_bytes in server/rpc/bounded_listener.h). Bytes that arrive between two
// looks come on top, and a busy machine looks late.
constexpr long kMost = 256;
constexpr int kCalls = 64;
constexpr long kAnyThreads = 1000;  // this test is about memory

const MethodDescriptor* MethodOf(const std::vector<const MethodDescriptor*>& methods,
                                 const std::string& name) {
  for (const MethodDescriptor* method : methods) {
    if (method->full_name() == name) return method;
  }
  ADD_FAILURE() << "there is no call " << name;
  return nullptr;
}

class LargeMessagesTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(pod_.ready()); }

  // Sends the message in all calls at once, each on a connection of its own.
  void Attack(const std::string& name, const std::string& call, const std::string& bytes,
              const std::string& role, const std::map<std::string, std::string>& metadata = {}) {
    const bool at_agent = call.find("vipuagent.VipuAgent.") == 0 || call.find("vpod.") == 0;
    const MethodDescriptor* method =
        MethodOf(at_agent ? AgentMethods() : ControllerMethods(), call);
    ASSERT_NE(method, nullptr);
    const int pid = at_agent ? pod_.agent_pid() : pod_.server_pid();
    const base::Tls tls = pod_.Certificates(role);
    Cost cost;
    cost.Begin(pid);
    std::vector<grpc::Status> statuses(kCalls);
    std::vector<std::thread> calls;
    for (grpc::Status& status : statuses) {
      calls.emplace_back([&] {
        grpc::ChannelArguments arguments;
        arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
        arguments.SetMaxSendMessageSize(-1);
        const auto channel =
            base::Connect(at_agent ? pod_.agent() : pod_.server(),
                          at_agent ? base::Peer::kAgent : base::Peer::kController, tls, arguments);
        status = CallRaw(*channel, *method, bytes, metadata);
      });
    }
    for (std::thread& thread : calls) thread.join();
    std::printf("%s\n", statuses[0].error_message().c_str());
    cost.ExpectHeld(name, kMost, kAnyThreads);
    for (const grpc::Status& status : statuses) EXPECT_FALSE(status.ok()) << name;
    ExpectOthersGoOn();
  }
  void ExpectOthersGoOn() {
    vipu::Client alice(pod_.ConfigOf("alice"), std::chrono::seconds(20));
    const auto partitions = alice.ListPartitions();
    ASSERT_TRUE(partitions.ok()) << partitions.status() << pod_.LastWords();
    EXPECT_EQ(partitions->size(), 1u);
    // The agent may have to reconnect first.
    vipu::Client root(pod_.ConfigOf("root"), std::chrono::seconds(20));
    EXPECT_TRUE(Within(std::chrono::seconds(60), [&] {
      const auto agent = root.GetAgent("ag1");
      return agent.ok() && agent->facts().count("Platform") == 1;
    })) << "the agent did not describe its machine";
  }
  std::map<std::string, std::string> Root() {
    return {{"vipu-user-id", "root"}, {"vipu-access-key", pod_.key("root")}};
  }

  SecurePod pod_{{"--log-level", "error"}};
};

// Fields of two or three bytes, of which protobuf makes objects.
const char kUnknown[] = "\xfa\x01";  // and a zero: field 31, empty
std::string Unknown(size_t bytes) { return Repeat(std::string(kUnknown, 3), bytes); }
std::string EmptyMachines(size_t bytes) { return Repeat(std::string("\x1a\x00", 2), bytes); }

TEST_F(LargeMessagesTest, TheControllerTakesNoMoreThanItNeeds) {
  constexpr size_t kBytes = (4 << 20) - 64;
  Attack("calls without a key", "vipuuser.VipuUser.CreatePartition", Unknown(kBytes), "client");
  Attack("calls that need no key", "vipuuser.VipuUser.GetServerInfo", Unknown(kBytes), "client");
  Attack("partitions", "vipuuser.VipuUser.CreatePartition", Unknown(kBytes), "client", Root());
  Attack("registrations", "vipuagent.VipuRegistry.Register", EmptyMachines(kBytes), "server");
  // Just below what a registration may take.
  Attack("smaller registrations", "vipuagent.VipuRegistry.Register", EmptyMachines(700000),
         "server");
  Attack("heartbeats", "vipuagent.VipuRegistry.Heartbeat", EmptyMachines(kBytes), "server");
  Attack("clusters of agents without a name", "vipuadmin.VipuAdmin.CreateCluster",
         "\x0a\x80\x80\x10" + Repeat(std::string("\x12\x00", 2), 1 << 18), "client", Root());
}

TEST_F(LargeMessagesTest, AnAgentTakesNoMoreThanItNeeds) {
  constexpr size_t kBytes = (16 << 20) - 64;
  Attack("runs", "vpod.ipuof.v1.Ipuof.Run", Unknown(kBytes), "client");
  Attack("attaches", "vpod.ipuof.v1.Ipuof.Attach", Unknown(kBytes), "client");
  Attack("descriptions of machines", "vipuagent.VipuAgent.DescribeMachine", Unknown(kBytes),
         "server");
  Attack("configurations", "vipuagent.VipuAgent.Configure", Unknown(kBytes), "server");
}

}  // namespace
}  // namespace vpod::testing
