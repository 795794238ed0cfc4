#include "client/ipuof/lease.h"

#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <future>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/ipuof/agent_connection.h"
#include "client/ipuof/gcda_options.h"
#include "client/ipuof/program_name.h"
#include "client/ipuof/run_channel.h"
#include "client/vipu/subset.h"
#include "device/base/connection_failure.h"
#include "device/base/device_use.h"
#include "device/base/file.h"
#include "device/base/grpc_connect.h"
#include "device/base/grpc_status.h"
#include "device/base/mutex.h"
#include "device/base/status.h"
#include "device/base/unique_fd.h"
#include "device/shm/local_socket.h"

namespace vpod::ipuof {
namespace {

using base::FromGrpc;

constexpr size_t kChunk = 1 << 20;
// With an agent of this host: among a thousand clients that start at once it has its turn late.
constexpr std::chrono::seconds kLocalPatience(15);

// Seconds since 1970 at which this process started: proc(5), field 22 of stat in ticks since boot.
int64_t ProcessStartTime() {
  std::ifstream uptime("/proc/uptime");
  const std::string text = base::ReadFile("/proc/self/stat");
  const size_t name_end = text.rfind(')');
  std::istringstream fields(name_end == std::string::npos ? "" : text.substr(name_end + 2));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double ticks = 0, up = 0;
  if (!(fields >> ticks) || !(uptime >> up)) return std::time(nullptr);
  const double age = up - ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  return std::time(nullptr) - static_cast<int64_t>(age);
}

// The status of a call to an agent, whose name takes the place of gRPC's words.
absl::Status OfAgent(const std::string& agent, const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE)
    return absl::UnavailableError(absl::StrCat(agent, " went away"));
  return FromGrpc(status);
}

// Agents speak of devices by their ids in the GCD.
absl::Status OfDevice(uint32_t device_id, const vipu::Subset& ipus, const absl::Status& status) {
  if (status.ok() || ipus.is_whole()) return status;
  return absl::Status(status.code(), absl::StrCat("device ", device_id,
                                                  " of the configuration: ", status.message()));
}

}  // namespace

// When an instance dies, mpirun ends the others by SIGTERM after a second and blames the first to
// exit. A survivor that has its answer (the job was aborted) therefore waits a little for that
// signal, so that the right one is blamed.
absl::Status AwaitTheEnd(const absl::Status& status, const std::stop_token& stopped) {
  if (absl::IsAborted(status) && !vipu::Environment("OMPI_COMM_WORLD_SIZE").empty()) {
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    never.wait_for(lock, stopped, std::chrono::seconds(3), [] { return false; });
  }
  return status;
}

struct Lease::Impl {
  using Stream = grpc::ClientReaderWriter<v1::AttachRequest, v1::AttachEvent>;

  const pid_t process = getpid();
  std::unique_ptr<v1::Ipuof::Stub> stub;
  grpc::ClientContext context;
  std::unique_ptr<Stream> stream;
  LeaseOptions options;
  std::string agent;  // for messages
  v1::Attached attached;
  bool same_host = false;
  std::shared_ptr<Pulse> pulse;  // unless on the same host
  std::thread events;
  base::Mutex mutex;
  std::condition_variable events_changed;
  bool events_ended ABSL_GUARDED_BY(mutex) = false;
  bool detached ABSL_GUARDED_BY(mutex) = false;
  absl::Status end_of_events ABSL_GUARDED_BY(mutex);  // an error: the device was lost
  bool asked_for_channel ABSL_GUARDED_BY(mutex) = false;
  std::shared_ptr<RunChannel> run_channel ABSL_GUARDED_BY(mutex);

  // One request at the agent's local socket; the connection is returned for the answer.
  absl::StatusOr<base::UniqueFd> SendRequest(char operation) const {
    return shm::SendRequest(attached.local_socket(),
                            absl::StrCat(std::string(1, operation), attached.lease_id()),
                            kLocalPatience);
  }

  // Whether the agent is on this host; then it binds the lease to this process. Unavailable: it is
  // there and does not answer.
  absl::StatusOr<bool> BindLocally() const {
    const auto socket = SendRequest('B');
    if (absl::IsNotFound(socket.status())) return false;
    if (!socket.ok()) return Silence();
    char answer = 0;
    const ssize_t length = TEMP_FAILURE_RETRY(recv(socket->get(), &answer, 1, 0));
    if (length < 0 && errno == EAGAIN) return Silence();
    return length == 1 && answer == 'k';
  }

  // The connection for runs on this host, opened by the first that asks; null: there is none.
  std::shared_ptr<RunChannel> ChannelForRuns() {
    {
      base::MutexLock lock(mutex);
      if (std::exchange(asked_for_channel, true)) return run_channel;
    }
    // Without the mutex, for which a detach would wait.
    auto channel = OpenChannel();
    base::MutexLock lock(mutex);
    if (!events_ended) run_channel = std::move(channel);
    return run_channel;
  }

  std::shared_ptr<RunChannel> OpenChannel() const {
    if (!same_host) return nullptr;
    auto socket = SendRequest('R');
    char answer = 0;
    if (!socket.ok() || TEMP_FAILURE_RETRY(recv(socket->get(), &answer, 1, 0)) != 1 ||
        answer != 'k')
      return nullptr;
    return std::make_shared<RunChannel>(*std::move(socket));
  }

  AwaitRun RunByGrpc(uint32_t program, uint32_t slot) {
    struct Call {
      grpc::ClientContext context;
      v1::RunRequest request;
      v1::RunReply reply;
      std::promise<grpc::Status> status;
    };
    auto call = std::make_shared<Call>();
    call->request.set_lease_id(attached.lease_id());
    call->request.set_program(program);
    call->request.set_slot(slot);
    // Not before: they wake several times a second, also in a process that holds a lease only.
    base::KeepCallbackThreads();
    stub->async()->Run(&call->context, &call->request, &call->reply,
                       [call](const grpc::Status& status) { call->status.set_value(status); });
    return [this, call]() -> absl::StatusOr<base::Cycles> {
      VPOD_RETURN_IF_ERROR(StatusOf(call->status.get_future().get()));
      return base::Cycles(call->reply.cycles());
    };
  }

  absl::Status EndOfEvents() {
    base::MutexLock lock(mutex);
    return end_of_events;
  }

  // Returns the status of a finished call for the caller.
  absl::Status StatusOf(const grpc::Status& status) {
    const absl::Status answer = OfAgent(agent, status);
    return absl::IsNotFound(answer) ? WhyRefused(answer) : answer;
  }

  // An agent answers NotFound about a lease that has ended, and closes a connection of the local
  // socket that names one. The events bring the reason, perhaps a moment later; if they go on,
  // `answer` is about something else.
  absl::Status WhyRefused(const absl::Status& answer) {
    base::MutexLock lock(mutex);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    if (!lock.WaitUntil(events_changed, deadline, [this] { return events_ended; })) return answer;
    if (!end_of_events.ok()) return end_of_events;
    return absl::FailedPreconditionError(absl::StrCat("the lease at ", agent, " has ended"));
  }

  absl::Status Silence() const {
    return absl::UnavailableError(absl::StrCat(agent, " does not answer on its local socket"));
  }

  // Under the mutex, since one thread at a time may write.
  void Detach() {
    base::MutexLock lock(mutex);
    if (std::exchange(detached, true)) return;
    v1::AttachRequest request;
    request.mutable_detach();
    stream->Write(request);
    stream->WritesDone();
  }

  // Under the mutex, likewise.
  void Say(const v1::AttachRequest& request) {
    base::MutexLock lock(mutex);
    if (!detached) stream->Write(request);
  }

  ~Impl() {
    if (!events.joinable()) return;
    Detach();
    {
      // An agent that does not answer must not keep us.
      base::MutexLock lock(mutex);
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
      if (!lock.WaitUntil(events_changed, deadline, [this] { return events_ended; }))
        context.TryCancel();
    }
    events.join();
    if (pulse != nullptr) pulse->Stop();  // after the detach, or we would count as lost
  }

  void ReadEvents() {
    v1::AttachEvent event;
    while (stream->Read(&event)) {
      if (event.has_notice()) {
        if (options.on_notice) {
          options.on_notice(event.notice().text());
        } else {
          std::fprintf(stderr, "%s\n", event.notice().text().c_str());
        }
      } else if (event.has_job_failed()) {
        if (options.on_job_failed) {
          options.on_job_failed(event.job_failed());
        } else if (event.job_failed().instance_lost()) {
          // Said here as well as by the failing call: the program may be waiting for its own peers
          // just now.
          std::fprintf(stderr, "error: %s\n", event.job_failed().cause().c_str());
        }
        if (options.on_failure) options.on_failure(absl::AbortedError(event.job_failed().cause()));
      } else if (event.has_instance_stopped() && options.on_instance_stopped) {
        options.on_instance_stopped(event.instance_stopped());
      }
    }
    const grpc::Status status = stream->Finish();
    const absl::Status why = status.error_code() == grpc::StatusCode::CANCELLED
                                 ? absl::OkStatus()
                                 : OfAgent(agent, status);
    {
      base::MutexLock lock(mutex);
      events_ended = true;
      end_of_events = why;
      // A process that is stopped keeps its sockets open, and gRPC alone finds that it is silent.
      if (run_channel != nullptr) run_channel->ShutDown();
      events_changed.notify_all();
    }
    if (why.ok()) return;
    if (options.on_lost) {
      options.on_lost(why);
    } else {
      std::fprintf(stderr, "error: device lost: %s\n", std::string(why.message()).c_str());
    }
    if (options.on_failure)
      options.on_failure(absl::UnavailableError(absl::StrCat("device lost: ", why.message())));
  }
};

Lease::Lease(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Lease::~Lease() {
  // The lease is the parent's, and so are the thread of its events and gRPC's.
  if (getpid() != impl_->process) static_cast<void>(impl_.release());
}

void Lease::Detach() {
  if (getpid() == impl_->process) impl_->Detach();
}

void Lease::CancelRuns() {
  if (getpid() != impl_->process) return;
  v1::AttachRequest request;
  request.mutable_cancel();
  impl_->Say(request);
}

void Lease::TellInstanceEnded(const v1::AttachInstanceEnded& ended) {
  if (getpid() != impl_->process) return;
  v1::AttachRequest request;
  *request.mutable_instance_ended() = ended;
  impl_->Say(request);
}

const v1::Attached& Lease::attached() const { return impl_->attached; }
bool Lease::same_host() const { return impl_->same_host; }

std::vector<std::string> EndpointsOf(const vipu::ActivePartition& partition, uint32_t first,
                                     uint32_t count) {
  std::vector<std::string> endpoints;
  for (uint32_t i = first; i < first + count; ++i) {
    std::string endpoint = EndpointOf(partition.config.devices(static_cast<int>(i)));
    if (std::find(endpoints.begin(), endpoints.end(), endpoint) == endpoints.end())
      endpoints.push_back(std::move(endpoint));
  }
  return endpoints;
}

v1::ProcessInfo ThisProcess() {
  v1::ProcessInfo process;
  process.set_pid(static_cast<uint32_t>(getpid()));
  char host[256] = "localhost";
  gethostname(host, sizeof(host) - 1);
  process.set_host(host);
  process.set_user(vipu::OsUserName());
  process.set_executable(ThisProgramName());
  process.set_start_time_unix(ProcessStartTime());
  process.set_pid_namespace(base::PidNamespace());
  return process;
}

absl::StatusOr<std::unique_ptr<Lease>> Lease::Attach(const vipu::ActivePartition& partition,
                                                     const LeaseOptions& options) {
  VPOD_ASSIGN_OR_RETURN(const GcdaOptions gcda, ReadGcdaOptions());
  const std::string& endpoint = options.endpoint;
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->agent = NameOfAgent(partition, endpoint);
  VPOD_ASSIGN_OR_RETURN(impl->stub, ConnectToAgent(endpoint, partition));
  impl->stream = impl->stub->Attach(&impl->context);
  v1::AttachRequest request;
  v1::AttachOpen* open = request.mutable_open();
  open->set_partition_id(partition.partition_id);
  open->set_generation(partition.generation);
  open->set_gcd_id(partition.gcd);
  open->set_device_id(options.device_id);
  open->set_reserve_only(options.reserve_only);
  open->set_part(options.part);
  open->set_num_parts(options.num_parts);
  open->set_will_bind(true);
  open->set_fabric_key(partition.config.fabric_key());
  *open->mutable_job() = options.job;
  *open->mutable_process() = ThisProcess();
  open->set_monitoring(options.monitoring || gcda.enable_monitoring);
  open->set_measure_utilisation(gcda.monitor_utilisation);
  *open->mutable_simulated_error() = gcda.simulated_error;
  v1::AttachEvent event;
  if (!impl->stream->Write(request) || !impl->stream->Read(&event) || !event.has_attached()) {
    impl->stream->WritesDone();
    const grpc::Status status = impl->stream->Finish();
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
      VPOD_ASSIGN_OR_RETURN(const auto tls, vipu::TlsOf(partition.controller));
      return absl::UnavailableError(absl::StrCat("cannot reach the IPUs of ", impl->agent, ": ",
                                                 base::ConnectionFailure(tls, endpoint, status)));
    }
    return status.ok() ? absl::UnavailableError("the agent refused to attach without a reason")
                       : AwaitTheEnd(FromGrpc(status));
  }
  impl->attached = event.attached();
  const auto same_host = impl->BindLocally();
  if (!same_host.ok()) {
    impl->context.TryCancel();
    impl->stream->Finish();
    return same_host.status();
  }
  impl->same_host = *same_host;
  if (!impl->same_host) {
    VPOD_ASSIGN_OR_RETURN(impl->pulse,
                          Pulse::Start(endpoint, partition, impl->attached.lease_id()));
  }
  impl->events = std::thread([raw = impl.get()] { raw->ReadEvents(); });
  return std::unique_ptr<Lease>(new Lease(std::move(impl)));
}

absl::StatusOr<std::vector<std::unique_ptr<Lease>>> Lease::AttachParts(
    const vipu::ActivePartition& partition, LeaseOptions options) {
  const vipu::Subset ipus(partition);
  const uint32_t device_id = options.device_id;
  VPOD_ASSIGN_OR_RETURN(const arch::IpuRange range, ipus.IpusOf(device_id));
  VPOD_ASSIGN_OR_RETURN(options.device_id, ipus.GcdDevice(device_id));
  const uint64_t units = uint64_t{options.job.local_replicas()} * options.job.ipus_per_replica();
  // Too many units for the device are refused by the agent.
  const uint64_t needed =
      options.reserve_only ? range.count : std::clamp<uint64_t>(units, 1, range.count);
  const std::vector<std::string> endpoints =
      EndpointsOf(partition, range.first, static_cast<uint32_t>(needed));
  options.num_parts = static_cast<uint32_t>(endpoints.size());
  std::vector<std::unique_ptr<Lease>> parts;
  for (const std::string& endpoint : endpoints) {
    options.endpoint = endpoint;
    options.part = static_cast<uint32_t>(parts.size());
    auto part = Attach(partition, options);
    if (!part.ok()) return OfDevice(device_id, ipus, part.status());
    parts.push_back(*std::move(part));
    if (!options.reserve_only) {
      options.on_notice = [](const std::string&) {};
      options.on_job_failed = [](const v1::JobFailed&) {};
      options.on_lost = [](const absl::Status&) {};
    }
  }
  return parts;
}

absl::StatusOr<v1::LoadReply> Lease::Load(absl::string_view executable, absl::string_view origins,
                                          const session::LoadOptions& options) {
  grpc::ClientContext context;
  v1::LoadReply reply;
  auto writer = impl_->stub->Load(&context, &reply);
  v1::LoadRequest request;
  request.set_lease_id(impl_->attached.lease_id());
  request.set_total_bytes(executable.size());
  request.set_origin_bytes(origins.size());
  request.set_check_finite(options.check_finite);
  request.set_no_sharing(!options.sharing);
  bool open = true;
  for (absl::string_view rest : {executable, origins}) {
    for (; open && !rest.empty(); rest.remove_prefix(request.chunk().size())) {
      request.set_chunk(std::string(rest.substr(0, kChunk)));
      open = writer->Write(request);
      request.clear_lease_id();
    }
  }
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  if (!status.ok()) return impl_->StatusOf(status);
  return reply;
}

Lease::AwaitRun Lease::StartRun(uint32_t program, uint32_t slot, Transport transport) {
  const auto channel = transport == Transport::kSharedMemory ? impl_->ChannelForRuns() : nullptr;
  // While another run of the lease goes on, gRPC brings the agent's refusal.
  if (channel == nullptr || !channel->Start(program, slot)) return impl_->RunByGrpc(program, slot);
  return [this, channel]() -> absl::StatusOr<base::Cycles> {
    auto result = channel->Await();
    if (result.has_value() && absl::IsNotFound(result->status()))
      return impl_->WhyRefused(result->status());
    if (result.has_value()) return *std::move(result);
    // The lease or its agent has ended: the events, or another call on the lease, bring the reason.
    VPOD_RETURN_IF_ERROR(impl_->EndOfEvents());
    VPOD_RETURN_IF_ERROR(Counters().status());
    return absl::UnavailableError(absl::StrCat(impl_->agent, " closed its connection for runs"));
  };
}

absl::StatusOr<shm::Segment> Lease::MapStreams() {
  if (!impl_->same_host) return absl::UnavailableError("the agent is on another host");
  const auto socket = impl_->SendRequest('S');
  if (!socket.ok()) return impl_->WhyRefused(impl_->Silence());
  uint64_t bytes = 0;
  auto fd = shm::ReceiveFd(socket->get(), &bytes, sizeof(bytes));
  if (!fd.ok()) return impl_->WhyRefused(fd.status());
  return shm::Segment::Map(*std::move(fd), bytes);
}

absl::Status Lease::ShareStreams(const shm::Segment& streams) {
  const absl::Status refused = absl::UnavailableError("the agent does not take the segment");
  if (!impl_->same_host) return refused;
  const auto socket = impl_->SendRequest('U');
  if (!socket.ok()) return impl_->WhyRefused(impl_->Silence());
  char answer = 'u';
  const bool is_taken = shm::SendFd(socket->get(), streams.fd(), &answer, 1).ok() &&
                        TEMP_FAILURE_RETRY(recv(socket->get(), &answer, 1, 0)) == 1 &&
                        answer == 'k';
  return is_taken ? absl::OkStatus() : impl_->WhyRefused(refused);
}

absl::Status Lease::WriteStream(uint32_t slot, uint64_t offset, absl::string_view bytes) {
  grpc::ClientContext context;
  v1::WriteStreamReply reply;
  auto writer = impl_->stub->WriteStream(&context, &reply);
  v1::WriteStreamRequest request;
  request.set_lease_id(impl_->attached.lease_id());
  request.set_slot(slot);
  for (size_t at = 0; at < bytes.size(); at += kChunk) {
    request.set_offset(offset + at);
    request.set_data(std::string(bytes.substr(at, kChunk)));
    if (!writer->Write(request)) break;
    request.clear_lease_id();
  }
  writer->WritesDone();
  return impl_->StatusOf(writer->Finish());
}

absl::Status Lease::ReadStream(uint32_t slot, uint64_t offset, uint64_t bytes, std::byte* into) {
  grpc::ClientContext context;
  v1::ReadStreamRequest request;
  request.set_lease_id(impl_->attached.lease_id());
  request.set_slot(slot);
  request.set_offset(offset);
  request.set_bytes(bytes);
  auto reader = impl_->stub->ReadStream(&context, request);
  v1::ReadStreamReply reply;
  uint64_t at = 0;
  while (reader->Read(&reply)) {
    const uint64_t n = std::min<uint64_t>(reply.data().size(), bytes - at);
    std::memcpy(into + at, reply.data().data(), n);
    at += n;
  }
  const grpc::Status status = reader->Finish();
  if (status.ok() && at != bytes)
    return absl::DataLossError("the agent sent incomplete stream data");
  return impl_->StatusOf(status);
}

absl::Status Lease::WriteTensor(absl::string_view variable, absl::string_view bytes,
                                std::optional<uint32_t> replica) {
  grpc::ClientContext context;
  v1::WriteTensorReply reply;
  auto writer = impl_->stub->WriteTensor(&context, &reply);
  v1::WriteTensorRequest request;
  request.set_lease_id(impl_->attached.lease_id());
  request.set_variable(std::string(variable));
  request.set_all_replicas(!replica);
  request.set_replica(replica.value_or(0));
  for (size_t at = 0; at == 0 || at < bytes.size(); at += kChunk) {
    request.set_data(std::string(bytes.substr(at, kChunk)));
    if (!writer->Write(request)) break;
  }
  writer->WritesDone();
  return impl_->StatusOf(writer->Finish());
}

absl::StatusOr<std::string> Lease::ReadTensor(absl::string_view variable, uint32_t replica) {
  grpc::ClientContext context;
  v1::ReadTensorRequest request;
  request.set_lease_id(impl_->attached.lease_id());
  request.set_variable(std::string(variable));
  request.set_replica(replica);
  auto reader = impl_->stub->ReadTensor(&context, request);
  std::string bytes;
  v1::ReadTensorReply reply;
  while (reader->Read(&reply)) bytes += reply.data();
  const grpc::Status status = reader->Finish();
  if (!status.ok()) return impl_->StatusOf(status);
  return bytes;
}

absl::StatusOr<std::vector<base::Cycles>> Lease::Counters() {
  grpc::ClientContext context;
  v1::GetCountersRequest request;
  request.set_lease_id(impl_->attached.lease_id());
  v1::GetCountersReply reply;
  const grpc::Status status = impl_->stub->GetCounters(&context, request, &reply);
  if (!status.ok()) return impl_->StatusOf(status);
  std::vector<base::Cycles> counters;
  for (uint64_t cycles : reply.cycles()) counters.emplace_back(cycles);
  return counters;
}

absl::Status ResetDevice(const vipu::ActivePartition& partition, uint32_t device_id,
                         bool initialise_parity) {
  const vipu::Subset ipus(partition);
  VPOD_ASSIGN_OR_RETURN(const arch::IpuRange range, ipus.IpusOf(device_id));
  VPOD_ASSIGN_OR_RETURN(const uint32_t gcd_device, ipus.GcdDevice(device_id));
  for (const std::string& endpoint : EndpointsOf(partition, range.first, range.count)) {
    VPOD_ASSIGN_OR_RETURN(const auto stub, ConnectToAgent(endpoint, partition));
    v1::ResetDeviceRequest request;
    request.set_partition_id(partition.partition_id);
    request.set_gcd_id(partition.gcd);
    request.set_device_id(gcd_device);
    request.set_initialise_parity(initialise_parity);
    request.set_fabric_key(partition.config.fabric_key());
    v1::ResetDeviceReply reply;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    const std::string agent = NameOfAgent(partition, endpoint);
    const grpc::Status status = stub->ResetDevice(&context, request, &reply);
    // The calls of a lease have no deadline: there the code is the agent's own, of a job.
    const bool is_silent = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    VPOD_RETURN_IF_ERROR(
        OfDevice(device_id, ipus,
                 is_silent ? absl::DeadlineExceededError(absl::StrCat(agent, " does not answer"))
                           : OfAgent(agent, status)));
  }
  return absl::OkStatus();
}

}  // namespace vpod::ipuof
