// Tensors between the agents of a secure POD: encrypted, from daemons only, and without a port
// beside the agents' own.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "device/base/grpc_connect.h"
#include "proto/fabric/v1/fabric.grpc.pb.h"
#include "tests/security/secure_pod.h"
#include "tests/support/listeners.h"

namespace vpod::testing {
namespace {

std::string PortOf(absl::string_view endpoint) {
  return std::string(endpoint.substr(endpoint.rfind(':') + 1));
}

TEST(SecureFabricTest, TensorsTakeTheAgentsOwnEndpoints) {
  SecurePod pod({}, SecurePod::Agents::kProcessForEach);
  ASSERT_TRUE(pod.ready());
  const auto job = pod.StartAs(
      "alice", {"poprun", "--num-instances", "2", "--num-replicas", "8", "--update-partition=yes",
                "replica_job", "--runs", "1000000", "--pause-ms", "5"});
  ASSERT_TRUE(job->WaitForOutput("run 3 loss")) << job->Err();
  const std::set<std::string> endpoints = {PortOf(pod.server()), PortOf(pod.agent(0)),
                                           PortOf(pod.agent(1))};
  for (size_t agent = 0; agent < pod.agents(); ++agent) {
    const Sockets sockets = SocketsOf(pod.agent_pid(agent));
    EXPECT_EQ(sockets.listening.size(), 2u) << "its end-point and its metrics";
    for (const std::string& connection : sockets.connected) {
      const std::pair<std::string, std::string> ports = absl::StrSplit(connection, " to ");
      EXPECT_TRUE(endpoints.contains(ports.first) || endpoints.contains(ports.second))
          << connection << " leads neither from nor to an end-point that speaks TLS";
    }
  }
  job->Signal(SIGTERM);
  job->Wait();
  EXPECT_TRUE(absl::StrContains(pod.Log("agent0"), "which exchange by messages"));
}

TEST(SecureFabricTest, OnlyDaemonsMaySend) {
  SecurePod pod;
  ASSERT_TRUE(pod.ready());
  for (const std::string role : {"client", "server"}) {
    const auto channel = base::Connect(pod.agent(), base::Peer::kAgent, pod.Certificates(role));
    const auto stub = fabric::v1::Fabric::NewStub(channel);
    grpc::ClientContext context;
    fabric::v1::Cargo cargo;
    cargo.set_header(std::string(32, 'x'));
    const auto stream = stub->Carry(&context);
    stream->Write(cargo);
    stream->WritesDone();
    EXPECT_EQ(stream->Finish().error_code(),
              role == "server" ? grpc::StatusCode::OK : grpc::StatusCode::PERMISSION_DENIED);
  }
}

}  // namespace
}  // namespace vpod::testing
