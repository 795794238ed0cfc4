// An agent's local socket as a tenant of the same host meets it: who gets what for which secret,
// and what a client can do that rewrites all the memory that it gets while its programs run.
//   VPOD_REWRITES  runs of each operation (1000)
#include "device/shm/local_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "device/base/random_id.h"
#include "device/base/sha256.h"
#include "device/program/op.h"
#include "device/program/stream_layout.h"
#include "device/shm/segment.h"
#include "server/agent/agent_test_util.h"
#include "server/agent/local_listener.h"
#include "tests/security/op_executables.h"

namespace vpod::agent {
namespace {

namespace v1 = program::v1;

// Stands for the other processes of partitions; this agent coordinates their jobs.
class NoPeers : public PeerGateway {
 public:
  std::shared_ptr<CoordinatorStream> JoinJob(const std::string&, CoordinatorStreamEvents) override {
    return nullptr;
  }
};

// What came back for a request.
struct Answer {
  bool acknowledged = false;
  std::vector<shm::Segment> memory;
  std::set<uint32_t> units;  // of arenas

  bool nothing() const { return !acknowledged && memory.empty(); }
  // Tells memory apart, whoever has mapped it.
  std::set<ino_t> files() const {
    std::set<ino_t> files;
    for (const shm::Segment& segment : memory) {
      struct stat info = {};
      EXPECT_EQ(fstat(segment.fd(), &info), 0);
      files.insert(info.st_ino);
    }
    return files;
  }
};

// Calls the kernel as another user: credentials belong to a thread.
void AsAnotherUser(const std::function<void()>& action) {
  std::thread([&] {
    constexpr uid_t kNobody = 65534;
    ASSERT_EQ(syscall(SYS_setresuid, kNobody, kNobody, kNobody), 0);
    action();
  }).join();
}

// An agent with the first machine of partition "p" and the second of "q", whose others another
// process holds, and with "lone" on its third.
class LocalSocketTest : public AgentTest {
 protected:
  LocalSocketTest() {
    agent_->SetEndpoint("here:1");
    agent_->SetPeers(&peers_, nullptr);
    vipuagent::ConfigureRequest request;
    request.set_complete(true);
    AddPartition("p", "127.10.0.1", "10.0.0.1", request);
    AddPartition("q", "127.10.0.2", "10.0.0.2", request);
    AddPartition("lone", "127.10.0.3", "", request);
    EXPECT_TRUE(agent_->Configure(request).ok());
    listener_ = *LocalListener::Open(*agent_);
  }
  ~LocalSocketTest() override { agent_->Stop(); }

  static void AddPartition(const std::string& id, const std::string& here, const std::string& away,
                           vipuagent::ConfigureRequest& request) {
    vipuagent::AgentPartition& partition = *request.add_partitions();
    partition.set_id(id);
    partition.set_generation(1);
    partition.set_config_generation(1);
    partition.set_reconfigurable(true);
    partition.set_fabric_key(kKey);
    partition.add_peers()->set_endpoint("here:1");
    vipuagent::Gcd& gcd = *partition.add_gcds();
    *gcd.add_slices() = WholeMachine(here);
    if (away.empty()) return;
    vipuagent::Peer& peer = *partition.add_peers();
    peer.set_endpoint("away:1");
    peer.set_boot_id(kBootId);
    *gcd.add_slices() = WholeMachine(away);
    gcd.mutable_slices(1)->set_endpoint("away:1");
  }

  // A lease of a client, with an executable.
  std::string Hold(const std::string& partition, ipuof::v1::AttachOpen open,
                   const std::string& executable) {
    open.set_partition_id(partition);
    const auto attached = Attach(open);
    EXPECT_TRUE(attached.ok()) << attached.status();
    if (!attached.ok()) return "";
    socket_ = attached->local_socket();
    const auto loaded = agent_->Load(attached->lease_id(), executable);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return attached->lease_id();
  }

  // A job of one instance that spans this process and another, as both know it.
  struct SpanningJob {
    std::string lease;
    std::shared_ptr<RemotePart> away;
    std::string token, arena_key;
  };
  SpanningJob Span(const std::string& partition) {
    SpanningJob job;
    ipuof::v1::AttachOpen open = Open(14, 0, 1, 8);
    open.set_num_parts(2);
    job.lease = Hold(partition, open, SumExecutable());
    fabric::v1::JobJoin join;
    join.set_partition_id(partition);
    join.set_generation(1);
    join.set_boot_id(kBootId);
    join.set_endpoint("away:1");
    join.set_part(1);
    join.set_process(absl::StrCat("pid ", open.process().pid(), " on ", open.process().host()));
    *join.mutable_member() = open.job();
    for (uint32_t unit = 4; unit < 8; ++unit) join.add_units(unit);
    const auto told = std::make_shared<fabric::v1::JobJoined>();
    const auto joined = agent_->JoinRemote(join, [told](const fabric::v1::JobEvent& event) {
      if (event.has_joined()) *told = event.joined();
    });
    EXPECT_TRUE(joined.ok()) << joined.status();
    if (joined.ok()) job.away = *joined;
    job.token = told->token();
    job.arena_key = told->arena_key();
    return job;
  }

  // Sends a request and takes what the agent gives for it.
  Answer Ask(char request, const std::string& secret) const {
    constexpr std::chrono::seconds kPatience(30);
    Answer answer;
    const auto connection = shm::Connect(socket_, kPatience);
    EXPECT_TRUE(connection.ok()) << connection.status();
    if (!connection.ok()) return answer;
    const int socket = connection->get();
    EXPECT_TRUE(shm::Send(socket, std::string(1, request) + secret).ok());
    if (request == 'U') {
      const auto offer = shm::Segment::Create(1 << 20);
      (void)shm::SendFd(socket, offer->fd(), "u", 1);  // fails where it is refused before
    }
    shutdown(socket, SHUT_WR);
    if (request == 'A' || request == 'S') {
      TakeMemory(socket, request == 'A', answer);
    } else {
      char byte = 0;
      answer.acknowledged = read(socket, &byte, 1) == 1 && byte == 'k';
    }
    return answer;
  }

  static void TakeMemory(int socket, bool arenas, Answer& answer) {
    struct {
      uint64_t bytes;
      uint32_t unit;
    } message;
    while (true) {
      auto fd = shm::ReceiveFd(socket, &message, arenas ? sizeof(message) : sizeof(message.bytes));
      if (!fd.ok() || !fd->valid()) return;
      auto segment = shm::Segment::Map(*std::move(fd), message.bytes);
      ASSERT_TRUE(segment.ok()) << segment.status();
      answer.memory.push_back(*std::move(segment));
      if (!arenas) return;
      answer.units.insert(message.unit);
    }
  }

  // What every client of a partition can compute of a job.
  static std::string HashOfFacts(const std::string& partition, const std::string& job) {
    return base::Sha256Hex(absl::StrCat(kKey, "\n", partition, "\n1\n", job)).substr(0, 32);
  }

  NoPeers peers_;
  std::unique_ptr<LocalListener> listener_;
  std::string socket_;
};

constexpr char kRequests[] = {'B', 'S', 'U', 'R', 'A', 'X', '\0'};

TEST_F(LocalSocketTest, WithoutTheRightSecretNothingIsGiven) {
  const SpanningJob own = Span("p");
  const std::string alone = Hold("lone", Open(0), SumExecutable());
  ASSERT_EQ(own.arena_key.size(), 32u);
  const std::map<std::string, std::string> secrets = {
      {"nothing", ""},
      {"half of the lease's id", own.lease.substr(0, 16)},
      {"zeros", std::string(32, '\0')},
      {"garbage", base::RandomId()},
      {"the fabric key", absl::StrCat(kKey, std::string(28, ' '))},
      {"a hash of what is known of its job", HashOfFacts("p", "solo14")},
      {"a hash of what is known of a job here", HashOfFacts("lone", "solo0")},
      {"the token of its job's messages", own.token}};
  for (char request : kRequests) {
    for (const auto& [name, secret] : secrets)
      EXPECT_TRUE(Ask(request, secret).nothing()) << request << " with " << name;
  }
  // A lease's id opens what is its client's, an arena key what is the agents'.
  for (const std::string& lease : {own.lease, alone}) {
    for (char request : {'A', 'X'}) EXPECT_TRUE(Ask(request, lease).nothing()) << request;
  }
  for (char request : {'B', 'S', 'U', 'R', 'X'})
    EXPECT_TRUE(Ask(request, own.arena_key).nothing()) << request;
}

TEST_F(LocalSocketTest, TheRightSecretOpensItsOwnAlone) {
  const SpanningJob own = Span("p"), other = Span("q");
  EXPECT_TRUE(Ask('B', own.lease).acknowledged);
  EXPECT_TRUE(Ask('U', own.lease).acknowledged);
  EXPECT_TRUE(Ask('R', own.lease).acknowledged);
  const Answer streams = Ask('S', own.lease), others_streams = Ask('S', other.lease);
  EXPECT_EQ(streams.memory.size(), 1u);
  EXPECT_NE(streams.files(), others_streams.files());
  const Answer arenas = Ask('A', own.arena_key), others_arenas = Ask('A', other.arena_key);
  EXPECT_EQ(arenas.units, (std::set<uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(others_arenas.units, (std::set<uint32_t>{0, 1, 2, 3}));
  for (ino_t file : others_arenas.files()) EXPECT_FALSE(arenas.files().contains(file));
  for (const shm::Segment& arena : arenas.memory)
    EXPECT_EQ(arena.size(), size_t{1} << 20) << "tensors, and nothing behind them";
}

TEST_F(LocalSocketTest, TheJobsOfOneProcessHaveNoKeyToTheirMemory) {
  const std::string lease = Hold("lone", Open(0), SumExecutable());
  EXPECT_FALSE(agent_->JobArenas("").ok());
  EXPECT_FALSE(agent_->JobArenas(HashOfFacts("lone", "solo0")).ok());
}

TEST_F(LocalSocketTest, AnotherUserGetsNothingForTheRightSecret) {
  if (geteuid() != 0) GTEST_SKIP() << "needs a second user";
  const SpanningJob own = Span("p");
  EXPECT_TRUE(Ask('B', own.lease).acknowledged);
  AsAnotherUser([&] {
    for (char request : {'B', 'S', 'U', 'R'})
      EXPECT_TRUE(Ask(request, own.lease).nothing()) << request;
    EXPECT_TRUE(Ask('A', own.arena_key).nothing());
    // Nor is the key shown to a listener of another user, who has taken the socket's name.
    EXPECT_EQ(FetchArenas(socket_, own.arena_key).status().code(),
              absl::StatusCode::kPermissionDenied);
  });
  EXPECT_EQ(Ask('S', own.lease).memory.size(), 1u);
  EXPECT_EQ(Ask('A', own.arena_key).units.size(), 4u);
}

// --- A client that rewrites what it has mapped ---

constexpr uint32_t kSecretWord = 0x5ec2e75e;  // all over the memory of another tenant

// Puts numbers into memory, many of which are no index of anything, until it goes.
class Rewriter {
 public:
  explicit Rewriter(const std::vector<shm::Segment>& memory)
      : thread_([this, &memory] {
          constexpr std::array<uint32_t, 9> kWords = {
              0, 1, 3, 7, 8, 0x7fffffff, 0x80000000, 0xffffffff, 0x7fc00000};
          for (size_t round = 0; !stop_; ++round) {
            for (const shm::Segment& segment : memory) {
              auto* words = reinterpret_cast<uint32_t*>(segment.data());
              for (size_t i = 0; i < segment.size() / sizeof(uint32_t); ++i)
                std::atomic_ref(words[i]).store(kWords[(i + round) % kWords.size()],
                                                std::memory_order_relaxed);
            }
          }
        }) {}
  ~Rewriter() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// The operation with all its operands taken from streams, and all its results given to them.
v1::Executable Streaming(const testing::SmallOp& op) {
  v1::Executable executable = testing::ExecutableOf(op);
  v1::Ipu& ipu = *executable.mutable_ipus(0);
  v1::Function& function = *ipu.mutable_functions(ipu.functions_size() - 1);
  const v1::Instruction instruction = function.instructions(0);
  function.clear_instructions();
  const auto stream = [&](uint32_t tensor, bool to_device) {
    const v1::Tensor& text = ipu.tensors(static_cast<int>(tensor));
    if (text.wide_accumulator()) return;
    const program::TensorType type = program::TypeOf(text);
    v1::Stream& entry = *executable.add_streams();
    entry.set_name(absl::StrCat("s", executable.streams_size()));
    entry.set_to_device(to_device);
    entry.set_type(type.type);
    entry.mutable_dims()->Add(type.dims.begin(), type.dims.end());
    entry.set_transfers_per_run(1);
    const auto number = static_cast<uint32_t>(executable.streams_size() - 1);
    const uint32_t as_streamed = testing::AddTensor(type, ipu);
    v1::Instruction transfer, copy;
    copy.mutable_copy();
    copy.add_inputs(to_device ? as_streamed : tensor);
    copy.add_outputs(to_device ? tensor : as_streamed);
    if (to_device) {
      transfer.mutable_stream_in()->set_stream(number);
      transfer.add_outputs(as_streamed);
      *function.add_instructions() = transfer;
      *function.add_instructions() = copy;
    } else {
      transfer.mutable_stream_out()->set_stream(number);
      transfer.add_inputs(as_streamed);
      *function.add_instructions() = copy;
      *function.add_instructions() = transfer;
    }
  };
  for (uint32_t input : instruction.inputs()) stream(input, true);
  *function.add_instructions() = instruction;
  for (uint32_t output : instruction.outputs()) stream(output, false);
  return executable;
}

// A variable of a megabyte.
std::string LargeVariable() {
  v1::Executable executable;
  executable.set_ipus_per_replica(1);
  v1::Ipu& ipu = *executable.add_ipus();
  testing::AddTensor({v1::UINT32, {1 << 18}}, ipu);
  ipu.add_functions();
  executable.add_variables()->set_name("secret");
  v1::Program& program = *executable.add_programs();
  program.set_name("rest");
  program.add_functions(0);
  return program::Serialize(executable);
}

int Rewrites() {
  int runs = 0;
  const char* text = std::getenv("VPOD_REWRITES");
  return text != nullptr && absl::SimpleAtoi(text, &runs) ? runs : 1000;
}

bool HoldsTheSecret(const shm::Segment& segment) {
  auto* words = reinterpret_cast<uint32_t*>(segment.data());
  return std::any_of(words, words + segment.size() / sizeof(uint32_t), [](uint32_t& word) {
    return std::atomic_ref(word).load(std::memory_order_relaxed) == kSecretWord;
  });
}

class RewritingClientTest : public LocalSocketTest {
 protected:
  RewritingClientTest() {
    const std::vector<uint32_t> words(1 << 18, kSecretWord);
    secret_.assign(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(uint32_t));
    neighbour_ = Hold("lone", Open(1), LargeVariable());
    EXPECT_TRUE(agent_->WriteVariable(neighbour_, "secret", true, 0, 0, secret_).ok());
  }

  // Everything that a client of the job can try to get.
  std::vector<shm::Segment> MemoryOf(const std::string& job, const std::string& lease) const {
    std::vector<shm::Segment> memory;
    for (const auto& [request, secret] : std::vector<std::pair<char, std::string>>{
             {'S', lease}, {'A', lease}, {'A', HashOfFacts("lone", job)}}) {
      Answer answer = Ask(request, secret);
      for (shm::Segment& segment : answer.memory) memory.push_back(std::move(segment));
    }
    return memory;
  }

  // Runs the operation while its client rewrites what it has mapped.
  void Run(const testing::SmallOp& op, int runs) {
    ipuof::v1::AttachOpen open = Open(0);
    open.mutable_job()->set_job_id(absl::StrCat("job", ++jobs_));
    const std::string lease = Hold("lone", open, program::Serialize(Streaming(op)));
    const std::vector<shm::Segment> memory = MemoryOf(open.job().job_id(), lease);
    EXPECT_EQ(memory.size(), 1u) << "the streams of the lease, and nothing else";
    {
      const Rewriter rewriter(memory);
      for (int run = 0; run < runs; ++run) {
        Awaited<base::Cycles> awaited;
        agent_->Run(lease, 0, static_cast<uint32_t>(run) % program::kStreamSlots,
                    awaited.Callback());
        const absl::Status status = awaited.Get().status();
        ASSERT_TRUE(status.ok() || absl::IsInvalidArgument(status) || absl::IsOutOfRange(status))
            << status;
        for (const shm::Segment& segment : memory) ASSERT_FALSE(HoldsTheSecret(segment));
      }
    }
    agent_->Release(lease, false);
  }

  std::string neighbour_, secret_;
  int jobs_ = 0;
};

TEST_F(RewritingClientTest, HarmsNobodyAndReadsNothingOfOthers) {
  for (const auto& [name, op] : testing::SmallOps()) {
    SCOPED_TRACE(name);
    const v1::Instruction instruction = testing::Attributes(op);
    if (program::FindOp(instruction.attributes_case())->role != program::Role::kKernel) continue;
    Run(op, Rewrites());
    if (HasFatalFailure()) return;
  }
  std::string now;
  while (now.size() < secret_.size()) {
    const auto portion = agent_->ReadVariable(neighbour_, "secret", 0, now.size());
    ASSERT_TRUE(portion.ok() && !portion->empty()) << portion.status();
    now += *portion;
  }
  EXPECT_TRUE(now == secret_) << "the neighbour's variable has changed";
}

// Its keys and places are memory that the chunks of a kernel hand each other.
TEST_F(RewritingClientTest, HarmsNobodyWithALongSort) {
  Run({"sort { axis: 0 count: 40000 }", {{v1::FLOAT32, {40000}}}}, std::max(20, Rewrites() / 50));
}

}  // namespace
}  // namespace vpod::agent
