// Clients that speak IPUoF but mean no good: truncated, bit-flipped and random executables, calls
// in the wrong order, messages of noise. The worst that happens is a named refusal; the agent
// stays, and the next client computes what it always did.
#include <fcntl.h>
#include <google/protobuf/message.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "client/compiler/compiler.h"
#include "client/ipuof/lease.h"
#include "client/vipu/client.h"
#include "client/vipu/ipuof_config.h"
#include "device/base/unique_fd.h"
#include "device/program/executable.h"
#include "device/shm/segment.h"
#include "proto/ipuof/v1/ipuof.grpc.pb.h"
#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

using Random = std::mt19937_64;
namespace v1 = ipuof::v1;

constexpr uint64_t kSeed = 20240607;
constexpr auto kPatience = std::chrono::seconds(30);

// Whether it is a refusal. Any other status (Unavailable, Internal, …) is a fault of the agent.
bool IsNamedRefusal(const grpc::Status& status) {
  static const std::set<int> codes = {grpc::StatusCode::INVALID_ARGUMENT,
                                      grpc::StatusCode::NOT_FOUND,
                                      grpc::StatusCode::FAILED_PRECONDITION,
                                      grpc::StatusCode::OUT_OF_RANGE,
                                      grpc::StatusCode::UNAUTHENTICATED,
                                      grpc::StatusCode::RESOURCE_EXHAUSTED,
                                      grpc::StatusCode::ABORTED,
                                      grpc::StatusCode::CANCELLED};
  return codes.contains(status.error_code()) && !status.error_message().empty();
}

std::string Text(const grpc::Status& status) {
  return "code " + std::to_string(status.error_code()) + ": " + status.error_message();
}

// A client without the manners of client/ipuof. The lease ends with the object.
class RawClient {
 public:
  explicit RawClient(const std::string& endpoint) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetMaxReceiveMessageSize(64 << 20);
    channel_ = grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments);
    stub = v1::Ipuof::NewStub(channel_);
  }
  ~RawClient() { Detach(); }

  // OK with lease_id() set, or the refusal.
  grpc::Status Attach(const v1::AttachOpen& open) {
    v1::AttachRequest request;
    *request.mutable_open() = open;
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(120));
    stream_ = stub->Attach(&context_);
    v1::AttachEvent event;
    if (stream_->Write(request) && stream_->Read(&event) && event.has_attached()) {
      lease_id_ = event.attached().lease_id();
      local_socket_ = event.attached().local_socket();
      return grpc::Status::OK;
    }
    stream_->WritesDone();
    const grpc::Status status = stream_->Finish();
    stream_.reset();
    return status;
  }
  void Detach() {
    if (stream_ == nullptr) return;
    v1::AttachRequest request;
    request.mutable_detach();
    stream_->Write(request);
    stream_->WritesDone();
    v1::AttachEvent event;
    while (stream_->Read(&event)) {
    }
    stream_->Finish();
    stream_.reset();
  }
  // Ends the stream without a word.
  void Vanish() {
    context_.TryCancel();
    if (stream_ != nullptr) stream_->Finish();
    stream_.reset();
  }

  grpc::Status Load(const std::string& bytes, std::optional<uint64_t> announced = {}) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    v1::LoadReply reply;
    auto writer = stub->Load(&context, &reply);
    v1::LoadRequest request;
    request.set_lease_id(lease_id_);
    request.set_total_bytes(announced.value_or(bytes.size()));
    request.set_chunk(bytes);
    writer->Write(request);
    writer->WritesDone();
    return writer->Finish();
  }
  grpc::Status Run(uint32_t program, uint32_t slot,
                   std::chrono::milliseconds limit = std::chrono::milliseconds(30000)) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + limit);
    v1::RunRequest request;
    request.set_lease_id(lease_id_);
    request.set_program(program);
    request.set_slot(slot);
    v1::RunReply reply;
    return stub->Run(&context, request, &reply);
  }
  grpc::Status WriteStream(uint32_t slot, uint64_t offset, const std::string& data) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    v1::WriteStreamReply reply;
    auto writer = stub->WriteStream(&context, &reply);
    v1::WriteStreamRequest request;
    request.set_lease_id(lease_id_);
    request.set_slot(slot);
    request.set_offset(offset);
    request.set_data(data);
    writer->Write(request);
    writer->WritesDone();
    return writer->Finish();
  }
  grpc::Status ReadStream(uint32_t slot, uint64_t offset, uint64_t bytes,
                          std::string* into = nullptr) {
    v1::ReadStreamRequest request;
    request.set_lease_id(lease_id_);
    request.set_slot(slot);
    request.set_offset(offset);
    request.set_bytes(bytes);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    auto reader = stub->ReadStream(&context, request);
    v1::ReadStreamReply reply;
    while (reader->Read(&reply)) {
      if (into != nullptr) *into += reply.data();
    }
    return reader->Finish();
  }
  grpc::Status WriteTensor(const std::string& variable, const std::string& data,
                           bool all_replicas = true, uint32_t replica = 0) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    v1::WriteTensorReply reply;
    auto writer = stub->WriteTensor(&context, &reply);
    v1::WriteTensorRequest request;
    request.set_lease_id(lease_id_);
    request.set_variable(variable);
    request.set_all_replicas(all_replicas);
    request.set_replica(replica);
    request.set_data(data);
    writer->Write(request);
    writer->WritesDone();
    return writer->Finish();
  }
  grpc::Status ReadTensor(const std::string& variable, uint32_t replica,
                          std::string* into = nullptr) {
    v1::ReadTensorRequest request;
    request.set_lease_id(lease_id_);
    request.set_variable(variable);
    request.set_replica(replica);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    auto reader = stub->ReadTensor(&context, request);
    v1::ReadTensorReply reply;
    while (reader->Read(&reply)) {
      if (into != nullptr) *into += reply.data();
    }
    return reader->Finish();
  }
  // Offers a segment for the streams, as parts of an instance do. The agent may refuse it.
  grpc::Status ShareStreams(size_t bytes) {
    auto segment = shm::Segment::Create(bytes);
    EXPECT_TRUE(segment.ok()) << segment.status();
    OfferStreams(segment->fd());
    return grpc::Status::OK;
  }
  // Whether the agent takes a descriptor for the streams.
  bool OfferStreams(int segment) {
    const base::UniqueFd connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    local_socket_.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
    const auto length =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + local_socket_.size());
    const std::string request = "U" + lease_id_;
    char answer = 'u';
    return connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
           send(connection.get(), request.data(), request.size(), MSG_NOSIGNAL) > 0 &&
           shm::SendFd(connection.get(), segment, &answer, 1).ok() &&
           recv(connection.get(), &answer, 1, 0) == 1 && answer == 'k';
  }
  grpc::Status Counters() {
    v1::GetCountersRequest request;
    request.set_lease_id(lease_id_);
    v1::GetCountersReply reply;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    return stub->GetCounters(&context, request, &reply);
  }
  // Sends one message of raw bytes to a method and takes whatever comes back.
  grpc::Status SendRaw(const std::string& method, const std::string& bytes) {
    grpc::GenericStub generic(channel_);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    grpc::CompletionQueue queue;
    const auto next = [&] {
      void* tag;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    auto call = generic.PrepareCall(&context, "/vpod.ipuof.v1.Ipuof/" + method, &queue);
    call->StartCall(nullptr);
    next();
    const grpc::Slice slice(bytes);
    call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    next();
    while (true) {
      grpc::ByteBuffer reply;
      call->Read(&reply, nullptr);
      if (!next()) break;
    }
    grpc::Status status;
    call->Finish(&status, nullptr);
    next();
    queue.Shutdown();
    return status;
  }

  const std::string& lease_id() const { return lease_id_; }
  void set_lease_id(const std::string& id) { lease_id_ = id; }

  std::unique_ptr<v1::Ipuof::Stub> stub;

 private:
  std::shared_ptr<grpc::Channel> channel_;
  grpc::ClientContext context_;
  std::string local_socket_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AttachRequest, v1::AttachEvent>> stream_;
  std::string lease_id_;
};

// A training step of every kind of instruction that the small jobs use.
compiler::Compiled Example() {
  using program::v1::FLOAT32;
  graph::Graph graph;
  const graph::Tensor x = graph.Input("x", {FLOAT32, {4, 8}});
  const graph::Tensor w = graph.Variable("w", {FLOAT32, {8, 2}}, std::vector<float>(16, 0.1f));
  const graph::Tensor loss =
      graph.Mean(graph.Unary(program::v1::SQUARE, graph.Relu(graph.MatMul(x, w))));
  graph.Output("loss", loss);
  compiler::CompileOptions options;
  options.programs = {{.name = "train",
                       .device_iterations = 2,
                       .accumulation = 2,
                       .loss = loss,
                       .sgd = {.learning_rate = 0.01f, .momentum = 0.5f}}};
  auto compiled = compiler::Compile(graph, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return compiled.ok() ? *std::move(compiled) : compiler::Compiled();
}

class HostileClientTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    pod_ = new TestPod(16);
    pod_->CreatePartition("p16", 16);
    vipu::ClientConfig config;
    config.host = "127.0.0.1";
    config.port = static_cast<uint32_t>(pod_->port());
    auto found = vipu::Client(config).GetPartitionConfig("p16", 0);
    ASSERT_TRUE(found.ok()) << found.status();
    const vipu::ActivePartition partition = vipu::Describe(*std::move(found));
    endpoint_ = ipuof::EndpointsOf(partition, 0, 1).front();
    generation_ = partition.generation;
    fabric_key_ = partition.config.fabric_key();
    const compiler::Compiled example = Example();
    ASSERT_NE(example.executable, nullptr);
    example_ = example.executable->Bytes();
    initial_values_ = example.initial_values;
    agent_pid_ = pod_->AgentPid();
    reference_ = LossOfExample();
    ASSERT_FALSE(reference_.empty());
  }
  static void TearDownTestSuite() {
    const Outcome job = pod_->Run(
        {"poprun", "--num-instances", "4", "--num-replicas", "16", "replica_job", "--runs", "2"});
    EXPECT_EQ(job.code, 0) << job.err;
    delete pod_;
    pod_ = nullptr;
  }

  void TearDown() override {
    ASSERT_EQ(pod_->AgentPid(), agent_pid_);
    ASSERT_EQ(kill(agent_pid_, 0), 0) << "the agent has died";
    EXPECT_EQ(LossOfExample(), reference_);
    EXPECT_EQ(pod_->AttachedIpus(), 0);
  }

  static v1::AttachOpen Open(uint32_t device = 0) {
    static std::atomic<int> jobs = 0;
    v1::AttachOpen open;
    open.set_partition_id("p16");
    open.set_generation(generation_);
    open.set_fabric_key(fabric_key_);
    open.set_device_id(device);
    open.mutable_job()->set_job_id("hostile-" + std::to_string(++jobs));
    open.mutable_job()->set_num_instances(1);
    open.mutable_job()->set_local_replicas(1);
    open.mutable_job()->set_total_replicas(1);
    open.mutable_job()->set_ipus_per_replica(1);
    open.mutable_process()->set_pid(4711);
    open.mutable_process()->set_host("elsewhere");
    open.mutable_process()->set_executable("hostile");
    return open;
  }
  static std::unique_ptr<RawClient> Attached(uint32_t device = 0) {
    auto client = std::make_unique<RawClient>(endpoint_);
    const grpc::Status status = client->Attach(Open(device));
    EXPECT_TRUE(status.ok()) << Text(status);
    return client;
  }
  static std::unique_ptr<RawClient> Loaded(uint32_t device = 0) {
    auto client = Attached(device);
    const grpc::Status status = client->Load(example_);
    EXPECT_TRUE(status.ok()) << Text(status);
    return client;
  }
  // Returns a well-behaved client's results: the bytes of streams and weights after three runs.
  static std::string LossOfExample() {
    const auto client = Loaded();
    for (const auto& [name, bytes] : initial_values_) {
      EXPECT_TRUE(client->WriteTensor(name, bytes).ok());
    }
    std::string x(4 * 4 * 8 * sizeof(float), '\0');
    for (size_t i = 0; i < x.size() / sizeof(float); ++i) {
      const float value = static_cast<float>(i % 11) - 4;
      std::memcpy(x.data() + i * sizeof(float), &value, sizeof(float));
    }
    EXPECT_TRUE(client->WriteStream(0, 0, x).ok());
    std::string all;
    for (int run = 0; run < 3; ++run) {
      const grpc::Status status = client->Run(0, 0);
      EXPECT_TRUE(status.ok()) << Text(status);
      EXPECT_TRUE(client->ReadStream(0, 0, x.size(), &all).ok());
    }
    EXPECT_TRUE(client->ReadTensor("w", 0, &all).ok());
    return all;
  }

  static TestPod* pod_;
  static std::string endpoint_, reference_;
  static uint64_t generation_;
  static std::string fabric_key_;
  static std::string example_;
  static std::map<std::string, std::string> initial_values_;
  static int agent_pid_;
};
TestPod* HostileClientTest::pod_ = nullptr;
std::string HostileClientTest::endpoint_, HostileClientTest::reference_;
uint64_t HostileClientTest::generation_ = 0;
std::string HostileClientTest::fabric_key_;
std::string HostileClientTest::example_;
std::map<std::string, std::string> HostileClientTest::initial_values_;
int HostileClientTest::agent_pid_ = 0;

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
      {[](auto& open) { open.set_gcd_id(1); }, "Partition has 1 GCDs; GCD 1 does not exist."},
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
  EXPECT_NE(status.error_message().find("1 IPUs per replica, the job has 2"), std::string::npos)
      << Text(status);
}

TEST_F(HostileClientTest, TruncatedExecutablesAreRefused) {
  const auto client = Attached();
  const std::string& good = example_;
  for (size_t bytes = 0; bytes < good.size(); bytes += 1 + good.size() / 150) {
    const grpc::Status status = client->Load(good.substr(0, bytes));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << bytes << " bytes: " << Text(status);
    EXPECT_FALSE(status.error_message().empty());
  }
}

// Loads a spoilt executable; when the agent takes it, it must also run or refuse it.
void LoadAndRun(RawClient& client, const std::string& bytes, uint64_t seed, int* accepted) {
  const grpc::Status loaded = client.Load(bytes);
  if (!loaded.ok()) {
    EXPECT_TRUE(IsNamedRefusal(loaded)) << "seed " << seed << ": " << Text(loaded);
    return;
  }
  ++*accepted;
  const grpc::Status ran = client.Run(0, 0, std::chrono::milliseconds(500));
  EXPECT_TRUE(ran.ok() || IsNamedRefusal(ran) ||
              ran.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED)
      << "seed " << seed << ": " << Text(ran);
}

TEST_F(HostileClientTest, FlippedBitsAreRefusedOrRun) {
  int accepted = 0;
  for (uint64_t seed = kSeed; seed < kSeed + 300; ++seed) {
    Random random(seed);
    std::string bytes = example_;
    for (uint64_t flips = 1 + random() % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    }
    const auto client = Attached();
    LoadAndRun(*client, bytes, seed, &accepted);
  }
  std::printf("%d of 300 executables with flipped bits were accepted\n", accepted);
}

TEST_F(HostileClientTest, NoiseIsRefused) {
  const auto client = Attached();
  for (uint64_t seed = kSeed; seed < kSeed + 150; ++seed) {
    Random random(seed);
    std::string bytes(random() % 3000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    // Half of them begin as an executable does.
    if (seed % 2 == 0) bytes = example_.substr(0, 8) + bytes;
    const grpc::Status status = client->Load(bytes);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << "seed " << seed << ": " << Text(status);
  }
}

// Changes one field of a message, or of one of its parts.
class FieldChanger {
 public:
  explicit FieldChanger(Random& random) : random_(random) {}

  void Change(google::protobuf::Message& message) {
    // Down to a random part, then any of its fields.
    google::protobuf::Message* part = &message;
    while (random_() % 8 != 0) {
      std::vector<google::protobuf::Message*> parts = Parts(*part);
      if (parts.empty()) break;
      part = parts[random_() % parts.size()];
    }
    const auto* descriptor = part->GetDescriptor();
    ChangeField(*part, *descriptor->field(static_cast<int>(random_() % descriptor->field_count())));
  }

 private:
  using Field = google::protobuf::FieldDescriptor;

  static std::vector<google::protobuf::Message*> Parts(google::protobuf::Message& message) {
    std::vector<google::protobuf::Message*> parts;
    std::vector<const Field*> fields;
    const auto* reflection = message.GetReflection();
    reflection->ListFields(message, &fields);
    for (const Field* field : fields) {
      if (field->cpp_type() != Field::CPPTYPE_MESSAGE) continue;
      if (!field->is_repeated()) {
        parts.push_back(reflection->MutableMessage(&message, field));
        continue;
      }
      for (int i = 0; i < reflection->FieldSize(message, field); ++i)
        parts.push_back(reflection->MutableRepeatedMessage(&message, field, i));
    }
    return parts;
  }

  uint64_t Number() {
    switch (random_() % 6) {
      case 0:
        return 0;
      case 1:
        return random_() % 8;
      case 2:
        return 64 * (random_() % 64);
      case 3:
        return uint64_t{1} << random_() % 64;
      case 4:
        return UINT64_MAX - random_() % 3;
      default:
        return random_();
    }
  }

  void ChangeField(google::protobuf::Message& message, const Field& field) {
    const auto* reflection = message.GetReflection();
    if (field.is_repeated()) {
      const int size = reflection->FieldSize(message, &field);
      switch (random_() % 5) {
        case 0:
          reflection->ClearField(&message, &field);
          return;
        case 1:
          if (size > 0) reflection->RemoveLast(&message, &field);
          return;
        case 2:
          if (size > 1) {
            reflection->SwapElements(&message, &field, static_cast<int>(random_() % size),
                                     static_cast<int>(random_() % size));
          }
          return;
        case 3:
          if (size > 0) SetElement(message, field, static_cast<int>(random_() % size));
          return;
        default:
          Add(message, field);
          return;
      }
    }
    const uint64_t number = Number();
    switch (field.cpp_type()) {
      case Field::CPPTYPE_UINT32:
        reflection->SetUInt32(&message, &field, static_cast<uint32_t>(number));
        break;
      case Field::CPPTYPE_UINT64:
        reflection->SetUInt64(&message, &field, number);
        break;
      case Field::CPPTYPE_INT64:
        reflection->SetInt64(&message, &field, static_cast<int64_t>(number));
        break;
      case Field::CPPTYPE_BOOL:
        reflection->SetBool(&message, &field, number % 2 == 0);
        break;
      case Field::CPPTYPE_DOUBLE:
        reflection->SetDouble(&message, &field, Real(number));
        break;
      case Field::CPPTYPE_FLOAT:
        reflection->SetFloat(&message, &field, static_cast<float>(Real(number)));
        break;
      case Field::CPPTYPE_ENUM:
        reflection->SetEnumValue(&message, &field, static_cast<int>(number % 24));
        break;
      case Field::CPPTYPE_STRING:
        reflection->SetString(&message, &field, std::string(number % 70, 'n'));
        break;
      case Field::CPPTYPE_MESSAGE:
        reflection->MutableMessage(&message, &field);
        break;
      default:
        break;
    }
  }

  // Operands are elements: they must go wrong while their number stays right.
  void SetElement(google::protobuf::Message& message, const Field& field, int index) {
    const auto* reflection = message.GetReflection();
    if (field.cpp_type() == Field::CPPTYPE_UINT32) {
      reflection->SetRepeatedUInt32(&message, &field, index, static_cast<uint32_t>(Number()));
    } else if (field.cpp_type() == Field::CPPTYPE_INT64) {
      reflection->SetRepeatedInt64(&message, &field, index, static_cast<int64_t>(Number()));
    }
  }

  void Add(google::protobuf::Message& message, const Field& field) {
    const auto* reflection = message.GetReflection();
    const int size = reflection->FieldSize(message, &field);
    switch (field.cpp_type()) {
      case Field::CPPTYPE_UINT32:
        reflection->AddUInt32(&message, &field, static_cast<uint32_t>(Number()));
        break;
      case Field::CPPTYPE_INT64:
        reflection->AddInt64(&message, &field, static_cast<int64_t>(Number()));
        break;
      case Field::CPPTYPE_MESSAGE: {
        google::protobuf::Message* added = reflection->AddMessage(&message, &field);
        if (size > 0) {
          added->CopyFrom(
              reflection->GetRepeatedMessage(message, &field, static_cast<int>(random_() % size)));
        }
        break;
      }
      default:
        break;
    }
  }

  static double Real(uint64_t number) {
    double value;
    std::memcpy(&value, &number, sizeof(value));
    return value;
  }

  Random& random_;
};

TEST_F(HostileClientTest, ChangedFieldsAreRefusedOrRun) {
  program::v1::Executable good;
  ASSERT_TRUE(good.ParseFromString(example_.substr(8)));
  int accepted = 0;
  for (uint64_t seed = kSeed; seed < kSeed + 500; ++seed) {
    Random random(seed);
    program::v1::Executable changed = good;
    FieldChanger changer(random);
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) changer.Change(changed);
    const auto client = Attached();
    LoadAndRun(*client, program::Serialize(changed), seed, &accepted);
  }
  std::printf("%d of 500 changed executables were accepted\n", accepted);
}

TEST_F(HostileClientTest, MessagesOfNoiseAreRefused) {
  RawClient client(endpoint_);
  for (uint64_t seed = kSeed; seed < kSeed + 200; ++seed) {
    Random random(seed);
    std::string bytes(random() % 200, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    const char* methods[] = {"Attach",      "Load",        "Run",        "WriteStream",
                             "ReadStream",  "WriteTensor", "ReadTensor", "GetCounters",
                             "ResetDevice", "NoSuchCall"};
    const char* method = methods[seed % std::size(methods)];
    const grpc::Status status = client.SendRaw(method, bytes);
    EXPECT_FALSE(status.ok()) << method << ", seed " << seed;
    EXPECT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << method << ", seed " << seed;
    EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED)
        << method << ", seed " << seed;
  }
}

TEST_F(HostileClientTest, RandomCallsOnALeaseAreAnsweredOrRefused) {
  for (uint64_t seed = kSeed; seed < kSeed + 20; ++seed) {
    Random random(seed);
    const auto client = random() % 4 == 0 ? Attached() : Loaded();
    const auto number = [&]() -> uint64_t {
      return random() % 3 == 0 ? random() : random() % 3 == 0 ? random() % 3 : random() % 2000;
    };
    for (int call = 0; call < 40; ++call) {
      const std::string data(number() % 4000, static_cast<char>(random()));
      const std::string name = random() % 2 == 0 ? "w" : std::string(number() % 40, 'v');
      const auto replica = static_cast<uint32_t>(number()), slot = static_cast<uint32_t>(number());
      grpc::Status status;
      switch (random() % 7) {
        case 0:
          status = client->Run(static_cast<uint32_t>(number()) % 3, slot % 3);
          break;
        case 1:
          status = client->WriteStream(slot % 3, number(), data);
          break;
        case 2:
          status = client->ReadStream(slot, number(), number());
          break;
        case 3:
          status = client->WriteTensor(name, data, random() % 2 == 0, replica);
          break;
        case 4:
          status = client->ReadTensor(name, replica);
          break;
        case 5:
          status = client->Counters();
          break;
        default:
          status = client->Load(random() % 2 == 0 ? example_ : data, {});
          break;
      }
      EXPECT_TRUE(status.ok() || IsNamedRefusal(status)) << "seed " << seed << ": " << Text(status);
    }
  }
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
