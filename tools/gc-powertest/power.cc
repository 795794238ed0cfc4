#include "tools/gc-powertest/power.h"

#include <algorithm>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/ipuof/attributes.h"
#include "client/render/table.h"

namespace vpod::tools {
namespace {

using ipuof::Attribute;
using telemetry::v1::IpuTelemetry;

constexpr size_t kCardWidth = 82, kPowerWidth = 35, kIpuWidth = 50, kIpuNameColumn = 23;
constexpr int kBoardSensors = 5, kDieSensors = 4;

// Number in front of the unit, e.g. of "123.5 W"; none for "N/A".
std::optional<double> Value(const IpuTelemetry& ipu, const char* key) {
  double value = 0;
  const std::string text = Attribute(ipu, key);
  if (!absl::SimpleAtod(text.substr(0, text.find(' ')), &value)) return std::nullopt;
  return value;
}

std::string Watts(std::optional<double> value) {
  return value.has_value() ? absl::StrFormat("%06.2fW", *value) : "------W";
}

std::string BoardCelsius(std::optional<double> value) {
  return value.has_value() ? absl::StrFormat("%03.0fC", *value) : "---C";
}

std::string DieCelsius(std::optional<double> value) {
  return value.has_value() ? absl::StrFormat("%05.1fC", *value) : "-----C";
}

// The second part of a serial "0021.0002.8221721".
std::string BoardNumber(const TestedBoard& board) {
  const std::vector<std::string> parts =
      absl::StrSplit(Attribute(*board.ipus[0], "board serial number"), '.');
  return parts.size() == 3 ? parts[1] : "----";
}

// Pads each text on the right to `width`.
std::string Columns(const std::vector<std::string>& texts, size_t width) {
  std::string line;
  for (const std::string& text : texts)
    absl::StrAppend(&line, text, std::string(width > text.size() ? width - text.size() : 0, ' '));
  return line;
}

std::string BoardPower(const TestedBoard& board) {
  const IpuTelemetry& first = *board.ipus[0];
  const std::optional<double> total = Value(first, "total board power");
  std::optional<double> low = Value(first, "ipu power"), high;
  if (total.has_value() && low.has_value()) high = *total - *low;
  uint32_t number = 0;
  if (absl::SimpleAtoi(Attribute(first, "board ipu index"), &number) && number % 2 == 1)
    std::swap(low, high);
  return absl::StrCat(" ", BoardNumber(board), ": ", Watts(low), "  ", Watts(high), "  T",
                      Watts(total), "  ");
}

}  // namespace

std::vector<TestedBoard> BoardsOf(const std::vector<IpuTelemetry>& ipus) {
  std::vector<TestedBoard> boards;
  std::vector<std::string> names;
  for (const IpuTelemetry& ipu : ipus) {
    const std::string name =
        absl::StrCat(Attribute(ipu, "ipuof host"), " ", Attribute(ipu, "board serial number"));
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      names.push_back(name);
      boards.push_back({{&ipu}});
    } else {
      boards[static_cast<size_t>(found - names.begin())].ipus.push_back(&ipu);
    }
  }
  for (TestedBoard& board : boards) {
    std::sort(board.ipus.begin(), board.ipus.end(), [](const auto* a, const auto* b) {
      return Attribute(*a, "board ipu index") < Attribute(*b, "board ipu index");
    });
  }
  return boards;
}

std::string PowerHeading(const TestedBoard& board, bool name_machine) {
  std::string title = "CARD LEVEL";
  if (name_machine) absl::StrAppend(&title, " ", Attribute(*board.ipus[0], "ipuof host"));
  std::string first = absl::StrCat(" |", render::Centre(title, kCardWidth), "|");
  uint32_t number = 0;
  (void)!absl::SimpleAtoi(BoardNumber(board), &number);
  std::vector<std::string> sensors;
  for (const char* sensor : {"B_COL0", "B_COL1", "B_IN", "B_MID", "B_OUT"})
    sensors.push_back(absl::StrCat(sensor, ":", number));
  std::string second =
      absl::StrCat(" |", render::Centre("XDPE132G5C", kPowerWidth), "| ", Columns(sensors, 9), "|");
  for (const IpuTelemetry* ipu : board.ipus) {
    const std::string index = Attribute(*ipu, "board ipu index");
    const std::string name = absl::StrCat(std::string(kIpuNameColumn, ' '), "IPU#", index);
    absl::StrAppend(&first, Columns({name}, kIpuWidth), "|");
    std::vector<std::string> die;
    for (const char* sensor : {"PVT0", "PVT1", "PVT2", "PVTE"})
      die.push_back(absl::StrCat(index, ":", sensor));
    absl::StrAppend(&second, " ", Columns(die, 10), "CLOCK    |");
  }
  return absl::StrCat(first, "\n", second, "\n");
}

std::string PowerRow(const TestedBoard& board) {
  std::string line = absl::StrCat(" |", BoardPower(board), "| ");
  const std::string board_sensor = BoardCelsius(Value(*board.ipus[0], "average board temp"));
  line += Columns(std::vector<std::string>(kBoardSensors, board_sensor), 9);
  for (const IpuTelemetry* ipu : board.ipus) {
    const std::string die_sensor = DieCelsius(Value(*ipu, "average die temp"));
    absl::StrAppend(&line, "| ", Columns(std::vector<std::string>(kDieSensors, die_sensor), 10),
                    Columns({Attribute(*ipu, "clock")}, 9));
  }
  return line + "|\n";
}

}  // namespace vpod::tools
