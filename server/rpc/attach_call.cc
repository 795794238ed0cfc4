#include "server/rpc/attach_call.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/grpc_status.h"
#include "device/base/text.h"
#include "server/agent/declared.h"
#include "server/rpc/refusal_log.h"

namespace vpod::rpc {

AttachCall::AttachCall(grpc::CallbackServerContext* context, PendingCalls& waiting,
                       agent::Agent& agent)
    : ClientCall(context),
      waiting_(waiting),
      agent_(agent),
      events_([this](const grpc::ByteBuffer* event) { StartWrite(event); },
              [this](const grpc::Status& status) { Finish(status); }) {}

AttachCall* AttachCall::Start(grpc::CallbackServerContext* context, PendingCalls& waiting,
                              agent::Agent& agent) {
  std::shared_ptr<AttachCall> call(new AttachCall(context, waiting, agent));
  call->OwnItself();
  call->Wait(waiting.silent, 1);
  call->StartRead(&call->bytes_);
  return call.get();
}

void AttachCall::EndStream(const grpc::Status& status) {
  AwaitReader(waiting_, kMessageBytes);  // what the client said of itself is kept as long
  events_.End(status);
}

// The client half-closed, died or was cut off.
void AttachCall::Closed() {
  std::string lease_id;
  std::weak_ptr<void> attach;
  bool detached, opened;
  {
    base::MutexLock lock(mutex_);
    closed_ = true;
    opened = opened_;
    attach = attach_;
    lease_id = lease_id_;
    detached = detached_;
  }
  if (!lease_id.empty()) agent_.Release(lease_id, !detached);
  agent_.GiveUp(attach);
  EndStream(opened ? grpc::Status::OK
                   : grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                  "an Attach stream begins with AttachOpen"));
}

void AttachCall::OnReadDone(bool ok) {
  if (!ok) return Closed();
  ipuof::v1::AttachRequest request;
  const absl::Status parsed = ParseMessage(bytes_, kMessageBytes, request);
  bytes_.Clear();
  bool first;
  std::string lease_id;
  {
    base::MutexLock lock(mutex_);
    first = !std::exchange(opened_, true);
    lease_id = lease_id_;
    if (parsed.ok() && request.has_detach()) detached_ = true;
  }
  if (first) EndWait();
  if (!parsed.ok()) {
    EndStream(base::ToGrpc(parsed));
  } else if (first && !request.has_open()) {
    EndStream(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                           "an Attach stream begins with AttachOpen"));
  } else if (!first && request.has_open()) {
    EndStream(
        grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "an Attach stream has one AttachOpen"));
  } else if (first) {
    Open(request.open());
  } else if (request.has_cancel()) {
    agent_.CancelRuns(lease_id);
  } else if (request.has_instance_ended()) {
    agent_.InstanceEnded(lease_id, request.instance_ended());
  }
  StartRead(&bytes_);
}

void AttachCall::Send(const ipuof::v1::AttachEvent& event) {
  if (events_.Send(SerializeMessage(event))) return;
  spdlog::warn("a client that does not read what it is told loses its lease");
  Cancel();
}

void AttachCall::Open(const ipuof::v1::AttachOpen& open) {
  process_ = open.process();
  const std::string& partition = open.partition_id();
  device_ = absl::StrCat(
      " partition=", base::IsHeaderWord(partition) ? partition : base::QuotedField(partition),
      " device=", open.device_id());
  const std::weak_ptr<AttachCall> weak = std::static_pointer_cast<AttachCall>(shared_from_this());
  agent::LeaseEvents events;
  events.on_event = [weak](const ipuof::v1::AttachEvent& event) {
    if (auto call = weak.lock()) call->Send(event);
  };
  events.on_revoked = [weak](const absl::Status& cause) {
    if (auto call = weak.lock()) call->EndStream(base::ToGrpc(cause));
  };
  events.on_admitted = [weak](const std::string& user) {
    const auto call = weak.lock();
    if (call == nullptr) return;
    base::MutexLock lock(call->mutex_);
    call->user_ = user;
  };
  const std::weak_ptr<void> attach = agent_.Attach(
      open, std::move(events), [weak, &agent = agent_](absl::StatusOr<ipuof::v1::Attached> result) {
        if (auto call = weak.lock()) {
          call->Attached(std::move(result));
        } else if (result.ok()) {
          agent.Release(result->lease_id(), /*lost=*/true);
        }
      });
  base::MutexLock lock(mutex_);
  attach_ = attach;
}

void AttachCall::Attached(absl::StatusOr<ipuof::v1::Attached> result) {
  if (!result.ok()) {
    std::string user;
    {
      base::MutexLock lock(mutex_);
      user = user_;
    }
    LogRefusal("attach", agent::LogText(process_, user) + device_, result.status());
    return EndStream(base::ToGrpc(result.status()));
  }
  bool closed, detached;
  {
    base::MutexLock lock(mutex_);
    closed = closed_;
    detached = detached_;
    lease_id_ = result->lease_id();
  }
  if (closed) return agent_.Release(result->lease_id(), !detached);  // went away while it waited
  ipuof::v1::AttachEvent event;
  *event.mutable_attached() = *std::move(result);
  Send(event);
}

void AttachCall::OnWriteDone(bool ok) { events_.Written(ok); }

void AttachCall::OnDone() {
  std::string lease_id;
  {
    base::MutexLock lock(mutex_);
    closed_ = true;
    lease_id = lease_id_;
  }
  // Does nothing when the lease has ended already.
  if (!lease_id.empty()) agent_.Release(lease_id, /*lost=*/true);
  End();
}

}  // namespace vpod::rpc
