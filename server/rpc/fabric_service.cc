#include "server/rpc/fabric_service.h"

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "device/base/grpc_connect.h"
#include "device/base/grpc_status.h"
#include "device/base/mutex.h"
#include "proto/fabric/v1/fabric.grpc.pb.h"

namespace vpod::rpc {
namespace {

using fabric::v1::JobEvent;
using fabric::v1::JobRequest;

// A peer that is silent is asked for a sign of life, so that one cut off is lost within seconds.
// Agents answer from gRPC's own threads, whatever their kernels do.
constexpr int kKeepaliveMs = 1000;

// One part's stream at the home. Lives until gRPC is done with it.
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
      return End(grpc::Status::OK);
    }
    if (part_ != nullptr) {
      part_->Request(request_);
    } else if (const grpc::Status status = Join(); !status.ok()) {
      return End(status);
    }
    request_.Clear();
    StartRead(&request_);
  }

  void OnWriteDone(bool ok) override {
    base::MutexLock lock(mutex_);
    writing_ = false;
    events_.pop_front();
    if (!ok) events_.clear();
    WriteNext();
  }

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
          if (const auto call = weak.lock()) call->Send(event);
        });
    if (!part.ok()) return base::ToGrpc(part.status());
    part_ = *std::move(part);
    return grpc::Status::OK;
  }

  void Send(const JobEvent& event) {
    base::MutexLock lock(mutex_);
    if (end_ != nullptr) return;
    events_.push_back(event);
    WriteNext();
  }
  void End(const grpc::Status& status) {
    base::MutexLock lock(mutex_);
    if (end_ == nullptr) end_ = std::make_unique<grpc::Status>(status);
    WriteNext();
  }
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return;
    if (!events_.empty()) {
      writing_ = true;
      StartWrite(&events_.front());
    } else if (end_ != nullptr) {
      finished_ = true;
      Finish(*end_);
    }
  }

  agent::Agent& agent_;
  std::shared_ptr<JoinJobCall> self_;
  JobRequest request_;  // of the reading thread, as part_
  std::shared_ptr<agent::RemotePart> part_;
  base::Mutex mutex_;
  std::deque<JobEvent> events_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);
};

class FabricService : public fabric::v1::Fabric::CallbackService {
 public:
  explicit FabricService(agent::Agent& agent) : agent_(agent) {}
  grpc::ServerBidiReactor<JobRequest, JobEvent>* JoinJob(grpc::CallbackServerContext*) override {
    return JoinJobCall::Start(agent_);
  }

 private:
  agent::Agent& agent_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeFabricService(agent::Agent& agent) {
  return std::make_unique<FabricService>(agent);
}

struct GrpcPeerGateway::Impl {
  // A part's stream towards its home.
  class Stream : public agent::HomeStream,
                 public grpc::ClientBidiReactor<JobRequest, JobEvent>,
                 public std::enable_shared_from_this<Stream> {
   public:
    Stream(Impl& impl, agent::HomeStreamEvents events) : impl_(impl), events_(std::move(events)) {}

    void Start(fabric::v1::Fabric::Stub& stub) {
      stub.async()->JoinJob(&context, this);
      StartRead(&event_);
      AddHold();  // for the writes that come from outside
      StartCall();
    }

    void Send(const JobRequest& request) override {
      base::MutexLock lock(mutex_);
      if (closing_) return;
      requests_.push_back(request);
      WriteNext();
    }
    void Close() override {
      base::MutexLock lock(mutex_);
      if (std::exchange(closing_, true)) return;
      WriteNext();
    }

    void OnReadDone(bool ok) override {
      if (!ok) {
        Close();
        return;
      }
      events_.on_event(event_);
      event_.Clear();
      StartRead(&event_);
    }
    void OnWriteDone(bool ok) override {
      base::MutexLock lock(mutex_);
      writing_ = false;
      requests_.pop_front();
      if (!ok) requests_.clear();
      WriteNext();
    }
    void OnDone(const grpc::Status& status) override {
      events_.on_end(base::FromGrpc(status));
      impl_.Ended(shared_from_this());
    }

    grpc::ClientContext context;

   private:
    void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      if (writing_ || done_writing_) return;
      if (!requests_.empty()) {
        writing_ = true;
        StartWrite(&requests_.front());
      } else if (closing_) {
        done_writing_ = true;
        StartWritesDone();
        RemoveHold();
      }
    }

    Impl& impl_;
    const agent::HomeStreamEvents events_;
    JobEvent event_;
    base::Mutex mutex_;
    std::deque<JobRequest> requests_ ABSL_GUARDED_BY(mutex_);
    bool writing_ ABSL_GUARDED_BY(mutex_) = false;
    bool closing_ ABSL_GUARDED_BY(mutex_) = false;
    bool done_writing_ ABSL_GUARDED_BY(mutex_) = false;
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
  impl_->tls = std::move(tls);
}
GrpcPeerGateway::~GrpcPeerGateway() { Stop(); }

std::shared_ptr<agent::HomeStream> GrpcPeerGateway::JoinJob(const std::string& endpoint,
                                                            agent::HomeStreamEvents events) {
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
