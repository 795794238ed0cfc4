#include "tools/gc-docker/container.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/vipu/ipuof_config.h"
#include "device/base/status.h"
#include "tools/gc_options.h"

namespace vpod::tools {
namespace {

namespace fs = std::filesystem;

constexpr char kConfigPath[] = "IPUOF_CONFIG_PATH";
constexpr char kHost[] = "IPUOF_VIPU_API_HOST";

// The file that programs of this shell would read, or the controller that they would ask.
absl::Status FindIpus(ContainerAccess& access) {
  if (const std::string path = vipu::Environment(kConfigPath); !path.empty()) {
    access.ipuof_file = fs::absolute(path).string();
    return absl::OkStatus();
  }
  if (!vipu::Environment(kHost).empty()) return absl::OkStatus();
  const auto partition = vipu::FindActivePartition();
  // A container without IPUs is a container all the same.
  if (absl::IsNotFound(partition.status())) return absl::OkStatus();
  VPOD_RETURN_IF_ERROR(partition.status());
  if (partition->file.empty()) {
    access.controller = partition->controller;
  } else {
    access.ipuof_file = fs::absolute(partition->file).string();
  }
  return absl::OkStatus();
}

std::vector<std::string> IpuofVariables() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (absl::StartsWith(text, "IPUOF_")) names.push_back(text.substr(0, text.find('=')));
  }
  std::sort(names.begin(), names.end());
  return names;
}

int Execute(const std::string& tool, const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
  return GcError(tool, absl::UnavailableError(absl::StrCat("cannot run ", command[0], ": ",
                                                           std::strerror(errno),
                                                           "; is it installed and on PATH?")));
}

}  // namespace

std::vector<std::string> ContainerCommand(const std::string& engine, const ContainerAccess& access,
                                          const std::vector<std::string>& words) {
  std::vector<std::string> command = {
      engine,     "run",           "--network=host",    "--ipc=host",
      "--ulimit", "memlock=-1:-1", "--cap-add=IPC_LOCK"};
  if (access.infiniband) command.push_back("--device=/dev/infiniband/");
  if (!access.ipuof_file.empty()) {
    command.insert(command.end(),
                   {"-v", absl::StrCat(access.ipuof_file, ":", access.ipuof_file, ":ro"), "-e",
                    absl::StrCat(kConfigPath, "=", access.ipuof_file)});
  }
  if (!access.controller.empty())
    command.insert(command.end(), {"-e", absl::StrCat(kHost, "=", access.controller)});
  for (const std::string& name : access.variables) {
    if (name != kConfigPath) command.insert(command.end(), {"-e", name});
  }
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

std::string ShellLine(const std::vector<std::string>& words) {
  constexpr char kPlain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-=/:.,@%+";
  return absl::StrJoin(words, " ", [&](std::string* line, const std::string& word) {
    const bool plain = !word.empty() && word.find_first_not_of(kPlain) == std::string::npos;
    absl::StrAppend(
        line, plain ? word : absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'"));
  });
}

int RunContainerTool(const std::string& engine, int argc, char** argv) {
  const std::string tool = absl::StrCat("gc-", engine);
  // Our options end at "--", or at the first other word: `gc-docker run -it image`.
  int options_end = 1;
  while (options_end < argc && argv[options_end][0] == '-' &&
         std::strcmp(argv[options_end], "--") != 0) {
    const bool takes_value = std::strcmp(argv[options_end], "-d") == 0 ||
                             std::strcmp(argv[options_end], "--device-id") == 0;
    options_end += takes_value ? 2 : 1;
  }
  options_end = std::min(options_end, argc);
  int rest = options_end;
  if (rest < argc && std::strcmp(argv[rest], "--") == 0) ++rest;
  if (rest < argc && std::strcmp(argv[rest], "run") == 0) ++rest;
  bool echo = false;
  DeviceOption device;
  po::options_description options("Allowed options");
  options.add_options()("help,h", "help")("version,v", "version")  //
      ("echo", po::bool_switch(&echo), "print the command instead of running it");
  po::options_description hidden;
  hidden.add_options()("device-id,d", po::value(&device), "PCIe device to add");
  if (AnswerCompletion(argc, argv, options)) return 0;
  po::variables_map values;
  if (const int code = ParseGcOptions(tool, options_end, argv, options, values, hidden); code >= 0)
    return code;
  if (rest >= argc)
    return UsageError(tool, absl::StrCat("give the arguments of '", engine, " run' after --"));
  if (values.count("device-id") > 0) {
    return GcError(tool, absl::UnimplementedError(
                             "there are no PCIe devices: containers reach the IPUs over the "
                             "fabric, leave --device-id out"));
  }
  std::error_code error;
  ContainerAccess access{.variables = IpuofVariables(),
                         .infiniband = fs::exists("/dev/infiniband", error)};
  if (const absl::Status found = FindIpus(access); !found.ok()) return GcError(tool, found);
  const std::vector<std::string> command =
      ContainerCommand(engine, access, {argv + rest, argv + argc});
  if (!echo) return Execute(tool, command);
  std::printf("%s\n", ShellLine(command).c_str());
  return 0;
}

}  // namespace vpod::tools
