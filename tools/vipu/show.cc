#include "tools/vipu/show.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/render/table.h"

namespace vpod::tools {
namespace {

// Clears the screen, if there is one.
const char* FreshScreen() {
  const char* terminal = std::getenv("TERM");
  const bool is_dumb = terminal == nullptr || absl::string_view(terminal) == "dumb";
  return render::IsTerminal(STDOUT_FILENO) && !is_dumb ? "\033[H\033[2J" : "";
}

}  // namespace

absl::Status AsUsageError(const absl::Status& status) {
  return absl::IsInvalidArgument(status) ? UsageError(std::string(status.message())) : status;
}

absl::StatusOr<ListOptions> ListOptionsOf(const Arguments& arguments) {
  ListOptions options;
  if (arguments.Has(kOutput)) {
    const auto format = ParseListFormat(arguments.Text(kOutput));
    VPOD_RETURN_IF_ERROR(AsUsageError(format.status()));
    options.format = *format;
  }
  if (arguments.Switch(kShowJson)) {
    if (arguments.Has(kOutput) && options.format != ListFormat::kJson)
      return UsageError("Flags --showjson and --output exclude each other.");
    options.format = ListFormat::kJson;
  }
  options.headings = !arguments.Switch(kNoHeaders);
  options.sort_by = arguments.Text(kSortBy);
  options.filters = arguments.List(kFilter);
  if (!arguments.Has(kWatch)) return options;
  VPOD_ASSIGN_OR_RETURN(const double seconds, arguments.Real(kWatch, 0));
  if (seconds < 0.1 || seconds > 86400) {
    return UsageError(absl::StrCat("Flag --watch takes 0.1 to 86400 seconds, not '",
                                   arguments.Text(kWatch), "'."));
  }
  options.watch_seconds = seconds;
  return options;
}

absl::Status PrintList(const Call& call, const ListOptions& options,
                       const std::function<absl::StatusOr<std::string>()>& text) {
  while (true) {
    VPOD_ASSIGN_OR_RETURN(const std::string list, text());
    if (options.is_watch() && !options.is_json()) call.out << FreshScreen();
    call.out << list << std::flush;
    if (!options.is_watch() || !call.out) return absl::OkStatus();
    std::this_thread::sleep_for(std::chrono::duration<double>(options.watch_seconds));
  }
}

std::string ObjectsText(const ListOptions& options, const Json& objects) {
  if (options.format == ListFormat::kYaml)
    return absl::StrCat(options.is_watch() ? "---\n" : "", Yaml(objects));
  return objects.dump(options.is_watch() ? -1 : 2) + "\n";
}

}  // namespace vpod::tools
