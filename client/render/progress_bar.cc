#include "client/render/progress_bar.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace vpod::render {
namespace {

// "01:05", "1:02:03"
std::string Clock(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  const std::string rest = absl::StrFormat("%02d:%02d", minutes, whole % 60);
  return hours > 0 ? absl::StrCat(hours, ":", rest) : rest;
}

}  // namespace

std::string ProgressBar(absl::string_view what, double done,
                        std::chrono::duration<double> elapsed) {
  constexpr int kCells = 10;
  // Parts of a cell: blank, an eighth … seven eighths.
  static constexpr const char* kParts[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int percent = static_cast<int>(std::floor(done * 100));
  const int eighths = percent * kCells * 8 / 100;
  std::string bar;
  for (int cell = 0; cell < kCells; ++cell) {
    const int filled = eighths - cell * 8;
    bar += filled >= 8 ? "█" : kParts[filled > 0 ? filled : 0];
  }
  const std::string left = done > 0 ? Clock(elapsed.count() * (1 - done) / done) : "?";
  return absl::StrFormat("%s: %3d%%|%s| %d/100 [%s<%s]", what, percent, bar, percent,
                         Clock(elapsed.count()), left);
}

}  // namespace vpod::render
