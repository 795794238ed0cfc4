// Plain tables of the V-IPU tools (spec/vipu.md 7) and text helpers that all tools share.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace vpod::render {

// Each cell is blank + text padded to the column + blank, joined by '|', trailing blanks cut. A
// column is as wide as its longest text or its minimum.
struct Table {
  std::vector<std::string> headings;
  std::vector<size_t> minimum_widths;  // may be shorter than headings
  std::vector<std::vector<std::string>> rows;
};

// Heading, rule, rows, rule. Empty cells print "-"; a cell of one blank stays blank.
std::string StyleH(const Table& table);
// The rows alone, as wide as with the heading.
std::string Rows(const Table& table);
// Rule, heading, rule, rows, rule.
std::string StyleR(const Table& table);
// The rule of a table.
std::string Rule(const Table& table);
// Heading and rule, and one row: for tables that grow while they are shown.
std::string Head(const Table& table);
std::string Row(const Table& table, const std::vector<std::string>& cells);
// A rule, then key/value rows with keys padded to 20.
std::string Block(const std::vector<std::pair<std::string, std::string>>& rows);

// Columns of a terminal that a text of UTF-8 takes: one for each character.
size_t Columns(absl::string_view text);

// Text in the middle of `width`; an odd blank goes right. Longer text is cut to "..." and its last
// width-3 characters.
std::string Centre(absl::string_view text, size_t width);

// Whether somebody looks at the stream (1 or 2).
bool IsTerminal(int stream);
// Whether it also understands escape codes: a terminal that is not dumb.
bool TakesEscapeCodes(int stream);
// Columns of the terminal on stdout; 0 when it is none.
size_t TerminalColumns();

// "13s", "4m1s", "2h5m", "3d4h" (spec/gc-tools.md 2.4).
std::string ShortDuration(int64_t seconds);

// "2023-05-04T09:12:41Z" from seconds since 1970; with milliseconds, "2023-05-04T09:12:41.250Z".
std::string UtcTime(int64_t seconds);
std::string UtcTimeMillis(int64_t milliseconds);

}  // namespace vpod::render
