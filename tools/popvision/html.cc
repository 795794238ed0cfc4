// Documents as one HTML page, with charts in SVG.
#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "device/base/text.h"
#include "tools/popvision/document.h"

namespace vpod::popvision {
namespace {

constexpr size_t kWidth = 960, kHeight = 220, kLane = 26, kLabel = 90;  // pixels
constexpr uint64_t kMostLimit = 2;  // a limit of so many times the peak of a chart is part of it
// Told apart also by those who do not see red or green: Okabe and Ito, 2008.
constexpr std::array kColours = {"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                 "#56b4e9", "#d55e00", "#f0e442", "#999999"};

constexpr char kStyle[] = R"(
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 1100px; padding: 0 24px 48px;
  color: #1c1c1c; background: #fff; }
nav { position: sticky; top: 0; background: #fff; padding: 12px 0; border-bottom: 1px solid #ddd;
  display: flex; flex-wrap: wrap; gap: 4px 16px; }
nav a { color: #0059a8; text-decoration: none; }
nav .wrong, .problems h2 { color: #b00020; }
.problems { border-left: 4px solid #b00020; background: #fdecee; padding: 4px 16px; margin: 16px 0;
  color: #b00020; }
.problems h2 { margin: 8px 0; } .origin { font-size: 13px; color: #666; }
h1, .origin, .problems { overflow-wrap: anywhere; }
h1 { font-size: 24px; margin-bottom: 0; } h2 { font-size: 20px; margin-top: 40px; scroll-margin-top: 56px; }
h3 { font-size: 15px; margin-bottom: 4px; }
table { border-collapse: collapse; font-size: 13px; } .scroll { max-height: 480px; overflow: auto; }
th, td { padding: 3px 12px 3px 0; text-align: left; border-bottom: 1px solid #eee;
  white-space: pre; vertical-align: top; }
th { position: sticky; top: 0; background: #fff; } td.number, th.number { text-align: right; }
.facts td { white-space: pre-wrap; overflow-wrap: anywhere; }
svg { max-width: 100%; height: auto; display: block; } text { font: 12px system-ui, sans-serif; }
.legend span { margin-right: 16px; font-size: 13px; }
.legend i { display: inline-block; width: 12px; height: 12px; margin-right: 5px; }
@media (prefers-color-scheme: dark) {
  body, nav, th { background: #16181c; color: #e4e4e4; } nav { border-color: #333; }
  th, td { border-color: #2a2d33; } nav a { color: #7db7ff; } text { fill: #e4e4e4; }
  nav .wrong, .problems, .problems h2 { color: #ff8a94; } .problems { background: #331317; }
  .origin { color: #999; }
}
@media (max-width: 500px) {
  body { padding: 0 12px 24px; } nav { position: static; } h2 { scroll-margin-top: 12px; }
})";

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(base::Printable(text, std::string::npos),
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

const char* Colour(size_t number) { return kColours[number % kColours.size()]; }

const char* Colour(const Lanes& lanes, size_t kind) {
  return lanes.kinds[kind].letter == kIdle ? "#c8c8c8" : Colour(kind);
}

// Names with their colours.
std::string Legend(const std::vector<std::pair<std::string, const char*>>& entries) {
  std::string html = "<p class=legend>";
  for (const auto& [name, colour] : entries) {
    absl::StrAppend(&html, "<span><i style=\"background:", colour, "\"></i>", Escaped(name),
                    "</span>");
  }
  return html + "</p>\n";
}

std::string HtmlOf(const Facts& facts) {
  std::string html = absl::StrCat("<h3>", Escaped(facts.title), "</h3>\n<table class=facts>");
  for (const auto& [key, value] : facts.facts) {
    absl::StrAppend(&html, "<tr><td>", Escaped(key), "</td><td>", Escaped(Show(value)),
                    "</td></tr>\n");
  }
  return html + "</table>\n";
}

std::string HtmlOf(const Table& table) {
  std::string html =
      absl::StrCat("<h3>", Escaped(table.title), "</h3>\n<div class=scroll><table><tr>");
  const auto is_number = [&](size_t column) {
    return !table.rows.empty() && !std::holds_alternative<std::string>(table.rows[0][column]);
  };
  for (size_t column = 0; column < table.columns.size(); ++column) {
    absl::StrAppend(&html, is_number(column) ? "<th class=number>" : "<th>",
                    Escaped(table.columns[column]), "</th>");
  }
  html += "</tr>\n";
  for (const std::vector<Value>& row : table.rows) {
    html += "<tr>";
    for (const Value& value : row) {
      const bool number = !std::holds_alternative<std::string>(value);
      absl::StrAppend(&html, number ? "<td class=number>" : "<td>", Escaped(Show(value)), "</td>");
    }
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

std::string LimitText(const Chart& chart, bool is_shown) {
  if (!chart.limit) return "";
  return absl::StrCat("; the limit of ", Show(Value(*chart.limit)), " ", Escaped(chart.unit),
                      is_shown ? " is the dashed line" : " lies above the chart");
}

std::string HtmlOf(const Chart& chart) {
  std::string html = absl::StrCat("<h3>", Escaped(chart.title), "</h3>\n");
  const std::vector<uint64_t> peaks = Peaks(chart, kWidth - kLabel);
  if (peaks.empty()) return html;
  const size_t n = chart.series[0].values.size(), columns = peaks.size();
  const uint64_t peak = std::max(uint64_t{1}, *std::max_element(peaks.begin(), peaks.end())),
                 limit = chart.limit.value_or(0);
  // A limit far above the values would leave nothing of them to see.
  const bool shows_limit = chart.limit && limit / kMostLimit <= peak;
  const uint64_t top = shows_limit ? std::max(peak, limit) : peak;
  const double scale = static_cast<double>(kHeight) / static_cast<double>(top),
               width = static_cast<double>(kWidth - kLabel) / static_cast<double>(columns);
  absl::StrAppendFormat(&html, "<svg viewBox=\"0 0 %d %d\">\n", kWidth, kHeight + 40);
  // The value of each column whose sum is largest: series lie on each other.
  std::vector<size_t> shown(columns);
  std::vector<uint64_t> largest(columns);
  for (size_t i = 0; i < n; ++i) {
    uint64_t sum = 0;
    for (const Chart::Series& series : chart.series) sum += series.values[i];
    const size_t column = i * columns / n;
    if (sum >= largest[column]) largest[column] = sum, shown[column] = i;
  }
  std::vector<uint64_t> below(columns);
  for (size_t s = 0; s < chart.series.size(); ++s) {
    // One shape a series: its upper edge, then the lower one back.
    std::string upper, lower;
    for (size_t column = 0; column < columns; ++column) {
      const double left = kLabel + static_cast<double>(column) * width;
      const uint64_t from = below[column], to = from + chart.series[s].values[shown[column]];
      const double y = 10 + kHeight - static_cast<double>(to) * scale,
                   y0 = 10 + kHeight - static_cast<double>(from) * scale;
      absl::StrAppendFormat(&upper, "%.1f,%.1f %.1f,%.1f ", left, y, left + width, y);
      lower.insert(0, absl::StrFormat("%.1f,%.1f %.1f,%.1f ", left + width, y0, left, y0));
      below[column] = to;
    }
    absl::StrAppend(&html, "<polygon fill=\"", Colour(s), "\" points=\"", upper, lower,
                    "\"><title>", Escaped(chart.series[s].name), "</title></polygon>\n");
  }
  if (shows_limit) {
    const double y = 10 + kHeight - static_cast<double>(limit) * scale;
    absl::StrAppendFormat(&html,
                          "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#d00\" "
                          "stroke-dasharray=\"6 4\"/>\n",
                          kLabel, kWidth, y, y);
  }
  absl::StrAppendFormat(&html,
                        "<text x=\"%d\" y=\"16\" text-anchor=\"end\">%s</text><text x=\"%d\" "
                        "y=\"%d\" text-anchor=\"end\">0</text><text x=\"%d\" y=\"%d\">%s by %s, 0 "
                        "to %d%s</text></svg>\n",
                        kLabel - 6, Show(Value(top)), kLabel - 6, kHeight + 10, kLabel,
                        kHeight + 30, Escaped(chart.unit), Escaped(chart.axis), n - 1,
                        LimitText(chart, shows_limit));
  std::vector<std::pair<std::string, const char*>> entries;
  for (size_t s = 0; s < chart.series.size(); ++s)
    entries.emplace_back(chart.series[s].name, Colour(s));
  return html + Legend(entries);
}

std::string HtmlOf(const Lanes& lanes) {
  std::string html = absl::StrCat("<h3>", Escaped(lanes.title), "</h3>\n");
  if (lanes.end == 0) return html;
  constexpr size_t kParts = kWidth - kLabel;
  absl::StrAppendFormat(&html, "<svg viewBox=\"0 0 %d %d\">\n", kWidth,
                        lanes.lanes.size() * kLane + 24);
  for (size_t number = 0; number < lanes.lanes.size(); ++number) {
    const Lanes::Lane& lane = lanes.lanes[number];
    const size_t y = number * kLane;
    absl::StrAppendFormat(&html, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n",
                          kLabel - 6, y + 16, Escaped(lane.name));
    const auto kinds = MostOf(lanes, lane, kParts);
    for (size_t begin = 0; begin < kParts;) {
      size_t end = begin;
      while (end < kParts && kinds[end] == kinds[begin]) ++end;
      if (kinds[begin]) {
        absl::StrAppendFormat(
            &html, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/>\n",
            kLabel + begin, y, end - begin, kLane - 4, Colour(lanes, *kinds[begin]));
      }
      begin = end;
    }
  }
  absl::StrAppendFormat(&html, "<text x=\"%d\" y=\"%d\">0 to %s %s</text></svg>\n", kLabel,
                        lanes.lanes.size() * kLane + 16, Show(Value(lanes.end)),
                        Escaped(lanes.unit));
  std::vector<std::pair<std::string, const char*>> entries;
  for (size_t kind = 0; kind < lanes.kinds.size(); ++kind)
    entries.emplace_back(lanes.kinds[kind].name, Colour(lanes, kind));
  return html + Legend(entries);
}

std::string ListOf(const std::vector<std::string>& notes) {
  std::string html = "<ul>";
  for (const std::string& note : notes) absl::StrAppend(&html, "<li>", Escaped(note), "</li>\n");
  return html + "</ul>\n";
}

std::string HtmlOf(const Notes& notes) {
  return absl::StrCat("<h3>", Escaped(notes.title), "</h3>\n", ListOf(notes.notes));
}

std::string HtmlOfProblems(const std::vector<std::string>& problems) {
  if (problems.empty()) return "";
  return absl::StrCat("<div class=problems role=alert><h2 id=wrong>What is wrong</h2>\n",
                      ListOf(problems), "</div>\n");
}

}  // namespace

std::string Html(const PageHead& head, const std::vector<Document>& documents) {
  std::string html = absl::StrCat(
      "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\n<meta name=viewport "
      "content=\"width=device-width\"><title>",
      Escaped(head.title), "</title><style>", kStyle, "</style></head>\n<body><nav>");
  if (!head.problems.empty()) html += "<a class=wrong href=\"#wrong\">what is wrong</a>\n";
  for (const Document& document : documents)
    absl::StrAppend(&html, "<a href=\"#", document.name, "\">", document.name, "</a>\n");
  absl::StrAppend(&html, "</nav>\n<h1>", Escaped(head.heading), "</h1>\n<p class=origin>",
                  Escaped(head.origin), "</p>\n", HtmlOfProblems(head.problems));
  for (const Document& document : documents) {
    absl::StrAppend(&html, "<section><h2 id=\"", document.name, "\">", document.name, "</h2>\n");
    for (const Block& block : document.blocks)
      html += std::visit([](const auto& shown) { return HtmlOf(shown); }, block);
    html += "</section>\n";
  }
  return html + "</body></html>\n";
}

}  // namespace vpod::popvision
