#include "client/ipuof/agent_connection.h"

#include <dirent.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "device/base/grpc_connect.h"
#include "device/base/mutex.h"
#include "device/base/status.h"
#include "device/base/unique_fd.h"

namespace vpod::ipuof {
namespace {

// Closes descriptors that lead to leases' agents on other hosts. Such agents see only whether this
// host's kernel answers, as it does while a forked child holds the client's sockets.
class ForkedChildren {
 public:
  static void CloseThere(const addrinfo& agent) {
    static base::Mutex mutex;
    base::MutexLock lock(mutex);
    const Agents* before = agents_.load();
    const sockaddr_in6 address = Mapped(*agent.ai_addr);
    if (before != nullptr && Contains(*before, address)) return;
    auto after = std::make_unique<Agents>(before == nullptr ? Agents() : *before);
    after->push_back(address);
    // A child reads it without a lock, whatever the other threads were doing: none is freed.
    agents_ = after.release();
    if (before == nullptr) pthread_atfork(nullptr, nullptr, &ForkedChildren::Close);
  }

 private:
  using Agents = std::vector<sockaddr_in6>;

  // gRPC's sockets are of IPv6, with IPv4 mapped into it.
  static sockaddr_in6 Mapped(const sockaddr& address) {
    sockaddr_in6 mapped{};
    if (address.sa_family == AF_INET6) {
      std::memcpy(&mapped, &address, sizeof(mapped));
    } else if (address.sa_family == AF_INET) {
      const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
      mapped.sin6_port = v4.sin_port;
      mapped.sin6_addr.s6_addr[10] = mapped.sin6_addr.s6_addr[11] = 0xff;
      std::memcpy(&mapped.sin6_addr.s6_addr[12], &v4.sin_addr, sizeof(v4.sin_addr));
    }
    return mapped;
  }

  static bool Contains(const Agents& agents, const sockaddr_in6& address) {
    return std::any_of(agents.begin(), agents.end(), [&](const sockaddr_in6& agent) {
      return agent.sin6_port == address.sin6_port &&
             std::memcmp(&agent.sin6_addr, &address.sin6_addr, sizeof(in6_addr)) == 0;
    });
  }

  static bool LeadsToAgent(int fd) {
    sockaddr_storage peer{};
    socklen_t length = sizeof(peer);
    return getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0 &&
           Contains(*agents_.load(), Mapped(reinterpret_cast<const sockaddr&>(peer)));
  }

  // In the child. Its copies of gRPC's objects keep their numbers, which must not become another's.
  static void Close() {
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    DIR* descriptors = opendir("/proc/self/fd");
    if (nothing < 0 || descriptors == nullptr) return;
    while (const dirent* entry = readdir(descriptors)) {
      const int fd = std::atoi(entry->d_name);
      if (LeadsToAgent(fd)) dup3(nothing, fd, O_CLOEXEC);
    }
    closedir(descriptors);
    close(nothing);
  }

  static inline std::atomic<const Agents*> agents_{nullptr};
};

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

// The addresses of host:port; null if it cannot be resolved.
Addresses Resolve(const std::string& endpoint) {
  const size_t colon = endpoint.rfind(':');
  absl::string_view host = absl::string_view(endpoint).substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* addresses = nullptr;
  if (colon == std::string::npos ||
      getaddrinfo(std::string(host).c_str(), &endpoint[colon + 1], &hints, &addresses) != 0) {
    addresses = nullptr;
  }
  return {addresses, freeaddrinfo};
}

// Whether the way to an endpoint does not leave this host: only addresses of ours can be bound.
bool StaysOnHost(const std::string& endpoint) {
  const Addresses addresses = Resolve(endpoint);
  if (addresses == nullptr) return false;
  sockaddr_storage address{};
  std::memcpy(&address, addresses->ai_addr, addresses->ai_addrlen);
  reinterpret_cast<sockaddr_in&>(address).sin_port = 0;  // at the same place in sockaddr_in6
  const base::UniqueFd fd(socket(addresses->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return fd.valid() &&
         bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), addresses->ai_addrlen) == 0;
}

}  // namespace

std::string EndpointOf(const vipuuser::IpuofDevice& device) {
  return device.endpoint().empty() ? absl::StrCat(device.ip(), ":", device.server_port())
                                   : device.endpoint();
}

std::string NameOfAgent(const vipu::ActivePartition& partition, const std::string& endpoint) {
  std::vector<std::string> ids;
  for (const vipuuser::IpuofDevice& device : partition.config.devices()) {
    if (EndpointOf(device) != endpoint || device.agent_id().empty()) continue;
    if (ids.empty() || ids.back() != device.agent_id()) ids.push_back(device.agent_id());
  }
  if (ids.empty()) return absl::StrCat("the agent at ", endpoint);
  if (ids.size() == 1) return absl::StrCat("agent ", ids[0], " at ", endpoint);
  return absl::StrCat("agents ", ids.front(), " to ", ids.back(), " at ", endpoint);
}

absl::StatusOr<std::unique_ptr<v1::Ipuof::Stub>> ConnectToAgent(
    const std::string& endpoint, const vipu::ActivePartition& partition) {
  VPOD_RETURN_IF_ERROR(base::CheckMayConnect());
  VPOD_ASSIGN_OR_RETURN(const auto tls, vipu::TlsOf(partition.controller));
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(16 << 20);
  // Before mpirun gives the agent's host up and blames an instance. Agents answer whatever their
  // kernels do; but on one host a thousand clients that ask each second would take all its time.
  const bool near = StaysOnHost(endpoint);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, near ? 5000 : 1000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, near ? 10000 : 3000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return v1::Ipuof::NewStub(base::Connect(endpoint, base::Peer::kAgent, tls, arguments));
}

absl::StatusOr<std::shared_ptr<Pulse>> Pulse::Start(const std::string& endpoint,
                                                    const vipu::ActivePartition& partition,
                                                    const std::string& lease_id) {
  VPOD_ASSIGN_OR_RETURN(const auto tls, vipu::TlsOf(partition.controller));
  const Addresses addresses = Resolve(endpoint);
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next)
    ForkedChildren::CloseThere(*each);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  auto pulse = std::make_shared<Pulse>();
  pulse->request_.set_lease_id(lease_id);
  pulse->stub_ = v1::Ipuof::NewStub(base::Connect(endpoint, base::Peer::kAgent, tls, arguments));
  base::KeepCallbackThreads();
  // The Attach stream reports why a pulse ends.
  pulse->stub_->async()->Pulse(&pulse->context_, &pulse->request_, &pulse->reply_,
                               [pulse](const grpc::Status&) {});
  return pulse;
}

}  // namespace vpod::ipuof
