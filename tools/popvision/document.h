// The contents of a view of a profile, without their form: text, JSON and HTML are made of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace vpod::popvision {

// Nothing; texts; counts; changes of counts; shares and rates.
using Value = std::variant<std::nullptr_t, std::string, uint64_t, int64_t, double>;

struct Facts {
  std::string title;
  std::vector<std::pair<std::string, Value>> facts;
};

struct Table {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<Value>> rows;
};

// Values side by side, stacked if there are several series of them.
struct Chart {
  struct Series {
    std::string name;
    std::vector<uint64_t> values;
  };
  std::string title, unit, axis;  // "Bytes by tile", "bytes", "tile"
  std::vector<Series> series;     // of equal length
  std::optional<uint64_t> limit;  // a line across
};

// The letter of a kind in which nothing is done.
inline constexpr char kIdle = '.';

// Activities over time, a lane for each actor.
struct Lanes {
  struct Segment {
    uint64_t begin, end;
    size_t kind;  // position in `kinds`
  };
  struct Lane {
    std::string name;
    std::vector<Segment> segments;  // in their order
  };
  struct Kind {
    char letter;
    std::string name;
  };
  std::string title, unit;
  std::vector<Kind> kinds;
  std::vector<Lane> lanes;
  uint64_t end = 0;
};

struct Notes {
  std::string title;
  std::vector<std::string> notes;
};

using Block = std::variant<Facts, Table, Chart, Lanes, Notes>;

struct Document {
  std::string name;  // "memory"
  std::vector<Block> blocks;
};

// --- For those who show it ---
// "-", the text as base::Printable, "1,234,567", "+1,234", "62.5".
std::string Show(const Value& value);
// Values of each of some parts of a chart: the largest sum of the series in it.
std::vector<uint64_t> Peaks(const Chart& chart, size_t parts);
// The kind that takes most of each part of a lane; none where nothing is done.
std::vector<std::optional<size_t>> MostOf(const Lanes& lanes, const Lanes::Lane& lane,
                                          size_t parts);

std::string Text(const Document& document);
void WriteJson(const Document& document, std::ostream& out);
std::string Json(const Document& document);
// What stands above the documents of a page.
struct PageHead {
  std::string title;  // of the window
  std::string heading;
  std::string origin;                 // where the page comes from, in small print
  std::vector<std::string> problems;  // what is wrong, which comes first and in red
};
// One page that needs nothing else.
std::string Html(const PageHead& head, const std::vector<Document>& documents);

}  // namespace vpod::popvision
