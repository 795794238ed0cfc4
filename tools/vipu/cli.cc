#include "tools/vipu/cli.h"

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "client/render/completion.h"
#include "device/base/object_id.h"
#include "device/base/status.h"
#include "device/base/version.h"
#include "tools/vipu/commands.h"
#include "tools/vipu/completion.h"
#include "tools/vipu/help.h"
#include "tools/vipu/json.h"
#include "tools/vipu/show.h"

namespace vpod::tools {
namespace {

bool Contains(const FlagList& flags, const Flag* flag) {
  return std::find(flags.begin(), flags.end(), flag) != flags.end();
}

// Whether the values of a flag are ids of objects.
bool TakesIds(const Flag& flag) {
  absl::string_view noun = flag.value;
  if (!absl::ConsumePrefix(&noun, "<")) return false;
  noun = noun.substr(0, noun.find_first_of(",>"));
  return noun == "agent" || noun == "allocation" || noun == "cluster" || noun == "user";
}

// Whether each id that a flag names is one that an object can have.
absl::Status CheckIds(const Arguments& arguments, const Flag& flag) {
  const bool is_list = absl::StrContains(flag.value, ",");
  for (const std::string& id : is_list ? arguments.List(flag) : std::vector{arguments.Text(flag)}) {
    const absl::Status valid = base::CheckObjectId(id);
    if (!valid.ok()) return UsageError(absl::StrCat("Flag --", flag.name, ": ", valid.message()));
  }
  return absl::OkStatus();
}

// Whether words and flags are those that the command takes.
absl::Status Check(const Command& command, const Arguments& arguments) {
  for (const Flag* flag : arguments.given()) {
    if (!Contains(command.required, flag) && !Contains(command.optional, flag) &&
        !Contains(GlobalFlags(), flag)) {
      return UsageError(absl::StrCat("Unknown flag: --", flag->name, "."));
    }
    if (TakesIds(*flag)) VPOD_RETURN_IF_ERROR(CheckIds(arguments, *flag));
  }
  const size_t expected = command.IdPosition() + (command.TakesId() ? 1 : 0);
  const auto& words = arguments.words();
  if (words.size() < expected) {
    return UsageError(command.TakesFile()
                          ? absl::StrCat(command.verb, " needs a file.")
                          : absl::StrCat(command.verb, " ", command.noun, " needs an id."));
  }
  if (words.size() > expected)
    return UsageError(absl::StrCat("Unexpected argument '", words[expected], "'."));
  if (command.TakesId() && !command.TakesFile()) {
    const absl::Status id = base::CheckObjectId(words[2]);
    if (!id.ok()) return UsageError(std::string(id.message()));
  }
  if (command.TakesFile() && words.back().empty())
    return UsageError(absl::StrCat(command.verb, " needs a file, and its name is empty."));
  for (const Flag* flag : command.required) {
    if (!arguments.Has(*flag))
      return UsageError(
          absl::StrCat(command.verb, " ", command.noun, " needs --", flag->name, "."));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::chrono::milliseconds> Timeout(const Arguments& arguments) {
  if (!arguments.Has(kTimeout)) return std::chrono::seconds(120);
  std::string text = arguments.Text(kTimeout);
  uint32_t seconds = 0;
  if (absl::SimpleAtoi(text, &seconds)) text += "s";
  absl::Duration timeout;
  if (!absl::ParseDuration(text, &timeout) || timeout < absl::Milliseconds(1) ||
      timeout > absl::Seconds(UINT32_MAX)) {
    return UsageError(
        absl::StrCat("Flag --timeout needs a time such as 30, 30s or 2m, from 1ms to ", UINT32_MAX,
                     "s, not '", arguments.Text(kTimeout), "'."));
  }
  return absl::ToChronoMilliseconds(timeout);
}

absl::Status RunCommand(bool admin, const Arguments& arguments, std::ostream& out) {
  if (arguments.Switch(kHelp)) {
    VPOD_ASSIGN_OR_RETURN(const std::string text, Help(admin, arguments.words()));
    out << text;
    return absl::OkStatus();
  }
  if (arguments.Switch(kVersion)) {
    out << "version: " << base::kVersion << "\n";
    return absl::OkStatus();
  }
  VPOD_ASSIGN_OR_RETURN(const auto timeout, Timeout(arguments));
  const auto config = vipu::DiscoverConfig(ServerFlags(arguments));
  if (!config.ok()) {
    return AsUsageError(
        absl::Status(config.status().code(), absl::StrCat(config.status().message(), ".")));
  }
  vipu::Client client(*config, timeout);
  if (arguments.Switch(kServerVersion)) {
    VPOD_ASSIGN_OR_RETURN(const auto info, client.ServerInfo());
    out << "version: " << info.version() << "\nhost: " << config->address() << "\n";
    return absl::OkStatus();
  }
  VPOD_ASSIGN_OR_RETURN(const Command* command, FindCommand(admin, arguments.words()));
  VPOD_RETURN_IF_ERROR(Check(*command, arguments));
  const Call call = {.admin = admin,
                     .command = *command,
                     .id = command->TakesId() ? arguments.words()[command->IdPosition()] : "",
                     .arguments = arguments,
                     .client = client,
                     .out = out};
  return command->run(call);
}

// "create partition (p9): failed. " for a command on an object, else "vipu: error: ".
std::string Subject(bool admin, const Arguments& arguments) {
  const auto command = FindCommand(admin, arguments.words());
  if (!command.ok() || !(*command)->TakesId() ||
      arguments.words().size() <= (*command)->IdPosition())
    return absl::StrCat(ToolName(admin), ": error: ");
  return absl::StrCat(SubjectOf(**command, arguments.words()[(*command)->IdPosition()]),
                      "failed. ");
}

// The failure as an object, for scripts that read stdout; the line for people is on stderr.
void PrintFailure(bool admin, const Arguments& arguments, const absl::Status& status,
                  std::ostream& out) {
  Json object = Json::object();
  if (const auto command = FindCommand(admin, arguments.words()); command.ok()) {
    object["verb"] = (*command)->verb;
    const size_t at = (*command)->IdPosition();
    if (!(*command)->TakesFile()) object["noun"] = (*command)->noun;
    if ((*command)->TakesId() && arguments.words().size() > at)
      object[(*command)->TakesFile() ? "file" : "id"] = arguments.words()[at];
  }
  object["result"] = "failed";
  object["error"] = std::string(status.message());
  object["code"] = absl::StatusCodeToString(status.code());
  const bool line_by_line = arguments.Has(kFollow) || arguments.Has(kWatch);
  // Messages repeat what files and variables say, whatever their bytes.
  out << object.dump(line_by_line ? -1 : 2, ' ', false, Json::error_handler_t::replace)
      << std::endl;
}

}  // namespace

int VipuMain(bool admin, const std::vector<std::string>& words, std::ostream& out,
             std::ostream& err) {
  if (!words.empty() && words[0] == render::kCompleteWord) {
    out << Complete(admin, {words.begin() + 1, words.end()});
    return 0;
  }
  Arguments arguments;
  absl::Status status = arguments.Parse(words, AllFlags());
  if (status.ok()) status = RunCommand(admin, arguments, out);
  out.flush();
  if (status.ok()) return 0;
  // A wrong flag may come before --showjson.
  const bool wants_json =
      WantsJson(arguments) || std::find(words.begin(), words.end(), "--showjson") != words.end();
  if (wants_json && !IsAfterJson(status)) PrintFailure(admin, arguments, status, out);
  if (IsUsageError(status)) {
    err << ToolName(admin) << ": error: " << std::string(status.message()) << " Try '"
        << HelpCommand(admin, arguments.words()) << "'.\n";
    return 2;
  }
  err << Subject(admin, arguments) << std::string(status.message()) << "\n";
  return 1;
}

}  // namespace vpod::tools
