// Prints predictions beside published figures.
#include <cstdio>
#include <string>

#include "tests/fidelity/rows.h"

int main() {
  vpod::fidelity::Report report;
  const absl::Status status = vpod::fidelity::AddRows(report);
  if (!status.ok()) {
    std::fprintf(stderr, "fidelity: error: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  report.End();
  return 0;
}
