#include "server/rpc/bounded_listener.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "device/base/mutex.h"
#include "device/base/unique_fd.h"
#include "server/rpc/daemon.h"
#include "server/rpc/held_messages.h"
#include "server/rpc/open_streams.h"
#include "server/rpc/tcp_info.h"

namespace vpod::rpc {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// More than the headers of a call take, or what is around a message.
constexpr uint64_t kCallBytes = 512;

// Per second, for what is sent besides calls and messages: keepalives. It must be little, because a
// message that comes as slowly is not seen.
constexpr double kForgivenBytes = 64;

// The memory of a call that has no handler yet, most often because its message has not come.
constexpr uint64_t kStreamBytes = 12 << 10;

// The bytes with which a connection begins: the handshake of TLS with a certificate, and settings.
constexpr uint64_t kGreetingBytes = 8 << 10;

// By which a client takes a message of ours: frames that open the window again, one for each 8 KiB
// or more, and acknowledgements.
constexpr uint64_t kTakenBytes = 128, kTakenPart = 128;

// Between two looks at all connections; the shorter one while they hold more than a quarter of the
// limit.
constexpr std::chrono::milliseconds kPeriod{50}, kHurriedPeriod{10};

// A client that goes on causes no more than one line of log in this time.
constexpr std::chrono::seconds kWarningPeriod{1};

// gRPC escapes the brackets of IPv6 addresses, and the mark of a scope.
std::string Unescaped(const std::string& peer) {
  if (peer.find('%') == std::string::npos) return peer;
  return absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
}

// 0 if there is no such descriptor.
ino_t InodeOf(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

// As gRPC names the other end, without escapes.
std::string PeerOf(const tcp::endpoint& end) {
  const bool v6 = end.address().is_v6() && !end.address().to_v6().is_v4_mapped();
  const auto address = end.address().is_v6() && !v6
                           ? asio::ip::make_address_v4(asio::ip::v4_mapped, end.address().to_v6())
                           : end.address();
  return v6 ? absl::StrCat("ipv6:[", address.to_string(), "]:", end.port())
            : absl::StrCat("ipv4:", address.to_string(), ":", end.port());
}

// The other end's host; of IPv6 its network of 64 bits, in which a host may have any address.
std::string HostOf(const tcp::endpoint& end) {
  const asio::ip::address address = end.address();
  if (address.is_v4()) return address.to_string();
  if (address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  asio::ip::address_v6::bytes_type network = address.to_v6().to_bytes();
  std::fill(network.begin() + 8, network.end(), 0);
  return asio::ip::address_v6(network).to_string();
}

// An idle connection with TLS takes 66 KiB (measured), so that all of them fit into a quarter of
// what the controller's unit allows.
constexpr size_t kMostConnections = 8192;

}  // namespace

size_t BoundedListener::MostConnections(size_t descriptors_per_connection) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 256;
  return std::clamp<size_t>(limit.rlim_cur / descriptors_per_connection, 16, kMostConnections);
}

struct BoundedListener::Impl {
  struct Connection {
    std::string peer;
    tcp::endpoint end;
    int fd = -1;                         // gRPC's: it may have become another's
    ino_t inode = 0;                     // of the socket
    int calls = 0;                       // under way
    int streams = 0;                     // of calls, also of those of which gRPC has told nobody
    int known = 0;                       // calls of which gRPC has told
    uint64_t received = 0;               // when it was last looked at
    uint64_t greeting = kGreetingBytes;  // that may still come
    uint64_t delivered = 0;              // since then, in messages and calls
    uint64_t held = 0;                   // bytes of messages that are not complete
    bool ended = false;                  // by EndConnection; gRPC may not have noticed yet
    bool reset = false;                  // the same by Reset

    // With the calls that wait for theirs.
    uint64_t AllHeld() const {
      return reset ? 0 : held + kStreamBytes * static_cast<uint64_t>(std::max(0, streams - known));
    }
  };
  using Connections = std::list<Connection>;
  using Clock = std::chrono::steady_clock;

  explicit Impl(ConnectionLimits limits)
      : limits(limits), acceptor(context), retry(context), watch(context) {}

  absl::Status Listen(const std::string& address);
  void Accept();
  void AcceptLater();
  void HandOver(tcp::socket socket);
  size_t MostConnections() const {
    return BoundedListener::MostConnections(limits.descriptors_per_connection);
  }
  // Closes the connection that has been without a call for longest; false if there is none.
  bool CloseOldestIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Looks at all connections from time to time.
  void Watch(std::chrono::milliseconds period);
  // Returns what they hold of messages that are not complete.
  uint64_t LookAtAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Brings that below the limit. Returns what the remaining ones hold.
  uint64_t EndThoseWithMost(const std::vector<Connection*>& connections)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Wakes gRPC, which may have missed that the connection was reset. It waits for events of a
  // socket that tell only of changes, and one of a busy connection gets lost about once in a
  // hundred times (seen with 1.51 and with a thousand calls that end at once).
  static void WakeForReset(const Connection& connection);
  static void End(const Connection& connection);
  // Ends a connection in the middle of a message. After a mere end, its client would wait for room
  // to send until this host forgets the connection, which takes a minute.
  static void Reset(Connection& connection);
  // Forgets connections that have ended, even if gRPC has not closed them yet.
  void Forget() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Forgets idle connections that gRPC has closed. A busy connection is forgotten after its calls
  // have ended.
  void ForgetClosed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Whether gRPC still has the connection; and the descriptor, which then is ours too.
  static base::UniqueFd Descriptor(const Connection& connection);

  const ConnectionLimits limits;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> grpc;
  asio::io_context context;
  tcp::acceptor acceptor;
  asio::steady_timer retry, watch;
  std::thread thread;

  base::Mutex mutex;
  // Given up when there is no other descriptor, to inspect the connections.
  base::UniqueFd reserve ABSL_GUARDED_BY(mutex){open("/dev/null", O_RDONLY | O_CLOEXEC)};
  Connections idle ABSL_GUARDED_BY(mutex);  // longest first
  Clock::time_point looked_at ABSL_GUARDED_BY(mutex) = Clock::now();
  double forgiven ABSL_GUARDED_BY(mutex) = 0;  // bytes since then
  size_t ended_since_warned ABSL_GUARDED_BY(mutex) = 0;
  Clock::time_point next_warning ABSL_GUARDED_BY(mutex);
  Connections busy ABSL_GUARDED_BY(mutex);
  std::map<std::string, Connections::iterator> by_peer ABSL_GUARDED_BY(mutex);
};

absl::Status BoundedListener::Impl::Listen(const std::string& address) {
  const auto failed = [&](const error_code& error) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", address, ": ",
        error == asio::error::address_in_use ? "the port is in use" : error.message()));
  };
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 1 && host.front() == '[') host = host.substr(1, host.size() - 2);
  error_code error;
  // Without a host, all addresses of this one.
  const auto found = tcp::resolver(context).resolve(host, address.substr(colon + 1),
                                                    tcp::resolver::passive, error);
  if (error) return failed(error);
  const tcp::endpoint endpoint = *found.begin();
  if (acceptor.open(endpoint.protocol(), error); error) return failed(error);
  fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
  acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  // Connections inherit it. gRPC sets it on those that it accepts itself; without it an answer may
  // wait 40 ms for the acknowledgement of the one before.
  acceptor.set_option(tcp::no_delay(true), error);
  if (acceptor.bind(endpoint, error); error) return failed(error);
  if (acceptor.listen(asio::socket_base::max_listen_connections, error); error)
    return failed(error);
  return absl::OkStatus();
}

void BoundedListener::Impl::Accept() {
  acceptor.async_accept([this](const error_code& error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (error) {
      // Out of descriptors, most likely.
      base::MutexLock lock(mutex);
      reserve.Reset();
      Forget();
      CloseOldestIdle();
      reserve = base::UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
      return AcceptLater();
    }
    HandOver(std::move(socket));
    Accept();
  });
}

void BoundedListener::Impl::AcceptLater() {
  retry.expires_after(std::chrono::milliseconds(10));
  retry.async_wait([this](const error_code& cancelled) {
    if (!cancelled) Accept();
  });
}

void BoundedListener::Impl::HandOver(tcp::socket socket) {
  error_code error;
  Connection connection;
  connection.end = socket.remote_endpoint(error);
  if (error) return;  // gone already
  connection.peer = PeerOf(connection.end);
  {
    base::MutexLock lock(mutex);
    if (by_peer.size() >= MostConnections()) Forget();
    if (by_peer.size() >= MostConnections() && !CloseOldestIdle()) return;  // all have work to do
    connection.fd = socket.release(error);
    if (error) return;
    connection.inode = InodeOf(connection.fd);
    fcntl(connection.fd, F_SETFD, FD_CLOEXEC);
    fcntl(connection.fd, F_SETFL, fcntl(connection.fd, F_GETFL) | O_NONBLOCK);
    const auto old = by_peer.find(connection.peer);
    if (old != by_peer.end()) {  // its end has not been noticed yet
      (old->second->calls > 0 ? busy : idle).erase(old->second);
      by_peer.erase(old);
    }
    idle.push_back(connection);
    by_peer[connection.peer] = std::prev(idle.end());
  }
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.listener_fd = acceptor.native_handle();
  parameters.fd = connection.fd;
  grpc->HandleNewConnection(&parameters);
}

base::UniqueFd BoundedListener::Impl::Descriptor(const Connection& connection) {
  base::UniqueFd fd(fcntl(connection.fd, F_DUPFD_CLOEXEC, 0));
  tcp::endpoint end;
  socklen_t size = static_cast<socklen_t>(end.capacity());
  if (!fd.valid() || getpeername(fd.get(), end.data(), &size) != 0) return base::UniqueFd();
  end.resize(size);
  return end == connection.end ? std::move(fd) : base::UniqueFd();
}

void BoundedListener::Impl::Forget() {
  for (auto it = idle.begin(); it != idle.end();) {
    if (Descriptor(*it).valid()) {
      ++it;
    } else {
      by_peer.erase(it->peer);
      it = idle.erase(it);
    }
  }
}

void BoundedListener::Impl::ForgetClosed() {
  std::erase_if(idle, [this](const Connection& each) {
    const bool is_closed = InodeOf(each.fd) != each.inode;
    if (is_closed) by_peer.erase(each.peer);
    return is_closed;
  });
}

bool BoundedListener::Impl::CloseOldestIdle() {
  if (idle.empty()) return false;
  End(idle.front());
  by_peer.erase(idle.front().peer);
  idle.pop_front();
  return true;
}

void BoundedListener::Impl::End(const Connection& connection) {
  // gRPC closes it when it reads that nothing more comes.
  const base::UniqueFd fd = Descriptor(connection);
  if (fd.valid()) shutdown(fd.get(), SHUT_RDWR);
}

void BoundedListener::Impl::Reset(Connection& connection) {
  if (const base::UniqueFd fd = Descriptor(connection); fd.valid()) {
    const linger reset{.l_onoff = 1, .l_linger = 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  }
  connection.reset = true;
  End(connection);
}

void BoundedListener::Impl::Watch(std::chrono::milliseconds period) {
  watch.expires_after(period);
  watch.async_wait([this](const error_code& cancelled) {
    if (cancelled) return;
    uint64_t held;
    {
      base::MutexLock lock(mutex);
      held = LookAtAll();
    }
    // A fast network brings much in a period.
    Watch(held > limits.incomplete_bytes / 4 ? kHurriedPeriod : kPeriod);
  });
}

void BoundedListener::Impl::WakeForReset(const Connection& connection) {
  // The number may have become another's meanwhile, but not that of the duplicate.
  const base::UniqueFd fd(fcntl(connection.fd, F_DUPFD_CLOEXEC, 0));
  if (fd.valid() && InodeOf(fd.get()) == connection.inode) shutdown(fd.get(), SHUT_RDWR);
}

uint64_t BoundedListener::Impl::LookAtAll() {
  const Clock::time_point now = Clock::now();
  forgiven += kForgivenBytes * std::chrono::duration<double>(now - looked_at).count();
  looked_at = now;
  const auto forgiven_now = static_cast<uint64_t>(forgiven);
  forgiven -= static_cast<double>(forgiven_now);
  uint64_t all = 0;
  std::vector<Connection*> holding;
  ForgetClosed();
  for (Connections* connections : {&idle, &busy}) {
    for (Connection& each : *connections) {
      // gRPC may have closed it, and its descriptor may be that of another by now.
      if (InodeOf(each.fd) != each.inode) continue;
      const std::optional<TcpInfo> info = TcpInfoOf(each.fd);
      if (info.has_value() && info->closed) WakeForReset(each);
      if (!info.has_value() || info->received_bytes < each.received) continue;
      uint64_t more = info->received_bytes - std::exchange(each.received, info->received_bytes);
      const uint64_t greeted = std::min(more, each.greeting);
      each.greeting -= greeted;
      more -= greeted;
      const uint64_t less = std::exchange(each.delivered, 0) + forgiven_now;
      each.held = each.held + more < less ? 0 : each.held + more - less;
      all += each.AllHeld();
      if (each.AllHeld() > 0) holding.push_back(&each);
    }
  }
  return all <= limits.incomplete_bytes ? all : EndThoseWithMost(holding);
}

uint64_t BoundedListener::Impl::EndThoseWithMost(const std::vector<Connection*>& connections) {
  std::vector<HeldMessages> held;
  uint64_t all = 0, ended_bytes = 0;
  for (const Connection* each : connections) {
    held.push_back({HostOf(each->end), each->AllHeld()});
    all += each->AllHeld();
  }
  const std::vector<size_t> ended = ConnectionsToEnd(held, limits.incomplete_bytes);
  for (const size_t i : ended) {
    Reset(*connections[i]);
    ended_bytes += held[i].bytes;
  }
  ended_since_warned += ended.size();
  if (const auto now = Clock::now(); now >= next_warning) {
    spdlog::warn(
        "incomplete messages take {} MiB, at most {} are allowed: connections closed: {}, the last "
        "one of {} ({} MiB)",
        all >> 20, limits.incomplete_bytes >> 20, ended_since_warned,
        connections[ended.back()]->peer, held[ended.back()].bytes >> 20);
    ended_since_warned = 0;
    next_warning = now + kWarningPeriod;
  }
  return all - ended_bytes;
}

BoundedListener::BoundedListener(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BoundedListener::~BoundedListener() { Close(); }

absl::StatusOr<std::shared_ptr<BoundedListener>> BoundedListener::Open(
    const std::string& address, const std::shared_ptr<grpc::ServerCredentials>& credentials,
    grpc::ServerBuilder& builder, ConnectionLimits limits) {
  auto impl = std::make_unique<Impl>(limits);
  if (absl::Status status = impl->Listen(address); !status.ok()) return status;
  impl->grpc = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  // A client is expected to begin the handshake at once.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 5000);
  std::shared_ptr<BoundedListener> listener(new BoundedListener(std::move(impl)));
  EndConnectionsOfLostHosts(listener->port());
  return listener;
}

int BoundedListener::port() const {
  error_code ignored;
  return impl_->acceptor.local_endpoint(ignored).port();
}

std::string BoundedListener::LocalEndpoint() const {
  error_code ignored;
  asio::ip::address address = impl_->acceptor.local_endpoint(ignored).address();
  if (address.is_unspecified()) {
    address = address.is_v6() ? asio::ip::address(asio::ip::address_v6::loopback())
                              : asio::ip::address(asio::ip::address_v4::loopback());
  }
  return address.is_v6() ? absl::StrCat("[", address.to_string(), "]:", port())
                         : absl::StrCat(address.to_string(), ":", port());
}

void BoundedListener::Start() {
  OpenStreams::Get().Add(impl_.get(), [impl = impl_.get()](const std::string& peer, int change) {
    base::MutexLock lock(impl->mutex);
    const auto it = impl->by_peer.find(Unescaped(peer));
    if (it == impl->by_peer.end()) return true;
    Impl::Connection& connection = *it->second;
    if (connection.reset && change > 0) return false;
    connection.streams += change;
    // Before the next look, a fast client may begin many thousands.
    if (connection.AllHeld() > impl->limits.incomplete_bytes) Impl::Reset(connection);
    return true;
  });
  impl_->Accept();
  impl_->Watch(kPeriod);
  impl_->thread = std::thread([impl = impl_.get()] { impl->context.run(); });
}

void BoundedListener::Close() {
  OpenStreams::Get().Remove(impl_.get());
  impl_->context.stop();
  if (impl_->thread.joinable()) impl_->thread.join();
  error_code ignored;
  impl_->acceptor.close(ignored);
}

size_t BoundedListener::NumConnections() const {
  base::MutexLock lock(impl_->mutex);
  return impl_->by_peer.size();
}

void BoundedListener::CallBegins(const std::string& peer) {
  base::MutexLock lock(impl_->mutex);
  const auto it = impl_->by_peer.find(Unescaped(peer));
  if (it == impl_->by_peer.end()) return;
  if (it->second->calls++ == 0) impl_->busy.splice(impl_->busy.end(), impl_->idle, it->second);
}

void BoundedListener::MessageDelivered(const std::string& peer, size_t bytes) {
  base::MutexLock lock(impl_->mutex);
  const auto it = impl_->by_peer.find(Unescaped(peer));
  // HTTP/2 and TLS add to it, by frames of 16 KiB.
  if (it != impl_->by_peer.end()) it->second->delivered += bytes + bytes / 64 + kCallBytes;
}

void BoundedListener::MessageSent(const std::string& peer, size_t bytes) {
  base::MutexLock lock(impl_->mutex);
  const auto it = impl_->by_peer.find(Unescaped(peer));
  if (it != impl_->by_peer.end()) it->second->delivered += bytes / kTakenPart + kTakenBytes;
}

void BoundedListener::CallIsKnown(const std::string& peer, bool begins) {
  base::MutexLock lock(impl_->mutex);
  const auto it = impl_->by_peer.find(Unescaped(peer));
  if (it != impl_->by_peer.end()) it->second->known += begins ? 1 : -1;
}

bool BoundedListener::EndConnection(const std::string& peer) {
  base::MutexLock lock(impl_->mutex);
  const auto it = impl_->by_peer.find(Unescaped(peer));
  if (it == impl_->by_peer.end() || std::exchange(it->second->ended, true)) return false;
  impl_->End(*it->second);
  return true;
}

void BoundedListener::CallEnds(const std::string& peer) {
  base::MutexLock lock(impl_->mutex);
  const auto it = impl_->by_peer.find(Unescaped(peer));
  if (it == impl_->by_peer.end() || it->second->calls == 0) return;
  if (--it->second->calls == 0) impl_->idle.splice(impl_->idle.end(), impl_->busy, it->second);
}

}  // namespace vpod::rpc
