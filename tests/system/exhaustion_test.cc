// Clients that try to use an agent up: its memory, its threads, its descriptors, the places at its
// listeners. Each attack is refused within stated bounds, and a job of another tenant goes on
// meanwhile. The figures are printed: "attack: memory +N MiB, threads +N".
#include "tests/system/exhaustion.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <thread>

#include "client/ipuof/lease.h"
#include "client/vipu/ipuof_config.h"
#include "device/base/unique_fd.h"
#include "device/program/executable.h"
#include "proto/ipuof/v1/ipuof.grpc.pb.h"
#include "proto/telemetry/v1/telemetry.pb.h"
#include "tests/support/raw_call.h"
#include "tests/system/fault_table.h"

namespace vpod::testing {
namespace {

namespace v1 = ipuof::v1;
using std::chrono::system_clock;

// One connection to the agent.
class Attacker {
 public:
  explicit Attacker(const std::string& endpoint, bool reads = true) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetMaxSendMessageSize(-1);
    if (!reads) {  // the agent may send hardly anything before we read
      arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1);
      arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    }
    channel = grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments);
    stub = v1::Ipuof::NewStub(channel);
  }
  ~Attacker() { context.TryCancel(); }

  grpc::Status Attach(const v1::AttachOpen& open) {
    v1::AttachRequest request;
    *request.mutable_open() = open;
    stream = stub->Attach(&context);
    v1::AttachEvent event;
    if (stream->Write(request) && stream->Read(&event) && event.has_attached()) {
      lease = event.attached().lease_id();
      local_socket = event.attached().local_socket();
      return grpc::Status::OK;
    }
    stream->WritesDone();
    return stream->Finish();
  }
  grpc::Status Load(const std::string& bytes) {
    grpc::ClientContext call;
    call.set_deadline(system_clock::now() + std::chrono::minutes(2));
    v1::LoadReply reply;
    auto writer = stub->Load(&call, &reply);
    v1::LoadRequest request;
    request.set_lease_id(lease);
    request.set_total_bytes(bytes.size());
    for (size_t at = 0; at < bytes.size(); at += 1 << 20) {
      request.set_chunk(bytes.substr(at, 1 << 20));
      if (!writer->Write(request)) break;
    }
    writer->WritesDone();
    return writer->Finish();
  }
  // One message of these bytes, on a call that stays open until it is answered.
  grpc::Status Send(const std::string& method, const grpc::ByteBuffer& bytes, bool gzip = false) {
    grpc::GenericStub generic(channel);
    grpc::ClientContext call;
    call.set_deadline(system_clock::now() + kSoon);
    if (gzip) call.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    grpc::CompletionQueue queue;
    const auto next = [&] {
      void* tag;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    auto sent = generic.PrepareCall(&call, method, &queue);
    sent->StartCall(nullptr);
    next();
    sent->WriteLast(bytes, {}, nullptr);
    next();
    do {
      grpc::ByteBuffer reply;
      sent->Read(&reply, nullptr);
      if (!next()) break;
    } while (true);
    grpc::Status status;
    sent->Finish(&status, nullptr);
    next();
    queue.Shutdown();
    return status;
  }

  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Ipuof::Stub> stub;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AttachRequest, v1::AttachEvent>> stream;
  std::string lease, local_socket;
};

// A refusal that says why. The agent is there, and did not let the call pass without a word.
void ExpectRefused(const grpc::Status& status, const std::string& what) {
  EXPECT_FALSE(status.ok()) << what;
  EXPECT_NE(status.error_code(), grpc::StatusCode::UNAVAILABLE) << what << status.error_message();
  EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << what;
  EXPECT_NE(status.error_code(), grpc::StatusCode::UNKNOWN) << what << status.error_message();
  EXPECT_FALSE(status.error_message().empty()) << what;
}

class ExhaustionTest : public FaultTable {
 protected:
  using FaultTable::FaultTable;

  void SetUp() override {
    FaultTable::SetUp();
    ASSERT_FALSE(HasFatalFailure());
    auto found = client_->GetPartitionConfig("mine", 0);
    ASSERT_TRUE(found.ok()) << found.status();
    const vipu::ActivePartition partition = vipu::Describe(*std::move(found));
    endpoint_ = ipuof::EndpointsOf(partition, 0, 1).front();
    generation_ = partition.generation;
    key_ = partition.config.fabric_key();
    agent_ = pod_.AgentPid();
    Begin();
  }
  void TearDown() override {
    EXPECT_EQ(pod_.AgentPid(), agent_);
    EXPECT_NE(FootprintOf(agent_).memory_kib, 0) << "the agent has died";
    FaultTable::TearDown();
  }

  v1::AttachOpen Open(uint32_t device, const std::string& job = "attack") {
    v1::AttachOpen open;
    open.set_partition_id("mine");
    open.set_generation(generation_);
    open.set_fabric_key(key_);
    open.set_device_id(device);
    open.mutable_job()->set_job_id(job);
    open.mutable_job()->set_num_instances(1);
    open.mutable_job()->set_local_replicas(1);
    open.mutable_job()->set_total_replicas(1);
    open.mutable_job()->set_ipus_per_replica(1);
    open.mutable_process()->set_pid(4711);
    open.mutable_process()->set_executable("attack");
    open.mutable_process()->set_host("elsewhere");
    return open;
  }
  std::unique_ptr<Attacker> Attached(uint32_t device = 0, bool reads = true) {
    auto attacker = std::make_unique<Attacker>(endpoint_, reads);
    const grpc::Status status = attacker->Attach(Open(device));
    EXPECT_TRUE(status.ok()) << status.error_message();
    return attacker;
  }

  // From here on the peak counts.
  void Begin() { cost_.Begin(agent_); }
  // Checks the attack's cost at its worst, and that others go on.
  void ExpectHeld(const std::string& attack, long most_mib, long most_threads = 16) {
    cost_.ExpectHeld(attack, most_mib, most_threads);
    ExpectOtherGoesOn();
  }

  std::string endpoint_, key_;
  uint64_t generation_ = 0;
  int agent_ = 0;
  Cost cost_;
};

// 64 MiB, of which protobuf would make gigabytes.
std::vector<std::pair<std::string, std::string>> Swarms() {
  const size_t room = (64 << 20) - 64;
  const std::string head("VIPUEXE\x02\x08\x01", 10);
  const std::string empty = Field(1, "");
  const auto function = [&](const std::string& instructions) {
    return head + Field(2, Field(3, instructions));
  };
  return {{"empty instructions", function(Repeat(empty, room))},
          {"empty functions", head + Field(2, Repeat(Field(3, ""), room))},
          {"empty exchanges", head + Repeat(Field(3, ""), room)},
          {"empty fills", function(Repeat(Field(1, Field(4, "")), room))},
          {"empty tensors", head + Field(2, Repeat(empty, room))},
          {"unknown fields", head + Repeat(Field(15, ""), room)}};
}

TEST_F(ExhaustionTest, EmptyMessagesAreRefusedBeforeTheyAreParsed) {
  const auto attacker = Attached();
  for (const auto& [name, bytes] : Swarms()) {
    Begin();
    const grpc::Status status = attacker->Load(bytes);
    ExpectRefused(status, name);
    EXPECT_NE(status.error_message().find("MiB of host memory"), std::string::npos)
        << status.error_message();
    ExpectHeld(name, 300);
  }
}

TEST_F(ExhaustionTest, ALeaseLoadsOneExecutableAtATime) {
  const auto attacker = Attached();
  const std::string bytes = Swarms()[0].second;
  std::vector<std::thread> loads;
  for (int i = 0; i < 6; ++i)
    loads.emplace_back([&] { ExpectRefused(attacker->Load(bytes), "a load of many"); });
  ExpectOtherGoesOn();
  for (std::thread& load : loads) load.join();
  ExpectHeld("six loads on a lease", 300);
}

TEST_F(ExhaustionTest, UnknownClientsSendNothingLarge) {
  const std::string unknown = Repeat(Field(15, ""), 15 << 20);
  for (const std::string method :
       {"ipuof.v1.Ipuof/Attach", "ipuof.v1.Ipuof/Pulse", "ipuof.v1.Ipuof/Load",
        "ipuof.v1.Ipuof/Run", "ipuof.v1.Ipuof/WriteStream", "ipuof.v1.Ipuof/ReadStream",
        "ipuof.v1.Ipuof/WriteTensor", "ipuof.v1.Ipuof/ReadTensor", "ipuof.v1.Ipuof/GetCounters",
        "ipuof.v1.Ipuof/ResetDevice", "telemetry.v1.Telemetry/GetPartitionTelemetry",
        "telemetry.v1.Telemetry/GetPartitionLinks"}) {
    Begin();
    std::vector<std::thread> calls;
    for (int i = 0; i < 4; ++i) {
      calls.emplace_back([&] {
        const grpc::Status status = Attacker(endpoint_).Send("/vpod." + method, Buffer(unknown));
        ExpectRefused(status, method);
        EXPECT_NE(status.error_message().find("are accepted"), std::string::npos)
            << method << ": " << status.error_message();
      });
    }
    for (std::thread& call : calls) call.join();
    ExpectHeld(method, 200);
  }
}

TEST_F(ExhaustionTest, MessagesAreNotUnpacked) {
  const grpc::Status status =
      Attacker(endpoint_).Send("/vpod.ipuof.v1.Ipuof/GetCounters", Zeros(1024), /*gzip=*/true);
  ExpectRefused(status, "gzip");
  ExpectHeld("1 GiB of zeros, packed", 64);
}

// A message is refused by what it says of its length, not when all of it has come.
TEST_F(ExhaustionTest, AnEndlessMessageIsCutOff) {
  const grpc::Status status =
      Attacker(endpoint_).Send("/vpod.ipuof.v1.Ipuof/GetCounters", Zeros(4000));
  EXPECT_FALSE(status.ok());
  ExpectHeld("a message of 4 GB", 1024);
}

TEST_F(ExhaustionTest, SilentStreamsHoldNoThread) {
  Attacker attacker(endpoint_);
  constexpr int kStreams = 3000;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientWriter<v1::LoadRequest>>> loads;
  std::vector<std::unique_ptr<grpc::ClientWriter<v1::WriteTensorRequest>>> writes;
  std::vector<v1::LoadReply> load_replies(kStreams);
  std::vector<v1::WriteTensorReply> write_replies(kStreams);
  for (int i = 0; i < kStreams; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    contexts.back()->set_deadline(system_clock::now() + kSoon);
    loads.push_back(attacker.stub->Load(contexts.back().get(), &load_replies[i]));
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    writes.push_back(attacker.stub->WriteTensor(contexts.back().get(), &write_replies[i]));
  }
  ExpectHeld("6000 silent streams", 200);
  // The first had to make room.
  ExpectRefused(loads[0]->Finish(), "the first of the silent streams");
  for (auto& context : contexts) context->TryCancel();
  for (int i = 1; i < kStreams; ++i) loads[i]->Finish();
  for (auto& write : writes) write->Finish();
}

// A program with a variable of so many bytes.
std::string Executable(int64_t bytes) {
  program::v1::Executable executable;
  executable.set_ipus_per_replica(1);
  program::v1::Ipu* ipu = executable.add_ipus();
  ipu->set_arena_bytes(static_cast<uint64_t>(bytes));
  ipu->add_tensors()->set_type(program::v1::FLOAT32);
  ipu->mutable_tensors(0)->add_dims(bytes / 4);
  executable.add_variables()->set_name("v");
  executable.add_programs()->set_name("rest");
  executable.mutable_programs(0)->add_functions(0);
  ipu->add_functions();
  return program::Serialize(executable);
}

TEST_F(ExhaustionTest, SlowReadersHoldNoThreadAndLittleMemory) {
  const auto attacker = Attached(0, /*reads=*/false);
  ASSERT_TRUE(attacker->Load(Executable(64 << 20)).ok());
  Begin();
  v1::ReadTensorRequest request;
  request.set_lease_id(attacker->lease);
  request.set_variable("v");
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::ReadTensorReply>>> readers;
  for (int i = 0; i < 1000; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(attacker->stub->ReadTensor(contexts.back().get(), request));
  }
  ExpectHeld("1000 readers of a variable that do not read", 512);
  for (auto& context : contexts) context->TryCancel();
  for (auto& reader : readers) reader->Finish();
}

// Many calls of a method, of which the client does a part only.
class HalfCalls {
 public:
  explicit HalfCalls(std::string method) : method_(std::move(method)) {}
  ~HalfCalls() {
    for (auto& call : calls_) call->context.TryCancel();
  }

  // Begins calls without a message and without a deadline, which the agent would learn of.
  void Begin(const Attacker& attacker, size_t count) {
    grpc::GenericStub stub(attacker.channel);
    for (size_t i = 0; i < count; ++i) {
      Call& call = *calls_.emplace_back(std::make_unique<Call>());
      call.stream = stub.PrepareCall(&call.context, method_, &queue_);
    }
    EXPECT_EQ(ForAll([](Call& call) { call.stream->StartCall(nullptr); }), calls_.size());
  }
  // Sends the message of each call, and reads only the headers of the answers. Returns how many
  // calls were answered: the agent may end the calls that have not read for longest.
  size_t Ask(const std::string& message) {
    const grpc::ByteBuffer bytes = Buffer(message);
    ForAll([&](Call& call) { call.stream->WriteLast(bytes, {}, nullptr); });
    return ForAll([](Call& call) { call.stream->ReadInitialMetadata(nullptr); });
  }
  // Whether the agent has ended the first of them in the place of answering it, or does so soon. A
  // client learns of the end only after it has read what came before.
  bool FirstIsEnded() {
    Call& first = *calls_.front();
    void* tag;
    bool ok = true, in_time = true;
    while (ok) {
      grpc::ByteBuffer answer;
      first.stream->Read(&answer, nullptr);
      if (queue_.AsyncNext(&tag, &ok, system_clock::now() + kSoon) ==
          grpc::CompletionQueue::GOT_EVENT)
        continue;
      in_time = false;
      first.context.TryCancel();
      queue_.Next(&tag, &ok);
    }
    grpc::Status status;
    first.stream->Finish(&status, nullptr);
    queue_.Next(&tag, &ok);
    return in_time && !status.ok();
  }

 private:
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
  };
  // Each step for all of them; returns for how many it succeeded.
  size_t ForAll(const std::function<void(Call&)>& step) {
    for (const auto& call : calls_) step(*call);
    size_t done = 0;
    for (size_t i = 0; i < calls_.size(); ++i) {
      void* tag;
      bool ok = false;
      done += queue_.Next(&tag, &ok) && ok;
    }
    return done;
  }

  const std::string method_;
  grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<Call>> calls_;
};

constexpr char kTelemetry[] = "/vpod.telemetry.v1.Telemetry/GetPartitionTelemetry";
std::string TelemetryOf(const std::string& partition) {
  telemetry::v1::GetPartitionTelemetryRequest request;
  request.set_partition_id(partition);
  return request.SerializeAsString();
}

// gRPC by itself tells the agent of a unary call only after the message has come.
TEST_F(ExhaustionTest, CallsWithoutTheirMessageAreBounded) {
  for (const std::string method :
       {"ipuof.v1.Ipuof/Pulse", "ipuof.v1.Ipuof/Run", "ipuof.v1.Ipuof/ReadStream",
        "ipuof.v1.Ipuof/ReadTensor", "ipuof.v1.Ipuof/GetCounters", "ipuof.v1.Ipuof/ResetDevice",
        "telemetry.v1.Telemetry/GetPartitionTelemetry",
        "telemetry.v1.Telemetry/GetPartitionLinks"}) {
    const Attacker attacker(endpoint_);
    HalfCalls calls("/vpod." + method);
    Begin();
    calls.Begin(attacker, 6000);
    EXPECT_TRUE(calls.FirstIsEnded()) << method << ": the first had to make room";
    ExpectHeld("6000 calls of " + method + " without a message", 200);
  }
}

TEST_F(ExhaustionTest, SlowMonitorsHoldNoThread) {
  const Attacker attacker(endpoint_, /*reads=*/false);
  HalfCalls monitors(kTelemetry);
  monitors.Begin(attacker, 1000);
  EXPECT_GT(monitors.Ask(TelemetryOf("mine")), 0u);
  ExpectHeld("1000 monitors that do not read", 512);
}

// Their answers are small, but each is a call, for which gRPC takes some ten KiB.
TEST_F(ExhaustionTest, SlowMonitorsOfASmallPartitionAreBounded) {
  pod_.CreatePartition("one", 1);
  acknowledged_["one"] = 1;
  std::vector<std::unique_ptr<Attacker>> attackers;
  std::vector<std::unique_ptr<HalfCalls>> monitors;
  Begin();
  // Fewer at a time than may wait for their message.
  for (int i = 0; i < 6; ++i) {
    attackers.push_back(std::make_unique<Attacker>(endpoint_, /*reads=*/false));
    monitors.push_back(std::make_unique<HalfCalls>(kTelemetry));
    monitors.back()->Begin(*attackers.back(), 3000);
    EXPECT_GT(monitors.back()->Ask(TelemetryOf("one")), 0u);
  }
  EXPECT_TRUE(monitors[0]->FirstIsEnded()) << "the first of them had to make room";
  ExpectHeld("18,000 monitors of an IPU that do not read", 512);
}

// More than it has places: it has few descriptors.
TEST_F(ExhaustionTest, SlowMonitorsKeepNobodyOut) {
  const rlimit few = {600, 600};
  ASSERT_EQ(prlimit(agent_, RLIMIT_NOFILE, &few, nullptr), 0);
  std::vector<std::unique_ptr<Attacker>> attackers;
  std::vector<std::unique_ptr<HalfCalls>> monitors;
  for (int i = 0; i < 250; ++i) {
    attackers.push_back(std::make_unique<Attacker>(endpoint_, /*reads=*/false));
    monitors.push_back(std::make_unique<HalfCalls>(kTelemetry));
    monitors.back()->Begin(*attackers.back(), 1);
    EXPECT_EQ(monitors.back()->Ask(TelemetryOf("mine")), 1u) << i;
  }
  EXPECT_TRUE(Attached()->stream != nullptr) << "while 250 connections have an unread answer";
}

// The holder of a reservation is told of each instance that leaves, and does not listen.
TEST_F(ExhaustionTest, AReserverThatDoesNotReadLosesItsLease) {
  Attacker reserver(endpoint_, /*reads=*/false);
  v1::AttachOpen reservation = Open(0, "evil");
  reservation.set_reserve_only(true);
  ASSERT_TRUE(reserver.Attach(reservation).ok());
  Begin();
  for (int i = 0; i < 600; ++i) {
    Attacker instance(endpoint_);
    v1::AttachOpen open = Open(0, "evil#" + std::to_string(i));
    open.mutable_process()->set_host(std::string(60000, 'h'));
    instance.Attach(open);  // refused at some time, which is well
  }
  ExpectHeld("a reserver that does not read", 128);
}

// Connects to a local socket and sends nothing, more often than it has places, again and again.
class LocalStorm {
 public:
  explicit LocalStorm(const std::string& local_socket) {
    address_.sun_family = AF_UNIX;
    local_socket.copy(address_.sun_path + 1, sizeof(address_.sun_path) - 1);
    length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + local_socket.size());
    thread_ = std::thread([this] { Connect(); });
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  ~LocalStorm() {
    stop_ = true;
    thread_.join();
  }

 private:
  void Connect() {
    std::vector<base::UniqueFd> idle;
    while (!stop_) {
      base::UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address_), length_) != 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      idle.push_back(std::move(fd));
      if (idle.size() > 6000) idle.erase(idle.begin(), idle.begin() + 3000);
    }
  }

  sockaddr_un address_{};
  socklen_t length_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

TEST_F(ExhaustionTest, IdleConnectionsAtTheLocalListenerKeepNobodyOut) {
  const LocalStorm storm(Attached()->local_socket);
  const Outcome job = pod_.Run({"poprun", "--vipu-partition", "mine", "--num-instances", "2",
                                "--num-replicas", "8", "replica_job", "--runs", "2"});
  EXPECT_EQ(job.code, 0) << job.err;
  ExpectHeld("idle connections at the local socket", 64);
}

// Nor do they take all descriptors, of which clients at the network need some.
TEST_F(ExhaustionTest, IdleConnectionsAtTheLocalListenerLeaveDescriptors) {
  const std::string local_socket = Attached()->local_socket;
  const rlimit few = {600, 600};
  ASSERT_EQ(prlimit(agent_, RLIMIT_NOFILE, &few, nullptr), 0);
  const LocalStorm storm(local_socket);
  EXPECT_LT(FootprintOf(agent_).descriptors, 300);
  EXPECT_TRUE(Attached()->stream != nullptr);
  ExpectMineWorks();
}

// More than it has descriptors: it has few, so that a test has enough of them.
TEST_F(ExhaustionTest, IdleConnectionsKeepNobodyOut) {
  const rlimit few = {600, 600};
  ASSERT_EQ(prlimit(agent_, RLIMIT_NOFILE, &few, nullptr), 0);
  std::vector<base::UniqueFd> idle = ConnectTo(endpoint_, 1500);
  EXPECT_TRUE(Attached()->stream != nullptr) << "while they are there";
  idle.clear();
  EXPECT_TRUE(Attached()->stream != nullptr) << "after they have gone";
  ExpectMineWorks();
}

TEST_F(ExhaustionTest, IdleConnectionsDoNotBlindTheMetrics) {
  const auto found = client_->GetAgent("ag0");
  ASSERT_TRUE(found.ok()) << found.status();
  ExpectMetricsSeen(found->exporter(), "the agent's metrics");
}

TEST_F(ExhaustionTest, ACallThatNeedsTooMuchMemoryFailsAlone) {
  long pages = 0;
  std::ifstream("/proc/" + std::to_string(agent_) + "/statm") >> pages;
  const rlim_t now = static_cast<rlim_t>(pages) * static_cast<rlim_t>(sysconf(_SC_PAGE_SIZE));
  const rlimit little = {now + (256 << 20), now + (256 << 20)};
  ASSERT_EQ(prlimit(agent_, RLIMIT_AS, &little, nullptr), 0);
  const auto attacker = Attached();
  for (int i = 0; i < 5; ++i) {
    const grpc::Status status = attacker->Load(Executable(700 << 20));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  }
  for (const auto& [name, bytes] : Swarms()) ExpectRefused(attacker->Load(bytes), name);
  ExpectOtherGoesOn();
}

}  // namespace
}  // namespace vpod::testing
