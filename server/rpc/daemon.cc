#include "server/rpc/daemon.h"

#include <arpa/inet.h>
#include <google/protobuf/stubs/logging.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/base/text.h"
#include "server/rpc/log_sinks.h"

namespace vpod::rpc {
namespace {

// SIGHUP is one of them, though it stops nothing: a terminal that closes, or an administrator who
// expects configuration to be read again, must not end the jobs of all users.
sigset_t HandledSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  return signals;
}

// Whether a descriptor of this process is a socket that listens on `port`.
bool ListensOn(int fd, int port) {
  int listens = 0;
  socklen_t size = sizeof(listens);
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) return false;
  sockaddr_storage address{};
  size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return false;
  if (address.ss_family == AF_INET)
    return ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port) == port;
  return address.ss_family == AF_INET6 &&
         ntohs(reinterpret_cast<sockaddr_in6&>(address).sin6_port) == port;
}

// Tells the service manager, if there is one.
void Notify(absl::string_view message) {
  const char* asked = std::getenv("NOTIFY_SOCKET");
  const absl::string_view path = asked == nullptr ? "" : asked;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) return;
  std::copy(path.begin(), path.end(), address.sun_path);
  if (path[0] == '@') address.sun_path[0] = '\0';  // abstract
  const base::UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  // A manager that cannot be reached notices by its own timeout.
  sendto(fd.get(), message.data(), message.size(), MSG_NOSIGNAL,
         reinterpret_cast<const sockaddr*>(&address),
         static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size()));
}

// A message as one printable line of limited length: much of it comes from clients.
class PrintableMessage : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& to) override {
    const std::string text =
        base::Printable({message.payload.data(), message.payload.size()}, kLongestMessage);
    to.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<PrintableMessage>();
  }
};

}  // namespace

void BlockStopSignals() {
  const sigset_t signals = HandledSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // A shell script starts its background processes with an ignored SIGINT. Ignored signals of a
  // daemon mean that it is ending.
  for (const int stop : {SIGTERM, SIGINT}) std::signal(stop, SIG_DFL);
  std::signal(SIGPIPE, SIG_IGN);
  // A write beyond the limit of the file size is an error of that write, like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
}

void AllowManyDescriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int WaitForStopSignal() {
  const sigset_t signals = HandledSignals();
  while (true) {
    int number = 0;
    sigwait(&signals, &number);
    if (number != SIGHUP) {
      for (const int stop : {SIGTERM, SIGINT}) std::signal(stop, SIG_IGN);
      return number;
    }
    spdlog::info("going on after SIGHUP; options and certificates are read at the start only");
  }
}

void NotifyReady() { Notify("READY=1"); }
void NotifyAlive() { Notify("WATCHDOG=1"); }

void EndWithin(std::chrono::seconds limit) {
  std::thread([limit] {
    std::this_thread::sleep_for(limit);
    spdlog::warn("ending although work is under way that cannot be interrupted");
    spdlog::default_logger()->flush();
    std::_Exit(0);
  }).detach();
}

absl::Status SetUpLog(const std::string& level, const std::string& file) {
  const spdlog::level::level_enum parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off") {
    return absl::InvalidArgumentError(absl::StrCat(
        "unknown log level '", level, "'; use trace, debug, info, warn, error or off"));
  }
  const std::filesystem::path directory = std::filesystem::path(file).parent_path();
  std::error_code error;
  if (!directory.empty() && !std::filesystem::is_directory(directory, error)) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot write log file ", file, ": its directory does not exist"));
  }
  std::shared_ptr<spdlog::sinks::sink> to = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  if (!file.empty()) {
    VPOD_ASSIGN_OR_RETURN(to, RotatingFileSink::Open(file));
  }
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("vpod", std::make_shared<BudgetedSink>(std::move(to))));
  spdlog::set_level(parsed);
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<PrintableMessage>('*').set_pattern("%Y-%m-%dT%H:%M:%S.%e %P %l %*");
  spdlog::set_formatter(std::move(formatter));
  spdlog::flush_on(spdlog::level::info);
  // Clients may send anything; protobuf's remarks on it belong in the log, not on stderr.
  google::protobuf::SetLogHandler(
      [](google::protobuf::LogLevel, const char*, int, const std::string& message) {
        spdlog::debug("protobuf: {}", message);
      });
  return absl::OkStatus();
}

bool IsOnLoopback(absl::string_view address) {
  const std::string host(address.substr(0, address.rfind(':')));
  in_addr parsed;
  return host == "localhost" || host == "[::1]" ||
         (inet_pton(AF_INET, host.c_str(), &parsed) == 1 && ntohl(parsed.s_addr) >> 24 == 127);
}

absl::Status CheckEndPointOption(absl::string_view option, absl::string_view address,
                                 bool allowed_beyond, absl::string_view permit) {
  const auto refused = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": address '", base::Printable(address), "' ", why));
  };
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) return refused("is not host:port");
  uint32_t port = 0;  // gRPC takes a larger one modulo 65536
  if (!absl::SimpleAtoi(address.substr(colon + 1), &port) || port > 65535)
    return refused("needs a port from 0 to 65535");
  if (!allowed_beyond && !IsOnLoopback(address))
    return refused(absl::StrCat("reaches beyond this host; that takes ", permit));
  return absl::OkStatus();
}

void EndConnectionsOfLostHosts(int port) {
  constexpr int kOn = 1, kIdleSeconds = 1, kIntervalSeconds = 1, kProbes = 2;
  // gRPC's own limit of 20 s would take the place of the number of probes, and would end clients
  // that are only stopped (tcp(7)).
  constexpr int kNoUserTimeout = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    int fd = -1;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &fd) || !ListensOn(fd, port)) continue;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &kOn, sizeof(kOn));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &kIdleSeconds, sizeof(kIdleSeconds));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &kIntervalSeconds, sizeof(kIntervalSeconds));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof(kProbes));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kNoUserTimeout, sizeof(kNoUserTimeout));
  }
}

absl::StatusOr<AddressPair> AddressPairOf(const std::string& management_prefix) {
  int octet = 0;
  if (management_prefix.rfind("127.", 0) == 0 &&
      absl::SimpleAtoi(management_prefix.substr(4), &octet) && octet >= 10 && octet < 254 &&
      octet % 2 == 0) {
    return AddressPair{management_prefix, absl::StrCat("127.", octet + 1), {}};
  }
  return absl::InvalidArgumentError(absl::StrCat("addresses '", management_prefix,
                                                 "' are not valid; use 127.10, 127.12 … 127.252"));
}

absl::StatusOr<AddressPair> ClaimAddressPair(const std::string& management_prefix) {
  for (int k = 0; 11 + 2 * k < 255; ++k) {
    base::UniqueFd claim(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(8080);
    const std::string prefix = absl::StrCat("127.", 10 + 2 * k);
    if (!management_prefix.empty() && prefix != management_prefix) continue;
    // The last address of the pair is no machine's (PODs end at 65,534); holding it claims the
    // pair.
    inet_pton(AF_INET, absl::StrCat(prefix, ".255.255").c_str(), &address.sin_addr);
    if (bind(claim.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
      return AddressPair{prefix, absl::StrCat("127.", 11 + 2 * k), std::move(claim)};
    }
  }
  return absl::ResourceExhaustedError(
      management_prefix.empty()
          ? std::string("all 122 address pairs of local PODs are taken")
          : absl::StrCat("the addresses ", management_prefix, ".* are taken"));
}

}  // namespace vpod::rpc
