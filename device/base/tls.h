// TLS of the POD: every daemon and client shows a certificate of the POD's own authority
// (spec/vipu.md 3). Credentials for gRPC are made of these in device/base/grpc_connect.h.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace vpod::base {

// Paths of PEM files; all empty: no TLS.
struct TlsFiles {
  std::string ca;
  std::string certificate;
  std::string key;

  bool empty() const { return ca.empty() && certificate.empty() && key.empty(); }
};

// The files and their contents.
struct Tls {
  TlsFiles files;
  std::string ca;
  std::string certificate;
  std::string key;
};

// InvalidArgument: a file is not named or no PEM, or the key is not the certificate's.
// FailedPrecondition: a file cannot be read.
absl::StatusOr<Tls> ReadTls(const TlsFiles& files);

// Name that the certificates of controller and agents carry beside the host's, so that one
// certificate serves agents at any address. Clients of agents ask for it.
inline constexpr char kAgentName[] = "vipu-agent";

// Whether a certificate (PEM) is one of a daemon: those may be used by servers, those of users by
// clients only.
bool IsServerCertificate(const std::string& pem);

}  // namespace vpod::base
