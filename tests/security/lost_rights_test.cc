// What users can still do with yesterday's IPUoF files and open leases once they have lost the
// right to a partition: nothing, while the jobs of others go on.
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "absl/strings/numbers.h"
#include "device/base/grpc_connect.h"
#include "proto/ipuof/v1/ipuof.grpc.pb.h"
#include "tests/security/secure_pod.h"
#include "tests/support/raw_call.h"

namespace vpod::testing {
namespace {

using Clock = std::chrono::steady_clock;
using grpc::StatusCode;
using ipuof::v1::Ipuof;

// Somebody who keeps the configuration of a partition, and perhaps a lease.
class Holder {
 public:
  Holder(const std::shared_ptr<grpc::Channel>& channel, vipuuser::PartitionConfig config)
      : stub_(Ipuof::NewStub(channel)), config_(std::move(config)) {}
  ~Holder() { End(); }

  // Takes a device with the configuration, and keeps its lease if that is given.
  grpc::Status Attach() {
    End();
    context_ = std::make_unique<grpc::ClientContext>();
    stream_ = stub_->Attach(context_.get());
    ipuof::v1::AttachRequest request;
    ipuof::v1::AttachOpen& open = *request.mutable_open();
    open.set_partition_id(config_.attributes().at("Partition Id"));
    uint64_t generation = 0;
    EXPECT_TRUE(absl::SimpleAtoi(config_.attributes().at("Partition generation"), &generation));
    open.set_generation(generation);
    open.set_fabric_key(config_.fabric_key());
    open.mutable_process()->set_pid(1);
    open.mutable_process()->set_user("whoever");
    open.mutable_job()->set_job_id("job");
    open.mutable_job()->set_num_instances(1);
    open.mutable_job()->set_local_replicas(1);
    open.mutable_job()->set_total_replicas(1);
    open.mutable_job()->set_ipus_per_replica(1);
    ipuof::v1::AttachEvent event;
    if (stream_->Write(request) && stream_->Read(&event) && event.has_attached()) {
      lease_ = event.attached().lease_id();
      return grpc::Status::OK;
    }
    stream_->WritesDone();
    const grpc::Status status = stream_->Finish();
    stream_.reset();
    return status;
  }
  // Whether the agent knows the lease: there is no executable whose counters could be read.
  bool HasLease() { return Counters() == StatusCode::FAILED_PRECONDITION; }
  // The codes of all calls that a lease serves, and of a reset with the configuration's key.
  std::vector<StatusCode> Everything() {
    return {Counters(),   Run(),         Load(),       WriteStream(),
            ReadStream(), WriteTensor(), ReadTensor(), Pulse()};
  }
  StatusCode ResetDevice() {
    ipuof::v1::ResetDeviceRequest request;
    request.set_partition_id(config_.attributes().at("Partition Id"));
    request.set_fabric_key(config_.fabric_key());
    ipuof::v1::ResetDeviceReply reply;
    return Unary([&](auto* context) { return stub_->ResetDevice(context, request, &reply); });
  }

 private:
  template <class Call>
  static StatusCode Unary(const Call& call) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    return call(&context).error_code();
  }
  template <class Request>
  Request Named() const {
    Request request;
    request.set_lease_id(lease_);
    return request;
  }
  StatusCode Counters() {
    ipuof::v1::GetCountersReply reply;
    return Unary([&](auto* context) {
      return stub_->GetCounters(context, Named<ipuof::v1::GetCountersRequest>(), &reply);
    });
  }
  StatusCode Run() {
    ipuof::v1::RunReply reply;
    return Unary(
        [&](auto* context) { return stub_->Run(context, Named<ipuof::v1::RunRequest>(), &reply); });
  }
  StatusCode Pulse() {
    ipuof::v1::PulseReply reply;
    return Unary([&](auto* context) {
      return stub_->Pulse(context, Named<ipuof::v1::PulseRequest>(), &reply);
    });
  }
  StatusCode Load() {
    auto request = Named<ipuof::v1::LoadRequest>();
    request.set_total_bytes(4);
    request.set_chunk("some");
    ipuof::v1::LoadReply reply;
    return Unary([&](auto* context) { return Upload(*stub_->Load(context, &reply), request); });
  }
  StatusCode WriteStream() {
    auto request = Named<ipuof::v1::WriteStreamRequest>();
    request.set_data("some");
    ipuof::v1::WriteStreamReply reply;
    return Unary(
        [&](auto* context) { return Upload(*stub_->WriteStream(context, &reply), request); });
  }
  StatusCode WriteTensor() {
    auto request = Named<ipuof::v1::WriteTensorRequest>();
    request.set_variable("w");
    request.set_data("some");
    ipuof::v1::WriteTensorReply reply;
    return Unary(
        [&](auto* context) { return Upload(*stub_->WriteTensor(context, &reply), request); });
  }
  StatusCode ReadStream() {
    auto request = Named<ipuof::v1::ReadStreamRequest>();
    request.set_bytes(4);
    return Unary([&](auto* context) { return Download(*stub_->ReadStream(context, request)); });
  }
  StatusCode ReadTensor() {
    auto request = Named<ipuof::v1::ReadTensorRequest>();
    request.set_variable("w");
    return Unary([&](auto* context) { return Download(*stub_->ReadTensor(context, request)); });
  }
  template <class Request>
  static grpc::Status Upload(grpc::ClientWriter<Request>& writer, const Request& request) {
    writer.Write(request);
    writer.WritesDone();
    return writer.Finish();
  }
  template <class Reply>
  static grpc::Status Download(grpc::ClientReader<Reply>& reader) {
    for (Reply reply; reader.Read(&reply);) {
    }
    return reader.Finish();
  }
  void End() {
    if (stream_ == nullptr) return;
    context_->TryCancel();
    stream_->Finish();
    stream_.reset();
  }

  const std::unique_ptr<Ipuof::Stub> stub_;
  const vipuuser::PartitionConfig config_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReaderWriter<ipuof::v1::AttachRequest, ipuof::v1::AttachEvent>>
      stream_;
  std::string lease_ = "none";
};

// alice has her partition p1, and with bob and his job a shared one, which bob created.
class LostRightsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(pod_.ready());
    vipuuser::CreatePartitionRequest request;
    request.mutable_requirements()->set_id("shared");
    request.mutable_requirements()->set_size(2);
    request.mutable_requirements()->set_allocation_id("a1");
    request.mutable_requirements()->set_shared(true);
    request.mutable_requirements()->set_reconfigurable(true);
    vipu::Client bob = As("bob");
    ASSERT_TRUE(bob.CreatePartition(request).ok());
    ASSERT_TRUE(bob.WaitUntilActive("shared").ok());
    own_ = Keep("alice", "p1");
    shared_ = Keep("alice", "shared");
    for (Holder* holder : {own_.get(), shared_.get()}) {
      const grpc::Status attached = holder->Attach();
      ASSERT_TRUE(attached.ok()) << attached.error_message();
      ASSERT_TRUE(holder->HasLease());
    }
    StartJobOfBob();
  }
  vipu::Client As(const std::string& user) {
    return vipu::Client(pod_.ConfigOf(user), std::chrono::seconds(20));
  }
  std::unique_ptr<Holder> Keep(const std::string& user, const std::string& partition) {
    const auto config = As(user).GetPartitionConfig(partition, 0);
    EXPECT_TRUE(config.ok()) << config.status();
    const auto channel =
        base::Connect(pod_.agent(), base::Peer::kAgent, pod_.Certificates("client"));
    return std::make_unique<Holder>(channel, config.value_or(vipuuser::PartitionConfig()));
  }
  void StartJobOfBob() {
    const std::string file = pod_.pod().directory() + "/bob.json";
    const Outcome written = pod_.RunAs(
        "bob", {"bash", "-c", "vipu get partition shared --gcd 0 --ipuof-configs > " + file});
    ASSERT_EQ(written.code, 0) << written.err;
    job_ = pod_.StartAs("bob", {"env", "IPUOF_CONFIG_PATH=" + file, "replica_job", "--runs",
                                "1000000", "--pause-ms", "20"});
    ASSERT_TRUE(job_->WaitForOutput("run 1 loss")) << job_->Err();
  }
  bool JobOfBobGoesOn() {
    const size_t before = job_->Out().size();
    return Within(kSoon, [&] { return job_->Out().size() > before + 500; });
  }

  // Expects that the holder's lease ends soon, and that neither it nor the file serves for anything
  // then.
  void ExpectVoid(Holder& holder, const std::string& which) {
    const auto since = Clock::now();
    EXPECT_TRUE(Within(kSoon, [&] { return !holder.HasLease(); })) << which;
    std::printf(
        "%s: ended after %lld ms\n", which.c_str(),
        static_cast<long long>(
            std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - since).count()));
    for (const StatusCode code : holder.Everything()) EXPECT_EQ(code, StatusCode::NOT_FOUND);
    EXPECT_NE(holder.ResetDevice(), StatusCode::OK) << which;
    EXPECT_FALSE(holder.Attach().ok()) << which;
    EXPECT_FALSE(holder.HasLease()) << which;
  }
  void ExpectAllVoid() {
    ExpectVoid(*own_, "own");
    ExpectVoid(*shared_, "shared");
    EXPECT_TRUE(JobOfBobGoesOn()) << job_->Err();
  }

  SecurePod pod_;
  std::unique_ptr<Holder> own_, shared_;
  std::unique_ptr<Command> job_;
};

TEST_F(LostRightsTest, ARemovedUserHasNothing) {
  const Outcome asked = pod_.RunAs("root", {"vipu-admin", "remove", "user", "alice"});
  EXPECT_EQ(asked.code, 1);
  EXPECT_NE((asked.out + asked.err).find("User alice is in use by partition p1."),
            std::string::npos)
      << asked.out << asked.err;
  EXPECT_TRUE(own_->HasLease() && shared_->HasLease());
  const Outcome removed =
      pod_.RunAs("root", {"vipu-admin", "remove", "user", "alice", "--end-jobs"});
  ASSERT_EQ(removed.code, 0) << removed.err;
  ExpectAllVoid();
  EXPECT_EQ(As("root").GetPartitionStatus("p1")->state(), vipuuser::PS_REMOVED);
  EXPECT_EQ(As("root").GetPartitionStatus("shared")->created_by(), "bob");
}

TEST_F(LostRightsTest, AReplacedAccessKeyTakesFilesAndLeasesAlong) {
  const Outcome replaced = pod_.RunAs(
      "root", {"vipu-admin", "update", "user", "alice", "--new-access-key", "--end-jobs"});
  ASSERT_EQ(replaced.code, 0) << replaced.err;
  ExpectAllVoid();
  EXPECT_FALSE(As("alice").GetPartitionConfig("p1", 0).ok());
  // With the new key she has what she had.
  const std::string label = "Access key is '";
  vipu::ClientConfig config = pod_.ConfigOf("alice");
  config.access_key = replaced.out.substr(replaced.out.find(label) + label.size(), 11);
  vipu::Client alice(config, std::chrono::seconds(20));
  ASSERT_TRUE(alice.WaitUntilActive("p1").ok());
  const auto fetched = alice.GetPartitionConfig("p1", 0);
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  Holder again(base::Connect(pod_.agent(), base::Peer::kAgent, pod_.Certificates("client")),
               *fetched);
  EXPECT_TRUE(again.Attach().ok());
  EXPECT_TRUE(again.HasLease());
}

TEST_F(LostRightsTest, AUserWhoIsLimitedLosesOtherAllocations) {
  const Outcome limited = pod_.RunAs(
      "root", {"vipu-admin", "update", "user", "alice", "--allocations", "a2", "--end-jobs"});
  ASSERT_EQ(limited.code, 0) << limited.err;
  ExpectAllVoid();
}

TEST_F(LostRightsTest, AUserWhoIsLeftOutLosesTheAllocation) {
  const Outcome left_out = pod_.RunAs(
      "root", {"vipu-admin", "update", "allocation", "a1", "--users", "bob", "--end-jobs"});
  ASSERT_EQ(left_out.code, 0) << left_out.err;
  ExpectAllVoid();
}

TEST_F(LostRightsTest, ARemovedPartitionIsLost) {
  ASSERT_TRUE(As("bob").RemovePartition("p1").ok());
  ExpectVoid(*own_, "own");
  EXPECT_TRUE(shared_->HasLease());
  EXPECT_TRUE(JobOfBobGoesOn()) << job_->Err();
}

TEST_F(LostRightsTest, AResetPartitionNeedsANewFile) {
  ASSERT_TRUE(As("root").ResetPartition("p1").ok());
  ExpectVoid(*own_, "own");
  EXPECT_TRUE(shared_->HasLease());
  EXPECT_TRUE(JobOfBobGoesOn()) << job_->Err();
}

// The administrator lets the jobs go on: they keep what they have, and nothing can be added.
TEST_F(LostRightsTest, KeptJobsGoOnAndThatIsAll) {
  const Outcome removed =
      pod_.RunAs("root", {"vipu-admin", "remove", "user", "alice", "--keep-jobs"});
  ASSERT_EQ(removed.code, 0) << removed.err;
  vipu::Client root = As("root");
  ASSERT_TRUE(root.WaitUntilActive("p1").ok());
  EXPECT_EQ(root.GetPartitionStatus("p1")->created_by(), "root");
  EXPECT_TRUE(own_->HasLease() && shared_->HasLease());
  EXPECT_FALSE(As("alice").GetPartitionConfig("p1", 0).ok());
  // The IPU is taken as long as the job wants, and then it is root's.
  EXPECT_EQ(Keep("root", "p1")->Attach().error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(own_->Attach().error_code(), StatusCode::UNAUTHENTICATED);
  const auto file_of_root = Keep("root", "p1");
  EXPECT_TRUE(Within(kSoon, [&] { return file_of_root->Attach().ok(); }));
  EXPECT_TRUE(JobOfBobGoesOn()) << job_->Err();
}

// A call whose headers came while its user had the right, and whose message comes later.
class HeldCall {
 public:
  HeldCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
           const std::map<std::string, std::string>& headers)
      : stub_(channel) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    for (const auto& [name, value] : headers) context_.AddMetadata(name, value);
    call_ = stub_.PrepareCall(&context_, method, &queue_);
    call_->StartCall(nullptr);
    Next();
    // The controller says nothing before the message is there. But it takes calls in the order in
    // which their headers come on a connection, and answers a later one.
    const grpc::Status later = CallRaw(channel, "/vipuuser.VipuUser/ListPartitions", "", headers);
    EXPECT_TRUE(later.ok()) << later.error_message();
  }
  grpc::Status Send(const google::protobuf::Message& request) {
    const grpc::Slice slice(request.SerializeAsString());
    call_->WriteLast(grpc::ByteBuffer(&slice, 1), {}, nullptr);
    Next();
    grpc::ByteBuffer reply;
    do call_->Read(&reply, nullptr);
    while (Next());
    grpc::Status status;
    call_->Finish(&status, nullptr);
    Next();
    return status;
  }

 private:
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

TEST(HeldCallTest, ComesTooLateForALostRight) {
  SecurePod pod;
  ASSERT_TRUE(pod.ready());
  vipu::Client root(pod.ConfigOf("root"), std::chrono::seconds(20));
  vipuadmin::User boss;
  boss.set_id("boss");
  boss.set_admin(true);
  const auto key = root.CreateUser(boss);
  ASSERT_TRUE(key.ok()) << key.status();
  const auto hold = [&](const std::string& method, const std::string& user,
                        const std::string& user_key) {
    return std::make_unique<HeldCall>(
        base::Connect(pod.server(), base::Peer::kController, pod.Certificates("client")), method,
        std::map<std::string, std::string>{{"vipu-user-id", user}, {"vipu-access-key", user_key}});
  };
  const std::string fetch = "/vipuuser.VipuUser/GetPartitionIpuofConfig";
  const std::string create = "/vipuuser.VipuUser/CreatePartition";
  const auto admin = hold("/vipuadmin.VipuAdmin/CreateUser", "boss", *key);
  const auto old_key = hold(fetch, "alice", pod.key("alice"));
  const auto limited = hold(create, "bob", pod.key("bob"));
  const auto unharmed = hold(create, "eve", pod.key("eve"));
  ASSERT_TRUE(root.RemoveUser("boss").ok());
  vipuadmin::UpdateUserRequest renew, limit;
  renew.set_id("alice");
  renew.set_new_access_key(true);
  renew.set_jobs(vipuadmin::JOBS_GO_ON);
  ASSERT_TRUE(root.UpdateUser(renew).ok());
  limit.set_id("bob");
  limit.mutable_allocation_ids();
  ASSERT_TRUE(root.UpdateUser(limit).ok());

  vipuadmin::CreateUserRequest again;
  again.mutable_user()->set_id("back-door");
  again.mutable_user()->set_admin(true);
  EXPECT_EQ(admin->Send(again).error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_FALSE(root.GetUser("back-door").ok());
  vipuuser::GetPartitionIpuofConfigRequest p1;
  p1.set_partition_id("p1");
  EXPECT_EQ(old_key->Send(p1).error_code(), StatusCode::UNAUTHENTICATED);
  vipuuser::CreatePartitionRequest wanted;
  wanted.mutable_requirements()->set_size(1);
  wanted.mutable_requirements()->set_id("of-bob");
  wanted.mutable_requirements()->set_allocation_id("a1");
  EXPECT_EQ(limited->Send(wanted).error_code(), StatusCode::PERMISSION_DENIED);
  wanted.mutable_requirements()->set_id("of-eve");
  wanted.mutable_requirements()->set_allocation_id("a2");
  const grpc::Status made = unharmed->Send(wanted);
  EXPECT_TRUE(made.ok()) << made.error_message();
}

}  // namespace
}  // namespace vpod::testing
