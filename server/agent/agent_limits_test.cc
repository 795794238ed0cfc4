// Limits of what programs may ask of an agent: host memory, sizes, names, and its time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <future>
#include <string>

#include "device/program/executable.h"
#include "server/agent/agent.h"
#include "server/agent/agent_test_util.h"
#include "server/agent/local_listener.h"

namespace vpod::agent {
namespace {

using program::v1::FLOAT32;

// A variable "v" and a stream of so many bytes.
std::string LargeExecutable(uint64_t bytes) {
  program::v1::Executable executable;
  executable.set_ipus_per_replica(1);
  program::v1::Ipu* ipu = executable.add_ipus();
  ipu->set_arena_bytes((bytes + 63) / 64 * 64);
  program::v1::Tensor* tensor = ipu->add_tensors();
  tensor->set_type(FLOAT32);
  tensor->add_dims(static_cast<int64_t>(bytes) / 4);
  executable.add_variables()->set_name("v");
  program::v1::Stream* stream = executable.add_streams();
  stream->set_name("s");
  stream->set_type(FLOAT32);
  stream->add_dims(static_cast<int64_t>(bytes) / 4);
  stream->set_transfers_per_run(1);
  program::v1::Program* program = executable.add_programs();
  program->set_name("rest");
  program->add_functions(0);
  executable.mutable_ipus(0)->add_functions();
  return program::Serialize(executable);
}

TEST_F(AgentTest, HostMemoryRunsOutForTheJobOnly) {
  AgentOptions options;
  options.memory_limit_bytes = (1 << 20) + (64 << 10);  // one executable, not two
  options.compute_threads = 1;
  agent_ = *Agent::Create(options);
  agent_->watch_process = [](base::UniqueFd, std::string) {};
  vipuagent::ConfigureRequest request;
  vipuagent::AgentPartition* partition = request.add_partitions();
  partition->set_id("p");
  partition->set_generation(1);
  partition->set_fabric_key(kKey);
  *partition->add_gcds()->add_slices() = WholeMachine("127.10.0.1");
  request.set_complete(true);
  ASSERT_TRUE(agent_->Configure(request).ok());
  const std::string lease = MustAttach(Open(0));
  EXPECT_TRUE(agent_->Load(lease, SumExecutable()).ok());
  const absl::Status again = agent_->Load(lease, SumExecutable()).status();
  EXPECT_EQ(again.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(again.message()).find("--memory-limit"), std::string::npos);
}

// A load that takes seconds, for its many convolutions of different shapes.
std::string SlowExecutable() {
  constexpr int kSizes = 40;
  program::v1::Executable executable;
  executable.set_ipus_per_replica(1);
  program::v1::Ipu* ipu = executable.add_ipus();
  ipu->set_arena_bytes(1 << 20);
  const auto add = [&](program::Dims dims, bool image) {
    program::v1::Tensor* tensor = ipu->add_tensors();
    tensor->set_type(FLOAT32);
    tensor->mutable_dims()->Add(dims.begin(), dims.end());
    tensor->set_offset(image && ipu->tensors_size() % 2 == 1 ? 512 << 10 : 64 << 10);
    const program::Dims strides = program::ChannelsLastStrides(dims);
    if (image) tensor->mutable_strides()->Add(strides.begin(), strides.end());
    return static_cast<uint32_t>(ipu->tensors_size() - 1);
  };
  const uint32_t weights = add({16, 16, 3, 3}, false);
  ipu->mutable_tensors(0)->set_offset(0);
  program::v1::Function* function = ipu->add_functions();
  for (int i = 0; i < kSizes * kSizes; ++i) {
    const program::Dims dims{1, 16, 4 + i / kSizes, 4 + i % kSizes};
    program::v1::Instruction* step = function->add_instructions();
    step->add_inputs(add(dims, true));
    step->add_inputs(weights);
    step->add_outputs(add(dims, true));
    program::v1::Convolution* op = step->mutable_convolution();
    op->set_pass(program::v1::Convolution::FORWARD);
    op->set_groups(1);
    for (int axis = 0; axis < 2; ++axis) {
      op->mutable_window()->add_kernel(3);
      op->mutable_window()->add_stride(1);
      op->mutable_window()->add_dilation(1);
      op->mutable_window()->add_pad_before(1);
      op->mutable_window()->add_pad_after(1);
    }
  }
  executable.add_programs()->set_name("run");
  executable.mutable_programs(0)->add_functions(0);
  return program::Serialize(executable);
}

TEST_F(AgentTest, AReleasedLeaseEndsItsLoad) {
  const std::string executable = SlowExecutable();
  const std::string lease = MustAttach(Open(0));
  auto loaded = std::async(std::launch::async, [&] { return agent_->Load(lease, executable); });
  agent_->Release(lease, /*lost=*/true);
  const absl::Status status = loaded.get().status();
  // Before it began, or between two of its instructions.
  EXPECT_TRUE(absl::IsNotFound(status) || absl::IsCancelled(status)) << status;
  MustAttach(Open(0));
}

TEST_F(AgentTest, ExecutablesOnTheirWayCountAsHostMemory) {
  const std::string first = MustAttach(Open(0)), second = MustAttach(Open(1));
  {
    const auto reserved = agent_->BeginLoad(first, 40 << 20);
    EXPECT_TRUE(reserved.ok()) << reserved.status();
    EXPECT_TRUE(absl::IsResourceExhausted(agent_->BeginLoad(second, 40 << 20).status()));
  }
  EXPECT_TRUE(agent_->BeginLoad(second, 40 << 20).ok());
  EXPECT_TRUE(absl::IsNotFound(agent_->BeginLoad("nobody", 1).status()));
}

TEST_F(AgentTest, ReadersGetPortions) {
  constexpr uint64_t kPortion = Agent::kReadPortion, kRest = 12;
  const std::string lease = MustAttach(Open(0));
  ASSERT_TRUE(agent_->Load(lease, LargeExecutable(kPortion + kRest)).ok());
  std::string value(kPortion + kRest, 'a');
  value.replace(kPortion, kRest, kRest, 'b');
  ASSERT_TRUE(agent_->WriteVariable(lease, "v", true, 0, 0, value).ok());
  EXPECT_EQ(*agent_->ReadVariable(lease, "v", 0), value.substr(0, kPortion));
  EXPECT_EQ(*agent_->ReadVariable(lease, "v", 0, kPortion), value.substr(kPortion));
  EXPECT_EQ(*agent_->ReadVariable(lease, "v", 0, kPortion + kRest), "");
  EXPECT_EQ(agent_->ReadVariable(lease, "v", 0, kPortion + kRest + 1).status().code(),
            absl::StatusCode::kOutOfRange);
  ASSERT_TRUE(agent_->WriteStream(lease, 1, 0, value).ok());
  EXPECT_EQ(*agent_->ReadStream(lease, 1, 0, kPortion + kRest), value.substr(0, kPortion));
  EXPECT_EQ(*agent_->ReadStream(lease, 1, kPortion, kRest), value.substr(kPortion));
  EXPECT_FALSE(agent_->ReadStream(lease, 1, 0, UINT64_MAX).ok());
}

TEST_F(AgentTest, TheLocalListenerWaitsForNoDescriptorForEver) {
  const auto listener = LocalListener::Open(*agent_);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto attached = Attach(Open(0));
  ASSERT_TRUE(attached.ok()) << attached.status();
  const base::UniqueFd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& name = attached->local_socket();
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const timeval patience{60, 0};
  setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  const std::string request = "U" + attached->lease_id();
  ASSERT_EQ(send(client.get(), request.data(), request.size(), 0), ssize_t(request.size()));
  char answer;
  EXPECT_EQ(recv(client.get(), &answer, 1, 0), 0) << "the listener is still open";
  agent_->Release(attached->lease_id(), false);
}

TEST_F(AgentTest, AbsurdJobsAreRefused) {
  ipuof::v1::AttachOpen open = Open(0);
  open.mutable_job()->set_num_instances(4294967295u);
  EXPECT_EQ(Attach(open).status().message(),
            "instance 0 says 4294967295 instances and 1 replica; a job has 1 to 65536 replicas "
            "and no more "
            "instances than replicas");
  EXPECT_EQ(Attached(), 0);
}

// Text that a process declares is kept short and in one line, wherever it is shown.
TEST_F(AgentTest, DeclaredTextIsKeptShortAndInOneLine) {
  ipuof::v1::AttachOpen open = Open(0);
  open.mutable_process()->set_host("a\x1b[2Jb\nc");
  open.mutable_process()->set_user(std::string(1 << 20, 'u'));
  open.mutable_process()->set_executable("\u202Egpj");
  MustAttach(open);
  const auto telemetry = agent_->GetTelemetry("p");
  ASSERT_TRUE(telemetry.ok()) << telemetry.status();
  const ipuof::v1::ProcessInfo& shown = telemetry->ipus(0).process();
  EXPECT_EQ(shown.host(), "a\uFFFD[2Jb\uFFFDc");
  EXPECT_LE(shown.user().size(), 260u);
  EXPECT_EQ(shown.executable(), "\uFFFDgpj");
  EXPECT_THAT(std::string(Attach(Open(0)).status().message()),
              testing::StartsWith("device 0 is in use by process 4711 (\"\uFFFDgpj\") of \"uuu"));
  EXPECT_THAT(std::string(Attach(Open(0)).status().message()),
              testing::HasSubstr(" on \"a\uFFFD[2Jb\uFFFDc\", attached "));
  // Names that are compared, not shown, are refused when they are long.
  open = Open(1);
  open.mutable_job()->set_job_id(std::string(257, 'j'));
  EXPECT_EQ(Attach(open).status(), absl::InvalidArgumentError("job_id has 257 bytes, at most 256"));
}

}  // namespace
}  // namespace vpod::agent
