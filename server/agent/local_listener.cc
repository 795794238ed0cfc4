#include "server/agent/local_listener.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <fstream>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/random_id.h"
#include "device/base/sha256.h"
#include "device/base/status.h"
#include "device/base/unique_fd.h"
#include "device/shm/local_socket.h"
#include "server/agent/run_channels.h"

namespace vpod::agent {
namespace {

namespace asio = boost::asio;
using asio::local::stream_protocol;

constexpr size_t kRequestBytes = 33;
constexpr size_t kMarkBytes = 12;
constexpr std::chrono::seconds kPatience{2};  // with an agent of this host
// Patience with a client: one that is slow among many that start at once may still be honest.
constexpr std::chrono::seconds kRequestPatience{5};

// At once. The other descriptors serve clients at the network and the memory of their jobs.
size_t MostConnections() {
  constexpr rlim_t kFew = 16, kMany = 1024;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kFew;
  return std::clamp<rlim_t>(limit.rlim_cur / 8, kFew, kMany);
}

// Names the network namespace of a running system, in which abstract sockets are the same, and our
// user, who alone may have our memory.
std::string HostMark() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  struct stat net = {}, users = {};
  // Without them we share with nobody.
  if (!std::getline(file, boot) || stat("/proc/self/ns/net", &net) != 0 ||
      stat("/proc/self/ns/user", &users) != 0)
    boot = base::RandomId();
  return base::Sha256Hex(absl::StrCat(boot, " ", net.st_ino, " ", users.st_ino, " ", geteuid()))
      .substr(0, kMarkBytes);
}

// Who is at the other end of a local socket; none if the kernel does not say.
std::optional<ucred> PeerOf(int socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return std::nullopt;
  return peer;
}

bool IsOurUser(int socket) {
  const std::optional<ucred> peer = PeerOf(socket);
  return peer && peer->uid == geteuid();
}

// Announces the memory of one unit.
struct ArenaMessage {
  uint64_t bytes = 0;
  uint32_t unit = kLast;
  static constexpr uint32_t kLast = ~0u;
};

}  // namespace

bool OnOneHost(const std::string& socket_name, const std::string& other) {
  return socket_name.size() > kMarkBytes &&
         socket_name.compare(0, kMarkBytes, other, 0, kMarkBytes) == 0;
}

absl::StatusOr<std::vector<std::pair<uint32_t, shm::Segment>>> FetchArenas(
    const std::string& socket_name, const std::string& arena_key) {
  const auto connection = shm::Connect(socket_name, kPatience);
  if (!connection.ok()) return absl::UnavailableError("its process does not answer");
  // The name may have passed to another process.
  if (!IsOurUser(connection->get()))
    return absl::PermissionDeniedError("its socket belongs to another user");
  VPOD_RETURN_IF_ERROR(shm::Send(connection->get(), absl::StrCat("A", arena_key)));
  std::vector<std::pair<uint32_t, shm::Segment>> arenas;
  while (true) {
    ArenaMessage message;
    VPOD_ASSIGN_OR_RETURN(base::UniqueFd arena,
                          shm::ReceiveFd(connection->get(), &message, sizeof(message)));
    if (message.unit == ArenaMessage::kLast) return arenas;
    VPOD_ASSIGN_OR_RETURN(shm::Segment segment, shm::Segment::Map(std::move(arena), message.bytes));
    arenas.emplace_back(message.unit, std::move(segment));
  }
}

// A thread of its own: waiting for processes must be prompt, and accepting must not wait for
// anything else.
struct LocalListener::Impl {
  explicit Impl(Agent& agent) : agent(agent), channels(agent), acceptor(context), retry(context) {}

  struct Connection;
  using Connections = std::list<Connection*>;

  struct Connection {
    Connection(Impl& owner, stream_protocol::socket accepted)
        : owner(owner), socket(std::move(accepted)), limit(owner.context), user(UserOf(socket)) {
      ++owner.connections;
      Connections& others = owner.silent[user];
      place = others.insert(others.end(), this);
    }
    ~Connection() { Leave(); }
    // Its request is there.
    void Heard() {
      if (heard) return;
      heard = true;
      const auto others = owner.silent.find(user);
      others->second.erase(place);
      if (others->second.empty()) owner.silent.erase(others);
    }

    // Makes room for another.
    void Leave() {
      Heard();
      boost::system::error_code ignored;
      socket.close(ignored);
      if (!std::exchange(left, true)) --owner.connections;
    }

    Impl& owner;
    stream_protocol::socket socket;
    asio::steady_timer limit;
    const uid_t user;
    bool heard = false, left = false;
    Connections::iterator place;  // among the silent ones of the user
    std::array<char, kRequestBytes> request{};
    UnitArenas arenas;  // still to be sent
  };

  static uid_t UserOf(stream_protocol::socket& socket) {
    const std::optional<ucred> peer = PeerOf(socket.native_handle());
    return peer ? peer->uid : static_cast<uid_t>(-1);
  }

  // Clients send their request as soon as they are connected. Where there is no room, those that
  // have not are disconnected: the oldest of the user who has most. False: there are none.
  bool MakeRoom() {
    const auto most = std::max_element(
        silent.begin(), silent.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    if (most == silent.end()) return false;
    most->second.front()->Leave();
    return true;
  }

  void Accept() {
    // The others wait at the socket, and take none of our descriptors.
    if (connections >= MostConnections() && !MakeRoom()) return AcceptLater();
    acceptor.async_accept(
        [this](const boost::system::error_code& error, stream_protocol::socket socket) {
          if (error == asio::error::operation_aborted) return;
          if (error) {
            // Out of descriptors, most likely: try again when some have been given back.
            spdlog::warn("local socket: {}", error.message());
            return AcceptLater();
          }
          Serve(std::make_shared<Connection>(*this, std::move(socket)));
          Accept();
        });
  }
  void AcceptLater() {
    retry.expires_after(std::chrono::milliseconds(100));
    retry.async_wait([this](const boost::system::error_code& cancelled) {
      if (!cancelled) Accept();
    });
  }

  // Closes the connection if it takes longer than this from now on to end the limit.
  static void Limit(const std::shared_ptr<Connection>& connection, std::chrono::seconds patience) {
    connection->limit.expires_after(patience);
    connection->limit.async_wait([connection](const boost::system::error_code& cancelled) {
      boost::system::error_code ignored;
      if (!cancelled) connection->socket.close(ignored);
    });
  }

  // Reads the request; a client that does not send all of it is disconnected.
  void Serve(const std::shared_ptr<Connection>& connection) {
    Limit(connection, kRequestPatience);
    const auto read = [this, connection](const boost::system::error_code& error) {
      connection->limit.cancel();
      connection->Heard();
      if (!error) AnswerWhenOpen(connection);
    };
    asio::async_read(connection->socket, asio::buffer(connection->request),
                     [connection, read](const boost::system::error_code& error, size_t) {
                       if (error || connection->request[0] != 'U') return read(error);
                       // The descriptor comes with a message of its own.
                       connection->socket.async_wait(stream_protocol::socket::wait_read, read);
                     });
  }

  // A process that hangs does not answer here either.
  void AnswerWhenOpen(const std::shared_ptr<Connection>& connection) {
    agent.gate().WhenOpen(
        [this, connection] { asio::post(context, [this, connection] { Answer(connection); }); });
  }

  void Answer(const std::shared_ptr<Connection>& connection) {
    const std::string secret(connection->request.data() + 1, kRequestBytes - 1);
    const char request = connection->request[0];
    if (request == 'A') return AnswerArenas(connection, secret);
    const std::optional<ucred> peer = PeerOf(connection->socket.native_handle());
    if (peer && agent.AdmitUser(secret, peer->uid).ok())
      AnswerHolder(*connection, request, secret, *peer);
  }

  void AnswerHolder(Connection& connection, char request, const std::string& lease_id,
                    const ucred& peer) {
    const int socket = connection.socket.native_handle();
    if (request == 'B') {
      base::UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
      if (!pidfd.valid()) return;
      if (agent.BindProcess(lease_id, peer.pid, std::move(pidfd)).ok()) {
        (void)!write(socket, "k", 1);
      }
    } else if (request == 'S') {
      const auto segment = agent.StreamSegment(lease_id);
      if (!segment.ok()) return;
      const absl::Status sent =
          shm::SendFd(socket, segment->first.get(), &segment->second, sizeof(segment->second));
      if (!sent.ok()) spdlog::warn("local socket: {}", std::string(sent.message()));
    } else if (request == 'U') {
      char byte = 0;
      auto segment = shm::ReceiveFd(socket, &byte, 1);
      if (segment.ok() && agent.ShareStreams(lease_id, *std::move(segment)).ok())
        (void)!write(socket, "k", 1);
    } else if (request == 'R') {
      OpenRunChannel(connection, lease_id);
    }
  }

  // Hands the connection over to carry the runs of a lease.
  void OpenRunChannel(Connection& connection, const std::string& lease_id) {
    base::UniqueFd socket(connection.socket.release());
    connection.Leave();
    if (write(socket.get(), "k", 1) == 1) channels.Open(lease_id, std::move(socket));
  }

  // Clients may run as our user, too; they do not know the key.
  void AnswerArenas(const std::shared_ptr<Connection>& connection, const std::string& arena_key) {
    if (!IsOurUser(connection->socket.native_handle())) return;
    auto arenas = agent.JobArenas(arena_key);
    if (!arenas.ok()) return;
    connection->arenas = *std::move(arenas);
    // The peer reads as fast as we write; one that does not is cut off.
    Limit(connection, kPatience);
    SendArenas(connection);
  }

  void SendArenas(const std::shared_ptr<Connection>& connection) {
    connection->socket.async_wait(stream_protocol::socket::wait_write,
                                  [this, connection](const boost::system::error_code& error) {
                                    if (error) return;
                                    const int socket = connection->socket.native_handle();
                                    if (connection->arenas.empty()) {
                                      const ArenaMessage last;
                                      (void)!write(socket, &last, sizeof(last));
                                      connection->limit.cancel();
                                      return;
                                    }
                                    const auto& [unit, arena] = connection->arenas.back();
                                    const ArenaMessage message{arena.second, unit};
                                    const absl::Status sent = shm::SendFd(
                                        socket, arena.first.get(), &message, sizeof(message));
                                    if (!sent.ok()) {
                                      spdlog::warn("local socket: {}", std::string(sent.message()));
                                      connection->limit.cancel();
                                      return;
                                    }
                                    connection->arenas.pop_back();
                                    SendArenas(connection);
                                  });
  }

  // Ends the lease as soon as the process has ended.
  void Watch(base::UniqueFd pidfd, std::string lease_id) {
    asio::post(context, [this, fd = pidfd.Release(), lease_id = std::move(lease_id)] {
      watched[lease_id] = std::make_unique<asio::posix::stream_descriptor>(context, fd);
      AwaitEnd(lease_id);
    });
  }
  void AwaitEnd(const std::string& lease_id) {
    watched[lease_id]->async_wait(asio::posix::stream_descriptor::wait_read,
                                  [this, lease_id](const boost::system::error_code& error) {
                                    const auto it = watched.find(lease_id);
                                    if (error || it == watched.end())
                                      return;  // Unwatch: the lease ended otherwise
                                    // Asio may wake a descriptor for an event of a closed one whose
                                    // place it has taken.
                                    pollfd ended{it->second->native_handle(), POLLIN, 0};
                                    if (poll(&ended, 1, 0) != 1) return AwaitEnd(lease_id);
                                    agent.Release(lease_id, /*lost=*/true);
                                  });
  }
  void Unwatch(const std::string& lease_id) {
    channels.Close(lease_id);
    asio::post(context, [this, lease_id] { watched.erase(lease_id); });
  }

  Agent& agent;
  RunChannels channels;
  // Touched on our thread only, as what follows; before the context, with which connections go.
  size_t connections = 0;
  std::map<uid_t, Connections> silent;  // without a request yet, by user, oldest first
  asio::io_context context;
  // Descriptors by lease.
  std::map<std::string, std::unique_ptr<asio::posix::stream_descriptor>> watched;
  stream_protocol::acceptor acceptor;
  asio::steady_timer retry;
  std::thread thread;
};

LocalListener::LocalListener(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

LocalListener::~LocalListener() {
  impl_->context.stop();
  if (impl_->thread.joinable()) impl_->thread.join();
}

absl::StatusOr<std::unique_ptr<LocalListener>> LocalListener::Open(Agent& agent) {
  auto impl = std::make_unique<Impl>(agent);
  const std::string name = absl::StrCat(HostMark(), "-vpod-", base::RandomId());
  boost::system::error_code error;
  impl->acceptor.open(stream_protocol(), error);
  if (!error) impl->acceptor.bind(stream_protocol::endpoint(std::string(1, '\0') + name), error);
  if (!error) impl->acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error)
    return absl::UnavailableError(absl::StrCat("cannot open a local socket: ", error.message()));
  agent.SetLocalSocket(name);
  agent.unwatch_process = [raw = impl.get()](const std::string& lease_id) {
    raw->Unwatch(lease_id);
  };
  agent.watch_process = [raw = impl.get()](base::UniqueFd pidfd, std::string lease_id) {
    raw->Watch(std::move(pidfd), std::move(lease_id));
  };
  impl->Accept();
  impl->thread = std::thread([raw = impl.get()] { raw->context.run(); });
  return std::unique_ptr<LocalListener>(new LocalListener(std::move(impl)));
}

}  // namespace vpod::agent
