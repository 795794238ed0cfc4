#include "server/server_options.h"

#include <net/if.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "device/base/command_line.h"
#include "device/base/status.h"
#include "server/flag_values.h"

namespace vpod {
namespace {

constexpr char kConfigFile[] = "/etc/vipu/vipu-server.hcl";

// An option that is a time: "5", "5s", "250ms".
template <class Duration>
void AddTime(CLI::App& app, const std::string& name, Duration& value, const std::string& help) {
  app.add_option_function<std::string>(
         name,
         [&value, name](const std::string& text) {
           double seconds = 0;
           absl::Duration time;
           if (absl::SimpleAtod(text, &seconds)) {
             time = absl::Seconds(seconds);
           } else if (!absl::ParseDuration(text, &time)) {
             throw CLI::ValidationError(
                 name, absl::StrCat("'", text, "' is not a time; write 5s or 250ms"));
           }
           if (time < absl::ZeroDuration() || time > absl::Hours(24 * 365))
             throw CLI::ValidationError(
                 name, absl::StrCat("'", text, "' is out of range; use 0 s to 1 year"));
           value = std::chrono::duration_cast<Duration>(absl::ToChronoMilliseconds(time));
         },
         help)
      ->default_str(absl::FormatDuration(absl::FromChrono(value)));
}

// Returns the fault in the name of a network interface; empty if there is none.
std::string InterfaceTrouble(const std::string& name) {
  const bool good =
      !name.empty() && name.size() < IFNAMSIZ && name.find_first_of("/ \t\n") == std::string::npos;
  return good ? ""
              : absl::StrCat("'", name, "' is not a network interface; use a name such as eth0");
}

void AddOptions(CLI::App& app, ServerOptions& options) {
  app.add_flag(
      "--init", options.init,
      "Create the storage, then exit; with --secure also certificates and an administrator");
  app.add_flag("--tls-init", options.tls_init, "Generate certificates, then exit");
  app.add_flag("--secure", options.secure, "Ask users for access keys; implies --tls");
  app.add_flag("--tls", options.tls, "Serve only clients with a certificate of the POD");
  app.add_option("--default-user-id", options.default_user_id,
                 "Administrator that --init --secure creates; default: the OS user");
  app.add_option("--certs-dir", options.certs_dir, "Directory of the certificates")
      ->capture_default_str();
  app.add_option("--tls-hosts", options.tls_hosts,
                 "More names and addresses of this server for its certificate, comma-separated")
      ->delimiter(',');
  app.add_option("--storage", options.storage, "Database file")->capture_default_str();
  app.add_flag("--take-over", options.take_over,
               "Serve although another controller had taken over, which is gone for good");
  app.add_flag("--check", options.check,
               "Say whether the storage is intact, without changing it, then exit");
  app.add_option("--salvage", options.salvage,
                 "Save what is intact of a damaged storage to this new file, then exit");
  app.add_option("--restore", options.restore, "Replace the storage with this backup, then exit");
  app.add_option("--user-api-listen", options.user_listen, "host:port of the user end-point")
      ->capture_default_str();
  app.add_option("--admin-api-listen", options.admin_listen,
                 "host:port of the admin end-point; default: the user end-point's");
  app.add_option(
      "--metrics-listen", options.metrics_listen,
      "host:port of the metrics; default: 127.0.0.1:2113, or a free port if it is taken");
  app.add_option("--autodiscovery-listen-interfaces,-a",
                 options.controller.autodiscovery_interfaces,
                 "Machines whose management address is on one of these interfaces become agents "
                 "automatically; comma-separated")
      ->delimiter(',')
      ->check(CLI::Validator(InterfaceTrouble, ""));
  app.add_flag("--insecure-listen", options.insecure_listen,
               "Allow end-points beyond loopback without --secure or --tls");
  app.add_option("--log-level", options.log_level, "trace, debug, info, warn, error or off")
      ->capture_default_str();
  app.add_option("--log-file", options.log_file, "Log file; default stderr");
  AddTime(app, "--agent-poll-interval", options.controller.agent_poll_interval,
          "Interval between heartbeats of an agent");
  AddTime(app, "--agent-timeout", options.controller.agent_timeout,
          "An agent without a sign of life for this long is Down");
  AddTime(app, "--partition-timeout", options.controller.partition_timeout,
          "A partition PENDING for longer goes to ERROR");
  AddTime(app, "--provisioning-delay", options.controller.provisioning_delay,
          "A partition stays PENDING for at least this long, to simulate slow configuration");
  app.add_flag("--version", options.version, "Print the version");
}

// CLI11 reads whatever it is given to its end, which a device or a pipe may not have.
absl::Status CheckConfigFile(int argc, const char* const* argv) {
  std::string path = kConfigFile;
  bool is_named = false;
  for (int i = 1; i < argc; ++i) {
    absl::string_view word = argv[i];
    const bool is_next = word == "--config" && i + 1 < argc;
    if (is_next) path = argv[i + 1];
    const bool is_here = absl::ConsumePrefix(&word, "--config=");
    if (is_here) path = std::string(word);
    is_named = is_named || is_next || is_here;
  }
  const auto unreadable = [&](absl::string_view why) {
    return absl::FailedPreconditionError(absl::StrCat("--config: cannot read ", path, ": ", why));
  };
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    // The default one need not be there.
    return is_named ? unreadable(std::strerror(errno)) : absl::OkStatus();
  }
  if (path == "/dev/null") return absl::OkStatus();
  if (!S_ISREG(info.st_mode))
    return unreadable(S_ISDIR(info.st_mode) ? "it is a directory" : "it is not a file");
  if (is_named && access(path.c_str(), R_OK) != 0) return unreadable(std::strerror(errno));
  return absl::OkStatus();
}

}  // namespace

base::TlsFiles ServerOptions::ServerFiles() const {
  const std::string directory = certs_dir + "/server/";
  return {directory + "ca.crt", directory + "server.crt", directory + "server.key"};
}

absl::StatusOr<std::optional<ServerOptions>> ParseServerOptions(int argc, const char* const* argv) {
  VPOD_RETURN_IF_ERROR(CheckConfigFile(argc, argv));
  ServerOptions options;
  CLI::App app("The V-IPU controller: manages agents, clusters, partitions and users.",
               "vipu-server");
  AddOptions(app, options);
  RefuseOtherFlagValues(app);
  app.set_config(
      "--config", kConfigFile,
      "Configuration file: long options, one key=\"value\" a line; the command line wins");
  app.allow_config_extras(CLI::config_extras_mode::error);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ConfigError& error) {
    const absl::string_view setting = absl::StripPrefix(error.what(), "INI was not able to parse ");
    return absl::InvalidArgumentError(
        absl::StrCat("unknown setting '", setting, "' in ", app.get_config_ptr()->as<std::string>(),
                     "; settings have the names of the long options ('vipu-server --help')"));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      app.exit(error);
      return std::nullopt;
    }
    return absl::InvalidArgumentError(base::DescribeWrongUsage(app, error));
  }
  for (const auto& [option, path] :
       {std::pair{"--storage", options.storage}, {"--certs-dir", options.certs_dir}}) {
    if (path.empty())
      return absl::InvalidArgumentError(
          absl::StrCat(option, " is empty. Try 'vipu-server --help'."));
  }
  std::vector<std::string> tasks;
  for (const char* task : {"--init", "--tls-init", "--check", "--salvage", "--restore"}) {
    if (app.count(task) > 0) tasks.push_back(task);
  }
  if (tasks.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("Give one of ", absl::StrJoin(tasks, " and "), ". Try 'vipu-server --help'."));
  }
  if (!options.default_user_id.empty() && !(options.init && options.secure)) {
    return absl::InvalidArgumentError(
        "--default-user-id works only with --init --secure. Try 'vipu-server --help'.");
  }
  controller::ControllerOptions& controller = options.controller;
  if (app.count("--agent-poll-interval") == 0) {
    controller.agent_poll_interval =
        std::min(controller.agent_poll_interval, controller.agent_timeout / 2);
  }
  if (controller.agent_poll_interval < std::chrono::milliseconds(10) ||
      controller.agent_poll_interval * 2 > controller.agent_timeout) {
    return absl::InvalidArgumentError(
        "--agent-poll-interval must be at least 10ms and at most half of --agent-timeout. Try "
        "'vipu-server --help'.");
  }
  if (controller.provisioning_delay >= controller.partition_timeout) {
    return absl::InvalidArgumentError(
        "--provisioning-delay must be less than --partition-timeout. Try 'vipu-server --help'.");
  }
  return options;
}

}  // namespace vpod
