#include "server/rpc/agent_services.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/grpc_status.h"
#include "device/program/executable.h"
#include "proto/ipuof/v1/ipuof.grpc.pb.h"
#include "proto/telemetry/v1/telemetry.grpc.pb.h"
#include "proto/vipu/v1/vipuagent.grpc.pb.h"
#include "server/rpc/attach_call.h"
#include "server/rpc/far_ends.h"
#include "server/rpc/hang_interceptor.h"

namespace vpod::rpc {
namespace {

using base::ToGrpc;

// Attach, Pulse and Run take as long as programs do and hold no thread; the others are short and
// synchronous.
using IpuofBase =
    ipuof::v1::Ipuof::WithCallbackMethod_Attach<ipuof::v1::Ipuof::WithCallbackMethod_Pulse<
        ipuof::v1::Ipuof::WithCallbackMethod_Run<ipuof::v1::Ipuof::Service>>>;

// Deletes itself when gRPC is done with it.
class PulseCall : public grpc::ServerUnaryReactor {
 public:
  PulseCall(agent::Agent& agent, const std::string& lease_id)
      : agent_(agent), lease_id_(lease_id), found_(agent.BeginPulse(lease_id)) {
    if (!found_) Finish({grpc::StatusCode::NOT_FOUND, "no such lease"});
  }
  void OnCancel() override {
    if (!found_) return;
    agent_.Release(lease_id_, /*lost=*/true);  // nothing, when the client had detached
    Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  agent::Agent& agent_;
  const std::string lease_id_;
  const bool found_;
};

// Writes what `read` gives from an offset on, portion by portion; a shorter one, which may be
// empty, is the last.
template <class Reply, class Read>
grpc::Status WritePortions(grpc::ServerWriter<Reply>& writer, const Read& read) {
  for (uint64_t at = 0;; at += agent::Agent::kReadPortion) {
    absl::StatusOr<std::string> portion = read(at);
    if (!portion.ok()) return ToGrpc(portion.status());
    const bool last = portion->size() < agent::Agent::kReadPortion;
    Reply reply;
    reply.set_data(*std::move(portion));
    if (!writer.Write(reply) || last) return grpc::Status::OK;
  }
}

template <class Reply>
grpc::Status Answer(absl::StatusOr<Reply> result, Reply* reply) {
  if (!result.ok()) return ToGrpc(result.status());
  *reply = *std::move(result);
  return grpc::Status::OK;
}

// Of a client's stream; one that cannot be parsed ends it as if nothing had come.
grpc::Status NoMessage() {
  return {grpc::StatusCode::INVALID_ARGUMENT, "the stream has no readable message"};
}

class IpuofService : public IpuofBase {
 public:
  explicit IpuofService(agent::Agent& agent) : agent_(agent) {}

  grpc::ServerBidiReactor<ipuof::v1::AttachRequest, ipuof::v1::AttachEvent>* Attach(
      grpc::CallbackServerContext*) override {
    return AttachCall::Start(agent_);
  }

  grpc::ServerUnaryReactor* Pulse(grpc::CallbackServerContext*,
                                  const ipuof::v1::PulseRequest* request,
                                  ipuof::v1::PulseReply*) override {
    return new PulseCall(agent_, request->lease_id());
  }

  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext* context,
                                const ipuof::v1::RunRequest* request,
                                ipuof::v1::RunReply* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    agent_.Run(request->lease_id(), request->program(), request->slot(),
               [reactor, reply](absl::StatusOr<base::Cycles> cycles) {
                 if (cycles.ok()) reply->set_cycles(cycles->value());
                 // Unavailable tells a client that this agent is gone; here another one is.
                 reactor->Finish(ToGrpc(absl::IsUnavailable(cycles.status())
                                            ? absl::AbortedError(cycles.status().message())
                                            : cycles.status()));
               });
    return reactor;
  }

  grpc::Status Load(grpc::ServerContext*, grpc::ServerReader<ipuof::v1::LoadRequest>* reader,
                    ipuof::v1::LoadReply* reply) override {
    const uint64_t limit = program::Limits().executable_bytes;
    ipuof::v1::LoadRequest request;
    std::string lease_id, bytes;
    engine::Reservation memory;  // of `bytes`
    uint64_t total = 0;
    for (bool first = true; reader->Read(&request); first = false) {
      if (first) {
        lease_id = request.lease_id();
        total = request.total_bytes();
        if (total > limit) {
          return ToGrpc(absl::InvalidArgumentError(absl::StrCat(
              "the executable has ", total, " bytes, at most ", limit, " are accepted")));
        }
        // Before memory is given to whoever asks.
        auto reserved = agent_.BeginLoad(lease_id, total);
        if (!reserved.ok()) return ToGrpc(reserved.status());
        memory = *std::move(reserved);
        bytes.reserve(total);
      }
      if (request.chunk().size() > total - bytes.size()) {
        return ToGrpc(absl::InvalidArgumentError(
            absl::StrCat("more than the announced ", total, " bytes were sent")));
      }
      bytes += request.chunk();
    }
    if (bytes.size() != total) {
      return ToGrpc(absl::InvalidArgumentError(
          absl::StrCat("the executable is truncated: ", bytes.size(), " of ", total, " bytes")));
    }
    return Answer(agent_.Load(lease_id, bytes), reply);
  }

  grpc::Status WriteStream(grpc::ServerContext*,
                           grpc::ServerReader<ipuof::v1::WriteStreamRequest>* reader,
                           ipuof::v1::WriteStreamReply*) override {
    ipuof::v1::WriteStreamRequest request;
    std::string lease_id;
    uint32_t slot = 0;
    bool any = false;
    for (bool first = true; reader->Read(&request); first = false) {
      if (first) lease_id = request.lease_id(), slot = request.slot();
      const absl::Status status =
          agent_.WriteStream(lease_id, slot, request.offset(), request.data());
      if (!status.ok()) return ToGrpc(status);
      any = true;
    }
    return any ? grpc::Status::OK : NoMessage();
  }

  grpc::Status ReadStream(grpc::ServerContext*, const ipuof::v1::ReadStreamRequest* request,
                          grpc::ServerWriter<ipuof::v1::ReadStreamReply>* writer) override {
    return WritePortions(*writer, [&](uint64_t at) {
      return agent_.ReadStream(request->lease_id(), request->slot(), request->offset() + at,
                               request->bytes() - at);
    });
  }

  grpc::Status WriteTensor(grpc::ServerContext*,
                           grpc::ServerReader<ipuof::v1::WriteTensorRequest>* reader,
                           ipuof::v1::WriteTensorReply*) override {
    ipuof::v1::WriteTensorRequest first, request;
    uint64_t offset = 0;
    bool any = false;
    for (bool is_first = true; reader->Read(&request); is_first = false) {
      if (is_first) {
        first = request;
        first.clear_data();
      }
      const absl::Status status =
          agent_.WriteVariable(first.lease_id(), first.variable(), first.all_replicas(),
                               first.replica(), offset, request.data());
      if (!status.ok()) return ToGrpc(status);
      offset += request.data().size();
      any = true;
    }
    return any ? grpc::Status::OK : NoMessage();
  }

  grpc::Status ReadTensor(grpc::ServerContext*, const ipuof::v1::ReadTensorRequest* request,
                          grpc::ServerWriter<ipuof::v1::ReadTensorReply>* writer) override {
    return WritePortions(*writer, [&](uint64_t at) {
      return agent_.ReadVariable(request->lease_id(), request->variable(), request->replica(), at);
    });
  }

  grpc::Status GetCounters(grpc::ServerContext*, const ipuof::v1::GetCountersRequest* request,
                           ipuof::v1::GetCountersReply* reply) override {
    const auto counters = agent_.Counters(request->lease_id());
    if (!counters.ok()) return ToGrpc(counters.status());
    for (base::Cycles cycles : *counters) reply->add_cycles(cycles.value());
    return grpc::Status::OK;
  }

  grpc::Status ResetDevice(grpc::ServerContext*, const ipuof::v1::ResetDeviceRequest* request,
                           ipuof::v1::ResetDeviceReply*) override {
    return ToGrpc(agent_.ResetDevice(request->partition_id(), request->fabric_key(),
                                     request->gcd_id(), request->device_id(),
                                     request->initialise_parity()));
  }

 private:
  agent::Agent& agent_;
};

class TelemetryService : public telemetry::v1::Telemetry::Service {
 public:
  explicit TelemetryService(agent::Agent& agent) : agent_(agent) {}
  grpc::Status GetPartitionTelemetry(grpc::ServerContext*,
                                     const telemetry::v1::GetPartitionTelemetryRequest* request,
                                     telemetry::v1::GetPartitionTelemetryReply* reply) override {
    return Answer(agent_.GetTelemetry(request->partition_id()), reply);
  }
  grpc::Status GetPartitionLinks(grpc::ServerContext*,
                                 const telemetry::v1::GetPartitionLinksRequest* request,
                                 telemetry::v1::GetPartitionLinksReply* reply) override {
    return Answer(agent_.GetLinks(request->partition_id()), reply);
  }

 private:
  agent::Agent& agent_;
};

class ManagementService : public vipuagent::VipuAgent::Service {
 public:
  explicit ManagementService(agent::Agent& agent) : agent_(agent) {}
  grpc::Status Configure(grpc::ServerContext*,
                         grpc::ServerReader<vipuagent::ConfigureRequest>* reader,
                         vipuagent::ConfigureReply*) override {
    vipuagent::ConfigureRequest whole, portion;
    whole.set_more_follow(true);
    while (reader->Read(&portion)) {
      whole.MergeFrom(portion);
      whole.set_more_follow(portion.more_follow());
    }
    if (whole.more_follow()) return {grpc::StatusCode::ABORTED, "the configuration breaks off"};
    return ToGrpc(agent_.Configure(whole));
  }
  grpc::Status DescribeMachine(grpc::ServerContext*,
                               const vipuagent::DescribeMachineRequest* request,
                               vipuagent::DescribeMachineReply* reply) override {
    return Answer(agent_.DescribeMachine(request->host()), reply);
  }
  grpc::Status ResetMachine(grpc::ServerContext*, const vipuagent::ResetMachineRequest* request,
                            vipuagent::ResetMachineReply*) override {
    return ToGrpc(agent_.ResetMachine(request->host()));
  }
  grpc::Status Inject(grpc::ServerContext*, const vipuagent::InjectRequest* request,
                      vipuagent::InjectReply*) override {
    return ToGrpc(agent_.Inject(*request));
  }
  grpc::Status TestLink(grpc::ServerContext*, const vipuagent::TestLinkRequest* request,
                        vipuagent::TestLinkReply* reply) override {
    return Answer(agent_.TestLink(*request), reply);
  }
  grpc::Status AnswerLink(grpc::ServerContext*, const vipuagent::AnswerLinkRequest* request,
                          vipuagent::AnswerLinkReply* reply) override {
    return Answer(agent_.AnswerLink(*request), reply);
  }

 private:
  agent::Agent& agent_;
};

}  // namespace

struct AgentServices::Impl {
  Impl(agent::Agent& agent, const std::optional<base::Tls>& tls)
      : agent(agent), far_ends(tls), ipuof(agent), telemetry(agent), management(agent) {}
  agent::Agent& agent;
  FarEnds far_ends;
  IpuofService ipuof;
  TelemetryService telemetry;
  ManagementService management;
};

AgentServices::AgentServices(agent::Agent& agent, const std::optional<base::Tls>& tls)
    : impl_(std::make_unique<Impl>(agent, tls)) {
  agent.ask_far_end = [far_ends = &impl_->far_ends](const std::string& endpoint,
                                                    const vipuagent::AnswerLinkRequest& request) {
    return far_ends->Ask(endpoint, request);
  };
}
AgentServices::~AgentServices() { impl_->agent.ask_far_end = nullptr; }

void AgentServices::RegisterOn(grpc::ServerBuilder& builder) {
  builder.RegisterService(&impl_->ipuof);
  builder.RegisterService(&impl_->telemetry);
  builder.RegisterService(&impl_->management);
  HoldCallsAt(impl_->agent.gate(), builder);
}

}  // namespace vpod::rpc
