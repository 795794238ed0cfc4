// vpod: brings local PODs up and down, and begins programs for them.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/render/completion.h"
#include "client/vipu/client.h"
#include "client/vipu/config.h"
#include "client/vipu/pod_home.h"
#include "device/base/exit_code.h"
#include "device/base/stdout.h"
#include "device/base/text.h"
#include "tools/vpod/apply.h"
#include "tools/vpod/arguments.h"
#include "tools/vpod/backup.h"
#include "tools/vpod/doctor.h"
#include "tools/vpod/ending_signals.h"
#include "tools/vpod/fail.h"
#include "tools/vpod/logs.h"
#include "tools/vpod/new_project.h"
#include "tools/vpod/plan_arguments.h"
#include "tools/vpod/plan_figures.h"
#include "tools/vpod/pod.h"
#include "tools/vpod/pod_file.h"
#include "tools/vpod/status.h"
#include "tools/vpod/support_bundle.h"

namespace vpod::tools {
namespace {

int FailWith(const absl::Status& status) { return Fail(status.message(), base::ExitCode(status)); }

// " in cluster c16" if that is the only one.
std::string ClusterText(const PodShape& now) {
  const auto clusters = vipu::Client(ApiOf(now), std::chrono::seconds(10)).ListClusters();
  const bool is_one = clusters.ok() && clusters->size() == 1;
  return is_one ? absl::StrCat(" in cluster ", clusters->front().id()) : "";
}

void PrintUp(const Pod& pod, const PodShape& now, const std::string& name) {
  const std::string cluster = now.described_clusters ? "" : ClusterText(now);
  std::printf(
      "POD%u is up: %u machine%s (%s)%s, API 127.0.0.1:%u%s, memory limit %lu MiB, state in %s\n",
      now.ipus, now.machines(), now.machines() == 1 ? "" : "s", now.machine_type.c_str(),
      cluster.c_str(), now.api_port, now.secure ? " (secure)" : "", now.memory_limit_mib,
      Shown(pod.home()).c_str());
  if (name.empty()) {
    std::printf("To use it in this shell: eval \"$(vpod env)\"\n");
  } else {
    std::printf("To use it in this shell: eval \"$(vpod env --name %s)\"; in all: vpod use %s\n",
                name.c_str(), name.c_str());
  }
}

// Variables that `vpod env` has set in this shell may be those of an earlier POD of the directory.
void NameStalePort(const Pod& pod, const PodShape& now) {
  const uint32_t port = PortInEnvironmentOf(pod.home());
  if (port == 0 || port == now.api_port) return;
  std::fprintf(stderr,
               "vpod: this shell's variables name port %u, but the POD's is %u; run eval "
               "\"$(vpod env)\"\n",
               port, now.api_port);
}

// A file with users looks as if their keys were asked for.
void SayWhatUsersAre(const PodShape& now, const PodDescription& description) {
  if (now.secure || description.users.empty()) return;
  std::fprintf(stderr,
               "vpod: users are recorded, not checked: everybody who reaches the POD may do "
               "everything; 'secure: true' in the file of a new POD has their keys checked\n");
}

// What an interrupted `vpod up` leaves. Its daemons go on, and may be starting.
std::string LeftByUp(const Pod& pod, const std::string& file) {
  const auto shape = pod.Shape();
  const std::string& home = pod.home();
  if (absl::IsNotFound(shape.status())) return absl::StrCat("no POD is in ", home);
  if (!shape.ok()) return std::string(shape.status().message());
  // Without its file the objects that it describes would not be made.
  const std::string again = absl::StrCat("'vpod up", file.empty() ? "" : " -f " + file, "'");
  if (shape->unfinished) {
    return absl::StrCat("the POD in ", home, " is not whole; ", again,
                        " finishes it, 'vpod down' removes it");
  }
  if (!pod.Running(*shape))
    return absl::StrCat("the POD in ", home, " runs in part; ", again, " starts the rest");
  return absl::StrCat("the daemons of the POD in ", home, " run",
                      file.empty() ? "" : ", and what " + file + " describes may be missing", "; ",
                      again, " makes sure of it");
}

int Up(const Arguments& arguments, const PodDescription& description) {
  const std::string& name = arguments.name.empty() ? description.name : arguments.name;
  const auto home = name.empty() ? vipu::PodHome() : vipu::HomeOfPod(name);
  if (!home.ok()) return FailWith(home.status());
  Pod pod(*home);
  const EndingSignals signals("vpod up", [&] { return LeftByUp(pod, arguments.file); });
  const auto brought = pod.Up(description.request);
  if (!brought.ok()) return FailWith(brought.status());
  if (!brought->was_up) PrintUp(pod, brought->shape, name);
  bool changed = !brought->was_up;
  const absl::Status applied =
      ApplyDescription(pod, brought->shape, description, [&](const std::string& object) {
        std::printf("%s is made.\n", object.c_str());
        changed = true;
      });
  if (!applied.ok()) return Fail(applied.message());
  SayWhatUsersAre(brought->shape, description);
  NameStalePort(pod, brought->shape);
  if (!changed) {
    std::printf("POD%u is already up in %s (API 127.0.0.1:%u); nothing changed.\n",
                brought->shape.ipus, Shown(pod.home()).c_str(), brought->shape.api_port);
  }
  return 0;
}

// As the options or the file say.
int Up(const Arguments& arguments) {
  if (arguments.file.empty()) return Up(arguments, {.request = arguments.request});
  const auto description = ReadPodFile(arguments.file);
  return description.ok() ? Up(arguments, *description) : FailWith(description.status());
}

int Down(Pod& pod, bool keep) {
  const auto stopped = pod.Down(keep);
  if (!stopped.ok()) return Fail(stopped.status().message());
  std::printf(!*stopped ? "no POD runs in %s\n"
              : keep    ? "POD in %s is down. Its state is kept: 'vpod up' restores it.\n"
                        : "POD in %s is down.\n",
              Shown(pod.home()).c_str());
  return 0;
}

int Backup(const Pod& pod, const std::string& file) {
  const absl::Status written = BackUp(pod, file);
  if (!written.ok()) return Fail(written.message());
  std::printf("The POD in %s is backed up to %s. The file contains its keys.\n",
              Shown(pod.home()).c_str(), Shown(file).c_str());
  return 0;
}

int RestorePod(Pod& pod, const Arguments& arguments) {
  EndingSignals signals("vpod restore", [] { return "nothing has changed"; });
  const auto restored = Restore(pod, arguments.file, signals);
  if (!restored.ok()) return Fail(restored.status().message());
  // Lines of vipu-server, which name the storage.
  for (absl::string_view line : absl::StrSplit(*restored, '\n', absl::SkipEmpty()))
    std::printf("%s\n", Shown(line).c_str());
  const auto brought = pod.Up({});
  if (!brought.ok()) return FailWith(brought.status());
  PrintUp(pod, brought->shape, arguments.name);
  if (brought->shape.secure) {
    std::printf(
        "Access keys and rights are those of the backup: what was replaced or withdrawn since then "
        "is valid again.\n");
  }
  NameStalePort(pod, brought->shape);
  return 0;
}

int Delete(Pod& pod) {
  const auto deleted = pod.Delete();
  if (!deleted.ok()) return Fail(deleted.status().message());
  std::printf(*deleted ? "POD in %s is deleted.\n" : "there is no %s\n", Shown(pod.home()).c_str());
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

// Whether there is a POD, or something of one, in the directory.
bool IsThere(const Pod& pod) {
  std::error_code error;
  return std::filesystem::exists(pod.home(), error) || pod.ServerPid() > 0 || pod.AgentPid() > 0;
}

// Says that nothing has a POD's name, and what names there are.
int FailWithoutPod(const std::string& name) {
  constexpr size_t kNamed = 8;
  std::vector<std::string> names = vipu::PodNames();
  const auto of_default = vipu::HomeOfPod(vipu::kDefaultPod);
  if (of_default.ok() && IsThere(Pod(*of_default))) names.insert(names.begin(), vipu::kDefaultPod);
  const size_t all = names.size();
  names.resize(std::min(all, kNamed));
  return Fail(
      absl::StrCat("no POD has the name ", name, "; 'vpod up --name ", name, "' brings one up; ",
                   all == 0   ? "there are no PODs yet"
                   : all == 1 ? "there is "
                              : "there are ",
                   absl::StrJoin(names, ", "), all > kNamed ? absl::StrCat(", … of ", all) : ""));
}

int Use(const std::string& name) {
  if (name.empty()) {
    std::printf("%s\n", Shown(vipu::PodInUse()).c_str());
    return 0;
  }
  const auto home = vipu::HomeOfPod(name);
  if (!home.ok()) return Fail(home.status().message(), 2);
  if (name != vipu::kDefaultPod && !IsThere(Pod(*home))) return FailWithoutPod(name);
  const absl::Status used = vipu::UsePod(name);
  if (!used.ok()) return Fail(used.message());
  std::printf("The POD in use is %s in %s.\n", name.c_str(), Shown(*home).c_str());
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
    std::printf("%s\n", Dump(StatusJson(status), 2).c_str());
  } else if (!status.damage.empty()) {
    return Fail(status.damage);
  } else {
    std::fputs(StatusText(status).c_str(), stdout);
  }
  return status.state == PodStatus::State::kRunning ? 0 : 1;
}

int Env(const Pod& pod, const std::string& user) {
  const auto shape = pod.Shape();
  if (!shape.ok()) return Fail(shape.status().message());
  const auto text = pod.EnvironmentText(*shape, user);
  if (!text.ok()) return FailWith(text.status());
  if (!user.empty()) {
    const absl::Status renewed = pod.RenewIpuofFilesOf(user, *shape);
    if (!renewed.ok()) return Fail(renewed.message());
  }
  std::fputs(text->c_str(), stdout);
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
  std::printf("%s\n", Shown(file).c_str());
  return 0;
}

int New(std::string directory, bool python) {
  while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  const absl::Status written = WriteProject(directory, python);
  if (!written.ok()) return FailWith(written);
  std::printf("%s has a first program; %s/README.md says how to build and run it.\n",
              Shown(directory).c_str(), Shown(directory).c_str());
  return 0;
}

int Plan(const PlanArguments& arguments) {
  const auto output = RunPlan(arguments);
  if (!output.ok()) return FailWith(output.status());
  for (const std::string& note : output->notes)
    std::fprintf(stderr, "vpod: %s\n", base::OneLine(note).c_str());
  std::fputs(output->text.c_str(), stdout);
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
  std::printf("%s\n", Dump(all, 2).c_str());
  return 0;
}

int Main(int argc, char** argv) {
  base::CheckStdoutAtExit();
  Arguments arguments;
  if (const auto end = ParseArguments({argv + 1, argv + argc}, arguments); end.has_value())
    return *end;
  if (arguments.command == "completion") {
    const std::string tool = arguments.tool.empty() ? "vpod" : arguments.tool;
    std::fputs(render::CompletionScript(arguments.shell, tool).c_str(), stdout);
    return 0;
  }
  if (arguments.command == "up") return Up(arguments);
  if (arguments.command == "plan") return Plan(arguments.plan);
  if (arguments.command == "use") return Use(arguments.name);
  if (arguments.command == "new") return New(arguments.project, arguments.python);
  const auto home = arguments.name.empty() ? vipu::PodHome() : vipu::HomeOfPod(arguments.name);
  if (!home.ok()) return Fail(home.status().message(), 2);
  Pod pod(*home);
  const std::string& command = arguments.command;
  // A restore makes the POD, and a diagnosis may come before it.
  const bool needs_pod = command != "restore" && command != "doctor" && command != "list";
  if (needs_pod && !arguments.name.empty() && !IsThere(pod)) {
    if (arguments.json) Status(pod, /*json=*/true);
    return FailWithoutPod(arguments.name);
  }
  if (command == "down") return Down(pod, arguments.keep);
  if (command == "backup") return Backup(pod, arguments.file);
  if (command == "restore") return RestorePod(pod, arguments);
  if (command == "delete") return Delete(pod);
  if (command == "status") return Status(pod, arguments.json);
  if (command == "env") return Env(pod, arguments.user);
  if (command == "logs") return Logs(pod, arguments);
  if (command == "list") return List(arguments.json);
  if (command == "doctor") return Doctor(pod);
  if (command == kSupportBundle) return SupportBundle(pod, arguments.output);
  return 2;
}

}  // namespace
}  // namespace vpod::tools

int main(int argc, char** argv) { return vpod::tools::Main(argc, argv); }
