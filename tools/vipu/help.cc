#include "tools/vipu/help.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/render/table.h"
#include "tools/vipu/commands.h"

namespace vpod::tools {
namespace {

constexpr char kRest[] = R"(
Environment:
  VIPU_CLI_API_HOST, VIPU_CLI_API_PORT            controller, when no flag names it
  VIPU_CLI_API_USER_ID, VIPU_CLI_API_ACCESS_KEY   who asks
  VIPU_CLI_CONFIG                                 as --config
  VIPU_CLI_TLS_CA, _CERT, _KEY                    as --tls-ca and so on
  VIPU_CLI_LIST_COMPAT=2021                       'vipu-admin list partitions' without the user
  IPUOF_CONFIG_DIR                                directory of IPUoF files

Files:
  ~/.vipu.hcl, /etc/vipu/vipu-cli.hcl             controller and credentials, key="value" lines
  ~/.ipuof.conf.d/<partition>.conf                what 'create partition' leaves for programs

Exit status:
  0  done
  1  failed
  2  wrong usage
)";

using Rows = std::vector<std::pair<std::string, std::string>>;

// Two columns, the second at one position; text after a longer first one is on the next line.
std::string TwoColumns(const Rows& rows) {
  constexpr size_t kMostWide = 48;
  size_t width = 0;
  for (const auto& [left, right] : rows) {
    const size_t columns = render::Columns(left);
    if (columns <= kMostWide) width = std::max(width, columns);
  }
  std::string text;
  for (const auto& [left, right] : rows) {
    const size_t columns = render::Columns(left);
    const bool fits = columns <= width;
    absl::StrAppend(&text, "  ", left, fits ? "" : "\n  ",
                    std::string(fits ? width - columns : width, ' '), "  ", right, "\n");
  }
  return text;
}

std::string FlagRows(const FlagList& required, const FlagList& optional) {
  Rows rows;
  for (const Flag* flag : required)
    rows.emplace_back(FlagText(*flag, true), absl::StrCat(flag->help, "; needed"));
  for (const Flag* flag : optional) rows.emplace_back(FlagText(*flag, true), flag->help);
  return TwoColumns(rows);
}

std::string CommandRows(const std::vector<const Command*>& commands) {
  Rows rows;
  for (const Command* command : commands) rows.emplace_back(command->Usage(), command->summary);
  return TwoColumns(rows);
}

std::string CommandHelp(bool admin, const Command& command) {
  std::string text =
      absl::StrCat("Usage: ", ToolName(admin), " ", command.Usage(),
                   command.optional.empty() ? "" : " [flags]", "\n\n", command.summary, "\n");
  if (!command.required.empty() || !command.optional.empty())
    absl::StrAppend(&text, "\nFlags:\n", FlagRows(command.required, command.optional));
  if (!command.details.empty()) {
    absl::StrAppend(
        &text, "\n",
        absl::StrReplaceAll(command.details, {{"TOOL", ToolName(admin)}, {"SHELL", command.noun}}),
        "\n");
  }
  absl::StrAppend(&text, "\nFlags of every command: ", ToolName(admin), " --help\n");
  return text;
}

std::vector<const Command*> CommandsOf(bool admin, const std::string& verb) {
  std::vector<const Command*> commands;
  for (const Command& command : Commands()) {
    if ((verb.empty() || verb == command.verb) && (admin || !command.admin_only))
      commands.push_back(&command);
  }
  return commands;
}

}  // namespace

std::string HelpCommand(bool admin, const std::vector<std::string>& words) {
  const auto command = FindCommand(admin, words);
  const std::string verb = words.empty() ? "" : CanonicalVerb(words[0]);
  std::string name;
  if (command.ok()) {
    name = (*command)->Name() + " ";
  } else if (!verb.empty() && !CommandsOf(admin, verb).empty()) {
    name = verb + " ";
  }
  return absl::StrCat(ToolName(admin), " ", name, "--help");
}

absl::StatusOr<std::string> Help(bool admin, const std::vector<std::string>& words) {
  if (words.size() >= 2 || FindCommand(admin, words).ok()) {
    const auto command = FindCommand(admin, words);
    if (!command.ok()) return command.status();
    return CommandHelp(admin, **command);
  }
  const std::string verb = words.empty() ? "" : CanonicalVerb(words[0]);
  const std::vector<const Command*> commands = CommandsOf(admin, verb);
  if (commands.empty()) return UsageError(absl::StrCat("Unknown verb '", verb, "'."));
  std::string text = absl::StrCat("Usage: ", ToolName(admin), " [flags] ",
                                  verb.empty() ? "<verb>" : verb, " <noun> [id] [flags]\n");
  if (verb.empty()) {
    absl::StrAppend(&text, "\n",
                    admin ? "Administers an IPU-POD: agents, clusters, allocations, users, "
                            "partitions."
                          : "Requests IPUs of an IPU-POD.",
                    "\n");
  }
  absl::StrAppend(&text, "\nCommands:\n", CommandRows(commands),
                  "\nFlags of one command: ", ToolName(admin), " <verb> <noun> --help\n");
  if (verb.empty())
    absl::StrAppend(&text, "\nFlags of every command:\n", FlagRows({}, GlobalFlags()), kRest);
  return text;
}

}  // namespace vpod::tools
