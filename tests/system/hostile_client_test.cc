// Clients that speak IPUoF but mean no good: calls in the wrong order, with wrong arguments, or all
// at once. The worst that happens is a named refusal.
#include "tests/system/hostile_client.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/compiler/compiler.h"
#include "device/base/file.h"
#include "device/base/unique_fd.h"
#include "proto/ipuof/v1/ipuof.grpc.pb.h"

namespace vpod::testing {
namespace {

TEST_F(HostileClientTest, CallsWithoutALeaseAreRefused) {
  RawClient client(endpoint_);
  for (const std::string& id : {std::string(), std::string("nobody"), std::string(1 << 15, 'x')}) {
    client.set_lease_id(id);
    for (const grpc::Status& status :
         {client.Load(example_), client.Run(0, 0), client.WriteStream(0, 0, "data"),
          client.ReadStream(0, 0, 4), client.WriteTensor("w", "data"), client.ReadTensor("w", 0),
          client.Counters()}) {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND) << Text(status);
      EXPECT_NE(status.error_message().find("lease does not exist"), std::string::npos)
          << Text(status);
    }
  }
}

TEST_F(HostileClientTest, CallsAfterTheEndOfALeaseAreRefused) {
  const auto client = Loaded();
  client->Detach();
  EXPECT_EQ(client->Run(0, 0).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(client->WriteStream(0, 0, "data").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(client->ReadTensor("w", 0).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(HostileClientTest, CallsBeforeLoadAreRefused) {
  const auto client = Attached();
  for (const grpc::Status& status :
       {client->Run(0, 0), client->WriteStream(0, 0, "data"), client->ReadStream(0, 0, 4),
        client->WriteTensor("w", "data"), client->ReadTensor("w", 0), client->Counters()}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << Text(status);
    EXPECT_EQ(status.error_message(), "no executable is loaded");
  }
}

TEST_F(HostileClientTest, WrongAttachesAreRefusedByName) {
  const struct {
    std::function<void(v1::AttachOpen&)> spoil;
    std::string text;
  } cases[] = {
      {[](auto& open) { open.set_partition_id("nope"); }, "partition nope"},
      {[](auto& open) { open.set_partition_id(""); }, "partition "},
      {[](auto& open) { open.set_generation(open.generation() + 1); }, "is at generation "},
      {[](auto& open) { open.clear_fabric_key(); }, "no fabric key for partition p16"},
      {[](auto& open) { open.set_fabric_key("guess"); }, "wrong fabric key for partition p16"},
      {[](auto& open) { open.set_gcd_id(1); }, "Partition has 1 GCD; GCD 1 does not exist."},
      {[](auto& open) { open.set_gcd_id(UINT32_MAX); }, "GCD 4294967295 does not exist."},
      {[](auto& open) { open.set_device_id(31); }, "device 31 does not exist"},
      {[](auto& open) { open.set_device_id(UINT32_MAX); }, "device 4294967295 does not exist"},
      {[](auto& open) { open.mutable_job()->set_local_replicas(0); }, "0 replicas"},
      {[](auto& open) { open.mutable_job()->set_local_replicas(UINT32_MAX); },
       "4294967295 replicas"},
      {[](auto& open) { open.mutable_job()->set_ipus_per_replica(0); }, "of 0 IPUs"},
      {[](auto& open) { open.mutable_job()->set_ipus_per_replica(UINT32_MAX); },
       "of 4294967295 IPUs"},
      {[](auto& open) { open.mutable_job()->set_total_replicas(0); }, "0 replicas"},
      {[](auto& open) { open.mutable_job()->set_replica_offset(1); }, "the job has 1"},
      {[](auto& open) { open.mutable_job()->set_replica_offset(UINT32_MAX); }, "the job has 1"},
      {[](auto& open) { open.mutable_job()->set_instance_index(1); }, "instance 1 does not exist"},
      {[](auto& open) { open.mutable_job()->set_instance_index(UINT32_MAX); }, "does not exist"},
      {[](auto& open) { open.clear_job(); }, "0 replicas"},
      {[](auto& open) { open.mutable_job()->set_num_instances(UINT32_MAX); },
       "4294967295 instances"},
      {[](auto& open) { open.mutable_job()->set_total_replicas(UINT32_MAX); },
       "4294967295 replicas"},
  };
  for (const auto& item : cases) {
    v1::AttachOpen open = Open();
    item.spoil(open);
    RawClient client(endpoint_);
    const grpc::Status status = client.Attach(open);
    EXPECT_TRUE(IsNamedRefusal(status)) << item.text << ": " << Text(status);
    EXPECT_NE(status.error_message().find(item.text), std::string::npos) << Text(status);
  }
}

TEST_F(HostileClientTest, ANameThatNoKeyProvesIsLoggedAsAClaim) {
  v1::AttachOpen open = Open();
  open.set_fabric_key("guess");
  open.mutable_process()->set_user("president");
  open.mutable_process()->set_executable("x\" user=\"president");
  RawClient client(endpoint_);
  EXPECT_FALSE(client.Attach(open).ok());
  const auto log = [] { return base::ReadFile(pod_->home() + "/vipu-agent.log"); };
  EXPECT_TRUE(Within(kSoon, [&] {
    return log().find("refused call=\"attach\" claimed_user=\"president\" ") != std::string::npos;
  })) << log();
  EXPECT_EQ(log().find(" user=\"president\""), std::string::npos);
}

TEST_F(HostileClientTest, AttachStreamsOutOfOrderAreRefused) {
  const auto stub = std::make_unique<RawClient>(endpoint_);
  v1::AttachRequest open, detach, nothing;
  *open.mutable_open() = Open();
  detach.mutable_detach();
  for (const std::vector<v1::AttachRequest>& sent :
       std::vector<std::vector<v1::AttachRequest>>{{detach}, {nothing}, {open, open}}) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    auto stream = stub->stub->Attach(&context);
    for (const auto& request : sent) stream->Write(request);
    v1::AttachEvent event;
    while (stream->Read(&event)) {
    }
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << Text(status);
    EXPECT_NE(status.error_message().find("AttachOpen"), std::string::npos) << Text(status);
  }
}

TEST_F(HostileClientTest, AReservationRunsNothing) {
  v1::AttachOpen open = Open(30);
  open.set_reserve_only(true);
  RawClient client(endpoint_);
  const grpc::Status attached = client.Attach(open);
  ASSERT_TRUE(attached.ok()) << Text(attached);
  EXPECT_EQ(client.Load(example_).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(client.Run(0, 0).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(client.WriteStream(0, 0, "x").error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(HostileClientTest, WrongArgumentsAreRefusedByName) {
  const auto client = Loaded();
  const std::string data(64, 'x'), page(1 << 20, 'x');
  const struct {
    grpc::Status status;
    std::string text;
  } cases[] = {
      {client->Run(1, 0), "program 1 does not exist"},
      {client->Run(UINT32_MAX, 0), "program 4294967295 does not exist"},
      {client->Run(0, 2), "stream slot 2 does not exist"},
      {client->Run(0, UINT32_MAX), "stream slot 4294967295 does not exist"},
      {client->WriteStream(2, 0, data), "of slot 2"},
      {client->WriteStream(0, 0, page), "1048576 bytes at 0 of slot 0"},
      {client->WriteStream(0, UINT64_MAX, data), "64 bytes at 18446744073709551615 of slot 0"},
      {client->WriteStream(0, UINT64_MAX - 63, data), "of slot 0"},
      {client->ReadStream(2, 0, 4), "of slot 2"},
      {client->ReadStream(0, 0, UINT64_MAX), "18446744073709551615 bytes at 0 of slot 0"},
      {client->ReadStream(0, 8, UINT64_MAX - 4), "of slot 0"},
      {client->ReadStream(UINT32_MAX, UINT64_MAX, UINT64_MAX), "of slot 4294967295"},
      {client->WriteTensor("nope", data), "no variable 'nope'"},
      {client->WriteTensor("", data), "no variable ''"},
      {client->WriteTensor("w", std::string(65, 'x')), "w"},
      {client->WriteTensor("w", page), "w"},
      {client->WriteTensor("w", data, false, 1), "replica 1"},
      {client->WriteTensor("w", data, false, UINT32_MAX), "replica 4294967295"},
      {client->ReadTensor("nope", 0), "no variable 'nope'"},
      {client->ReadTensor("w", 1), "replica 1"},
      {client->ReadTensor("w", UINT32_MAX), "replica 4294967295"},
      {client->Load(example_, example_.size() + 1), "truncated"},
      {client->Load(example_, 8), "more than the announced 8 bytes"},
      {client->Load(example_, UINT64_MAX), "at most"},
      {client->Load(""), "not an executable of format 2"},
  };
  for (const auto& item : cases) {
    EXPECT_TRUE(IsNamedRefusal(item.status)) << item.text << ": " << Text(item.status);
    EXPECT_NE(item.status.error_message().find(item.text), std::string::npos)
        << item.text << " not in: " << Text(item.status);
  }
  EXPECT_TRUE(client->Run(0, 1).ok()) << "the executable that was loaded before is still there";
}

// A client that is refused may try again at once.
TEST_F(HostileClientTest, ARefusedLoadLeavesTheLeaseToTheNext) {
  const auto client = Loaded();
  for (int i = 0; i < 300; ++i) {
    const grpc::Status status = client->Load(example_, 8);
    ASSERT_NE(status.error_message().find("more than the announced"), std::string::npos)
        << i << ": " << status.error_message();
  }
}

TEST_F(HostileClientTest, AProgramForOtherIpusIsRefused) {
  v1::AttachOpen open = Open(16);
  open.mutable_job()->set_ipus_per_replica(2);
  RawClient client(endpoint_);
  ASSERT_TRUE(client.Attach(open).ok());
  const grpc::Status status = client.Load(example_);
  EXPECT_TRUE(IsNamedRefusal(status)) << Text(status);
  EXPECT_NE(status.error_message().find("1 IPU per replica, the job has 2"), std::string::npos)
      << Text(status);
}

// The agent would die where it touches a page that the host does not have.
TEST_F(HostileClientTest, StreamsInHugePagesAreRefused) {
  const auto client = Loaded();
  constexpr size_t kBytes = 64 << 20;
  const base::UniqueFd huge(memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!huge.valid() || ftruncate(huge.get(), kBytes) != 0) GTEST_SKIP() << "no huge pages here";
  ASSERT_EQ(fcntl(huge.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_FALSE(client->OfferStreams(huge.get()));
  EXPECT_TRUE(client->WriteStream(0, 0, "data").ok());
}

TEST_F(HostileClientTest, CallsThatMeetOnOneLeaseDoNoHarm) {
  // A large stream buffer, so that writes take long enough to meet the load that replaces it.
  using program::v1::FLOAT32;
  graph::Graph graph;
  const graph::Tensor x = graph.Input("x", {FLOAT32, {1 << 18}});
  graph.Output("y", graph.Relu(x));
  compiler::CompileOptions options;
  options.programs = {{.name = "relu", .device_iterations = 4}};
  const auto compiled = compiler::Compile(graph, options);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const std::string page(1 << 20, '\x01');
  for (int round = 0; round < 12; ++round) {
    const auto client = Attached();
    ASSERT_TRUE(client->Load(compiled->executable->Bytes()).ok());
    std::atomic<bool> stop = false;
    std::vector<std::thread> threads;
    const auto repeat = [&](std::function<grpc::Status()> call) {
      threads.emplace_back([&stop, call = std::move(call)] {
        while (!stop) {
          const grpc::Status status = call();
          EXPECT_TRUE(status.ok() || IsNamedRefusal(status)) << Text(status);
        }
      });
    };
    repeat([&] { return client->WriteStream(0, 0, page); });
    repeat([&] { return client->WriteStream(1, 1 << 20, page); });
    repeat([&] { return client->ReadStream(1, 0, 4 << 20); });
    repeat([&] { return client->Load(compiled->executable->Bytes()); });
    repeat([&] { return client->Run(0, 0); });
    repeat([&] { return client->ShareStreams(64 << 20); });
    repeat([&] { return client->Counters(); });
    for (int call = 0; call < 20; ++call) {
      const grpc::Status status = client->Load(compiled->executable->Bytes());
      EXPECT_TRUE(status.ok() || IsNamedRefusal(status)) << Text(status);
    }
    // The lease ends while the calls go on.
    if (round % 2 == 0) {
      client->Detach();
    } else {
      client->Vanish();
    }
    stop = true;
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace vpod::testing
