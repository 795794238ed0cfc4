// What stands above the views of a profile on a page.
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "device/base/version.h"
#include "tools/popvision/views.h"

namespace vpod::popvision {
namespace {

// "2026-11-29 12:30 UTC"; empty if the profile does not say it.
std::string DateOf(const pva::Report& report) {
  const auto timestamp = report.meta.find("timestamp");
  int64_t seconds = 0;
  if (timestamp == report.meta.end() || !absl::SimpleAtoi(timestamp->second, &seconds)) return "";
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", absl::FromUnixSeconds(seconds),
                          absl::UTCTimeZone());
}

std::string VersionOf(const pva::Report& report) {
  const auto version = report.meta.find("version");
  return version == report.meta.end() ? "" : version->second;
}

}  // namespace

PageHead HeadOf(const pva::Report& report) {
  const std::string date = DateOf(report), version = VersionOf(report);
  const std::string by = version.empty() ? "" : absl::StrCat(", version ", version);
  PageHead head{.heading = absl::StrCat("Profile of ", report.program_name())};
  head.title =
      absl::StrCat(report.program_name(), ", ", report.path, date.empty() ? "" : ", ", date, by);
  head.origin = absl::StrCat("Program ", report.program_name(), ", file ", report.path,
                             date.empty() ? "" : ", begun ", date, by, "; page by popvision ",
                             base::kVersion, ".");
  for (uint32_t ipu = 0; ipu < report.target.ipus_per_replica; ++ipu) {
    std::string note = OutOfMemoryNote(report, ipu);
    if (!note.empty()) head.problems.push_back(std::move(note));
  }
  if (report.first_run_lost) head.problems.push_back(LostRuns(report));
  return head;
}

}  // namespace vpod::popvision
