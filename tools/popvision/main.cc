// popvision: looks at profiles, as PopVision's Graph Analyser does.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/pva/pva.h"
#include "client/pva/schema.h"
#include "device/base/file.h"
#include "device/base/status.h"
#include "device/base/stdout.h"
#include "device/base/text.h"
#include "device/base/version.h"
#include "tools/popvision/chrome_trace.h"
#include "tools/popvision/views.h"

namespace vpod::popvision {
namespace {

int Fail(absl::string_view message, int code) {
  std::fprintf(stderr, "popvision: error: %s\n", base::OneLine(message).c_str());
  return code;
}

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
    if (fs::exists(entry->path() / pva::kProfileFile, error))
      inside.push_back(entry->path().string());
  }
  if (inside.size() == 1) return pva::OpenReport(inside[0]);
  if (inside.empty()) return pva::OpenReport(path);
  std::sort(inside.begin(), inside.end());
  return absl::InvalidArgumentError(
      absl::StrCat(path, " has several profiles, name one: ", absl::StrJoin(inside, ", ")));
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  VPOD_RETURN_IF_ERROR(base::CheckIsFileOrNothing(path));
  return base::ReplaceFile(path, text, /*mode=*/0644);
}

absl::Status Look(const std::string& command, const Arguments& arguments) {
  VPOD_ASSIGN_OR_RETURN(const pva::Report report, Open(arguments.path));
  if (command == "report") {
    std::vector<Document> documents;
    for (const View& view : kViews) documents.push_back(view.make(report));
    return WriteFile(arguments.html,
                     Html(absl::StrCat("Profile of ", report.program_name()), documents));
  }
  if (!arguments.chrome.empty()) {
    VPOD_RETURN_IF_ERROR(base::CheckIsFileOrNothing(arguments.chrome));
    return WriteChromeTrace(report, arguments.chrome);
  }
  Document document;
  if (command == "diff") {
    VPOD_ASSIGN_OR_RETURN(const pva::Report after, Open(arguments.after));
    document = Diff(report, after);
  }
  for (const View& view : kViews) {
    if (command == view.name) document = view.make(report);
  }
  std::fputs((arguments.json ? Json : Text)(document).c_str(), stdout);
  return absl::OkStatus();
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
  const auto add = [&](const char* name, const char* help) {
    CLI::App* command = app.add_subcommand(name, help);
    command->add_option("profile", arguments.path, "profile.pop, or the directory that has it")
        ->required();
    return command;
  };
  for (const View& view : kViews) {
    CLI::App* command = add(view.name, view.help);
    auto* json = command->add_flag("--json", arguments.json, "print JSON");
    if (std::string(view.name) == "trace") {
      command->add_option("--chrome", arguments.chrome, "write a trace that ui.perfetto.dev opens")
          ->excludes(json);
    }
  }
  CLI::App* diff = add("diff", "what changed from one profile to another");
  diff->add_option("after", arguments.after, "the other profile")->required();
  diff->add_flag("--json", arguments.json, "print JSON");
  add("report", "write all views as one HTML page")
      ->add_option("--html", arguments.html, "the file")
      ->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    const bool no_command = argc > 1 && app.get_subcommands().empty();
    return Fail(absl::StrCat(no_command ? absl::StrCat("there is no command '", argv[1], "'")
                                        : std::string(error.what()),
                             "; see popvision --help"),
                2);
  }
  const absl::Status status = Look(app.get_subcommands().front()->get_name(), arguments);
  return status.ok() ? 0 : Fail(status.message(), 1);
}

}  // namespace
}  // namespace vpod::popvision

int main(int argc, char** argv) { return vpod::popvision::Main(argc, argv); }
