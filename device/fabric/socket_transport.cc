#include "device/fabric/socket_transport.h"

#include <netinet/tcp.h>

#include <algorithm>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <cstring>
#include <deque>
#include <future>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "device/base/random_id.h"
#include "device/base/secret.h"

namespace vpod::fabric {
namespace {

namespace asio = boost::asio;
using asio::generic::stream_protocol;
using Socket = stream_protocol::socket;
using Acceptor = asio::basic_socket_acceptor<stream_protocol>;
using boost::system::error_code;

// A host that is cut off is usually noticed sooner, by the job's record; two that reach the record
// but not each other notice it here.
constexpr std::chrono::seconds kPeerPatience{10};
// With a connection that has not shown a token yet. Peers show theirs at once.
constexpr std::chrono::seconds kHandshakeTimeout{4};
constexpr size_t kMaxUnauthenticated = 256;  // the oldest goes first
constexpr size_t kBufferBytes = 64 << 10;
constexpr char kTcp[] = "tcp:", kUnix[] = "unix:";

// The first bytes of a connection.
struct Hello {
  char magic[8] = {'v', 'p', 'o', 'd', 'f', 'a', 'b', '1'};
  char token[SocketTransport::kTokenBytes] = {};
};

// The first bytes of a message; header and payload follow. Both ends are of one byte order.
struct Frame {
  uint64_t payload_bytes = 0;
  uint32_t header_bytes = 0;
  uint32_t reserved = 0;
};

absl::Status Lost(absl::string_view what, const error_code& error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", error.message()));
}

absl::StatusOr<stream_protocol::endpoint> EndpointOf(absl::string_view address) {
  if (absl::ConsumePrefix(&address, kUnix)) {
    return stream_protocol::endpoint(
        asio::local::stream_protocol::endpoint(absl::StrCat(std::string(1, '\0'), address)));
  }
  uint32_t port = 0;
  const bool tcp = absl::ConsumePrefix(&address, kTcp);
  const size_t at = address.rfind(':');
  if (!tcp || at == absl::string_view::npos)
    return absl::InvalidArgumentError("not an address of this transport");
  error_code error;
  const auto host = asio::ip::make_address(
      std::string(absl::StripSuffix(absl::StripPrefix(address.substr(0, at), "["), "]")), error);
  if (error || !absl::SimpleAtoi(address.substr(at + 1), &port) || port > 65535)
    return absl::InvalidArgumentError("not an address of this transport");
  return stream_protocol::endpoint(
      asio::ip::tcp::endpoint(host, static_cast<unsigned short>(port)));
}

// As much at once as the system takes. Asio's own condition asks for 64 KiB a call.
size_t Everything(const error_code& error, size_t) { return error ? 0 : size_t{1} << 30; }

void Tune(Socket& socket) {
  const int fd = socket.native_handle();
  const int on = 1, patience = std::chrono::milliseconds(kPeerPatience).count();
  // Both fail on Unix sockets, where there is nothing to tune.
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof(patience));
}

}  // namespace

// All of it happens on one thread.
struct SocketTransport::Impl {
  struct Outgoing {
    Frame frame;
    std::string header;
    absl::Span<const std::byte> payload;
    std::function<void(absl::Status)> sent;
  };

  // Towards a peer, for one job.
  struct Peer : std::enable_shared_from_this<Peer> {
    Peer(asio::io_context& context, absl::string_view token) : socket(context), limit(context) {
      std::memcpy(hello.token, token.data(), token.size());
    }
    Socket socket;
    asio::steady_timer limit;  // of connecting: a packet that is dropped is repeated for minutes
    Hello hello;
    std::deque<Outgoing> waiting;
    size_t writing = 0;  // of those, from the first
    bool connected = false, lost = false;
    char nothing = 0;  // peers do not answer; a read ends when they go

    void Connect(const stream_protocol::endpoint& to) {
      const auto self = shared_from_this();
      limit.expires_after(kPeerPatience);
      limit.async_wait([self](const error_code& cancelled) {
        if (!cancelled) self->Fail(absl::UnavailableError("a peer does not answer"));
      });
      socket.async_connect(to, [self](const error_code& error) {
        if (error) return self->Fail(Lost("connecting to a peer", error));
        if (self->lost) return;
        Tune(self->socket);
        asio::async_write(self->socket, asio::buffer(&self->hello, sizeof(self->hello)),
                          [self](const error_code& failed, size_t) {
                            if (failed) return self->Fail(Lost("greeting a peer", failed));
                            self->limit.cancel();
                            self->connected = true;
                            self->AwaitEnd();
                            self->Write();
                          });
      });
    }
    void AwaitEnd() {
      socket.async_read_some(asio::buffer(&nothing, 1),
                             [self = shared_from_this()](const error_code& error, size_t) {
                               self->Fail(Lost("the peer's process is lost", error));
                             });
    }
    void Write() {
      if (!connected || lost || writing > 0 || waiting.empty()) return;
      std::vector<asio::const_buffer> buffers;
      constexpr size_t kMostAtOnce = 16;
      for (const Outgoing& each : waiting) {
        if (++writing > kMostAtOnce) {
          --writing;
          break;
        }
        buffers.emplace_back(&each.frame, sizeof(each.frame));
        buffers.emplace_back(each.header.data(), each.header.size());
        if (!each.payload.empty()) buffers.emplace_back(each.payload.data(), each.payload.size());
      }
      asio::async_write(socket, buffers, Everything,
                        [self = shared_from_this()](const error_code& error, size_t) {
                          if (error) return self->Fail(Lost("sending to a peer", error));
                          if (self->lost) return;
                          std::vector<Outgoing> done;
                          for (; self->writing > 0; --self->writing) {
                            done.push_back(std::move(self->waiting.front()));
                            self->waiting.pop_front();
                          }
                          self->Write();
                          for (const Outgoing& each : done) each.sent(absl::OkStatus());
                        });
    }
    void Fail(const absl::Status& status) {
      if (std::exchange(lost, true)) return;
      error_code ignored;
      limit.cancel();
      socket.close(ignored);
      // The socket is closed: nothing reads the payloads any more.
      for (Outgoing& each : std::exchange(waiting, {})) each.sent(status);
    }
  };

  // From a peer.
  struct Connection : std::enable_shared_from_this<Connection> {
    Connection(Impl& impl, Socket socket)
        : impl(impl), socket(std::move(socket)), limit(impl.context), buffer(kBufferBytes) {}
    Impl& impl;
    Socket socket;
    asio::steady_timer limit;
    Hello hello;
    std::vector<std::byte> buffer;  // read ahead; [begin, end) is not looked at yet
    size_t begin = 0, end = 0;
    Landing landing;  // of the payload under way
    std::byte* to = nullptr;
    uint64_t missing = 0;  // of it
    bool closed = false;

    void Start() {
      Tune(socket);
      limit.expires_after(kHandshakeTimeout);
      limit.async_wait([self = shared_from_this()](const error_code& cancelled) {
        if (!cancelled) self->Close();
      });
      asio::async_read(socket, asio::buffer(&hello, sizeof(hello)),
                       [self = shared_from_this()](const error_code& error, size_t) {
                         self->limit.cancel();
                         std::erase(self->impl.unauthenticated, self);
                         if (error || !self->impl.Admits(self->hello)) return self->Close();
                         self->Fill();
                       });
    }
    void Fill() {
      // A large rest is read where it belongs.
      if (missing >= buffer.size() && to != nullptr) {
        return asio::async_read(socket, asio::buffer(to, missing), Everything,
                                [self = shared_from_this()](const error_code& error, size_t) {
                                  if (error) return self->Close();
                                  self->missing = 0;
                                  self->Landed(absl::OkStatus());
                                  self->Fill();
                                });
      }
      if (begin > 0) std::memmove(buffer.data(), buffer.data() + begin, end - begin);
      end -= std::exchange(begin, 0);
      socket.async_read_some(asio::buffer(buffer.data() + end, buffer.size() - end),
                             [self = shared_from_this()](const error_code& error, size_t bytes) {
                               if (error) return self->Close();
                               self->end += bytes;
                               if (!self->Parse()) return self->Close();
                               self->Fill();
                             });
    }
    // Whether what has come so far is a sequence of messages.
    bool Parse() {
      while (!closed) {
        const size_t there = end - begin;
        if (missing > 0) {
          const size_t some = std::min<uint64_t>(missing, there);
          if (to != nullptr) {
            std::memcpy(to, buffer.data() + begin, some);
            to += some;
          }
          begin += some;
          missing -= some;
          if (missing > 0) return true;
          Landed(absl::OkStatus());
          continue;
        }
        Frame frame;
        if (there < sizeof(frame)) return true;
        std::memcpy(&frame, buffer.data() + begin, sizeof(frame));
        if (frame.header_bytes < kTokenBytes || frame.header_bytes > kMaxHeaderBytes) return false;
        if (there < sizeof(frame) + frame.header_bytes) return true;
        const absl::string_view header(
            reinterpret_cast<const char*>(buffer.data()) + begin + sizeof(frame),
            frame.header_bytes);
        // Nobody speaks for another job than the one it was let in for.
        if (std::memcmp(header.data(), hello.token, kTokenBytes) != 0) return false;
        landing = impl.receiver(header, frame.payload_bytes);
        begin += sizeof(frame) + frame.header_bytes;
        to = landing.buffer;
        missing = frame.payload_bytes;
        if (missing == 0) Landed(absl::OkStatus());
      }
      return false;
    }
    void Landed(const absl::Status& status) {
      Landing done = std::exchange(landing, {});
      to = nullptr;
      if (done.landed) done.landed(status);
    }
    void Close() {
      if (std::exchange(closed, true)) return;
      error_code ignored;
      limit.cancel();
      socket.close(ignored);
      Landed(absl::UnavailableError("the peer's process is lost"));
      std::erase(impl.unauthenticated, shared_from_this());
      impl.connections.erase(shared_from_this());
    }
  };

  struct Listener {
    explicit Listener(asio::io_context& context) : acceptor(context), retry(context) {}
    Acceptor acceptor;
    asio::steady_timer retry;
    std::string address;
    size_t users = 0;
  };

  Impl(asio::ip::address host, Receiver receiver) : host(host), receiver(std::move(receiver)) {
    thread = std::thread([this] { context.run(); });
  }
  // Called before the last reference goes, which may be one that this thread holds.
  void Stop() {
    asio::post(context, [this] {
      for (auto& [key, peer] : std::exchange(peers, {}))
        peer->Fail(absl::UnavailableError("this process ends"));
      for (auto& [reach, listener] : listeners) {
        error_code ignored;
        listener->acceptor.close(ignored);
        listener->retry.cancel();
      }
      while (!connections.empty()) (*connections.begin())->Close();
      work.reset();
    });
    thread.join();
  }

  bool Admits(const Hello& hello) const {
    if (std::memcmp(hello.magic, Hello().magic, sizeof(hello.magic)) != 0) return false;
    const std::string shown(hello.token, kTokenBytes);
    bool found = false;
    // Without telling by its time how much of a token is right.
    for (const auto& [token, bindings] : tokens) found |= base::IsSecret(token, shown);
    return found;
  }

  absl::StatusOr<std::string> Listen(absl::string_view token, Reach reach) {
    auto& listener = listeners[reach];
    if (listener == nullptr) {
      auto opened = OpenListener(reach);
      if (!opened.ok()) {
        listeners.erase(reach);
        return opened.status();
      }
      listener = *std::move(opened);
      Accept(listener);
    }
    ++listener->users;
    ++tokens[std::string(token)];
    return listener->address;
  }

  absl::StatusOr<std::shared_ptr<Listener>> OpenListener(Reach reach) {
    auto listener = std::make_shared<Listener>(context);
    listener->address = absl::StrCat(kUnix, "vpod-fabric-", base::RandomId());
    stream_protocol::endpoint endpoint = asio::ip::tcp::endpoint(host, 0);
    if (reach == Reach::kThisHost) endpoint = *EndpointOf(listener->address);
    error_code error;
    listener->acceptor.open(endpoint.protocol(), error);
    if (!error) listener->acceptor.bind(endpoint, error);
    if (!error) listener->acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (!error) endpoint = listener->acceptor.local_endpoint(error);
    if (error) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen at ", host.to_string(), ": ", error.message()));
    }
    if (reach == Reach::kOtherHosts) {
      asio::ip::tcp::endpoint bound;
      std::memcpy(bound.data(), endpoint.data(), endpoint.size());
      bound.resize(endpoint.size());
      listener->address = absl::StrCat(
          kTcp, host.is_v6() ? absl::StrCat("[", host.to_string(), "]") : host.to_string(), ":",
          bound.port());
    }
    return listener;
  }

  void Accept(const std::shared_ptr<Listener>& listener) {
    listener->acceptor.async_accept([this, listener](const error_code& error, Socket socket) {
      if (error == asio::error::operation_aborted || !listener->acceptor.is_open()) return;
      if (error) return AcceptLater(listener);  // out of descriptors, most likely
      auto connection = std::make_shared<Connection>(*this, std::move(socket));
      connections.insert(connection);
      unauthenticated.push_back(connection);
      if (unauthenticated.size() > kMaxUnauthenticated)
        std::shared_ptr(unauthenticated.front())->Close();
      connection->Start();
      Accept(listener);
    });
  }
  void AcceptLater(const std::shared_ptr<Listener>& listener) {
    listener->retry.expires_after(std::chrono::milliseconds(100));
    listener->retry.async_wait([this, listener](const error_code& cancelled) {
      if (!cancelled && listener->acceptor.is_open()) Accept(listener);
    });
  }

  void Dismiss(const std::string& token, Reach reach) {
    const auto listener = listeners.find(reach);
    if (--listener->second->users == 0) {
      error_code ignored;
      listener->second->acceptor.close(ignored);
      listener->second->retry.cancel();
      listeners.erase(listener);
    }
    if (--tokens[token] > 0) return;
    tokens.erase(token);
    std::vector<std::shared_ptr<Connection>> ended;
    for (const auto& each : connections) {
      if (std::memcmp(each->hello.token, token.data(), kTokenBytes) == 0) ended.push_back(each);
    }
    for (const auto& each : ended) each->Close();
    for (auto it = peers.lower_bound({token, ""}); it != peers.end() && it->first.first == token;
         it = peers.erase(it)) {
      it->second->Fail(absl::CancelledError("the job has ended"));
    }
  }

  void Send(const std::string& to, Outgoing message) {
    const std::string token = message.header.substr(0, kTokenBytes);
    std::shared_ptr<Peer>& peer = peers[{token, to}];
    if (peer == nullptr || peer->lost) {
      // A host that was cut off may be back.
      const auto endpoint = EndpointOf(to);
      if (!endpoint.ok() || token.size() < kTokenBytes) {
        peers.erase({token, to});
        return message.sent(absl::UnavailableError("the peer has no such address"));
      }
      peer = std::make_shared<Peer>(context, token);
      peer->Connect(*endpoint);
    }
    peer->waiting.push_back(std::move(message));
    peer->Write();
  }

  const asio::ip::address host;  // of ours
  const Receiver receiver;
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  std::map<Reach, std::shared_ptr<Listener>> listeners;
  std::map<std::string, size_t> tokens;  // bindings that are open for each
  std::map<std::pair<std::string, std::string>, std::shared_ptr<Peer>> peers;  // by token, address
  std::set<std::shared_ptr<Connection>> connections;
  std::deque<std::shared_ptr<Connection>> unauthenticated;  // without a token yet
  std::thread thread;
};

SocketTransport::SocketTransport(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
SocketTransport::~SocketTransport() { impl_->Stop(); }

absl::StatusOr<std::unique_ptr<SocketTransport>> SocketTransport::Create(const std::string& host,
                                                                         Receiver receiver) {
  asio::io_context context;
  asio::ip::tcp::resolver resolver(context);
  error_code error;
  const auto found = resolver.resolve(
      std::string(absl::StripSuffix(absl::StripPrefix(host, "["), "]")), "", error);
  if (error || found.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the address of '", host, "' is unknown: ", error.message()));
  }
  return std::unique_ptr<SocketTransport>(new SocketTransport(
      std::make_shared<Impl>(found.begin()->endpoint().address(), std::move(receiver))));
}

absl::StatusOr<SocketTransport::Binding> SocketTransport::Open(absl::string_view token,
                                                               Reach reach) {
  std::promise<absl::StatusOr<std::string>> opened;
  asio::post(impl_->context,
             [&, key = std::string(token)] { opened.set_value(impl_->Listen(key, reach)); });
  auto address = opened.get_future().get();
  if (!address.ok()) return address.status();
  // The holder may drop the binding on our thread, or after us.
  const auto close = [weak = std::weak_ptr<Impl>(impl_), key = std::string(token), reach](void*) {
    const std::shared_ptr<Impl> impl = weak.lock();
    if (impl == nullptr) return;
    asio::post(impl->context, [raw = impl.get(), key, reach] { raw->Dismiss(key, reach); });
  };
  return Binding{*std::move(address), std::shared_ptr<void>(impl_.get(), close)};
}

void SocketTransport::Send(const std::string& to, std::string header,
                           absl::Span<const std::byte> payload,
                           std::function<void(absl::Status)> sent) {
  const Frame frame{payload.size(), static_cast<uint32_t>(header.size()), 0};
  asio::post(impl_->context, [impl = impl_.get(), to,
                              message = Impl::Outgoing{frame, std::move(header), payload,
                                                       std::move(sent)}]() mutable {
    impl->Send(to, std::move(message));
  });
}

}  // namespace vpod::fabric
