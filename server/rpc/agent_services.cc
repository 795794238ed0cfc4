#include "server/rpc/agent_services.h"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/grpc_status.h"
#include "device/base/status.h"
#include "device/program/executable.h"
#include "proto/ipuof/v1/ipuof.grpc.pb.h"
#include "proto/telemetry/v1/telemetry.grpc.pb.h"
#include "proto/vipu/v1/vipuagent.grpc.pb.h"
#include "server/rpc/attach_call.h"
#include "server/rpc/client_calls.h"
#include "server/rpc/far_ends.h"
#include "server/rpc/hang_interceptor.h"
#include "server/rpc/incoming_configuration.h"
#include "server/rpc/measured_service.h"
#include "server/rpc/silent_streams.h"

namespace vpod::rpc {
namespace {

using base::ToGrpc;

// No call of a client holds a thread or has its message parsed by gRPC. Calls of the controller and
// of other agents may do both.
using IpuofBase =
    ipuof::v1::Ipuof::WithRawCallbackMethod_Attach<ipuof::v1::Ipuof::WithRawCallbackMethod_Pulse<
        ipuof::v1::Ipuof::WithRawCallbackMethod_Load<ipuof::v1::Ipuof::WithRawCallbackMethod_Run<
            ipuof::v1::Ipuof::WithRawCallbackMethod_WriteStream<
                ipuof::v1::Ipuof::WithRawCallbackMethod_ReadStream<
                    ipuof::v1::Ipuof::WithRawCallbackMethod_WriteTensor<
                        ipuof::v1::Ipuof::WithRawCallbackMethod_ReadTensor<
                            ipuof::v1::Ipuof::WithRawCallbackMethod_GetCounters<
                                ipuof::v1::Ipuof::WithRawCallbackMethod_ResetDevice<
                                    ipuof::v1::Ipuof::Service>>>>>>>>>>;
using TelemetryBase = telemetry::v1::Telemetry::WithRawCallbackMethod_GetPartitionTelemetry<
    telemetry::v1::Telemetry::WithRawCallbackMethod_GetPartitionLinks<
        telemetry::v1::Telemetry::Service>>;

using Bytes = grpc::ByteBuffer;
using Context = grpc::CallbackServerContext;

template <class Reply>
grpc::Status Answer(absl::StatusOr<Reply> result, Reply* reply) {
  if (!result.ok()) return ToGrpc(result.status());
  *reply = *std::move(result);
  return grpc::Status::OK;
}

absl::Status NoMessage() {
  return absl::InvalidArgumentError("the stream has no readable message");
}

// Ends the lease when its connection breaks.
class PulseCall : public grpc::ServerUnaryReactor, public ClientCall {
 public:
  static PulseCall* Start(Context* context, PendingCalls& waiting, agent::Agent& agent,
                          const Bytes& bytes) {
    std::shared_ptr<PulseCall> call(new PulseCall(context, waiting, agent));
    call->OwnItself();
    ipuof::v1::PulseRequest request;
    absl::Status status = ParseMessage(bytes, kMessageBytes, request);
    if (status.ok() && !agent.BeginPulse(request.lease_id()))
      status = absl::NotFoundError("no such lease, or it has a Pulse already");
    if (status.ok()) {
      call->lease_id_ = request.lease_id();
    } else {
      call->AwaitReader(waiting);
      call->Finish(ToGrpc(status));
    }
    return call.get();
  }
  void OnCancel() override {
    if (lease_id_.empty()) return;
    agent_.Release(lease_id_, /*lost=*/true);  // nothing, when the client had detached
    AwaitReader(waiting_);
    Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { End(); }

 private:
  PulseCall(Context* context, PendingCalls& waiting, agent::Agent& agent)
      : ClientCall(context), waiting_(waiting), agent_(agent) {}
  PendingCalls& waiting_;
  agent::Agent& agent_;
  std::string lease_id_;  // empty: there was no such lease
};

// Loads that are worked on, each on a thread of its own: a lease has one at a time, and one that
// takes long is in nobody's way.
class Loaders {
 public:
  ~Loaders() {
    base::MutexLock lock(mutex_);
    lock.Wait(changed_, [this] { return running_ == 0; });
  }
  // ResourceExhausted if there is no thread for it.
  absl::Status Run(std::function<void()> load) {
    {
      base::MutexLock lock(mutex_);
      ++running_;
    }
    try {
      std::thread([this, load = std::move(load)]() mutable {
        load();
        load = nullptr;  // what it holds may be of use to others
        End();
      }).detach();
    } catch (const std::system_error& error) {
      End();
      return absl::ResourceExhaustedError(
          absl::StrCat("no thread to load the executable: ", error.what()));
    }
    return absl::OkStatus();
  }

 private:
  void End() {
    base::MutexLock lock(mutex_);
    --running_;
    changed_.notify_all();
  }

  base::Mutex mutex_;
  std::condition_variable changed_;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
};

class LoadCall : public UploadCall<ipuof::v1::LoadRequest> {
 public:
  static LoadCall* Start(Context* context, PendingCalls& waiting, Bytes* reply, agent::Agent& agent,
                         Loaders& loaders) {
    std::shared_ptr<LoadCall> call(new LoadCall(context, waiting, reply, agent, loaders));
    call->UploadCall::Start();
    return call.get();
  }

 private:
  LoadCall(Context* context, PendingCalls& waiting, Bytes* reply, agent::Agent& agent,
           Loaders& loaders)
      : UploadCall(context, waiting, reply), agent_(agent), loaders_(loaders) {}

  absl::Status Take(ipuof::v1::LoadRequest& request) override {
    if (turn_ == nullptr) {
      const program::Limits limits;
      lease_id_ = request.lease_id();
      origin_bytes_ = request.origin_bytes();
      options_.check_finite = request.check_finite();
      options_.sharing = !request.no_sharing();
      VPOD_RETURN_IF_ERROR(
          CheckSize("the executable", request.total_bytes(), limits.executable_bytes));
      VPOD_RETURN_IF_ERROR(CheckSize("the table of origins", origin_bytes_, limits.origin_bytes));
      total_ = request.total_bytes() + origin_bytes_;
      // Before memory is given to the caller.
      VPOD_ASSIGN_OR_RETURN(turn_, agent_.BeginLoad(lease_id_, total_));
      bytes_.reserve(total_);
    }
    if (request.chunk().size() > total_ - bytes_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("more than the announced ", total_, " bytes were sent"));
    }
    bytes_ += request.chunk();
    return absl::OkStatus();
  }

  static absl::Status CheckSize(absl::string_view what, uint64_t bytes, uint64_t limit) {
    if (bytes <= limit) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has ", bytes, " bytes, at most ", limit, " are accepted"));
  }

  void Complete() override {
    if (turn_ == nullptr) return Refuse(NoMessage());
    if (bytes_.size() != total_) {
      return Refuse(absl::InvalidArgumentError(
          absl::StrCat("the executable is truncated: ", bytes_.size(), " of ", total_, " bytes")));
    }
    const absl::Status started = loaders_.Run([this, self = shared_from_this()] {
      auto result = Load();
      GiveBack();
      if (!result.ok()) return Answer(ToGrpc(result.status()));
      *reply_ = SerializeMessage(*result);
      Answer(grpc::Status::OK);
    });
    if (!started.ok()) Refuse(started);
  }

  absl::StatusOr<ipuof::v1::LoadReply> Load() {
    const absl::string_view bytes = bytes_;
    const size_t executable = total_ - origin_bytes_;
    try {
      return agent_.Load(lease_id_, bytes.substr(0, executable), bytes.substr(executable),
                         options_);
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError("the host has no memory left to load the executable");
    }
  }

  void GiveBack() override {
    bytes_ = std::string();
    turn_ = nullptr;
  }

  agent::Agent& agent_;
  Loaders& loaders_;
  std::shared_ptr<void> turn_;
  std::string lease_id_, bytes_;  // the executable and its origins
  uint64_t total_ = 0, origin_bytes_ = 0;
  agent::Agent::LoadOptions options_;
};

class WriteStreamCall : public UploadCall<ipuof::v1::WriteStreamRequest> {
 public:
  static WriteStreamCall* Start(Context* context, PendingCalls& waiting, Bytes* reply,
                                agent::Agent& agent) {
    std::shared_ptr<WriteStreamCall> call(new WriteStreamCall(context, waiting, reply, agent));
    call->UploadCall::Start();
    return call.get();
  }

 private:
  WriteStreamCall(Context* context, PendingCalls& waiting, Bytes* reply, agent::Agent& agent)
      : UploadCall(context, waiting, reply), agent_(agent) {}
  absl::Status Take(ipuof::v1::WriteStreamRequest& request) override {
    if (!std::exchange(any_, true)) lease_id_ = request.lease_id(), slot_ = request.slot();
    return agent_.WriteStream(lease_id_, slot_, request.offset(), request.data());
  }
  void Complete() override {
    *reply_ = SerializeMessage(ipuof::v1::WriteStreamReply());
    Answer(any_ ? grpc::Status::OK : ToGrpc(NoMessage()));
  }
  agent::Agent& agent_;
  std::string lease_id_;
  uint32_t slot_ = 0;
  bool any_ = false;
};

class WriteTensorCall : public UploadCall<ipuof::v1::WriteTensorRequest> {
 public:
  static WriteTensorCall* Start(Context* context, PendingCalls& waiting, Bytes* reply,
                                agent::Agent& agent) {
    std::shared_ptr<WriteTensorCall> call(new WriteTensorCall(context, waiting, reply, agent));
    call->UploadCall::Start();
    return call.get();
  }

 private:
  WriteTensorCall(Context* context, PendingCalls& waiting, Bytes* reply, agent::Agent& agent)
      : UploadCall(context, waiting, reply), agent_(agent) {}
  absl::Status Take(ipuof::v1::WriteTensorRequest& request) override {
    const std::string data = std::move(*request.mutable_data());
    if (!std::exchange(any_, true)) {
      request.clear_data();
      first_ = std::move(request);
    }
    VPOD_RETURN_IF_ERROR(agent_.WriteVariable(first_.lease_id(), first_.variable(),
                                              first_.all_replicas(), first_.replica(), offset_,
                                              data));
    offset_ += data.size();
    return absl::OkStatus();
  }
  void Complete() override {
    *reply_ = SerializeMessage(ipuof::v1::WriteTensorReply());
    Answer(any_ ? grpc::Status::OK : ToGrpc(NoMessage()));
  }
  agent::Agent& agent_;
  ipuof::v1::WriteTensorRequest first_;  // without its data
  uint64_t offset_ = 0;
  bool any_ = false;
};

class IpuofService : public IpuofBase {
 public:
  IpuofService(agent::Agent& agent, PendingCalls& waiting) : agent_(agent), waiting_(waiting) {}

  grpc::ServerBidiReactor<Bytes, Bytes>* Attach(Context* context) override {
    return AttachCall::Start(context, waiting_, agent_);
  }
  grpc::ServerUnaryReactor* Pulse(Context* context, const Bytes* bytes, Bytes*) override {
    return PulseCall::Start(context, waiting_, agent_, *bytes);
  }
  grpc::ServerReadReactor<Bytes>* Load(Context* context, Bytes* reply) override {
    return LoadCall::Start(context, waiting_, reply, agent_, loaders_);
  }
  grpc::ServerUnaryReactor* Run(Context* context, const Bytes* bytes, Bytes* reply) override {
    const auto call = UnaryCall::Make(context, waiting_, reply);
    ipuof::v1::RunRequest request;
    if (const absl::Status parsed = ParseMessage(*bytes, kMessageBytes, request); !parsed.ok()) {
      call->Answer(parsed);
      return call.get();
    }
    agent_.Run(request.lease_id(), request.program(), request.slot(),
               [call](absl::StatusOr<base::Cycles> cycles) {
                 // Unavailable tells a client that this agent is gone; here another one is.
                 if (absl::IsUnavailable(cycles.status()))
                   return call->Answer(absl::AbortedError(cycles.status().message()));
                 if (!cycles.ok()) return call->Answer(cycles.status());
                 ipuof::v1::RunReply run;
                 run.set_cycles(cycles->value());
                 call->Answer(run);
               });
    return call.get();
  }
  grpc::ServerReadReactor<Bytes>* WriteStream(Context* context, Bytes* reply) override {
    return WriteStreamCall::Start(context, waiting_, reply, agent_);
  }
  grpc::ServerWriteReactor<Bytes>* ReadStream(Context* context, const Bytes* bytes) override {
    ipuof::v1::ReadStreamRequest request;
    const absl::Status parsed = ParseMessage(*bytes, kMessageBytes, request);
    return DownloadCall<ipuof::v1::ReadStreamReply>::Start(
        context, waiting_, agent::Agent::kReadPortion,
        [this, parsed, request](uint64_t at) -> absl::StatusOr<std::string> {
          VPOD_RETURN_IF_ERROR(parsed);
          return agent_.ReadStream(request.lease_id(), request.slot(), request.offset() + at,
                                   request.bytes() - at);
        });
  }
  grpc::ServerReadReactor<Bytes>* WriteTensor(Context* context, Bytes* reply) override {
    return WriteTensorCall::Start(context, waiting_, reply, agent_);
  }
  grpc::ServerWriteReactor<Bytes>* ReadTensor(Context* context, const Bytes* bytes) override {
    ipuof::v1::ReadTensorRequest request;
    const absl::Status parsed = ParseMessage(*bytes, kMessageBytes, request);
    return DownloadCall<ipuof::v1::ReadTensorReply>::Start(
        context, waiting_, agent::Agent::kReadPortion,
        [this, parsed, request](uint64_t at) -> absl::StatusOr<std::string> {
          VPOD_RETURN_IF_ERROR(parsed);
          return agent_.ReadVariable(request.lease_id(), request.variable(), request.replica(), at);
        });
  }
  grpc::ServerUnaryReactor* GetCounters(Context* context, const Bytes* bytes,
                                        Bytes* reply) override {
    using Reply = ipuof::v1::GetCountersReply;
    return AnswerAtOnce<ipuof::v1::GetCountersRequest>(
        context, waiting_, bytes, reply, [this](const auto& request) -> absl::StatusOr<Reply> {
          VPOD_ASSIGN_OR_RETURN(const auto counters, agent_.Counters(request.lease_id()));
          Reply answer;
          for (base::Cycles cycles : counters) answer.add_cycles(cycles.value());
          return answer;
        });
  }
  grpc::ServerUnaryReactor* ResetDevice(Context* context, const Bytes* bytes,
                                        Bytes* reply) override {
    using Reply = ipuof::v1::ResetDeviceReply;
    return AnswerAtOnce<ipuof::v1::ResetDeviceRequest>(
        context, waiting_, bytes, reply, [this](const auto& request) -> absl::StatusOr<Reply> {
          VPOD_RETURN_IF_ERROR(agent_.ResetDevice(request.partition_id(), request.fabric_key(),
                                                  request.gcd_id(), request.device_id(),
                                                  request.initialise_parity()));
          return Reply();
        });
  }

 private:
  agent::Agent& agent_;
  PendingCalls& waiting_;
  Loaders loaders_;
};

class TelemetryService : public TelemetryBase {
 public:
  TelemetryService(agent::Agent& agent, PendingCalls& waiting) : agent_(agent), waiting_(waiting) {}
  grpc::ServerUnaryReactor* GetPartitionTelemetry(Context* context, const Bytes* bytes,
                                                  Bytes* reply) override {
    return AnswerAtOnce<telemetry::v1::GetPartitionTelemetryRequest>(
        context, waiting_, bytes, reply,
        [this](const auto& request) { return agent_.GetTelemetry(request.partition_id()); });
  }
  grpc::ServerUnaryReactor* GetPartitionLinks(Context* context, const Bytes* bytes,
                                              Bytes* reply) override {
    return AnswerAtOnce<telemetry::v1::GetPartitionLinksRequest>(
        context, waiting_, bytes, reply,
        [this](const auto& request) { return agent_.GetLinks(request.partition_id()); });
  }

 private:
  agent::Agent& agent_;
  PendingCalls& waiting_;
};

// Without TLS everybody reaches these calls too.
class ManagementService : public MeasuredService {
 public:
  // `silent` has its configurations that wait for their senders.
  ManagementService(agent::Agent& agent, MessageMemory& memory, SilentStreams& silent)
      : MeasuredService(vipuagent::VipuAgent::service_full_name(), memory),
        agent_(agent),
        silent_(silent) {
    AddMethod(new grpc::internal::RpcServiceMethod(
        "/vipuagent.VipuAgent/Configure", grpc::internal::RpcMethod::CLIENT_STREAMING,
        new grpc::internal::ClientStreamingHandler<ManagementService, Bytes,
                                                   vipuagent::ConfigureReply>(
            &ManagementService::Configure, this)));
    Add("DescribeMachine", kWords, &ManagementService::DescribeMachine);
    Add("ResetMachine", kWords, &ManagementService::ResetMachine);
    Add("Inject", kWords, &ManagementService::Inject);
    Add("TestLink", kWords, &ManagementService::TestLink);
    Add("AnswerLink", kWords, &ManagementService::AnswerLink);
  }
  grpc::Status Configure(grpc::ServerContext* context, grpc::ServerReader<Bytes>* reader,
                         vipuagent::ConfigureReply* reply) {
    IncomingConfiguration incoming(agent_.boot_id());
    Bytes portion;
    while (!incoming.IsWhole() && silent_.Read(*context, *reader, &portion)) {
      if (const absl::Status added = incoming.Add(portion); !added.ok()) return ToGrpc(added);
      portion.Clear();
    }
    const auto whole = incoming.Take();
    if (!whole.ok()) return ToGrpc(whole.status());
    const absl::Status configured = agent_.Configure(*whole);
    if (absl::IsAlreadyExists(configured)) {
      *reply->mutable_later() = agent_.DescribeController();
      return grpc::Status::OK;
    }
    if (!configured.ok()) return ToGrpc(configured);
    agent_.AwaitRelease();
    for (vipuagent::ReleasingIpu& ipu : agent_.Releasing())
      *reply->add_releasing() = std::move(ipu);
    return grpc::Status::OK;
  }
  grpc::Status DescribeMachine(grpc::ServerContext*,
                               const vipuagent::DescribeMachineRequest* request,
                               vipuagent::DescribeMachineReply* reply) {
    return Answer(agent_.DescribeMachine(request->host()), reply);
  }
  grpc::Status ResetMachine(grpc::ServerContext*, const vipuagent::ResetMachineRequest* request,
                            vipuagent::ResetMachineReply*) {
    return ToGrpc(agent_.ResetMachine(request->host()));
  }
  grpc::Status Inject(grpc::ServerContext*, const vipuagent::InjectRequest* request,
                      vipuagent::InjectReply*) {
    return ToGrpc(agent_.Inject(*request));
  }
  grpc::Status TestLink(grpc::ServerContext*, const vipuagent::TestLinkRequest* request,
                        vipuagent::TestLinkReply* reply) {
    return Answer(agent_.TestLink(*request), reply);
  }
  grpc::Status AnswerLink(grpc::ServerContext*, const vipuagent::AnswerLinkRequest* request,
                          vipuagent::AnswerLinkReply* reply) {
    return Answer(agent_.AnswerLink(*request), reply);
  }

 private:
  agent::Agent& agent_;
  SilentStreams& silent_;
};

// A sender that means well has all messages of a configuration at hand, and gives up itself when
// five seconds a message are over (agent_gateway.cc).
constexpr uint64_t kMostSilent = 64;
constexpr std::chrono::seconds kSilence{10};

}  // namespace

struct AgentServices::Impl {
  Impl(agent::Agent& agent, const std::optional<base::Tls>& tls)
      : agent(agent),
        far_ends(tls),
        ipuof(agent, waiting),
        telemetry(agent, waiting),
        management(agent, memory, *silent),
        ticker(agent.executors().Every(
            std::chrono::seconds(1), [silent = silent] { silent->EndThoseOlderThan(kSilence); })) {}
  agent::Agent& agent;
  FarEnds far_ends;
  PendingCalls waiting;
  MessageMemory memory{MessageMemory::kSmallBytes};
  // The ticker's task may outlive the rest.
  const std::shared_ptr<SilentStreams> silent = std::make_shared<SilentStreams>(kMostSilent);
  IpuofService ipuof;
  TelemetryService telemetry;
  ManagementService management;
  const std::shared_ptr<void> ticker;
};

AgentServices::AgentServices(agent::Agent& agent, const std::optional<base::Tls>& tls)
    : impl_(std::make_unique<Impl>(agent, tls)) {
  agent.ask_far_end = [far_ends = &impl_->far_ends](const std::string& endpoint,
                                                    const vipuagent::AnswerLinkRequest& request) {
    return far_ends->Ask(endpoint, request);
  };
}
AgentServices::~AgentServices() { impl_->agent.ask_far_end = nullptr; }

void AgentServices::RegisterOn(grpc::ServerBuilder& builder, BoundedListener* listener) {
  builder.RegisterService(&impl_->ipuof);
  builder.RegisterService(&impl_->telemetry);
  builder.RegisterService(&impl_->management);
  // gRPC would unpack a message before it looks at its size.
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP})
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  HoldCallsAt(impl_->agent.gate(), builder, listener);
}

}  // namespace vpod::rpc
