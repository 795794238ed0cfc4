// Fault table: an owner that lives, or dies, in a kernel that would go on for hours. Nobody else is
// kept from working, and its IPUs are free as soon as one chunk of the kernel has ended.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <csignal>

#include "absl/synchronization/notification.h"
#include "client/ipuof/lease.h"
#include "client/vipu/ipuof_config.h"
#include "device/program/executable.h"
#include "proto/ipuof/v1/ipuof.grpc.pb.h"
#include "tests/system/fault_table.h"

namespace vpod::testing {
namespace {

namespace v1 = ipuof::v1;
using vipuuser::PS_ACTIVE;

// One kernel of a million windows of `side` × `side` elements, 1000 being the limit.
std::string LongKernel(uint32_t side) {
  program::v1::Executable executable;
  executable.set_ipus_per_replica(1);
  program::v1::Ipu* ipu = executable.add_ipus();
  const auto image = [&](uint64_t pixels) {
    program::v1::Tensor* tensor = ipu->add_tensors();
    tensor->set_type(program::v1::FLOAT32);
    for (const uint64_t dim : {uint64_t{1}, uint64_t{1}, pixels, pixels})
      tensor->add_dims(static_cast<int64_t>(dim));
    tensor->set_offset(ipu->arena_bytes());
    ipu->set_arena_bytes((ipu->arena_bytes() + pixels * pixels * 4 + 63) / 64 * 64);
  };
  constexpr uint64_t kResult = 1024;
  image(kResult + side - 1);
  image(kResult);
  executable.add_programs()->set_name("long");
  executable.mutable_programs(0)->add_functions(0);
  program::v1::Instruction* step = executable.mutable_ipus(0)->add_functions()->add_instructions();
  step->add_inputs(0);
  step->add_outputs(1);
  auto* window = step->mutable_average_pool()->mutable_window();
  for (int i = 0; i < 2; ++i) {
    window->add_kernel(static_cast<uint32_t>(side));
    window->add_stride(1);
    window->add_dilation(1);
    window->add_pad_before(0);
    window->add_pad_after(0);
  }
  return program::Serialize(executable);
}

// A program on one device of "mine" that dies while its kernel runs.
class Owner {
 public:
  Owner(const vipu::ActivePartition& partition, uint32_t device, const std::string& executable) {
    const std::string endpoint = ipuof::EndpointsOf(partition, device, 1).front();
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = v1::Ipuof::NewStub(
        grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments));
    v1::AttachRequest request;
    v1::AttachOpen* open = request.mutable_open();
    open->set_partition_id(partition.partition_id);
    open->set_generation(partition.generation);
    open->set_fabric_key(partition.config.fabric_key());
    open->set_device_id(device);
    open->mutable_job()->set_job_id("owner" + std::to_string(device));
    open->mutable_job()->set_num_instances(1);
    open->mutable_job()->set_local_replicas(1);
    open->mutable_job()->set_total_replicas(1);
    open->mutable_job()->set_ipus_per_replica(1);
    open->mutable_process()->set_pid(4711);
    open->mutable_process()->set_executable("owner");
    open->mutable_process()->set_host("node7");
    stream_ = stub_->Attach(&context_);
    v1::AttachEvent event;
    status = stream_->Write(request) && stream_->Read(&event) && event.has_attached()
                 ? grpc::Status::OK
                 : stream_->Finish();
    if (!status.ok()) return;
    grpc::ClientContext load;
    v1::LoadReply loaded;
    auto writer = stub_->Load(&load, &loaded);
    v1::LoadRequest text;
    text.set_lease_id(event.attached().lease_id());
    text.set_total_bytes(executable.size());
    text.set_chunk(executable);
    writer->Write(text);
    writer->WritesDone();
    status = writer->Finish();
    run_request_.set_lease_id(event.attached().lease_id());
    stub_->async()->Run(&run_, &run_request_, &run_reply_,
                        [this](const grpc::Status&) { run_ended_.Notify(); });
  }
  void Die() {
    run_.TryCancel();
    context_.TryCancel();
    stream_->Finish();
    run_ended_
        .WaitForNotification();  // gRPC uses the request, the reply and the context until then
  }

  grpc::Status status;

 private:
  std::unique_ptr<v1::Ipuof::Stub> stub_;
  grpc::ClientContext context_, run_;
  v1::RunRequest run_request_;
  v1::RunReply run_reply_;
  absl::Notification run_ended_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AttachRequest, v1::AttachEvent>> stream_;
};

class FaultReleasingTest : public FaultTable {
 protected:
  // A kernel runs on each of the first devices of "mine".
  void StartKernels(uint32_t devices) {
    const vipu::ActivePartition partition = Mine();
    for (uint32_t device = 0; device < devices; ++device) {
      owners_.push_back(std::make_unique<Owner>(partition, device, LongKernel(1000)));
      ASSERT_TRUE(owners_.back()->status.ok()) << owners_.back()->status.error_message();
    }
    ASSERT_TRUE(Within(kSoon, [&] { return Monitor({"-j"}).find("4711") != std::string::npos; }));
    std::this_thread::sleep_for(std::chrono::seconds(1));  // the kernels have begun
  }
  void KillOwners() {
    for (const auto& owner : owners_) owner->Die();
  }
  vipu::ActivePartition Mine() {
    auto found = client_->GetPartitionConfig("mine", 0);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? vipu::Describe(*std::move(found)) : vipu::ActivePartition();
  }
  std::string Monitor(const Words& more = {}) {
    return pod_.Run(Words{"env", "IPUOF_VIPU_API_PARTITION_ID=mine", "gc-monitor"} + more, kSoon)
        .out;
  }
  Outcome Vipu(const Words& words) { return pod_.Run(words, std::chrono::minutes(3)); }
  void TearDown() override {
    if (check_) FaultTable::TearDown();
  }

  bool check_ = true;  // the other job is there still
  std::vector<std::unique_ptr<Owner>> owners_;
};

TEST_F(FaultReleasingTest, TheDeviceOfADeadOwnerCanBeHadAtOnce) {
  StartKernels(1);
  KillOwners();
  // An attach waits for as long as a chunk lasts.
  Owner next(Mine(), 0, LongKernel(1));
  EXPECT_TRUE(next.status.ok()) << next.status.error_message();
  next.Die();
}

TEST_F(FaultReleasingTest, APartitionWithAKernelIsReset) {
  StartKernels(2);
  EXPECT_EQ(Vipu({"vipu", "reset", "partition", "mine"}).code, 0);
  EXPECT_TRUE(Becomes("mine", PS_ACTIVE));
  KillOwners();
}

TEST_F(FaultReleasingTest, APartitionWithAKernelIsRemovedAndItsIpusAreTaken) {
  StartKernels(1);
  EXPECT_EQ(Vipu({"vipu", "remove", "partition", "mine"}).code, 0);
  EXPECT_EQ(Vipu({"vipu", "create", "partition", "mine", "--size", "8"}).code, 0);
  EXPECT_TRUE(Becomes("mine", PS_ACTIVE));
  KillOwners();
}

TEST_F(FaultReleasingTest, AnAgentWithAKernelIsReset) {
  StartKernels(1);
  KillOwners();
  const auto partition = client_->GetPartition("mine");
  ASSERT_TRUE(partition.ok()) << partition.status();
  const std::string agent = partition->gcds(0).devices(0).agent_id();
  const Outcome reset = Vipu({"vipu-admin", "reset", "agent", agent});
  EXPECT_EQ(reset.code, 0) << reset.err;
}

// As many kernels as there are compute threads, and more; their owners live.
TEST_F(FaultReleasingTest, OthersWorkMeanwhile) {
  StartKernels(8);
  ExpectOtherGoesOn();
  ExpectOtherGoesOn();
  KillOwners();
}

TEST_F(FaultReleasingTest, TheAgentEndsWhenItIsTold) {
  StartKernels(2);
  const int agent = pod_.AgentPid();
  EXPECT_TRUE(EndProcess(agent, SIGTERM)) << "it waits for its kernels";
  check_ = false;
  KillOwners();
}

}  // namespace
}  // namespace vpod::testing
