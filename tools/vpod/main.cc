// vpod: brings local PODs up and down.
#include <cstdio>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/vipu/config.h"
#include "client/vipu/pod_home.h"
#include "device/base/stdout.h"
#include "tools/vpod/arguments.h"
#include "tools/vpod/doctor.h"
#include "tools/vpod/fail.h"
#include "tools/vpod/logs.h"
#include "tools/vpod/pod.h"
#include "tools/vpod/status.h"
#include "tools/vpod/support_bundle.h"

namespace vpod::tools {
namespace {

int Up(Pod& pod, const PodRequest& request, const std::string& name) {
  const auto brought = pod.Up(request);
  if (!brought.ok())
    return Fail(brought.status().message(), absl::IsInvalidArgument(brought.status()) ? 2 : 1);
  const PodShape& now = brought->shape;
  if (brought->was_up) {
    std::printf("POD%u is already up in %s (API 127.0.0.1:%u); nothing changed.\n", now.ipus,
                pod.home().c_str(), now.api_port);
    return 0;
  }
  std::printf(
      "POD%u is up: %u machines (%s) in cluster c%u, API 127.0.0.1:%u, memory limit %lu MiB, state "
      "in %s\n",
      now.ipus, now.machines(), now.machine_type.c_str(), now.ipus, now.api_port,
      now.memory_limit_mib, pod.home().c_str());
  if (name.empty()) {
    std::printf("To use it in this shell: eval \"$(vpod env)\"\n");
  } else {
    std::printf("To use it in this shell: eval \"$(vpod env --name %s)\"; in all: vpod use %s\n",
                name.c_str(), name.c_str());
  }
  return 0;
}

int Down(Pod& pod) {
  const auto stopped = pod.Down();
  if (!stopped.ok()) return Fail(stopped.status().message());
  std::printf(*stopped ? "POD in %s is down.\n" : "no POD runs in %s\n", pod.home().c_str());
  return 0;
}

int Delete(Pod& pod) {
  const auto deleted = pod.Delete();
  if (!deleted.ok()) return Fail(deleted.status().message());
  std::printf(*deleted ? "POD in %s is deleted.\n" : "there is no %s\n", pod.home().c_str());
  const std::string name = vipu::NameOfPod(pod.home());
  if (name.empty() || name != vipu::PodInUse() || name == vipu::kDefaultPod) return 0;
  const absl::Status left = vipu::UsePod(vipu::kDefaultPod);
  return left.ok() ? 0 : Fail(left.message());
}

// Whether this shell's variables name another POD, which comes first.
bool ShellNamesAnother(const std::string& home) {
  const std::string named = vipu::Environment("VPOD_HOME");
  return (!named.empty() && named != home) || !vipu::Environment("VIPU_CLI_API_HOST").empty() ||
         !vipu::Environment("IPUOF_VIPU_API_HOST").empty();
}

int Use(const std::string& name) {
  if (name.empty()) {
    std::printf("%s\n", vipu::PodInUse().c_str());
    return 0;
  }
  const auto home = vipu::HomeOfPod(name);
  if (!home.ok()) return Fail(home.status().message(), 2);
  std::error_code error;
  if (name != vipu::kDefaultPod && !std::filesystem::exists(*home, error)) {
    return Fail(absl::StrCat("no POD has the name ", name, "; 'vpod up --name ", name,
                             "' brings one up, 'vpod list' shows those that are there"));
  }
  const absl::Status used = vipu::UsePod(name);
  if (!used.ok()) return Fail(used.message());
  std::printf("The POD in use is %s in %s.\n", name.c_str(), home->c_str());
  if (ShellNamesAnother(*home)) {
    std::fprintf(stderr,
                 "vpod: variables of this shell come first; to follow the POD here too: eval "
                 "\"$(vpod env --name %s)\"\n",
                 name.c_str());
  }
  return 0;
}

int Status(const Pod& pod, bool json) {
  const PodStatus status = StatusOf(pod);
  if (json) {
    std::printf("%s\n", StatusJson(status).dump(2).c_str());
  } else if (!status.damage.empty()) {
    return Fail(status.damage);
  } else {
    std::fputs(StatusText(status).c_str(), stdout);
  }
  return status.state == PodStatus::State::kRunning ? 0 : 1;
}

int Env(const Pod& pod) {
  const auto shape = pod.Shape();
  if (!shape.ok()) return Fail(shape.status().message());
  std::fputs(pod.EnvironmentText(*shape).c_str(), stdout);
  return 0;
}

int Logs(const Pod& pod, const Arguments& arguments) {
  const absl::Status printed =
      (arguments.follow ? FollowLogs : PrintLogs)(pod, arguments.daemon, arguments.lines);
  return printed.ok() ? 0 : Fail(printed.message());
}

int Doctor(const Pod& pod) {
  const Diagnosis diagnosis = Diagnose(pod);
  std::fputs(diagnosis.text.c_str(), stdout);
  return diagnosis.well ? 0 : 1;
}

int SupportBundle(const Pod& pod, const std::string& output) {
  const std::string file = output.empty() ? SupportBundleName(pod) : output;
  const absl::Status written = WriteSupportBundle(pod, file);
  if (!written.ok()) return Fail(written.message());
  std::printf("%s\n", file.c_str());
  return 0;
}

int List(bool json) {
  std::vector<PodStatus> pods;
  for (const Pod& pod : AllPods()) pods.push_back(StatusOf(pod));
  if (!json) {
    std::fputs(ListText(pods).c_str(), stdout);
    return 0;
  }
  auto all = nlohmann::ordered_json::array();
  for (const PodStatus& pod : pods) all.push_back(StatusJson(pod));
  std::printf("%s\n", all.dump(2).c_str());
  return 0;
}

int Main(int argc, char** argv) {
  base::CheckStdoutAtExit();
  Arguments arguments;
  if (const auto end = ParseArguments({argv + 1, argv + argc}, arguments); end.has_value())
    return *end;
  if (arguments.command == "use") return Use(arguments.name);
  const auto home = arguments.name.empty() ? vipu::PodHome() : vipu::HomeOfPod(arguments.name);
  if (!home.ok()) return Fail(home.status().message(), 2);
  Pod pod(*home);
  const std::string& command = arguments.command;
  if (command == "up") return Up(pod, arguments.request, arguments.name);
  if (command == "down") return Down(pod);
  if (command == "delete") return Delete(pod);
  if (command == "status") return Status(pod, arguments.json);
  if (command == "env") return Env(pod);
  if (command == "logs") return Logs(pod, arguments);
  if (command == "list") return List(arguments.json);
  if (command == "doctor") return Doctor(pod);
  if (command == kSupportBundle) return SupportBundle(pod, arguments.output);
  return 2;
}

}  // namespace
}  // namespace vpod::tools

int main(int argc, char** argv) { return vpod::tools::Main(argc, argv); }
