#include "client/render/table.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace vpod::render {
namespace {

// The last `count` characters.
absl::string_view Tail(absl::string_view text, size_t count) {
  size_t at = text.size();
  while (at > 0 && count > 0) {
    if ((text[--at] & 0xC0) != 0x80) --count;
  }
  return text.substr(at);
}

std::vector<size_t> Widths(const Table& table) {
  std::vector<size_t> widths(table.headings.size());
  for (size_t c = 0; c < widths.size(); ++c) {
    widths[c] = Columns(table.headings[c]);
    if (c < table.minimum_widths.size()) widths[c] = std::max(widths[c], table.minimum_widths[c]);
    for (const auto& row : table.rows) widths[c] = std::max(widths[c], Columns(row[c]));
  }
  return widths;
}

void AppendLine(const std::vector<std::string>& cells, const std::vector<size_t>& widths,
                bool dash_for_empty, std::string& text) {
  for (size_t c = 0; c < cells.size(); ++c) {
    absl::string_view cell = cells[c];
    if (cell.empty() && dash_for_empty) cell = "-";
    absl::StrAppend(&text, c == 0 ? " " : "| ", cell);
    text.append(std::max(Columns(cell), widths[c]) - Columns(cell) + 1, ' ');
  }
  text.erase(text.find_last_not_of(' ') + 1);
  text += '\n';
}

std::string Line(const std::vector<std::string>& cells, const std::vector<size_t>& widths,
                 bool dash_for_empty) {
  std::string line;
  AppendLine(cells, widths, dash_for_empty, line);
  return line;
}

std::string RuleOf(const std::vector<size_t>& widths) {
  size_t length = widths.size() - 1;
  for (size_t width : widths) length += width + 2;
  return std::string(length, '-') + "\n";
}

}  // namespace

size_t Columns(absl::string_view text) {
  return static_cast<size_t>(absl::c_count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string Rule(const Table& table) { return RuleOf(Widths(table)); }

std::string Head(const Table& table) {
  const std::vector<size_t> widths = Widths(table);
  return Line(table.headings, widths, false) + RuleOf(widths);
}

std::string Row(const Table& table, const std::vector<std::string>& cells) {
  return Line(cells, Widths(table), true);
}

std::string StyleH(const Table& table) {
  const std::vector<size_t> widths = Widths(table);
  const std::string rule = RuleOf(widths);
  std::string text;
  text.reserve((table.rows.size() + 3) * rule.size());
  AppendLine(table.headings, widths, false, text);
  text += rule;
  for (const auto& row : table.rows) AppendLine(row, widths, true, text);
  return text += rule;
}

std::string Rows(const Table& table) {
  const std::vector<size_t> widths = Widths(table);
  std::string text;
  for (const auto& row : table.rows) AppendLine(row, widths, true, text);
  return text;
}

std::string StyleR(const Table& table) { return Rule(table) + StyleH(table); }

std::string Block(const std::vector<std::pair<std::string, std::string>>& rows) {
  constexpr size_t kKeyWidth = 20;
  size_t value_width = 1;
  for (const auto& [key, value] : rows) value_width = std::max(value_width, Columns(value));
  std::string text(kKeyWidth + 2 + 1 + value_width + 2, '-');
  text += "\n";
  for (const auto& [key, value] : rows) text += Line({key, value}, {kKeyWidth, value_width}, true);
  return text;
}

std::string Centre(absl::string_view text, size_t width) {
  const size_t columns = Columns(text);
  if (columns > width) {
    return width <= 3 ? std::string(Tail(text, width)) : absl::StrCat("...", Tail(text, width - 3));
  }
  const size_t left = (width - columns) / 2;
  return absl::StrCat(std::string(left, ' '), text, std::string(width - columns - left, ' '));
}

bool IsTerminal(int stream) {
  // mpirun gives its processes pseudo-terminals that nobody looks at.
  return isatty(stream) == 1 && std::getenv("OMPI_COMM_WORLD_RANK") == nullptr;
}

bool TakesEscapeCodes(int stream) {
  const char* terminal = std::getenv("TERM");
  return IsTerminal(stream) && terminal != nullptr && absl::string_view(terminal) != "dumb";
}

size_t TerminalColumns() {
  winsize size{};
  if (!IsTerminal(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

std::string ShortDuration(int64_t seconds) {
  seconds = std::max<int64_t>(0, seconds);
  if (seconds < 60) return absl::StrCat(seconds, "s");
  if (seconds < 3600) return absl::StrCat(seconds / 60, "m", seconds % 60, "s");
  if (seconds < 86400) return absl::StrCat(seconds / 3600, "h", seconds / 60 % 60, "m");
  return absl::StrCat(seconds / 86400, "d", seconds / 3600 % 24, "h");
}

std::string UtcTime(int64_t seconds) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(seconds),
                          absl::UTCTimeZone());
}

std::string UtcTimeMillis(int64_t milliseconds) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromUnixMillis(milliseconds),
                          absl::UTCTimeZone());
}

}  // namespace vpod::render
