// popvision: looks at profiles, as PopVision's Graph Analyser does.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/pva/pva.h"
#include "client/pva/schema.h"
#include "device/base/command_line.h"
#include "device/base/file.h"
#include "device/base/status.h"
#include "device/base/stdout.h"
#include "device/base/text.h"
#include "device/base/version.h"
#include "tools/popvision/chrome_trace.h"
#include "tools/popvision/output_file.h"
#include "tools/popvision/views.h"

namespace vpod::popvision {
namespace {

struct View {
  const char* name;
  const char* help;
  Document (*make)(const pva::Report& report);
};
constexpr View kViews[] = {
    {"summary", "target, options, memory, streams and execution", Summary},
    {"insights", "what limits the program, and what to try", Insights},
    {"memory", "memory by tile and category, and the largest variables", Memory},
    {"liveness", "memory over the steps of the program, and its peak", Liveness},
    {"program", "the tree of the program", ProgramTree},
    {"operations", "operations by their cycles", Operations},
    {"trace", "what each IPU does when", Trace},
};

struct Arguments {
  std::string path, after, html, chrome;
  bool json = false;
};

// A directory of reports that has a single one stands for it.
absl::StatusOr<pva::Report> Open(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(path, error) || fs::exists(fs::path(path) / pva::kProfileFile, error))
    return pva::OpenReport(path);
  std::vector<std::string> inside;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code of_entry;
    if (fs::exists(entry->path() / pva::kProfileFile, of_entry))
      inside.push_back(entry->path().string());
  }
  if (error)
    return absl::PermissionDeniedError(absl::StrCat(path, ": cannot be listed: ", error.message()));
  if (inside.size() == 1) return pva::OpenReport(inside[0]);
  if (inside.empty()) return pva::OpenReport(path);
  std::sort(inside.begin(), inside.end());
  return absl::InvalidArgumentError(
      absl::StrCat(path, " has several profiles, name one: ", absl::StrJoin(inside, ", ")));
}

// Where a file is written that is named for output. Never over the profile that is shown, by
// whatever name.
absl::StatusOr<std::string> OutputAt(const std::string& path, const pva::Report& report) {
  std::error_code error;
  if (std::filesystem::equivalent(path, report.path, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write ", path, ": it is the profile itself"));
  }
  return base::OutputPath(path);
}

absl::Status WriteReport(const pva::Report& report, const std::string& path) {
  VPOD_ASSIGN_OR_RETURN(const std::string output, OutputAt(path, report));
  std::vector<Document> documents;
  for (const View& view : kViews) documents.push_back(view.make(report));
  return WriteOutput(output, [&](std::ostream& out) { out << Html(HeadOf(report), documents); });
}

absl::Status Look(const std::string& command, const Arguments& arguments) {
  VPOD_ASSIGN_OR_RETURN(const pva::Report report, Open(arguments.path));
  if (command == "report") return WriteReport(report, arguments.html);
  if (!arguments.chrome.empty()) {
    VPOD_ASSIGN_OR_RETURN(const std::string output, OutputAt(arguments.chrome, report));
    return WriteChromeTrace(report, output);
  }
  Document document;
  if (command == "diff") {
    VPOD_ASSIGN_OR_RETURN(const pva::Report after, Open(arguments.after));
    document = Diff(report, after);
  }
  for (const View& view : kViews) {
    if (command == view.name) document = view.make(report);
  }
  if (arguments.json) {
    WriteJson(document, std::cout);
  } else {
    std::cout << Text(document);
  }
  return absl::OkStatus();
}

void AddCommands(CLI::App& app, Arguments& arguments) {
  const CLI::Validator given(
      [](const std::string& value) { return value.empty() ? "the value is empty" : ""; }, "");
  const auto add = [&](const char* name, const char* help) {
    CLI::App* command = app.add_subcommand(name, help);
    command->add_option("profile", arguments.path, "profile.pop, or the directory that has it")
        ->required()
        ->check(given);
    return command;
  };
  for (const View& view : kViews) {
    CLI::App* command = add(view.name, view.help);
    auto* json = command->add_flag("--json", arguments.json, "print JSON");
    if (std::string(view.name) == "trace") {
      command->add_option("--chrome", arguments.chrome, "write a trace that ui.perfetto.dev opens")
          ->excludes(json)
          ->check(given);
    }
  }
  CLI::App* diff = add("diff", "what changed from one profile to another");
  diff->add_option("after", arguments.after, "the other profile")->required()->check(given);
  diff->add_flag("--json", arguments.json, "print JSON");
  add("report", "write all views as one HTML page")
      ->add_option("--html", arguments.html, "the file")
      ->required()
      ->check(given);
}

int Main(int argc, char** argv) {
  base::CheckStdoutAtExit();
  CLI::App app(
      "Looks at the profiles that POPLAR_ENGINE_OPTIONS='{\"autoReport.all\":\"true\"}' makes "
      "programs write.",
      "popvision");
  app.require_subcommand(1);
  app.set_version_flag("--version", absl::StrCat("version: ", base::kVersion), "show the version");
  Arguments arguments;
  AddCommands(app, arguments);
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  // `popvision help trace` is `popvision trace --help`.
  if (!words.empty() && words[0] == "help") {
    words.erase(words.begin());
    words.resize(std::min<size_t>(words.size(), 1));
    words.push_back("--help");
  }
  if (const auto code = base::ParseCommandLine(app, words); code.has_value()) return *code;
  const absl::Status status = Look(app.get_subcommands().front()->get_name(), arguments);
  if (status.ok()) return 0;
  std::fprintf(stderr, "popvision: error: %s\n", base::OneLine(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace vpod::popvision

int main(int argc, char** argv) { return vpod::popvision::Main(argc, argv); }
