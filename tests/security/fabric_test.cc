// Tensors between the agents of a secure POD: encrypted, from daemons only, and no port beside the
// agents' own.
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include "device/base/file.h"
#include "device/base/grpc_connect.h"
#include "proto/fabric/v1/fabric.grpc.pb.h"
#include "tests/security/secure_pod.h"
#include "tests/support/listeners.h"

namespace vpod::testing {
namespace {

// Needs SecurePod(options, agents): `agents` processes of one machine each in one cluster and
// allocation, VPOD_TRANSPORT=tcp in their environment, and agent_pid(n).
TEST(SecureFabricTest, TensorsTakeTheAgentsOwnEndpoints) {
  SecurePod pod({}, /*agents=*/2);
  ASSERT_TRUE(pod.ready());
  const std::string losses = pod.pod().directory() + "/losses";
  const Outcome here = pod.RunAs("alice", {"replica_job", "--runs", "5", "--losses", losses + ".1",
                                           "--replicas", "8", "--use-ipu-model"});
  const auto job = pod.StartAs("alice", {"poprun", "--num-instances", "2", "--num-replicas", "8",
                                         "replica_job", "--runs", "1000000", "--pause-ms", "5"});
  ASSERT_TRUE(job->WaitForOutput("run 3 loss")) << job->Err();
  for (int agent = 0; agent < 2; ++agent) {
    const Sockets sockets = SocketsOf(pod.agent_pid(agent));
    EXPECT_EQ(sockets.listening.size(), 2u) << "its end-point and its metrics";
    // Whatever is connected leads from or to an end-point that speaks TLS.
    for (const std::string& connection : sockets.connected)
      EXPECT_TRUE(pod.IsEndpoint(connection)) << connection;
  }
  job->Signal(SIGTERM);
  job->Wait();
  EXPECT_NE(pod.Log("agent").find("which exchange by messages"), std::string::npos);
}

TEST(SecureFabricTest, OnlyDaemonsMaySend) {
  SecurePod pod;
  ASSERT_TRUE(pod.ready());
  for (const char* role : {"client", "server"}) {
    const auto channel = base::Connect(pod.agent(), base::Peer::kAgent, pod.Certificates(role));
    fabric::v1::Fabric::Stub stub(channel);
    grpc::ClientContext context;
    const auto stream = stub.Carry(&context);
    fabric::v1::Cargo cargo;
    cargo.set_header(std::string(32, 'x'));
    stream->Write(cargo);
    stream->WritesDone();
    EXPECT_EQ(stream->Finish().error_code(), role == std::string("server")
                                                 ? grpc::StatusCode::OK
                                                 : grpc::StatusCode::PERMISSION_DENIED);
  }
}

}  // namespace
}  // namespace vpod::testing
