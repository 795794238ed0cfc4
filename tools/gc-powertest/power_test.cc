// The table of gc-powertest against the published one (spec/gc-tools.md 7).
#include "tools/gc-powertest/power.h"

#include <gtest/gtest.h>

#include "device/base/file.h"

namespace vpod::tools {
namespace {

using telemetry::v1::IpuTelemetry;

std::string Golden(const std::string& name) {
  const std::string text = base::ReadFile("tools/gc-powertest/testdata/" + name);
  EXPECT_NE(text, "") << name;
  return text;
}

IpuTelemetry Ipu(int number, const std::string& power, const std::string& die) {
  IpuTelemetry ipu;
  auto& attributes = *ipu.mutable_attributes();
  attributes["ipuof host"] = "10.1.5.10";
  attributes["board ipu index"] = std::to_string(number);
  attributes["board serial number"] = number < 2 ? "0021.0001.8221721" : "0021.0002.8221721";
  attributes["average board temp"] = "38.2 C";
  attributes["average die temp"] = die;
  attributes["ipu power"] = power;
  attributes["total board power"] = "172.5 W";
  attributes["clock"] = "1330MHz";
  return ipu;
}

TEST(PowerTableTest, OfOneIpuHasThePublishedColumns) {
  const std::vector<IpuTelemetry> ipus = {Ipu(0, "123.5 W", "40.7 C")};
  const auto boards = BoardsOf(ipus);
  ASSERT_EQ(boards.size(), 1u);
  EXPECT_EQ(PowerHeading(boards[0], false) + PowerRow(boards[0]), Golden("one_ipu.txt"));
}

TEST(PowerTableTest, BoardsAreGroupedAndIpusCountUpwards) {
  const std::vector<IpuTelemetry> ipus = {Ipu(3, "49.0 W", "30.0 C"), Ipu(2, "123.5 W", "41.0 C"),
                                          Ipu(1, "49.0 W", "30.0 C"), Ipu(0, "123.5 W", "41.0 C")};
  const auto boards = BoardsOf(ipus);
  ASSERT_EQ(boards.size(), 2u);
  std::string text;
  for (const auto& board : boards) text += PowerHeading(board, true) + PowerRow(board);
  EXPECT_EQ(text, Golden("two_boards.txt"));
}

TEST(PowerTableTest, MissingSensorsAreDashes) {
  std::vector<IpuTelemetry> ipus = {Ipu(1, "N/A", "N/A")};
  (*ipus[0].mutable_attributes())["average board temp"] = "N/A";
  (*ipus[0].mutable_attributes())["total board power"] = "N/A";
  EXPECT_EQ(PowerRow(BoardsOf(ipus)[0]),
            " | 0001: ------W  ------W  T------W  | ---C     ---C     ---C     ---C     ---C     | "
            "-----C    -----C    -----C    -----C    1330MHz  |\n");
}

}  // namespace
}  // namespace vpod::tools
