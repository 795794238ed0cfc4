// Documents as JSON: an object with `view` and an array `blocks`, each with its kind and all its
// numbers. It is written piece by piece, a line for each row and segment: a run may have millions.
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "tools/popvision/document.h"

namespace vpod::popvision {
namespace {

using Object = nlohmann::ordered_json;

Object JsonOf(const Value& value) {
  return std::visit([](const auto& shown) { return Object(shown); }, value);
}

// In ASCII: a terminal acts on none of it.
std::string Line(const Object& object) {
  return object.dump(-1, ' ', /*ensure_ascii=*/true, Object::error_handler_t::replace);
}

template <class Elements, class Write>
void WriteArray(std::ostream& out, const Elements& elements, const Write& write) {
  const char* separator = "[\n";
  for (const auto& element : elements) {
    out << std::exchange(separator, ",\n");
    write(element);
  }
  out << (elements.empty() ? "[]" : "\n]");
}

void Write(std::ostream& out, const Facts& facts) {
  Object object{{"kind", "facts"}, {"title", facts.title}};
  for (const auto& [key, value] : facts.facts) object["facts"][key] = JsonOf(value);
  out << Line(object);
}

void Write(std::ostream& out, const Table& table) {
  out << R"({"kind":"table","title":)" << Line(table.title) << R"(,"rows":)";
  WriteArray(out, table.rows, [&](const std::vector<Value>& row) {
    Object cells;
    for (size_t column = 0; column < row.size(); ++column)
      cells[table.columns[column]] = JsonOf(row[column]);
    out << Line(cells);
  });
  out << "}";
}

void Write(std::ostream& out, const Chart& chart) {
  Object object{
      {"kind", "chart"}, {"title", chart.title}, {"unit", chart.unit}, {"axis", chart.axis}};
  if (chart.limit) object["limit"] = *chart.limit;
  object["series"] = Object::object();
  for (const Chart::Series& series : chart.series) object["series"][series.name] = series.values;
  out << Line(object);
}

void Write(std::ostream& out, const Lanes& lanes) {
  out << R"({"kind":"lanes","title":)" << Line(lanes.title) << R"(,"unit":)" << Line(lanes.unit)
      << R"(,"end":)" << lanes.end << R"(,"lanes":{)";
  const char* separator = "";
  for (const Lanes::Lane& lane : lanes.lanes) {
    out << std::exchange(separator, ",\n") << Line(lane.name) << ":";
    WriteArray(out, lane.segments, [&](const Lanes::Segment& segment) {
      out << Line(
          {{"from", segment.begin}, {"to", segment.end}, {"kind", lanes.kinds[segment.kind].name}});
    });
  }
  out << "}}";
}

void Write(std::ostream& out, const Notes& notes) {
  out << Line({{"kind", "notes"}, {"title", notes.title}, {"notes", notes.notes}});
}

}  // namespace

void WriteJson(const Document& document, std::ostream& out) {
  out << R"({"view":)" << Line(document.name) << R"(,"blocks":)";
  WriteArray(out, document.blocks, [&](const Block& block) {
    std::visit([&](const auto& shown) { Write(out, shown); }, block);
  });
  out << "}\n";
}

std::string Json(const Document& document) {
  std::ostringstream out;
  WriteJson(document, out);
  return std::move(out).str();
}

}  // namespace vpod::popvision
