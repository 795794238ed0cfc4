#include "server/rpc/fabric_service.h"

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <map>
#include <set>
#include <utility>

#include "device/base/grpc_connect.h"
#include "device/base/grpc_status.h"
#include "device/base/mutex.h"
#include "proto/fabric/v1/fabric.grpc.pb.h"
#include "server/rpc/grpc_transport.h"
#include "server/rpc/write_queue.h"

namespace vpod::rpc {
namespace {

using fabric::v1::JobEvent;
using fabric::v1::JobRequest;

// A silent peer is sent keepalives, so that one that is cut off is lost within seconds.
// Agents answer from gRPC's own threads, whatever their kernels do.
constexpr int kKeepaliveMs = 1000;

// One part's stream at the coordinator. Lives until gRPC is done with it.
class JoinJobCall : public grpc::ServerBidiReactor<JobRequest, JobEvent>,
                    public std::enable_shared_from_this<JoinJobCall> {
 public:
  static JoinJobCall* Start(agent::Agent& agent) {
    std::shared_ptr<JoinJobCall> call(new JoinJobCall(agent));
    call->self_ = call;
    call->StartRead(&call->request_);
    return call.get();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      if (part_ != nullptr) part_->Gone();
      return events_.End(grpc::Status::OK);
    }
    if (part_ != nullptr) {
      part_->Request(request_);
    } else if (const grpc::Status status = Join(); !status.ok()) {
      return events_.End(status);
    }
    request_.Clear();
    StartRead(&request_);
  }

  void OnWriteDone(bool ok) override { events_.Written(ok); }

  void OnDone() override {
    if (part_ != nullptr) {
      part_->Gone();
      agent_.RemotePartEnded(*part_);
    }
    self_.reset();
  }

 private:
  explicit JoinJobCall(agent::Agent& agent) : agent_(agent) {}

  grpc::Status Join() {
    if (!request_.has_join()) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "a JoinJob stream begins with JobJoin"};
    }
    auto part =
        agent_.JoinRemote(request_.join(), [weak = weak_from_this()](const JobEvent& event) {
          if (const auto call = weak.lock()) call->events_.Send(event);
        });
    if (!part.ok()) return base::ToGrpc(part.status());
    part_ = *std::move(part);
    return grpc::Status::OK;
  }

  agent::Agent& agent_;
  std::shared_ptr<JoinJobCall> self_;
  JobRequest request_;  // of the reading thread, as part_
  std::shared_ptr<agent::RemotePart> part_;
  WriteQueue<JobEvent> events_{[this](const JobEvent* event) { StartWrite(event); },
                               [this](const grpc::Status& status) { Finish(status); }};
};

// Cargo comes as bytes: parsing it as a message would copy it twice more.
using FabricBase = fabric::v1::Fabric::WithCallbackMethod_JoinJob<
    fabric::v1::Fabric::WithRawCallbackMethod_Carry<fabric::v1::Fabric::Service>>;

class FabricService : public FabricBase {
 public:
  explicit FabricService(agent::Agent& agent) : agent_(agent) {}
  grpc::ServerBidiReactor<JobRequest, JobEvent>* JoinJob(grpc::CallbackServerContext*) override {
    return JoinJobCall::Start(agent_);
  }
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Carry(
      grpc::CallbackServerContext*) override {
    return TakeCargo([this](absl::string_view header, size_t bytes) {
      return agent_.OnFabricMessage(header, bytes);
    });
  }

 private:
  agent::Agent& agent_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeFabricService(agent::Agent& agent) {
  return std::make_unique<FabricService>(agent);
}

struct GrpcPeerGateway::Impl {
  // A part's stream towards its coordinator.
  class Stream : public agent::CoordinatorStream,
                 public grpc::ClientBidiReactor<JobRequest, JobEvent>,
                 public std::enable_shared_from_this<Stream> {
   public:
    Stream(Impl& impl, agent::CoordinatorStreamEvents events)
        : impl_(impl), events_(std::move(events)) {}

    void Start(fabric::v1::Fabric::Stub& stub) {
      stub.async()->JoinJob(&context, this);
      StartRead(&event_);
      AddHold();  // for the writes that come from outside
      StartCall();
    }

    void Send(const JobRequest& request) override { requests_.Send(request); }
    void Close() override { requests_.End(grpc::Status::OK); }

    void OnReadDone(bool ok) override {
      if (!ok) {
        Close();
        return;
      }
      events_.on_event(event_);
      event_.Clear();
      StartRead(&event_);
    }
    void OnWriteDone(bool ok) override { requests_.Written(ok); }
    void OnDone(const grpc::Status& status) override {
      events_.on_end(base::FromGrpc(status));
      impl_.Ended(shared_from_this());
    }

    grpc::ClientContext context;

   private:
    Impl& impl_;
    const agent::CoordinatorStreamEvents events_;
    JobEvent event_;
    WriteQueue<JobRequest> requests_{[this](const JobRequest* request) { StartWrite(request); },
                                     [this](const grpc::Status&) {
                                       StartWritesDone();
                                       RemoveHold();
                                     }};
  };

  void Ended(const std::shared_ptr<Stream>& stream) {
    base::MutexLock lock(mutex);
    streams.erase(stream);
    changed.notify_all();
  }

  std::optional<base::Tls> tls;
  base::Mutex mutex;
  std::condition_variable changed;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  std::map<std::string, std::shared_ptr<fabric::v1::Fabric::Stub>> stubs ABSL_GUARDED_BY(mutex);
  std::set<std::shared_ptr<Stream>> streams ABSL_GUARDED_BY(mutex);
};

GrpcPeerGateway::GrpcPeerGateway(std::optional<base::Tls> tls) : impl_(std::make_unique<Impl>()) {
  base::KeepCallbackThreads();
  impl_->tls = std::move(tls);
}
GrpcPeerGateway::~GrpcPeerGateway() { Stop(); }

std::shared_ptr<agent::CoordinatorStream> GrpcPeerGateway::JoinJob(
    const std::string& endpoint, agent::CoordinatorStreamEvents events) {
  auto stream = std::make_shared<Impl::Stream>(*impl_, std::move(events));
  std::shared_ptr<fabric::v1::Fabric::Stub> stub;
  {
    base::MutexLock lock(impl_->mutex);
    auto& entry = impl_->stubs[endpoint];
    if (entry == nullptr) {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
      arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 3 * kKeepaliveMs);
      arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
      entry = fabric::v1::Fabric::NewStub(
          base::Connect(endpoint, base::Peer::kAgent, impl_->tls, arguments));
    }
    stub = entry;
    impl_->streams.insert(stream);
    if (impl_->stopping) stream->context.TryCancel();
  }
  stream->Start(*stub);
  return stream;
}

void GrpcPeerGateway::Stop() {
  base::MutexLock lock(impl_->mutex);
  impl_->stopping = true;
  for (const auto& stream : impl_->streams) stream->context.TryCancel();
  lock.Wait(impl_->changed, [this] { return impl_->streams.empty(); });
}

}  // namespace vpod::rpc
