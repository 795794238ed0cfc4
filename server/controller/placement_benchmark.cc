// Placing and taking back in an allocation of 65,536 IPUs in 1,024 ILDs, empty to nearly full.
#include <benchmark/benchmark.h>

#include <random>

#include "server/controller/placement.h"

namespace vpod::controller {
namespace {

Room RoomOf65536(uint32_t percent_used) {
  std::vector<Run> runs;
  for (uint32_t ild = 0; ild < 1024; ++ild) runs.push_back({.ipus = 64, .ild = ild});
  Room room("c65536", 64, runs);
  std::mt19937 random(1);
  while (room.ipus() - room.free() < room.ipus() / 100 * percent_used) {
    const uint32_t size = 1u << random() % 5;
    const auto first = room.Place(size);
    if (first.ok()) room.Take(*first, size);
  }
  return room;
}

// range(0): percent used; range(1): IPUs asked for.
void PlaceAndRelease(benchmark::State& state) {
  Room room = RoomOf65536(static_cast<uint32_t>(state.range(0)));
  const auto size = static_cast<uint32_t>(state.range(1));
  for (auto _ : state) {
    const auto first = room.Place(size);
    if (!first.ok()) continue;  // a refusal and its reasons
    room.Take(*first, size);
    room.Release(*first, size);
  }
}
BENCHMARK(PlaceAndRelease)->ArgsProduct({{0, 50, 90, 99}, {1, 16, 64, 1024}});

}  // namespace
}  // namespace vpod::controller

BENCHMARK_MAIN();
