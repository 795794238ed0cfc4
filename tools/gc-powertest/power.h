// The table of gc-powertest (spec/gc-tools.md 7). Pure functions over the attributes of the IPUs of
// one board.
//
// The model has one temperature a board and one a die (spec/hardware.md F21): all sensors of a
// board show the one, all sensors of a die the other.
#pragma once

#include <string>
#include <vector>

#include "proto/telemetry/v1/telemetry.pb.h"

namespace vpod::tools {

// The tested IPUs of one board, lowest IPU# first.
struct TestedBoard {
  std::vector<const telemetry::v1::IpuTelemetry*> ipus;
};

// Groups the IPUs of a device by board, in the order in which the boards first appear.
std::vector<TestedBoard> BoardsOf(const std::vector<telemetry::v1::IpuTelemetry>& ipus);

// The two lines above the rows of a board. With several boards in a table `name_machine` adds the
// machine's address.
std::string PowerHeading(const TestedBoard& board, bool name_machine);
// Power of the board's two IPUs and its total, temperatures, clock. The number in front is the
// board's, from its serial. Sensors without a value show dashes.
std::string PowerRow(const TestedBoard& board);

}  // namespace vpod::tools
