// Layouts of the tile tests' reports.
#include "tools/device_check/tile_check.h"

#include <gtest/gtest.h>

namespace vpod::tools {
namespace {

TileTestReport Sample() {
  return {.details = {{"ipus", "2"}, {"bytes_per_tile", "16384"}},
          .seconds = 0.5,
          .wall_seconds = 1.25};
}

TEST(TileTestReport, OfAPass) {
  EXPECT_EQ(TileTestText(Sample(), false),
            "ipus: 2\n"
            "bytes_per_tile: 16384\n"
            "duration_seconds: 0.5\n"
            "Result - Pass\n");
  EXPECT_EQ(JsonObject(TileTestRows(4, Sample(), true)),
            "{\n"
            " \"device_id\": \"4\",\n"
            " \"ipus\": \"2\",\n"
            " \"bytes_per_tile\": \"16384\",\n"
            " \"duration_seconds\": \"0.5\",\n"
            " \"wall_duration_seconds\": \"1.25\",\n"
            " \"result\": \"pass\"\n"
            "}\n");
}

TEST(TileTestReport, OfAFailureNamesTileAndAddress) {
  TileTestReport report = Sample();
  report.fault = TileFault{1, 1471, kFirstDataAddress + 4, 0x30, 0x20};
  EXPECT_EQ(TileTestText(report, true),
            "ipus: 2\n"
            "bytes_per_tile: 16384\n"
            "duration_seconds: 0.5\n"
            "wall_duration_seconds: 1.25\n"
            "IPU 1, tile 1471, address 0x54004: expected 0x00000030, found 0x00000020\n"
            "Result - Fail\n");
  EXPECT_EQ(JsonObject(TileTestRows(4, report, false)),
            "{\n"
            " \"device_id\": \"4\",\n"
            " \"ipus\": \"2\",\n"
            " \"bytes_per_tile\": \"16384\",\n"
            " \"duration_seconds\": \"0.5\",\n"
            " \"failed_ipu\": \"1\",\n"
            " \"failed_tile\": \"1471\",\n"
            " \"failed_address\": \"0x54004\",\n"
            " \"expected\": \"0x00000030\",\n"
            " \"found\": \"0x00000020\",\n"
            " \"result\": \"fail\"\n"
            "}\n");
}

}  // namespace
}  // namespace vpod::tools
