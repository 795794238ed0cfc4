#include "device/base/connection_failure.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "device/base/unique_fd.h"

namespace vpod::base {
namespace {

constexpr char kNobody[] = "nobody listens there";
constexpr char kNoRoute[] = "there is no route to that host";
constexpr char kOtherServer[] = "another kind of server listens there";

// What gRPC 1.51 and OpenSSL 3.0 say, who tell failures apart in words only, and what it means. The
// first that is found counts.
constexpr std::pair<const char*, const char*> kMeanings[] = {
    {"Connection refused", kNobody},
    {"No such file or directory", kNobody},  // a Unix socket
    {"No route to host", kNoRoute},
    {"Network is unreachable", kNoRoute},
    {"http1.x server", kOtherServer},
    {"Failed parsing HTTP/2", kOtherServer},
    {"Received http2 header", kOtherServer},
    {"timed out", kSilence},
    {"Timeout occurred", kSilence},
    {"Hostname Verification", "its certificate is one of another host"},
    {"No match found", "its certificate is one of another host"},
    {"wrong version number", "it does not speak TLS"},
};

std::string HostOf(const std::string& endpoint) {
  absl::string_view host = absl::string_view(endpoint).substr(0, endpoint.rfind(':'));
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  return std::string(host);
}

// Whether somebody takes connections there. A server that was killed while it answered closes them
// with the same words as one that expects something else of us.
bool Listens(const std::string& endpoint) {
  const size_t colon = endpoint.rfind(':');
  if (colon == std::string::npos) return false;
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(HostOf(endpoint).c_str(), &endpoint[colon + 1], &hints, &list) != 0) return false;
  const UniqueFd fd(socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience{2, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));  // also of connect
  const bool connected = connect(fd.get(), list->ai_addr, list->ai_addrlen) == 0;
  freeaddrinfo(list);
  return connected;
}

}  // namespace

bool IsConnectionFailure(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
}

std::string ConnectionFailure(const std::optional<Tls>& tls, const std::string& endpoint,
                              const grpc::Status& status) {
  const std::string text = status.error_message();
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) return kSilence;
  if (absl::StrContains(text, "DNS resolution failed"))
    return absl::StrCat("the name '", HostOf(endpoint), "' is unknown");
  if (tls.has_value() && absl::StrContains(text, "certificate verify failed")) {
    return absl::StrCat("its certificate is not a server's of the authority in ", tls->files.ca);
  }
  for (const auto& [words, meaning] : kMeanings) {
    if (absl::StrContains(text, words)) return meaning;
  }
  if (!absl::StrContains(text, "failed to connect to all addresses") || !Listens(endpoint))
    return "the connection broke off";
  return tls.has_value() ? absl::StrCat(
                               "it closed the connection: it may not accept the "
                               "certificate ",
                               tls->files.certificate)
                         : "it closed the connection: it may expect TLS (--tls-ca, --tls-cert, "
                           "--tls-key)";
}

bool IsBusy(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
         status.error_message() == kBusy;
}

std::string AsSentence(const std::string& phrase) {
  std::string sentence = absl::StrCat(phrase, ".");
  sentence[0] = absl::ascii_toupper(static_cast<unsigned char>(sentence[0]));
  return sentence;
}

}  // namespace vpod::base
