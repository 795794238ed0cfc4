#include "tools/vpod/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/render/completion.h"
#include "device/base/command_line.h"
#include "device/base/version.h"
#include "device/base/whole_number.h"
#include "tools/vpod/fail.h"
#include "tools/vpod/plan_arguments.h"

namespace vpod::tools {
namespace {

constexpr char kHelp[] = "help";

// Says why the tool has no completion script of vpod's; empty if it may have one. A shell runs the
// script, in which the name stands.
std::string ToolTrouble(const std::string& tool) {
  const bool is_device_tool =
      absl::StartsWith(tool, "gc-") && std::all_of(tool.begin(), tool.end(), [](unsigned char c) {
        return absl::ascii_islower(c) || c == '-';
      });
  if (is_device_tool || tool == "vpod" || tool == "poprun") return "";
  return absl::StrCat("'", tool, "' is not vpod, poprun or a gc-* tool");
}

// Values that CLI11 writes; those of `agents` and `help_about` are evaluated afterwards.
struct Given {
  Arguments& arguments;
  std::string agents, help_about;
};

// Refuses only text that is not a number, for which CLI11 names no range; other sizes are checked
// with the rest.
std::string CheckNumberOfIpus(const std::string& value) {
  uint32_t number = 0;
  if (CLI::detail::lexical_cast(value, number)) return "";
  return absl::StrCat("'", value, "' is not a power of two from 4 to 65536");
}

CLI::App* AddUp(CLI::App& app, Given& given) {
  PodRequest& request = given.arguments.request;
  auto* up = app.add_subcommand(
      "up",
      "start a POD in the background, or restore the existing one; omitted options keep its "
      "values");
  up->add_option("--pod", request.ipus, "IPUs, a power of two from 4 to 65536 (16)")
      ->check(CheckNumberOfIpus);
  up->add_option("--machine-type", request.machine_type, "m2000 or bow2000 (m2000)");
  up->add_option("--cluster-topology", request.cluster_topology,
                 "how racks are connected: looped or switched (looped up to 256 IPUs); needs two "
                 "racks or more")
      ->check(base::OneOf({"looped", "switched"}));
  up->add_option("--memory-limit", request.memory_limit_mib,
                 "MiB of host memory for programs (3/4 of the host's)")
      ->transform(base::WholeNumber(1, kMostMemoryMib));
  up->add_option("--api-port", request.api_port,
                 "port of the controller (8090, or the next that is free)")
      ->transform(base::WholeNumber(1, 65535));
  up->add_option("--metrics-port", request.metrics_port,
                 "port of the controller's metrics (2113, or one that is free)")
      ->transform(base::WholeNumber(1, 65535));
  up->add_option(
        "--agents", given.agents,
        "one: a process for all machines; processes: one a machine, at its own address (one)")
      ->check(base::OneOf({"one", "processes"}));
  up->add_flag_callback(
      "--secure", [&request] { request.secure = true; },
      "make certificates and access keys, and have the controller ask for them");
  up->add_option("-f,--file", given.arguments.file,
                 "YAML file that describes the POD, in place of the options above");
  return up;
}

CLI::App* AddLogs(CLI::App& app, Given& given) {
  auto* logs = app.add_subcommand("logs", "last lines of the daemons' logs");
  logs->add_option("daemon", given.arguments.daemon, "server or agent; default both")
      ->check(base::OneOf({"server", "agent"}));
  logs->add_option("-n", given.arguments.lines, "number of lines")
      ->transform(base::WholeNumber(0, 1000000))
      ->capture_default_str();
  logs->add_flag("-f,--follow", given.arguments.follow,
                 "keep printing new lines as they are written");
  return logs;
}

void AddCommands(CLI::App& app, Given& given) {
  auto* up = AddUp(app, given);
  auto* down = app.add_subcommand("down", "stop the POD and remove its partitions");
  down->add_flag("--keep", given.arguments.keep, "keep its state, which 'vpod up' restores");
  app.add_subcommand("delete", "stop the POD and remove its directory with its logs")
      ->add_option("name", given.arguments.name, "a POD; default: the one in use");
  auto* status = app.add_subcommand(
      "status", "what runs, and what is missing; exit status 1 unless the POD is whole");
  auto* env = app.add_subcommand("env", "export lines for eval");
  env->add_option("--user", given.arguments.user,
                  "a user that a file describes, whose key tools show; default: the administrator");
  auto* backup = app.add_subcommand(
      "backup", "copy the state of the POD, while it runs, with its keys to a new file");
  auto* restore = app.add_subcommand(
      "restore", "bring the POD of a backup up, in the place of one that is the same");
  for (CLI::App* command : {backup, restore})
    command->add_option("file", given.arguments.file, "the backup")->required();
  auto* logs = AddLogs(app, given);
  app.add_subcommand("use",
                     "choose the POD that tools follow in every shell that does not name another, "
                     "or show it")
      ->add_option("name", given.arguments.name, "a POD; default is the one in ~/.vpod");
  auto* list = app.add_subcommand("list", "all PODs of this user on this machine");
  for (CLI::App* command : {status, list})
    command->add_flag("--json", given.arguments.json, "print JSON");
  auto* doctor = app.add_subcommand("doctor", "check what a POD needs");
  auto* bundle = app.add_subcommand(
      kSupportBundle,
      "pack logs, status, versions and configuration, without keys and passwords, into a file for "
      "those who help");
  bundle->add_option("-o,--output", given.arguments.output, "the file (vpod-support-….tar.gz)");
  auto* project = app.add_subcommand(
      "new",
      "write a project with a first program that trains on the IPUs that poprun gives to it");
  project
      ->add_option("project", given.arguments.project,
                   "its directory, whose name the program gets: letters, digits, - and _")
      ->required();
  project->add_flag("--python", given.arguments.python,
                    "write the program in Python instead of C++");
  AddPlan(app, given.arguments.plan);
  auto* completion = app.add_subcommand(
      "completion",
      "print the completion script of a tool for a shell; source <(vpod completion bash)");
  completion->add_option("shell", given.arguments.shell, "bash, zsh or fish")
      ->required()
      ->check(base::OneOf({std::begin(render::kShells), std::end(render::kShells)}));
  completion->add_option("tool", given.arguments.tool, "vpod, poprun or a gc-* tool (vpod)")
      ->check(CLI::Validator(ToolTrouble, ""));
  for (CLI::App* command : {up, down, status, env, backup, restore, logs, doctor, bundle})
    command->add_option("--name", given.arguments.name, "a POD by its name, not by VPOD_HOME");
  app.add_subcommand(kHelp, "explain a command")
      ->add_option("command", given.help_about, "a command; default: all");
}

// CLI11 takes an empty value for none at all, and any value of a flag for true.
void RefuseEmptyAndFlagValues(CLI::App& app) {
  const CLI::Validator given(
      [](const std::string& value) { return value.empty() ? "the value is empty" : ""; }, "");
  for (CLI::App* command : app.get_subcommands({})) {
    for (CLI::Option* option : command->get_options()) {
      if (option->get_items_expected_max() > 0) {
        option->check(given);
      } else {
        option->disable_flag_override();
      }
    }
  }
}

// An option that says something about the POD where a file describes it; empty: none.
std::string GivenBesideFile(const CLI::App& app) {
  if (app.get_subcommand("up")->count("--file") == 0) return "";
  for (const CLI::Option* option : app.get_subcommand("up")->get_options()) {
    if (option->count() > 0 && !option->check_name("--file") && !option->check_name("--name"))
      return option->get_name();
  }
  return "";
}

// Words that an option takes, from the rule that checks them: "TEXT:{looped,switched}".
render::Candidates ValuesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find('{'), close = type.find('}');
  render::Candidates values;
  if (open != std::string::npos && close != std::string::npos) {
    for (absl::string_view word : absl::StrSplit(type.substr(open + 1, close - open - 1), ','))
      values.emplace_back(word, "");
  } else if (option.check_name("--file") || option.check_name("--output")) {
    values.emplace_back(render::kFiles, "");
  } else if (option.check_name("--name") || option.check_name("name")) {
    values.emplace_back(vipu::kDefaultPod, "the POD in ~/.vpod");
    for (const std::string& name : vipu::PodNames()) values.emplace_back(name, "");
  }
  return values;
}

render::Candidates Commands(const CLI::App& app) {
  render::Candidates commands;
  for (const CLI::App* command : app.get_subcommands({}))
    commands.emplace_back(command->get_name(), command->get_description());
  return commands;
}

// The last word of a command line.
render::Candidates CandidatesFor(CLI::App& app, const std::vector<std::string>& words) {
  if (words.size() < 2 || words[0] == kHelp) return Commands(app);
  const auto named =
      app.get_subcommands([&](const CLI::App* each) { return each->check_name(words[0]); });
  if (named.empty()) return {};
  const CLI::App* command = named[0];
  const std::string& last = words.back();
  const CLI::Option* before = command->get_option_no_throw(words[words.size() - 2]);
  if (before != nullptr && before->get_items_expected_max() > 0) return ValuesOf(*before);
  render::Candidates candidates;
  for (const CLI::Option* option : command->get_options()) {
    const std::string& name =
        option->get_lnames().empty() ? option->get_name() : "--" + option->get_lnames()[0];
    if (!option->get_positional()) {
      candidates.emplace_back(name, option->get_description());
    } else if (last.empty() || last[0] != '-') {
      for (auto& value : ValuesOf(*option)) candidates.push_back(std::move(value));
    }
  }
  return candidates;
}

// `vpod --name lab1 status` is `vpod status --name lab1`.
void MoveNameBehindCommand(std::vector<std::string>& words) {
  if (words.empty()) return;
  const bool is_joined = absl::StartsWith(words[0], "--name=");
  const std::ptrdiff_t size = is_joined ? 1 : 2;
  if ((is_joined || words[0] == "--name") && std::ssize(words) > size)
    std::rotate(words.begin(), words.begin() + size, words.begin() + size + 1);
}

}  // namespace

std::optional<int> ParseArguments(std::vector<std::string> words, Arguments& arguments) {
  CLI::App app(
      "Brings virtual IPU-PODs up and down on this machine. --name or the state directory "
      "VPOD_HOME chooses a POD; without both it is the one in use (vpod use), else the one in "
      "~/.vpod.",
      "vpod");
  app.require_subcommand(1);
  app.set_version_flag("--version", absl::StrCat("version: ", base::kVersion), "show the version");
  Given given{.arguments = arguments};
  AddCommands(app, given);
  RefuseEmptyAndFlagValues(app);
  if (!words.empty() && words[0] == render::kCompleteWord) {
    words.erase(words.begin());
    const std::string text =
        render::CompletionText(CandidatesFor(app, words), words.empty() ? "" : words.back());
    std::fputs(text.c_str(), stdout);
    return 0;
  }
  MoveNameBehindCommand(words);
  // `vpod help up` is `vpod up --help`.
  if (!words.empty() && words[0] == kHelp && (words.size() == 1 || words[1].rfind('-', 0) != 0)) {
    words.erase(words.begin());
    words.resize(std::min<size_t>(words.size(), 1));
    words.push_back("--help");
  }
  if (!words.empty() && words[0] == "plan") {
    const absl::Status taken = TakeProgram(words, arguments.plan);
    if (!taken.ok()) return Fail(absl::StrCat(taken.message(), ". Try 'vpod plan --help'."), 2);
  }
  if (const std::optional<int> code = base::ParseCommandLine(app, words); code.has_value())
    return code;
  if (const std::string other = GivenBesideFile(app); !other.empty())
    return Fail(base::WithHelpHint(app, absl::StrCat(other, " cannot be given with --file")), 2);
  if (!given.agents.empty()) arguments.request.agent_per_machine = given.agents == "processes";
  // CLI11 takes "-1" for a word.
  if (!given.help_about.empty())
    return Fail(absl::StrCat("unknown option '", given.help_about, "'. Try 'vpod --help'."), 2);
  arguments.command = app.get_subcommands().front()->get_name();
  return std::nullopt;
}

}  // namespace vpod::tools
