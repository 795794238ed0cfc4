#include "tests/benchmarks/turns.h"

#include <algorithm>
#include <chrono>

#include "device/base/status.h"

namespace vpod::benchmarks {

absl::StatusOr<double> Seconds(const std::function<absl::Status()>& call) {
  const auto start = std::chrono::steady_clock::now();
  VPOD_RETURN_IF_ERROR(call());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

absl::StatusOr<std::vector<double>> MedianSecondsInTurns(
    int rounds, const std::vector<std::function<absl::Status()>>& calls) {
  const size_t n = calls.size();
  std::vector<std::vector<double>> seconds(n);
  for (const auto& call : calls) VPOD_RETURN_IF_ERROR(call());
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < n; ++i) {
      const size_t turn = round % 2 == 0 ? i : n - 1 - i;
      VPOD_ASSIGN_OR_RETURN(const double taken, Seconds(calls[turn]));
      seconds[turn].push_back(taken);
    }
  }
  std::vector<double> medians;
  for (std::vector<double>& each : seconds) {
    std::sort(each.begin(), each.end());
    medians.push_back(each[each.size() / 2]);
  }
  return medians;
}

}  // namespace vpod::benchmarks
