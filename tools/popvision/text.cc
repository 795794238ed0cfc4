// Documents as text, with small charts of characters.
#include "device/base/text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/render/table.h"
#include "tools/popvision/document.h"

namespace vpod::popvision {
namespace {

constexpr size_t kWidth = 96;  // of charts
constexpr size_t kHeight = 8;

// Names may have anything in them, and come from a file that anybody may have written.
std::string Printable(const std::string& text) { return base::Printable(text, std::string::npos); }

std::string Padded(std::string text, size_t width) {
  if (text.size() < width) text.insert(0, width - text.size(), ' ');
  return text;
}

std::string TextOf(const Facts& facts) {
  std::string text = Printable(facts.title) + "\n";
  std::vector<std::string> keys;
  size_t width = 0;
  for (const auto& [key, value] : facts.facts) {
    keys.push_back(Printable(key));
    width = std::max(width, keys.back().size());
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    absl::StrAppend(&text, "  ", keys[i], std::string(width - keys[i].size() + 2, ' '),
                    Show(facts.facts[i].second), "\n");
  }
  return text;
}

std::string TextOf(const Table& table) {
  render::Table shown;
  for (const std::string& column : table.columns) shown.headings.push_back(Printable(column));
  for (const std::vector<Value>& row : table.rows) {
    std::vector<std::string>& cells = shown.rows.emplace_back();
    for (const Value& value : row) cells.push_back(Show(value));
  }
  // Numbers stand below each other.
  for (size_t column = 0; column < table.columns.size(); ++column) {
    size_t width = shown.headings[column].size();
    for (const auto& cells : shown.rows) width = std::max(width, cells[column].size());
    for (size_t row = 0; row < shown.rows.size(); ++row) {
      if (!std::holds_alternative<std::string>(table.rows[row][column]))
        shown.rows[row][column] = Padded(shown.rows[row][column], width);
    }
  }
  return absl::StrCat(Printable(table.title), "\n", render::StyleH(shown));
}

std::string TextOf(const Chart& chart) {
  const std::vector<uint64_t> peaks = Peaks(chart, kWidth);
  std::string text = Printable(chart.title) + "\n";
  if (peaks.empty()) return text;
  const uint64_t top = std::max(
      {uint64_t{1}, chart.limit.value_or(0), *std::max_element(peaks.begin(), peaks.end())});
  const std::string label = Show(Value(top));
  const size_t limit_row =
      chart.limit ? kHeight - std::min<uint64_t>(kHeight, *chart.limit * kHeight / top) : kHeight;
  for (size_t row = 0; row < kHeight; ++row) {
    const std::string axis = row == 0 ? label : row + 1 == kHeight ? "0" : "";
    absl::StrAppend(&text, "  ", Padded(axis, label.size()), " |");
    for (uint64_t peak : peaks) {
      // Filled from the bottom; what is there is seen, however little.
      const uint64_t filled = peak == 0 ? 0 : (peak * kHeight + top - 1) / top;
      absl::StrAppend(&text, filled >= kHeight - row ? "#" : row == limit_row ? "-" : " ");
    }
    absl::StrAppend(&text, "\n");
  }
  absl::StrAppend(&text, "  ", std::string(label.size(), ' '), " +", std::string(peaks.size(), '-'),
                  "\n");
  const size_t n = chart.series[0].values.size();
  absl::StrAppend(&text, "  ", std::string(label.size() + 2, ' '), chart.unit, " by ", chart.axis,
                  ", 0 to ", n - 1,
                  chart.limit ? absl::StrCat("; limit ", Show(Value(*chart.limit))) : "", "\n");
  return text;
}

std::string TextOf(const Lanes& lanes) {
  std::string text = Printable(lanes.title) + "\n";
  if (lanes.end == 0) return text;
  size_t width = 0;
  for (const Lanes::Lane& lane : lanes.lanes) width = std::max(width, lane.name.size());
  for (const Lanes::Lane& lane : lanes.lanes) {
    absl::StrAppend(&text, "  ", lane.name, std::string(width - lane.name.size(), ' '), " |");
    for (const auto& kind : MostOf(lanes, lane, kWidth))
      absl::StrAppend(&text, kind ? std::string(1, lanes.kinds[*kind].letter) : " ");
    absl::StrAppend(&text, "|\n");
  }
  absl::StrAppend(&text, "  ", std::string(width + 2, ' '), "0 to ", Show(Value(lanes.end)), " ",
                  lanes.unit, ":");
  for (const Lanes::Kind& kind : lanes.kinds)
    absl::StrAppend(&text, " ", std::string(1, kind.letter), " ", kind.name);
  return text + "\n";
}

std::string TextOf(const Notes& notes) {
  std::string text = Printable(notes.title) + "\n";
  for (const std::string& note : notes.notes) absl::StrAppend(&text, "  - ", Printable(note), "\n");
  return text;
}

}  // namespace

std::string Text(const Document& document) {
  std::string text;
  for (const Block& block : document.blocks) {
    if (!text.empty()) text += "\n";
    text += std::visit([](const auto& shown) { return TextOf(shown); }, block);
  }
  return text;
}

}  // namespace vpod::popvision
