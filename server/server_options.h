// Options of vipu-server from its command line and its configuration file (spec/vipu.md 3).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/base/tls.h"
#include "server/controller/controller.h"

namespace vpod {

struct ServerOptions {
  bool init = false;      // create the storage, then exit
  bool tls_init = false;  // generate certificates, then exit
  bool secure = false;    // users show access keys; implies TLS
  bool tls = false;
  bool insecure_listen = false;
  bool version = false;
  std::string default_user_id;  // of --init --secure; empty: the OS user
  std::vector<std::string> tls_hosts;
  std::string storage = "vipu-server.db";
  bool take_over = false;  // from a controller that is gone for good
  bool check = false;      // say whether the storage is intact, then exit
  std::string salvage;     // where to save what is intact of the storage, then exit; empty: nowhere
  std::string restore;     // a backup that takes the storage's place, then exit; empty: none
  std::string certs_dir = "vipu-certs";
  std::string user_listen = "127.0.0.1:8090";
  std::string admin_listen;    // empty: the user end-point's
  std::string metrics_listen;  // empty: 127.0.0.1:2113, or a free port if it is taken
  std::string log_level = "info";
  std::string log_file;  // empty: stderr
  controller::ControllerOptions controller;

  bool WithTls() const { return secure || tls; }
  bool OneSocket() const { return admin_listen.empty() || admin_listen == user_listen; }
  // The server's own certificate below certs_dir.
  base::TlsFiles ServerFiles() const;
};

// The options; nothing when help was asked for and given. InvalidArgument: wrong usage, the
// message says what to do. FailedPrecondition: the file of --config cannot be read.
absl::StatusOr<std::optional<ServerOptions>> ParseServerOptions(int argc, const char* const* argv);

}  // namespace vpod
