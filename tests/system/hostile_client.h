// A client that speaks IPUoF but means no good, and the frame of its tests: a POD whose agent
// stays, whatever the client does, and computes for the next one what it always did.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/compiler/compiler.h"
#include "client/ipuof/lease.h"
#include "client/vipu/client.h"
#include "client/vipu/ipuof_config.h"
#include "device/base/unique_fd.h"
#include "device/shm/segment.h"
#include "proto/ipuof/v1/ipuof.grpc.pb.h"
#include "tests/support/pod.h"

namespace vpod::testing {

namespace v1 = ipuof::v1;

inline constexpr auto kPatience = std::chrono::seconds(30);

// Whether it is a refusal. Any other status (Unavailable, Internal, …) is a fault of the agent.
inline bool IsNamedRefusal(const grpc::Status& status) {
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

inline std::string Text(const grpc::Status& status) {
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
inline compiler::Compiled Example() {
  using program::v1::FLOAT32;
  graph::Graph graph;
  const graph::Tensor x = graph.Input("x", {FLOAT32, {4, 8}});
  const graph::Tensor w = graph.Variable("w", {FLOAT32, {8, 2}}, std::vector<float>(16, 0.1f));
  const graph::Tensor loss =
      graph.Mean(graph.Unary(program::v1::SQUARE, graph.Relu(graph.MatMul(x, w))));
  graph.Output("loss", loss);
  compiler::CompileOptions options;
  options.programs = {
      {.name = "train",
       .device_iterations = 2,
       .accumulation = 2,
       .loss = loss,
       .optimizer = compiler::SgdOptions{.learning_rate = 0.01f, .momentum = 0.5f}}};
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
    for (const auto& [name, initial] : example.initial_values)
      initial_values_[name] = initial.Bytes();
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

  inline static TestPod* pod_ = nullptr;
  inline static std::string endpoint_, reference_;
  inline static uint64_t generation_ = 0;
  inline static std::string fabric_key_;
  inline static std::string example_;
  inline static std::map<std::string, std::string> initial_values_;
  inline static int agent_pid_ = 0;
};

}  // namespace vpod::testing
