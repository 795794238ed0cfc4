// vipu-server: the V-IPU controller.
#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "device/engine/executors.h"
#include "server/controller/controller.h"
#include "server/http/controller_exporter.h"
#include "server/http/exporter.h"
#include "server/rpc/agent_gateway.h"
#include "server/rpc/controller_services.h"
#include "server/rpc/daemon.h"
#include "server/rpc/request_counter.h"

namespace vpod {
namespace {

constexpr char kConfigFile[] = "/etc/vipu/vipu-server.hcl";  // read when it is there

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "vipu-server: error: %s\n", std::string(status.message()).c_str());
  return code;
}

int Main(int argc, char** argv) {
  rpc::BlockStopSignals();
  std::string storage = "vipu-server.db", user_listen = "127.0.0.1:8090", admin_listen,
              metrics_listen, log_level = "info", log_file;
  bool init = false, insecure_listen = false, version = false;
  CLI::App app("The V-IPU controller: manages agents, clusters and partitions.", "vipu-server");
  app.add_flag("--init", init, "Create the storage, then exit");
  app.add_option("--storage", storage, "Database file")->capture_default_str();
  app.add_option("--user-api-listen", user_listen, "host:port of the user end-point")
      ->capture_default_str();
  app.add_option("--admin-api-listen", admin_listen,
                 "host:port of the admin end-point; default: the user end-point's");
  app.add_option(
      "--metrics-listen", metrics_listen,
      "host:port of the metrics; default: 127.0.0.1:2113, or a free port if it is taken");
  app.add_flag("--insecure-listen", insecure_listen,
               "Allow end-points beyond loopback without security");
  app.add_option("--log-level", log_level, "trace, debug, info, warn, error or off")
      ->capture_default_str();
  app.add_option("--log-file", log_file, "Log file; default stderr");
  app.add_flag("--version", version, "Print the version");
  app.set_config("--config", kConfigFile, "File with these options, a line key=\"value\" each");
  app.allow_config_extras(CLI::config_extras_mode::error);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ConfigError& error) {
    const absl::string_view setting = absl::StripPrefix(error.what(), "INI was not able to parse ");
    return Fail(absl::InvalidArgumentError(absl::StrCat(
                    "unknown setting '", setting, "' in ", app.get_config_ptr()->as<std::string>(),
                    "; they are the long options of 'vipu-server --help'")),
                2);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return Fail(
        absl::InvalidArgumentError(absl::StrCat(error.what(), ". Try 'vipu-server --help'.")), 2);
  }
  if (version) {
    std::printf("version: %s\n", controller::kVersion);
    return 0;
  }
  if (absl::Status status = rpc::SetUpLog(log_level, log_file); !status.ok())
    return Fail(status, 2);
  if (admin_listen.empty()) admin_listen = user_listen;
  for (const std::string& address : {user_listen, admin_listen, metrics_listen}) {
    if (address.empty()) continue;
    if (absl::Status status = rpc::CheckListenAddress(address, insecure_listen); !status.ok())
      return Fail(status, 2);
  }
  auto store = controller::Store::Open(storage, init ? controller::Store::OpenMode::kCreateOnly
                                                     : controller::Store::OpenMode::kOpenOrCreate);
  if (!store.ok()) return Fail(store.status(), 1);
  if (init) {
    std::printf("Initialised storage: %s\n", storage.c_str());
    return 0;
  }

  rpc::GrpcAgentGateway gateway;
  auto controller = controller::Controller::Create(*std::move(store), &gateway);
  if (!controller.ok()) return Fail(controller.status(), 1);
  rpc::RequestCounter requests;
  auto metrics = http::StartExporter(metrics_listen, "127.0.0.1:2113",
                                     http::ControllerRoutes(**controller, requests));
  if (!metrics.ok()) return Fail(metrics.status(), 1);
  rpc::ControllerServices services(**controller, (*metrics)->endpoint());
  grpc::ServerBuilder user_builder, admin_builder;
  int user_port = 0, admin_port = 0;
  // A port in use must be an error, not a share of somebody else's.
  user_builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  user_builder.AddListeningPort(user_listen, grpc::InsecureServerCredentials(), &user_port);
  services.RegisterUser(user_builder);
  const bool one_socket = admin_listen == user_listen;
  services.RegisterAdmin(one_socket ? user_builder : admin_builder);
  requests.Watch(user_builder);
  std::unique_ptr<grpc::Server> user_server = user_builder.BuildAndStart();
  std::unique_ptr<grpc::Server> admin_server;
  if (!one_socket) {
    admin_builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    admin_builder.AddListeningPort(admin_listen, grpc::InsecureServerCredentials(), &admin_port);
    requests.Watch(admin_builder);
    admin_server = admin_builder.BuildAndStart();
  }
  if (user_server == nullptr || user_port == 0 ||
      (!one_socket && (admin_server == nullptr || admin_port == 0))) {
    return Fail(absl::UnavailableError(absl::StrCat("cannot listen on ",
                                                    user_port == 0 ? user_listen : admin_listen,
                                                    "; is the port in use?")),
                1);
  }
  spdlog::info("serving users on {}, administrators on {}, metrics on {}, storage {}", user_listen,
               admin_listen, (*metrics)->endpoint(), storage);
  {
    engine::Executors executors(1);
    auto ticker = executors.Every(std::chrono::milliseconds(250), [&] { (*controller)->Tick(); });
    rpc::NotifyReady();
    spdlog::info("stopping on signal {}", rpc::WaitForStopSignal());
  }
  const auto deadline = std::chrono::system_clock::now() + std::chrono::milliseconds(200);
  user_server->Shutdown(deadline);
  if (admin_server != nullptr) admin_server->Shutdown(deadline);
  gateway.Stop();
  return 0;
}

}  // namespace
}  // namespace vpod

int main(int argc, char** argv) { return vpod::Main(argc, argv); }
