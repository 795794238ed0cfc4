#include "client/launch/instance_reports.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "device/base/random_id.h"
#include "device/base/status.h"

namespace vpod::launch {
namespace {

constexpr int kFinishMilliseconds = 1000;
constexpr size_t kLongestLine = 512;
constexpr size_t kMostAddresses = 16;

// Whether an IPv4 address belongs to "10.5.0.0/16". If the text is not such a network, every
// address belongs to it: mpirun, which gets the same words, may know it by the interface's name.
bool IsOf(const in_addr& address, const std::string& subnet) {
  const std::vector<std::string> parts = absl::StrSplit(subnet, '/');
  in_addr network{};
  uint32_t bits = 0;
  if (parts.size() != 2 || inet_pton(AF_INET, parts[0].c_str(), &network) != 1 ||
      !absl::SimpleAtoi(parts[1], &bits) || bits > 32) {
    return true;
  }
  const uint32_t mask = bits == 0 ? 0 : ~uint32_t{0} << (32 - bits);
  return (ntohl(address.s_addr) & mask) == (ntohl(network.s_addr) & mask);
}

std::vector<std::string> AddressesFor(const InstanceReports::Options& options, uint16_t port) {
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (options.other_hosts && getifaddrs(&list) == 0) {
    for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET ||
          (each->ifa_flags & IFF_UP) == 0 || (each->ifa_flags & IFF_LOOPBACK) != 0) {
        continue;
      }
      const in_addr& address = reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr;
      char text[INET_ADDRSTRLEN];
      if (!IsOf(address, options.subnet) || addresses.size() == kMostAddresses) continue;
      addresses.push_back(
          absl::StrCat(inet_ntop(AF_INET, &address, text, sizeof(text)), ":", port));
    }
    freeifaddrs(list);
  }
  addresses.push_back(absl::StrCat("127.0.0.1:", port));
  return addresses;
}

bool IsError(const InstanceReport& report) {
  return report.kind == ReportKind::kEnded && report.status != 0;
}

}  // namespace

std::optional<FirstEnd> FindFirstEnd(const std::vector<InstanceReport>& reports, int instances) {
  std::map<int, const InstanceReport*> started, told, ended;
  for (const InstanceReport& report : reports) {
    auto& of_kind = report.kind == ReportKind::kStarted     ? started
                    : report.kind == ReportKind::kToldToEnd ? told
                                                            : ended;
    of_kind.emplace(report.instance, &report);
  }
  const InstanceReport* first = nullptr;
  for (const auto& [instance, end] : ended) {
    if (!IsError(*end) || told.contains(instance)) continue;
    if (first == nullptr || end->time < first->time) first = end;
  }
  const auto end_of = [](const InstanceReport& report, std::optional<int> status) {
    return FirstEnd{report.instance, report.pid, report.host, status, report.pid_namespace};
  };
  if (first != nullptr) return end_of(*first, first->status);
  std::vector<int> silent;
  for (int i = 0; i < instances; ++i) {
    if (!told.contains(i) && !ended.contains(i)) silent.push_back(i);
  }
  // If nobody says anything, it is the reports that do not arrive.
  if (silent.size() != 1 || (instances > 1 && reports.empty())) return std::nullopt;
  const auto it = started.find(silent[0]);
  if (it == started.end()) return FirstEnd{silent[0], 0, "", std::nullopt, ""};
  return end_of(*it->second, std::nullopt);
}

std::optional<size_t> FindPlaceToFree(const std::vector<std::optional<uint32_t>>& strangers) {
  struct Places {
    size_t oldest = 0, count = 0;
  };
  std::map<uint32_t, Places> of_address;
  for (size_t i = 0; i < strangers.size(); ++i) {
    if (!strangers[i].has_value()) continue;
    // A process may connect from any address of the loopback network.
    const bool is_loopback = *strangers[i] >> 24 == IN_LOOPBACKNET;
    Places& places = of_address[is_loopback ? INADDR_LOOPBACK : *strangers[i]];
    if (places.count++ == 0) places.oldest = i;
  }
  const auto most = std::max_element(
      of_address.begin(), of_address.end(),
      [](const auto& a, const auto& b) { return a.second.count < b.second.count; });
  if (most == of_address.end()) return std::nullopt;
  return most->second.oldest;
}

absl::StatusOr<std::unique_ptr<InstanceReports>> InstanceReports::Listen(const Options& options) {
  const auto failed = [] {
    return absl::UnavailableError(absl::StrCat("cannot listen: ", std::strerror(errno)));
  };
  base::UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(options.other_hosts ? INADDR_ANY : INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (!listener.valid() ||
      bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener.get(), SOMAXCONN) != 0 ||
      getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return failed();
  }
  std::string token = base::RandomId();
  const std::string where =
      absl::StrCat(token, "@", absl::StrJoin(AddressesFor(options, ntohs(address.sin_port)), ","));
  return std::unique_ptr<InstanceReports>(
      new InstanceReports(options, std::move(token), std::move(listener), where));
}

InstanceReports::InstanceReports(Options options, std::string token, base::UniqueFd listener,
                                 std::string where)
    : options_(std::move(options)),
      token_(std::move(token)),
      where_(std::move(where)),
      listener_(std::move(listener)),
      finish_(eventfd(0, EFD_CLOEXEC)),
      thread_([this] { Serve(); }) {}

InstanceReports::~InstanceReports() {
  if (thread_.joinable()) Finish();
}

std::vector<InstanceReport> InstanceReports::Finish() {
  const uint64_t one = 1;
  (void)!write(finish_.get(), &one, sizeof(one));
  thread_.join();
  return reports_;
}

void InstanceReports::Serve() {
  while (ServeOnce(-1)) {
  }
  // mpirun has ended, and so have the supervisors: what they said is here or on its way.
  const auto end = SinceBoot() + std::chrono::milliseconds(kFinishMilliseconds);
  finish_.Reset();
  while (ServeOnce(0) || (!connections_.empty() && SinceBoot() < end)) ServeOnce(20);
}

bool InstanceReports::ServeOnce(int limit_ms) {
  std::vector<pollfd> waits = {{listener_.get(), POLLIN, 0}, {finish_.get(), POLLIN, 0}};
  for (const Connection& each : connections_) waits.push_back({each.fd.get(), POLLIN, 0});
  if (poll(waits.data(), waits.size(), limit_ms) <= 0) return limit_ms < 0;
  for (size_t i = 2; i < waits.size(); ++i) {
    if (waits[i].revents != 0) Read(connections_[i - 2]);
  }
  std::erase_if(connections_, [](const Connection& each) { return !each.fd.valid(); });
  if (waits[0].revents != 0) Accept();
  return waits[1].revents == 0;
}

void InstanceReports::Accept() {
  sockaddr_in peer{};
  socklen_t length = sizeof(peer);
  base::UniqueFd fd(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&peer), &length,
                            SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid() || !MakeRoom()) return;
  connections_.push_back({std::move(fd), ntohl(peer.sin_addr.s_addr), ""});
  Read(connections_.back());
}

bool InstanceReports::MakeRoom() {
  // The number of places is bounded, because any process can connect. When all are taken, a
  // connection that has not shown the token is closed. Supervisors show it as soon as they connect.
  const size_t most = static_cast<size_t>(options_.instances) * 2 + 16;
  if (connections_.size() < most) return true;
  std::vector<std::optional<uint32_t>> strangers;
  for (const Connection& each : connections_) {
    strangers.push_back(each.has_shown_token ? std::nullopt : std::optional(each.address));
  }
  const std::optional<size_t> place = FindPlaceToFree(strangers);
  if (!place.has_value()) return false;
  connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(*place));
  return true;
}

void InstanceReports::Add(InstanceReport report) {
  const bool was_told = std::any_of(reports_.begin(), reports_.end(), [&](const auto& other) {
    return other.instance == report.instance && other.kind == ReportKind::kToldToEnd;
  });
  if (report.kind == ReportKind::kEnded && report.status == 0 && !was_told)
    options_.on_success(report);
  reports_.push_back(std::move(report));
}

void InstanceReports::Read(Connection& connection) {
  char buffer[kLongestLine];
  const ssize_t length = read(connection.fd.get(), buffer, sizeof(buffer));
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (length <= 0) return connection.fd.Reset();
  connection.received.append(buffer, static_cast<size_t>(length));
  for (size_t end; (end = connection.received.find('\n')) != std::string::npos;) {
    auto report = ParseReport(connection.received.substr(0, end), token_);
    connection.received.erase(0, end + 1);
    if (!report.has_value() || report->instance < 0 || report->instance >= options_.instances ||
        reports_.size() > static_cast<size_t>(options_.instances) * 8) {
      return connection.fd.Reset();
    }
    connection.has_shown_token = true;
    if (report->boot_id != boot_id_) report->time = SinceBoot();
    Add(*std::move(report));
  }
  if (connection.received.size() > kLongestLine) connection.fd.Reset();
}

}  // namespace vpod::launch
