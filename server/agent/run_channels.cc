#include "server/agent/run_channels.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <cstring>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "device/base/mutex.h"
#include "device/base/text.h"
#include "device/shm/run_messages.h"

namespace vpod::agent {
namespace {

namespace asio = boost::asio;
using asio::local::stream_protocol;

// The answer with its message as bytes. Unavailable tells a client that this agent is gone; if a
// run fails with it, another agent is gone, so it becomes Aborted.
std::string Serialize(const absl::StatusOr<base::Cycles>& result) {
  shm::RunAnswer answer;
  std::string message;
  if (result.ok()) {
    answer.cycles = result->value();
  } else {
    const absl::StatusCode code = result.status().code();
    answer.code = static_cast<uint32_t>(
        code == absl::StatusCode::kUnavailable ? absl::StatusCode::kAborted : code);
    message = base::Printable(result.status().message(), shm::kMaxRunMessageBytes);
    answer.message_bytes = static_cast<uint32_t>(message.size());
  }
  std::string bytes(sizeof(answer), '\0');
  std::memcpy(bytes.data(), &answer, sizeof(answer));
  return bytes + message;
}

}  // namespace

struct RunChannels::State : std::enable_shared_from_this<State> {
  struct Channel {
    Channel(asio::io_context& context, std::string lease_id, base::UniqueFd connection)
        : lease_id(std::move(lease_id)), socket(context, stream_protocol(), connection.Release()) {}
    // Ends what is being read. Unlike close, it may be called while another thread reads.
    void ShutDown() { shutdown(socket.native_handle(), SHUT_RDWR); }

    const std::string lease_id;
    stream_protocol::socket socket;
    shm::RunRequest request;
  };

  explicit State(Agent& agent) : agent(agent) {}

  // Waits for the next request, of which there is one at a time: a client that sends more finds its
  // socket full.
  void Read(const std::shared_ptr<Channel>& channel) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    asio::async_read(channel->socket, asio::buffer(&channel->request, sizeof(channel->request)),
                     [this, channel](const boost::system::error_code& error, size_t) {
                       if (error) return Forget(channel);
                       RunWhenOpen(channel);
                     });
  }

  void Forget(const std::shared_ptr<Channel>& channel) {
    base::MutexLock lock(mutex);
    Drop(channel);
  }
  void Drop(const std::shared_ptr<Channel>& channel) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto it = channels.find(channel->lease_id);
    if (it != channels.end() && it->second == channel) channels.erase(it);
  }

  // A process that hangs neither begins a run nor answers (hang_gate.h). The gate and the run hold
  // no channel: they may outlive the context of its socket.
  void RunWhenOpen(const std::weak_ptr<Channel>& channel) {
    agent.gate().WhenOpen([self = shared_from_this(), channel] { self->Run(channel); });
  }
  void Run(const std::weak_ptr<Channel>& weak) {
    std::string lease_id;
    shm::RunRequest request;
    {
      base::MutexLock lock(mutex);
      const auto channel = weak.lock();
      if (closed || channel == nullptr) return;
      lease_id = channel->lease_id;
      request = channel->request;
    }
    agent.Run(lease_id, request.program, request.slot,
              [self = shared_from_this(), weak](const absl::StatusOr<base::Cycles>& result) {
                self->AnswerWhenOpen(weak, Serialize(result));
              });
  }
  void AnswerWhenOpen(const std::weak_ptr<Channel>& channel, std::string answer) {
    agent.gate().WhenOpen([self = shared_from_this(), channel, answer = std::move(answer)] {
      self->Answer(channel, answer);
    });
  }
  void Answer(const std::weak_ptr<Channel>& weak, const std::string& answer) {
    base::MutexLock lock(mutex);
    const auto channel = weak.lock();
    if (closed || channel == nullptr) return;
    // The socket has room unless the client does not read its answers. Requests that such a client
    // has sent ahead are not run.
    if (send(channel->socket.native_handle(), answer.data(), answer.size(),
             MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(answer.size()))
      return Read(channel);
    channel->ShutDown();
    Drop(channel);
  }

  Agent& agent;
  asio::io_context context;
  base::Mutex mutex;
  bool closed ABSL_GUARDED_BY(mutex) = false;
  std::map<std::string, std::shared_ptr<Channel>> channels ABSL_GUARDED_BY(mutex);  // by lease
};

struct RunChannels::Threads {
  explicit Threads(asio::io_context& context) : context(context), work(context.get_executor()) {
    // As many as gRPC has for its callbacks.
    const unsigned count = std::clamp(std::thread::hardware_concurrency(), 2u, 16u);
    for (unsigned i = 0; i < count; ++i) threads.emplace_back([&context] { context.run(); });
  }
  ~Threads() {
    context.stop();
    for (std::thread& thread : threads) thread.join();
  }
  asio::io_context& context;
  asio::executor_work_guard<asio::io_context::executor_type> work;
  std::vector<std::thread> threads;
};

RunChannels::RunChannels(Agent& agent)
    : state_(std::make_shared<State>(agent)),
      threads_(std::make_unique<Threads>(state_->context)) {}

RunChannels::~RunChannels() {
  base::MutexLock lock(state_->mutex);
  state_->closed = true;
  for (const auto& [lease_id, channel] : state_->channels) channel->ShutDown();
}

void RunChannels::Open(const std::string& lease_id, base::UniqueFd connection) {
  auto channel = std::make_shared<State::Channel>(state_->context, lease_id, std::move(connection));
  {
    base::MutexLock lock(state_->mutex);
    std::shared_ptr<State::Channel>& place = state_->channels[lease_id];
    if (place != nullptr) place->ShutDown();
    place = channel;
    state_->Read(channel);
  }
  // A lease that ended before the channel had its place would never close it.
  if (!state_->agent.HasLease(lease_id)) Close(lease_id);
}

void RunChannels::Close(const std::string& lease_id) {
  base::MutexLock lock(state_->mutex);
  const auto it = state_->channels.find(lease_id);
  if (it == state_->channels.end()) return;
  it->second->ShutDown();
  state_->channels.erase(it);
}

}  // namespace vpod::agent
