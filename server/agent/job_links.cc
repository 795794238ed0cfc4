#include "server/agent/job_links.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/fabric/transport.h"

namespace vpod::agent {
namespace {

fabric::v1::JobFailure FailureOf(const absl::Status& cause, bool lost, uint32_t culprit) {
  fabric::v1::JobFailure failure;
  failure.set_cause(std::string(cause.message()));
  failure.set_code(static_cast<uint32_t>(cause.raw_code()));
  failure.set_lost(lost);
  failure.set_instance(culprit);
  return failure;
}

absl::Status CauseOf(const fabric::v1::JobFailure& failure) {
  const auto code = static_cast<absl::StatusCode>(failure.code());
  return absl::Status(code == absl::StatusCode::kOk ? absl::StatusCode::kUnknown : code,
                      failure.cause());
}

absl::Status TakeSecrets(fabric::Job& job, const fabric::v1::JobJoined& joined) {
  constexpr size_t kBytes = fabric::Transport::kTokenBytes;
  fabric::JobSecrets secrets{joined.token(), joined.arena_key()};
  if (secrets.token.size() != kBytes || secrets.arena_key.size() != kBytes)
    return absl::FailedPreconditionError("the job's coordinator gave it no token and no arena key");
  job.SetSecrets(std::move(secrets));
  return absl::OkStatus();
}

// By endpoint, this process's own as empty.
std::map<std::string, std::string> AddressesOf(const fabric::v1::JobGo& go,
                                               const std::string& here) {
  std::map<std::string, std::string> addresses;
  for (const fabric::v1::ProcessAddress& each : go.addresses())
    addresses[each.endpoint() == here ? "" : each.endpoint()] = each.address();
  return addresses;
}

}  // namespace

fabric::v1::JobFormed ToProto(const std::vector<fabric::JobPart>& parts, const std::string& here) {
  fabric::v1::JobFormed formed;
  for (const fabric::JobPart& each : parts) {
    fabric::v1::JobPart* part = formed.add_parts();
    part->set_instance(each.instance);
    part->set_part(each.part);
    part->set_process(each.process);
    part->set_endpoint(each.endpoint.empty() ? here : each.endpoint);
    part->set_local_socket(each.local_socket);
    part->set_replica_offset(each.replica_offset);
    part->set_local_replicas(each.local_replicas);
    part->mutable_units()->Add(each.units.begin(), each.units.end());
  }
  return formed;
}

std::vector<fabric::JobPart> FromProto(const fabric::v1::JobFormed& formed,
                                       const std::string& here) {
  std::vector<fabric::JobPart> parts;
  for (const fabric::v1::JobPart& each : formed.parts()) {
    parts.push_back({each.instance(),
                     each.part(),
                     each.replica_offset(),
                     each.local_replicas(),
                     each.process(),
                     {each.units().begin(), each.units().end()},
                     each.endpoint() == here ? "" : each.endpoint(),
                     each.local_socket()});
  }
  return parts;
}

std::string NameOfPeer(const vipuagent::AgentPartition& partition, const std::string& endpoint) {
  for (const vipuagent::Peer& peer : partition.peers()) {
    if (peer.endpoint() != endpoint || peer.agent_ids().empty()) continue;
    const bool one = peer.agent_ids_size() == 1;
    return absl::StrCat(one ? "agent " : "agents ", peer.agent_ids(0), one ? "" : " to ",
                        one ? "" : *peer.agent_ids().rbegin(), " at ", endpoint);
  }
  return absl::StrCat("the agent at ", endpoint);
}

PartLink::PartLink(std::weak_ptr<fabric::Job> job, Options options)
    : job_(std::move(job)), options_(std::move(options)) {}

void PartLink::Open(PeerGateway& gateway, const fabric::v1::JobJoin& join, Joined joined) {
  {
    base::MutexLock lock(mutex_);
    joined_ = std::move(joined);
  }
  CoordinatorStreamEvents events;
  events.on_event = [self = shared_from_this()](const fabric::v1::JobEvent& event) {
    self->OnEvent(event);
  };
  events.on_end = [self = shared_from_this()](const absl::Status& status) { self->OnEnd(status); };
  std::shared_ptr<CoordinatorStream> stream =
      gateway.JoinJob(options_.coordinator, std::move(events));
  fabric::v1::JobRequest request;
  *request.mutable_join() = join;
  stream->Send(request);
  bool opened = false, left = false;
  while (!opened) {
    std::vector<fabric::v1::JobRequest> early;
    {
      base::MutexLock lock(mutex_);
      early.swap(early_);
      opened = opened_ = early.empty();
      if (opened && !ended_) stream_ = stream;
      left = left_;
    }
    for (const fabric::v1::JobRequest& each : early) stream->Send(each);
  }
  if (left) stream->Close();
}

void PartLink::Send(const fabric::v1::JobRequest& request) {
  std::shared_ptr<CoordinatorStream> stream;
  {
    base::MutexLock lock(mutex_);
    if (!opened_) return early_.push_back(request);
    stream = stream_;
  }
  if (stream != nullptr) stream->Send(request);
}

void PartLink::Loaded(const std::string& executable_hash) {
  fabric::v1::JobRequest request;
  request.mutable_loaded()->set_executable_hash(executable_hash);
  Send(request);
}

void PartLink::Waits() {
  fabric::v1::JobRequest request;
  request.mutable_start();
  Send(request);
}

void PartLink::Ready(const std::string& address) {
  fabric::v1::JobRequest request;
  request.mutable_ready()->set_address(address);
  Send(request);
}

void PartLink::Alive() {
  fabric::v1::JobRequest request;
  request.mutable_alive();
  Send(request);
}

void PartLink::Leave(bool lost, uint64_t runs) {
  fabric::v1::JobRequest request;
  request.mutable_leave()->set_lost(lost);
  request.mutable_leave()->set_runs(runs);
  Send(request);
  std::shared_ptr<CoordinatorStream> stream;
  {
    base::MutexLock lock(mutex_);
    left_ = true;
    stream = stream_;
  }
  if (stream != nullptr) stream->Close();
}

void PartLink::Fail(const absl::Status& cause, bool lost, uint32_t culprit) {
  fabric::v1::JobRequest request;
  *request.mutable_failure() = FailureOf(cause, lost, culprit);
  Send(request);
}

void PartLink::Answer(const absl::Status& status) {
  Joined joined;
  {
    base::MutexLock lock(mutex_);
    joined = std::exchange(joined_, nullptr);
  }
  if (joined) joined(status);
}

void PartLink::OnEvent(const fabric::v1::JobEvent& event) {
  const std::shared_ptr<fabric::Job> job = job_.lock();
  if (job == nullptr) return;
  switch (event.event_case()) {
    case fabric::v1::JobEvent::kJoined:
      return Answer(TakeSecrets(*job, event.joined()));
    case fabric::v1::JobEvent::kFormed:
      return job->Complete(FromProto(event.formed(), options_.here));
    case fabric::v1::JobEvent::kGo:
      return job->Go(AddressesOf(event.go(), options_.here));
    case fabric::v1::JobEvent::kNotice:
      return options_.notice(event.notice().text());
    case fabric::v1::JobEvent::kLeft:
      return job->LeftElsewhere(event.left().instance(), event.left().runs());
    case fabric::v1::JobEvent::kFailed: {
      const absl::Status cause = CauseOf(event.failed());
      job->Fail(cause, event.failed().lost(), event.failed().instance());
      return Answer(cause);
    }
    case fabric::v1::JobEvent::EVENT_NOT_SET:
      return;
  }
}

void PartLink::OnEnd(const absl::Status& status) {
  std::shared_ptr<CoordinatorStream> ended;  // which holds us: both would stay for ever
  bool left;
  {
    base::MutexLock lock(mutex_);
    ended_ = true;
    ended.swap(stream_);
    left = left_;
  }
  // A join that still waits holds the lease, and with it us.
  if (left) return Answer(absl::CancelledError("the lease has ended"));
  const absl::Status cause =
      status.ok() || absl::IsUnavailable(status) || absl::IsCancelled(status)
          ? absl::UnavailableError(
                absl::StrCat(options_.coordinator_name, ", which keeps the job's record, was lost"))
          : status;
  if (const auto job = job_.lock()) job->Fail(cause);
  Answer(cause);
}

RemotePart::RemotePart(std::shared_ptr<fabric::Job> job, uint32_t instance, uint32_t part,
                       std::string endpoint, std::string name)
    : job_(std::move(job)),
      instance_(instance),
      part_(part),
      endpoint_(std::move(endpoint)),
      name_(std::move(name)) {}

absl::Status RemotePart::Join(const fabric::v1::JobJoin& join, const std::string& here,
                              SendEvent send) {
  fabric::JobMember member;
  member.instance = instance_;
  member.part = part_;
  member.replica_offset = join.member().replica_offset();
  member.local_replicas = join.member().local_replicas();
  member.process = join.process();
  member.units.assign(join.units().begin(), join.units().end());
  member.endpoint = endpoint_;
  member.local_socket = join.local_socket();
  member.notice = [send](const std::string& text) {
    fabric::v1::JobEvent event;
    event.mutable_notice()->set_text(text);
    send(event);
  };
  member.failed = [send](const absl::Status& cause, bool lost, uint32_t culprit) {
    fabric::v1::JobEvent event;
    *event.mutable_failed() = FailureOf(cause, lost, culprit);
    send(event);
  };
  member.formed = [send, here](const std::vector<fabric::JobPart>& parts) {
    fabric::v1::JobEvent event;
    *event.mutable_formed() = ToProto(parts, here);
    send(event);
  };
  member.go = [send, here](const std::map<std::string, std::string>& address_of) {
    fabric::v1::JobEvent event;
    event.mutable_go();
    for (const auto& [endpoint, address] : address_of) {
      fabric::v1::ProcessAddress* process = event.mutable_go()->add_addresses();
      process->set_endpoint(endpoint.empty() ? here : endpoint);
      process->set_address(address);
    }
    send(event);
  };
  member.left = [send](uint32_t instance, uint64_t runs) {
    fabric::v1::JobEvent event;
    event.mutable_left()->set_instance(instance);
    event.mutable_left()->set_runs(runs);
    send(event);
  };
  const fabric::JobShape shape{join.member().num_instances(), join.member().total_replicas(),
                               join.member().ipus_per_replica()};
  if (absl::Status status = job_->Join(shape, std::move(member)); !status.ok()) return status;
  const fabric::JobSecrets secrets = job_->secrets();
  fabric::v1::JobEvent joined;
  joined.mutable_joined()->set_token(secrets.token);
  joined.mutable_joined()->set_arena_key(secrets.arena_key);
  send(joined);
  return absl::OkStatus();
}

void RemotePart::Tick(std::chrono::steady_clock::time_point now,
                      std::chrono::steady_clock::duration patience) {
  {
    base::MutexLock lock(mutex_);
    if (now - heard_ < patience) return;
  }
  Gone();
}

void RemotePart::Heard(std::chrono::steady_clock::time_point now) {
  base::MutexLock lock(mutex_);
  heard_ = now;
}

void RemotePart::Request(const fabric::v1::JobRequest& request) {
  Heard(std::chrono::steady_clock::now());
  switch (request.message_case()) {
    case fabric::v1::JobRequest::kLoaded:
      return job_->Loaded(instance_, part_, request.loaded().executable_hash());
    case fabric::v1::JobRequest::kStart:
      return job_->WaitsElsewhere(instance_);
    case fabric::v1::JobRequest::kReady:
      return job_->ReadyElsewhere(instance_, part_, request.ready().address());
    case fabric::v1::JobRequest::kLeave: {
      {
        base::MutexLock lock(mutex_);
        left_ = true;
      }
      return job_->LeaveElsewhere(instance_, part_, request.leave().lost(), request.leave().runs());
    }
    case fabric::v1::JobRequest::kFailure:
      return job_->Fail(CauseOf(request.failure()), request.failure().lost(),
                        request.failure().instance());
    default:
      return;
  }
}

void RemotePart::Gone() {
  {
    base::MutexLock lock(mutex_);
    if (std::exchange(left_, true)) return;
  }
  job_->Fail(absl::UnavailableError(
                 absl::StrCat(name_, ", which runs instance ", instance_, ", was lost")),
             false, instance_);
  job_->LeaveElsewhere(instance_, part_, /*lost=*/true, /*runs=*/0);
}

}  // namespace vpod::agent
