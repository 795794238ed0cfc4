// Documents as JSON: an array of blocks, each with its kind and all its numbers.
#include <nlohmann/json.hpp>

#include "tools/popvision/document.h"

namespace vpod::popvision {
namespace {

using Object = nlohmann::ordered_json;

Object JsonOf(const Value& value) {
  return std::visit([](const auto& number) { return Object(number); }, value);
}

Object JsonOf(const Facts& facts) {
  Object object{{"kind", "facts"}, {"title", facts.title}};
  for (const auto& [key, value] : facts.facts) object["facts"][key] = JsonOf(value);
  return object;
}

Object JsonOf(const Table& table) {
  Object object{{"kind", "table"}, {"title", table.title}, {"rows", Object::array()}};
  for (const std::vector<Value>& row : table.rows) {
    Object& cells = object["rows"].emplace_back();
    for (size_t column = 0; column < row.size(); ++column)
      cells[table.columns[column]] = JsonOf(row[column]);
  }
  return object;
}

Object JsonOf(const Chart& chart) {
  Object object{
      {"kind", "chart"}, {"title", chart.title}, {"unit", chart.unit}, {"axis", chart.axis}};
  if (chart.limit) object["limit"] = *chart.limit;
  object["series"] = Object::object();
  for (const Chart::Series& series : chart.series) object["series"][series.name] = series.values;
  return object;
}

Object JsonOf(const Lanes& lanes) {
  Object object{{"kind", "lanes"},
                {"title", lanes.title},
                {"unit", lanes.unit},
                {"end", lanes.end},
                {"lanes", Object::object()}};
  for (const Lanes::Lane& lane : lanes.lanes) {
    Object& segments = object["lanes"][lane.name] = Object::array();
    for (const Lanes::Segment& segment : lane.segments) {
      segments.push_back(
          {{"from", segment.begin}, {"to", segment.end}, {"kind", lanes.kinds[segment.kind].name}});
    }
  }
  return object;
}

Object JsonOf(const Notes& notes) {
  return {{"kind", "notes"}, {"title", notes.title}, {"notes", notes.notes}};
}

}  // namespace

std::string Json(const Document& document) {
  Object object{{"view", document.name}, {"blocks", Object::array()}};
  for (const Block& block : document.blocks) {
    object["blocks"].push_back(std::visit([](const auto& shown) { return JsonOf(shown); }, block));
  }
  return object.dump(1, ' ', false, Object::error_handler_t::replace) + "\n";
}

}  // namespace vpod::popvision
