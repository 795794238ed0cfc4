#include "device/base/command_line.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/base/text.h"

namespace vpod::base {
namespace {

std::string Quoted(const std::string& word) { return absl::StrCat("'", word, "'"); }

// The program and the commands that were given, the outermost first.
std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  std::vector<const CLI::App*> commands = {&app};
  while (!commands.back()->get_subcommands().empty())
    commands.push_back(commands.back()->get_subcommands().front());
  return commands;
}

std::vector<const CLI::Option*> OptionsOf(const CLI::App& app) {
  std::vector<const CLI::Option*> options;
  for (const CLI::App* command : CommandsOf(app)) {
    const auto more = command->get_options();
    options.insert(options.end(), more.begin(), more.end());
  }
  return options;
}

// The option that CLI11's message names, by the name that is first in it.
const CLI::Option* OptionNamedIn(const CLI::App& app, absl::string_view message) {
  const CLI::Option* found = nullptr;
  size_t first = absl::string_view::npos, length = 0;
  for (const CLI::Option* option : OptionsOf(app)) {
    std::vector<std::string> names = option->get_lnames();  // a flag's is named without its dashes
    names.push_back(option->get_name());
    for (const std::string& name : names) {
      const size_t at = message.find(name);
      if (at > first || (at == first && name.size() <= length)) continue;
      if (at == absl::string_view::npos) continue;
      found = option;
      first = at;
      length = name.size();
    }
  }
  return found;
}

std::string UnknownWord(const std::string& word, const char* noun) {
  const bool is_option = absl::StartsWith(word, "-") && word.size() > 1;
  return absl::StrCat(is_option ? "unknown option" : noun, " ", Quoted(word));
}

std::string WhatIsMissing(const CLI::App& app) {
  const std::vector<std::string> words = app.remaining(/*recurse=*/true);
  // A misspelt option is the mistake, not the argument that it was taken for.
  for (const std::string& word : words) {
    if (absl::StartsWith(word, "-") && word.size() > 1) return UnknownWord(word, "");
  }
  for (const CLI::App* command : CommandsOf(app)) {
    for (const CLI::Option* option : command->get_options()) {
      if (!option->get_required() || option->count() > 0) continue;
      return option->get_positional()
                 ? absl::StrCat("the argument ", option->get_name(), " is missing")
                 : absl::StrCat("the option ", option->get_name(), " is missing");
    }
  }
  if (!words.empty()) return UnknownWord(words[0], "unknown command");
  const auto name = [](std::string* out, const CLI::App* command) {
    out->append(command->get_name());
  };
  return absl::StrCat("a command is missing; use one of ",
                      absl::StrJoin(app.get_subcommands({}), ", ", name));
}

std::string WrongNumberOfValues(const CLI::Option& option) {
  const std::string& name = option.get_name();
  const int most = option.get_items_expected_max();
  if (most == 0) return absl::StrCat(name, " takes no value");
  if (option.results().size() > static_cast<size_t>(most))
    return absl::StrCat(name, " is given ", option.results().size(), " times, at most ", most,
                        most == 1 ? " is allowed" : " are allowed");
  return absl::StrCat(name, " needs a value");
}

std::string WrongValue(const CLI::Option& option) {
  const bool is_flag = option.get_items_expected_max() == 0;
  return absl::StrCat(option.get_name(), " is ", Quoted(absl::StrJoin(option.results(), " ")),
                      ", must be ", is_flag ? "true or false" : "a number");
}

// An option that cannot be given with another one that is given, or without one that is not.
std::string WrongTogether(const CLI::App& app) {
  for (const CLI::Option* option : OptionsOf(app)) {
    if (option->count() == 0) continue;
    for (const CLI::Option* other : option->get_needs()) {
      if (other->count() == 0)
        return absl::StrCat(option->get_name(), " needs ", other->get_name());
    }
    for (const CLI::Option* other : option->get_excludes()) {
      if (other->count() > 0)
        return absl::StrCat(option->get_name(), " and ", other->get_name(),
                            " cannot be given together");
    }
  }
  return "these options cannot be given together";
}

template <class Kind>
bool Is(const CLI::ParseError& error) {
  return dynamic_cast<const Kind*>(&error) != nullptr;
}

std::string WhatIsWrong(const CLI::App& app, const CLI::ParseError& error) {
  if (Is<CLI::ValidationError>(error)) return error.what();
  if (Is<CLI::RequiredError>(error)) return WhatIsMissing(app);
  if (Is<CLI::ExtrasError>(error))
    return UnknownWord(app.remaining(/*recurse=*/true)[0], "unexpected argument");
  if (Is<CLI::ExcludesError>(error) || Is<CLI::RequiresError>(error)) return WrongTogether(app);
  if (Is<CLI::FileError>(error) && app.get_config_ptr() != nullptr)
    return absl::StrCat(app.get_config_ptr()->get_name(), " names a file that cannot be read: ",
                        Quoted(app.get_config_ptr()->as<std::string>()));
  const CLI::Option* option = OptionNamedIn(app, error.what());
  if (option != nullptr && Is<CLI::ArgumentMismatch>(error)) return WrongNumberOfValues(*option);
  if (option != nullptr && Is<CLI::ConversionError>(error)) return WrongValue(*option);
  return "the command line cannot be understood";
}

}  // namespace

CLI::Validator OneOf(const std::vector<std::string>& words) {
  return CLI::Validator(
      [words](const std::string& text) {
        if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
        return absl::StrCat(Quoted(text), " is not one of ", absl::StrJoin(words, ", "));
      },
      absl::StrCat("{", absl::StrJoin(words, ","), "}"));
}

std::string WithHelpHint(const CLI::App& app, const std::string& what) {
  const auto name = [](std::string* out, const CLI::App* command) {
    out->append(command->get_name());
  };
  return absl::StrCat(what, ". Try '", absl::StrJoin(CommandsOf(app), " ", name), " --help'.");
}

std::string DescribeWrongUsage(const CLI::App& app, const CLI::ParseError& error) {
  return WithHelpHint(app, WhatIsWrong(app, error));
}

std::optional<int> ParseCommandLine(CLI::App& app, const std::vector<std::string>& words) {
  std::string wrong;
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // as CLI11 wants them
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    const bool without_command = app.get_subcommands().empty() && !app.get_subcommands({}).empty();
    const std::vector<std::string> rest = app.remaining();
    // `popvision look --help` asks for help about a command that does not exist.
    if (error.get_exit_code() == 0 && (!without_command || rest.empty())) return app.exit(error);
    wrong = error.get_exit_code() == 0 ? WithHelpHint(app, UnknownWord(rest[0], "unknown command"))
                                       : DescribeWrongUsage(app, error);
  }
  std::fprintf(stderr, "%s: error: %s\n", app.get_name().c_str(), OneLine(wrong).c_str());
  return 2;
}

}  // namespace vpod::base
