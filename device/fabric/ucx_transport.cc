#include "device/fabric/ucx_transport.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "device/base/mutex.h"
#include "device/base/sha256.h"
#include "device/base/unique_fd.h"

namespace vpod::fabric {
namespace {

constexpr unsigned kMessageId = 1;

// UCX ends the process when an address is none, so addresses travel with a digest of themselves.
constexpr size_t kDigestBytes = 16;

std::string WithDigest(absl::string_view address) {
  return absl::StrCat(base::Sha256Hex(address).substr(0, kDigestBytes), address);
}

// The address behind the digest; empty when damaged.
absl::string_view CheckedAddress(absl::string_view text) {
  if (text.size() <= kDigestBytes) return "";
  const absl::string_view address = text.substr(kDigestBytes);
  return WithDigest(address) == text ? address : "";
}

absl::Status Error(absl::string_view what, ucs_status_t status) {
  return absl::UnavailableError(absl::StrCat(what, ": ", ucs_status_string(status)));
}

bool SameAddress(const sockaddr* a, const sockaddr* b) {
  if (a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  }
  return a->sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

// Name of the interface that has the address of a host of ours; empty when none has.
std::string InterfaceOf(absl::string_view host) {
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  addrinfo* addresses = nullptr;
  ifaddrs* interfaces = nullptr;
  if (getaddrinfo(std::string(host).c_str(), nullptr, nullptr, &addresses) != 0) return "";
  std::string name;
  if (getifaddrs(&interfaces) == 0) {
    for (const addrinfo* address = addresses; address != nullptr; address = address->ai_next) {
      // All of 127/8 is the loopback's.
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(address->ai_addr);
      if (address->ai_family == AF_INET && ntohl(v4->sin_addr.s_addr) >> 24 == 127) name = "lo";
      for (const ifaddrs* each = interfaces; each != nullptr; each = each->ifa_next) {
        if (each->ifa_addr != nullptr && SameAddress(each->ifa_addr, address->ai_addr))
          name = each->ifa_name;
      }
    }
    freeifaddrs(interfaces);
  }
  freeaddrinfo(addresses);
  return name;
}

// All calls of UCX happen on one thread, which sleeps when there is nothing to do.
class UcxTransport : public Transport {
 public:
  explicit UcxTransport(Receiver receiver) : receiver_(std::move(receiver)) {}

  ~UcxTransport() override {
    if (thread_.joinable()) {
      Post([this] { stopping_ = true; });
      thread_.join();
    }
    if (worker_ != nullptr) ucp_worker_destroy(worker_);
    if (context_ != nullptr) ucp_cleanup(context_);
  }

  absl::Status Start(const UcxOptions& options) {
    ucp_config_t* config = nullptr;
    ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
    if (status != UCS_OK) return Error("UCX configuration", status);
    const bool tcp = options.tcp_only || std::getenv("UCX_TLS") == nullptr;
    if (options.tcp_only) {
      ucp_config_modify(config, "TLS", "tcp");
    } else if (tcp) {
      // Processes of one host exchange through shared segments of our own.
      ucp_config_modify(config, "TLS", "^posix,sysv,cma");
    }
    if (!options.host.empty() && std::getenv("UCX_NET_DEVICES") == nullptr) {
      const std::string interface = InterfaceOf(options.host);
      if (interface.empty()) {
        ucp_config_release(config);
        return absl::InvalidArgumentError(
            absl::StrCat("no interface of this host has the address of '", options.host, "'"));
      }
      ucp_config_modify(config, "NET_DEVICES", interface.c_str());
    }
    // A piece by TCP, 1 MiB of partial results of a node and its header, is sent at once, not in
    // segments of 8 KiB with a handshake before them. UCX's own sizes come with the prefix TCP_
    // from the environment, and without it here.
    if (tcp && std::getenv("UCX_TCP_TX_SEG_SIZE") == nullptr &&
        std::getenv("UCX_TCP_RX_SEG_SIZE") == nullptr) {
      for (const char* name : {"RX_SEG_SIZE", "TX_SEG_SIZE"})
        ucp_config_modify(config, name, "1100k");
    }
    ucp_params_t context_params{};
    context_params.field_mask = UCP_PARAM_FIELD_FEATURES;
    context_params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    status = ucp_init(&context_params, config, &context_);
    ucp_config_release(config);
    if (status != UCS_OK) return Error("UCX", status);

    ucp_worker_params_t worker_params{};
    worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
    status = ucp_worker_create(context_, &worker_params, &worker_);
    if (status != UCS_OK) return Error("UCX worker", status);
    int wakeup = -1;
    status = ucp_worker_get_efd(worker_, &wakeup);
    if (status != UCS_OK) return Error("UCX wake-up", status);
    wakeup_fd_ = wakeup;
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
    handler.id = kMessageId;
    handler.cb = &UcxTransport::OnMessage;
    handler.arg = this;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    status = ucp_worker_set_am_recv_handler(worker_, &handler);
    if (status != UCS_OK) return Error("UCX handler", status);
    ucp_address_t* address = nullptr;
    size_t length = 0;
    status = ucp_worker_get_address(worker_, &address, &length);
    if (status != UCS_OK) return Error("UCX address", status);
    address_ = WithDigest({reinterpret_cast<const char*>(address), length});
    ucp_worker_release_address(worker_, address);
    posted_fd_ = base::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!posted_fd_.valid()) return absl::UnavailableError("no descriptor for the transport");
    thread_ = std::thread([this] { Loop(); });
    return absl::OkStatus();
  }

  std::string address() const override { return address_; }

  void Send(const std::string& to, std::string header, absl::Span<const std::byte> payload,
            std::function<void(absl::Status)> sent) override {
    Post([this, to, header = std::move(header), payload, sent = std::move(sent)]() mutable {
      SendNow(to, std::move(header), payload, std::move(sent));
    });
  }

 private:
  struct Peer {
    ucp_ep_h endpoint = nullptr;
    bool lost = false;
  };
  struct Outgoing {
    std::string header;
    std::function<void(absl::Status)> sent;
  };
  struct Incoming {
    UcxTransport* transport;
    std::function<void(absl::Status)> landed;
  };

  void Post(std::function<void()> task) {
    bool first;
    {
      base::MutexLock lock(mutex_);
      first = posted_.empty();
      posted_.push_back(std::move(task));
    }
    if (!first) return;  // the thread is awake, or about to be
    const uint64_t one = 1;
    (void)!write(posted_fd_.get(), &one, sizeof(one));
  }

  bool RunPosted() {
    std::deque<std::function<void()>> tasks;
    {
      base::MutexLock lock(mutex_);
      tasks.swap(posted_);
    }
    for (auto& task : tasks) task();
    return !tasks.empty();
  }

  void Loop() {
    while (!stopping_) {
      while (ucp_worker_progress(worker_) != 0 || RunPosted()) {
      }
      if (stopping_) break;
      // Refused when something has come in meanwhile.
      if (ucp_worker_arm(worker_) != UCS_OK) continue;
      pollfd events[2] = {{wakeup_fd_, POLLIN, 0}, {posted_fd_.get(), POLLIN, 0}};
      if (poll(events, 2, -1) < 0) continue;
      uint64_t count = 0;
      if (events[1].revents != 0) (void)!read(posted_fd_.get(), &count, sizeof(count));
    }
    while (!peers_.empty()) Close(peers_.begin()->first);
    // What was under way is told of its end before the worker goes.
    for (int i = 0; i < 10'000 && (pending_ > 0 || ucp_worker_progress(worker_) != 0); ++i)
      ucp_worker_progress(worker_);
  }

  ucp_ep_h EndpointTo(const std::string& to) {
    const auto it = peers_.find(to);
    if (it != peers_.end() && !it->second->lost) return it->second->endpoint;
    // Whoever was lost may be back: hosts are cut off and mended. Others never come again.
    CloseLost();
    const absl::string_view address = CheckedAddress(to);
    if (address.empty()) return nullptr;
    auto peer = std::make_unique<Peer>();
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = [](void* argument, ucp_ep_h, ucs_status_t) {
      static_cast<Peer*>(argument)->lost = true;
    };
    params.err_handler.arg = peer.get();
    if (ucp_ep_create(worker_, &params, &peer->endpoint) != UCS_OK) return nullptr;
    return peers_.emplace(to, std::move(peer)).first->second->endpoint;
  }

  void SendNow(const std::string& to, std::string header, absl::Span<const std::byte> payload,
               std::function<void(absl::Status)> sent) {
    const ucp_ep_h endpoint = EndpointTo(to);
    if (endpoint == nullptr) return sent(absl::UnavailableError("the peer's process is lost"));
    auto outgoing = std::make_unique<Outgoing>(Outgoing{std::move(header), std::move(sent)});
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    params.user_data = outgoing.get();
    params.cb.send = [](void* request, ucs_status_t status, void* data) {
      std::unique_ptr<Outgoing> done(static_cast<Outgoing*>(data));
      ucp_request_free(request);
      done->sent(status == UCS_OK ? absl::OkStatus() : Error("sending to a peer", status));
    };
    const ucs_status_ptr_t request =
        ucp_am_send_nbx(endpoint, kMessageId, outgoing->header.data(), outgoing->header.size(),
                        payload.data(), payload.size(), &params);
    if (request == nullptr) return outgoing->sent(absl::OkStatus());
    if (UCS_PTR_IS_ERR(request))
      return outgoing->sent(Error("sending to a peer", UCS_PTR_STATUS(request)));
    (void)outgoing.release();
  }

  void CloseLost() {
    std::vector<std::string> lost;
    for (const auto& [address, peer] : peers_) {
      if (peer->lost) lost.push_back(address);
    }
    for (const std::string& address : lost) Close(address);
  }

  void Close(const std::string& to) {
    const auto it = peers_.find(to);
    if (it == peers_.end()) return;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_EP_CLOSE_FLAG_FORCE;
    const ucs_status_ptr_t request = ucp_ep_close_nbx(it->second->endpoint, &params);
    if (UCS_PTR_IS_PTR(request)) {
      while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker_);
      ucp_request_free(request);
    }
    peers_.erase(it);
  }

  static ucs_status_t OnMessage(void* self, const void* header, size_t header_length, void* data,
                                size_t length, const ucp_am_recv_param_t* param) {
    auto* transport = static_cast<UcxTransport*>(self);
    Landing landing = transport->receiver_(
        absl::string_view(static_cast<const char*>(header), header_length), length);
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
      if (landing.buffer != nullptr && length > 0) std::memcpy(landing.buffer, data, length);
      if (landing.landed) landing.landed(absl::OkStatus());
      return UCS_OK;
    }
    if (landing.buffer == nullptr) {
      if (landing.landed) landing.landed(absl::OkStatus());
      return UCS_OK;
    }
    auto incoming = std::make_unique<Incoming>(Incoming{transport, std::move(landing.landed)});
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    params.user_data = incoming.get();
    params.cb.recv_am = [](void* request, ucs_status_t status, size_t, void* context) {
      std::unique_ptr<Incoming> done(static_cast<Incoming*>(context));
      --done->transport->pending_;
      ucp_request_free(request);
      if (done->landed)
        done->landed(status == UCS_OK ? absl::OkStatus() : Error("receiving from a peer", status));
    };
    const ucs_status_ptr_t request =
        ucp_am_recv_data_nbx(transport->worker_, data, landing.buffer, length, &params);
    if (UCS_PTR_IS_PTR(request)) {
      ++transport->pending_;
      (void)incoming.release();
    } else if (incoming->landed) {
      incoming->landed(request == nullptr
                           ? absl::OkStatus()
                           : Error("receiving from a peer", UCS_PTR_STATUS(request)));
    }
    return UCS_INPROGRESS;
  }

  const Receiver receiver_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int wakeup_fd_ = -1;
  base::UniqueFd posted_fd_;
  std::string address_;
  base::Mutex mutex_;
  std::deque<std::function<void()>> posted_ ABSL_GUARDED_BY(mutex_);
  // The transport's thread only.
  bool stopping_ = false;
  int pending_ = 0;  // payloads on their way to a buffer
  std::map<std::string, std::unique_ptr<Peer>> peers_;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> CreateUcxTransport(const UcxOptions& options,
                                                              Receiver receiver) {
  auto transport = std::make_unique<UcxTransport>(std::move(receiver));
  if (absl::Status status = transport->Start(options); !status.ok()) return status;
  return transport;
}

}  // namespace vpod::fabric
