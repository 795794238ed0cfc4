// vipu-server: the V-IPU controller.
#include <malloc.h>
#include <pwd.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/exit_code.h"
#include "device/base/status.h"
#include "device/base/text.h"
#include "device/engine/executors.h"
#include "server/controller/controller.h"
#include "server/end_points.h"
#include "server/http/controller_exporter.h"
#include "server/http/exporter.h"
#include "server/http/request_counter.h"
#include "server/restore.h"
#include "server/rpc/agent_gateway.h"
#include "server/rpc/call_guard.h"
#include "server/rpc/controller_services.h"
#include "server/rpc/daemon.h"
#include "server/rpc/liveness.h"
#include "server/security/certificates.h"
#include "server/server_options.h"

namespace vpod {
namespace {

using controller::Store;

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "vipu-server: error: %s\n", base::OneLine(status.message()).c_str());
  return code;
}

int Fail(const absl::Status& status) { return Fail(status, base::ExitCode(status)); }

absl::Status GenerateCertificates(const ServerOptions& options) {
  VPOD_RETURN_IF_ERROR(security::GenerateCertificates(options.certs_dir, options.tls_hosts));
  for (const char* role : {"server", "client"}) {
    std::printf("Generated %s TLS certificates in the directory: %s/%s\n", role,
                options.certs_dir.c_str(), role);
  }
  return absl::OkStatus();
}

// The name of the administrator that --init --secure creates.
std::string DefaultUser(const ServerOptions& options) {
  if (!options.default_user_id.empty()) return options.default_user_id;
  const passwd* entry = getpwuid(getuid());
  return entry == nullptr ? absl::StrCat(getuid()) : entry->pw_name;
}

// Makes the storage, and with --secure certificates and the first administrator. Names and folders
// are checked before anything is made.
absl::Status Init(const ServerOptions& options) {
  vipuadmin::User admin;
  admin.set_id(DefaultUser(options));
  admin.set_admin(true);
  if (options.secure) {
    VPOD_RETURN_IF_ERROR(controller::CheckId(admin.id()));
    VPOD_RETURN_IF_ERROR(security::CheckCanGenerate(options.certs_dir, options.tls_hosts));
  }
  VPOD_ASSIGN_OR_RETURN(const auto store,
                        Store::Open(options.storage, Store::OpenMode::kCreateOnly));
  std::printf("Initialised storage: %s\n", options.storage.c_str());
  if (!options.secure) return absl::OkStatus();
  VPOD_RETURN_IF_ERROR(GenerateCertificates(options));
  rpc::GrpcAgentGateway gateway(std::nullopt);
  VPOD_ASSIGN_OR_RETURN(const auto controller,
                        controller::Controller::Create(store.get(), &gateway));
  VPOD_ASSIGN_OR_RETURN(const std::string key, controller->CreateUser(admin, ""));
  std::printf("Default user is: %s\nAccess Key is: %s\n", admin.id().c_str(), key.c_str());
  return absl::OkStatus();
}

int Print(const absl::StatusOr<std::string>& text) {
  if (!text.ok()) return Fail(text.status(), 1);
  std::fputs(text->c_str(), stdout);
  return 0;
}

absl::Status Serve(const ServerOptions& options) {
  std::optional<base::Tls> tls;
  if (options.WithTls()) {
    auto read = base::ReadTls(options.ServerFiles());
    if (!read.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat(read.status().message(), "; 'vipu-server --tls-init' makes certificates"));
    }
    tls = *std::move(read);
  }
  VPOD_ASSIGN_OR_RETURN(const auto store,
                        Store::Open(options.storage, Store::OpenMode::kOpenOrCreate));
  if (options.take_over) VPOD_RETURN_IF_ERROR(store->TakeOver());
  rpc::GrpcAgentGateway gateway(tls);
  controller::ControllerOptions controller_options = options.controller;
  controller_options.on_fenced = [] { kill(getpid(), SIGTERM); };
  VPOD_ASSIGN_OR_RETURN(
      const auto controller,
      controller::Controller::Create(store.get(), &gateway, std::move(controller_options)));
  if (options.secure && !controller->users().HasAdmin()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "storage ", options.storage,
        " has no administrator; make one with --init --secure, or in an existing storage with "
        "'vipu-admin create user <id> --admin' while vipu-server runs without --secure"));
  }
  if (!options.secure && controller->users().HasAdmin()) {
    spdlog::warn("storage {} has users, but without --secure nobody is asked for an access key",
                 options.storage);
  }
  http::RequestCounter requests;
  rpc::Liveness liveness;
  VPOD_ASSIGN_OR_RETURN(
      const auto metrics,
      http::StartExporter(
          options.metrics_listen, "127.0.0.1:2113",
          http::ControllerRoutes({*controller, requests, [&] { return liveness.Status(); }},
                                 options.secure)));
  rpc::ControllerServices services(*controller, options.secure, metrics->endpoint());
  rpc::Authenticate authenticate;
  if (options.secure) {
    authenticate = std::bind_front(&controller::Users::Authenticate, &controller->users());
  }
  {
    engine::Executors executors(1);
    EndPoints end_points(options, services, requests, executors);
    VPOD_RETURN_IF_ERROR(end_points.Open(rpc::GuardedCredentials(tls, authenticate)));
    spdlog::info("serving users on {}, administrators on {}, metrics on {}, storage {}, {}",
                 options.user_listen,
                 options.OneSocket() ? options.user_listen : options.admin_listen,
                 metrics->endpoint(), options.storage,
                 options.secure ? "secure"
                 : options.tls  ? "with TLS"
                                : "without security");
    const auto ticker = executors.Every(options.controller.tick_interval, [&] {
      controller->Tick();
      liveness.Beat();
    });
    rpc::NotifyReady();
    liveness.Start({.questions = end_points.Questions(), .tls = tls});
    spdlog::info("stopping on signal {}", rpc::WaitForStopSignal());
    liveness.Stop();
    controller->users().EndTrials();
  }
  gateway.Stop();
  return controller->fenced();
}

absl::Status CheckEndPoints(const ServerOptions& options) {
  const bool beyond = options.WithTls() || options.insecure_listen;
  VPOD_RETURN_IF_ERROR(rpc::CheckEndPointOption("--user-api-listen", options.user_listen, beyond,
                                                rpc::kTlsOrInsecureListen));
  if (!options.admin_listen.empty())
    VPOD_RETURN_IF_ERROR(rpc::CheckEndPointOption("--admin-api-listen", options.admin_listen,
                                                  beyond, rpc::kTlsOrInsecureListen));
  if (options.metrics_listen.empty()) return absl::OkStatus();
  return rpc::CheckEndPointOption("--metrics-listen", options.metrics_listen,
                                  options.insecure_listen, rpc::kInsecureListen);
}

int Main(int argc, char** argv) {
  // Hashing a key takes 16 MiB for a moment. Left alone, the allocator learns from that to keep as
  // much for every thread.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  rpc::BlockStopSignals();
  rpc::AllowManyDescriptors();
  const auto parsed = ParseServerOptions(argc, argv);
  if (!parsed.ok()) return Fail(parsed.status());
  if (!parsed->has_value()) return 0;
  const ServerOptions& options = **parsed;
  if (options.version) {
    std::printf("version: %s\n", controller::kVersion);
    return 0;
  }
  if (absl::Status status = rpc::SetUpLog(options.log_level, options.log_file); !status.ok())
    return Fail(status);
  if (absl::Status status = CheckEndPoints(options); !status.ok()) return Fail(status);
  if (options.check) {
    const absl::Status status = CheckStorage(options.storage);
    if (!status.ok()) return Fail(status, 1);
    std::printf("storage %s is intact\n", base::Printable(options.storage, PATH_MAX).c_str());
    return 0;
  }
  if (!options.salvage.empty()) return Print(Salvage(options.storage, options.salvage));
  if (!options.restore.empty()) return Print(Restore(options.restore, options.storage));
  if (options.init || options.tls_init) {
    const absl::Status status = options.init ? Init(options) : GenerateCertificates(options);
    return status.ok() ? 0 : Fail(status);
  }
  const absl::Status status = Serve(options);
  return status.ok() ? 0 : Fail(status, 1);
}

}  // namespace
}  // namespace vpod

int main(int argc, char** argv) { return vpod::Main(argc, argv); }
