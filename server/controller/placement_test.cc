#include "server/controller/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>

namespace vpod::controller {
namespace {

// Where a partition of `size` goes among IPUs that are free or not, in whole ILDs.
struct PlacementRequest {
  std::vector<bool> free;
  uint32_t ipus_per_ild = 64;
  uint32_t size = 1;
  int64_t index = -1;

  Room MakeRoom() const {
    std::vector<Run> runs;
    for (uint32_t ild = 0; ild < free.size() / ipus_per_ild; ++ild)
      runs.push_back({.ipus = ipus_per_ild, .ild = ild});
    Room room("c1", ipus_per_ild, runs);
    for (uint32_t i = 0; i < free.size(); ++i) {
      if (!free[i]) room.Take(i, 1);
    }
    return room;
  }
};

absl::StatusOr<uint32_t> Place(const PlacementRequest& request) {
  return request.MakeRoom().Place(request.size, request.index);
}

// "..xx" → free free used used; blanks are for the reader.
PlacementRequest Request(const std::string& map, uint32_t size, uint32_t ipus_per_ild = 64) {
  PlacementRequest request;
  for (const char c : map) {
    if (c != ' ') request.free.push_back(c == '.');
  }
  request.size = size;
  request.ipus_per_ild = std::min<uint32_t>(ipus_per_ild, request.free.size());
  return request;
}

int64_t Position(const PlacementRequest& request) {
  const auto position = Place(request);
  EXPECT_TRUE(position.ok()) << position.status();
  return position.ok() ? static_cast<int64_t>(*position) : -1;
}

std::string Refusal(const PlacementRequest& request, absl::StatusCode code) {
  const auto position = Place(request);
  EXPECT_EQ(position.status().code(), code) << position.status();
  return std::string(position.status().message());
}

TEST(Placement, EmptyAllocationStartsAtTheLowestPosition) {
  for (const uint32_t size : {1u, 2u, 4u, 8u, 16u})
    EXPECT_EQ(Position(Request("................", size)), 0) << size;
}

TEST(Placement, SmallestBlockThatHoldsItIsTaken) {
  EXPECT_EQ(Position(Request("........ xxxx....", 4)), 12);
  EXPECT_EQ(Position(Request(".... xx.. ........", 2)), 6);
  EXPECT_EQ(Position(Request("........ x.......", 1)), 9);
  EXPECT_EQ(Position(Request("........ xx......", 4)), 12);
}

TEST(Placement, LowestOfEqualBlocksIsTaken) {
  EXPECT_EQ(Position(Request("xxxx.... xxxx....", 4)), 4);
  EXPECT_EQ(Position(Request("xx..xx.. xxxxxxxx", 1)), 2);
}

TEST(Placement, PositionsAreMultiplesOfTheSize) {
  EXPECT_EQ(Position(Request("x....... xxxxxxxx", 4)), 4);
  EXPECT_EQ(Refusal(Request("xx....xx", 4), absl::StatusCode::kResourceExhausted),
            "No 4 free IPUs in allocation c1 (4 free, largest free block 2).");
}

TEST(Placement, SmallerThanADomainLiesInOneDomain) {
  // Domains of three machines: the second partition of 8 does not use the 4 IPUs left in the first.
  const std::string first_taken = "xxxxxxxx.... ............";
  EXPECT_EQ(Position(Request(first_taken, 8, 12)), 12);
  EXPECT_EQ(Position(Request(first_taken, 4, 12)), 8);
  EXPECT_EQ(
      Refusal(Request("xxxxxxxx.... xxxx........", 8, 12), absl::StatusCode::kResourceExhausted),
      "No 8 free IPUs in allocation c1 (12 free, largest free block 4).");
}

TEST(Placement, LargerThanADomainTakesWholeDomains) {
  EXPECT_EQ(Position(Request("........ ........", 16, 8)), 0);
  EXPECT_EQ(Position(Request("x....... ........ ........", 16, 8)), 8);
  EXPECT_EQ(Refusal(Request("....x... ........", 16, 8), absl::StatusCode::kResourceExhausted),
            "No 16 free IPUs in allocation c1 (15 free, largest free block 8).");
}

TEST(Placement, LargerThanADomainNeedsGwLinks) {
  Room room("c1", 4, {{.ipus = 4, .ild = 0}, {.ipus = 4, .ild = 1}, {.ipus = 4, .ild = 2}});
  room.SetGwLinks(0, false);
  EXPECT_EQ(*room.Place(8), 4u);
  EXPECT_EQ(*room.Place(4), 0u);
  EXPECT_EQ(room.Available(8), 1u);
  EXPECT_EQ(room.Place(8, 0).status().message(), "Position 0 has GW-Links that are down.");
  EXPECT_FALSE(room.CanHold(0, 8));
  EXPECT_TRUE(room.CanHold(4, 8));
  EXPECT_TRUE(room.CanHold(0, 4));
  room.SetGwLinks(8, false);
  EXPECT_EQ(
      room.Place(8).status().message(),
      "No 8 free IPUs in allocation c1 (12 free, largest free block 4, 8 with GW-Links down).");
  room.SetGwLinks(0, true);
  EXPECT_EQ(*room.Place(8), 0u);
}

TEST(Placement, IndexNamesTheSlot) {
  PlacementRequest request = Request("xxxx.... ........", 4);
  request.index = 2;
  EXPECT_EQ(Position(request), 8);
  request.index = 0;
  EXPECT_EQ(Refusal(request, absl::StatusCode::kResourceExhausted), "Position 0 is in use.");
}

TEST(Placement, IndexBeyondTheAllocationIsRefusedWithThePositionsThereAre) {
  PlacementRequest request = Request("................", 4);
  for (const int64_t index : {int64_t{4}, int64_t{0xffffffff}}) {
    request.index = index;
    EXPECT_EQ(Refusal(request, absl::StatusCode::kInvalidArgument),
              "Position " + std::to_string(index) +
                  " does not exist in allocation c1; size 4 has positions 0 to 3.");
  }
}

TEST(Placement, IndexAcrossDomainsIsRefused) {
  PlacementRequest request = Request("............ ............", 8, 12);
  request.index = 1;
  EXPECT_EQ(Refusal(request, absl::StatusCode::kInvalidArgument),
            "Position 1 is not within whole IPU-Link domains of allocation c1.");
  request.index = 0;
  EXPECT_EQ(Position(request), 0);
  request = Request("............ ............", 16, 12);
  request.index = 0;
  EXPECT_EQ(Refusal(request, absl::StatusCode::kInvalidArgument),
            "Position 0 is not within whole IPU-Link domains of allocation c1.");
}

TEST(Placement, MoreThanTheAllocationHasIsRefused) {
  EXPECT_EQ(Refusal(Request("................", 32), absl::StatusCode::kResourceExhausted),
            "32 IPUs requested, allocation c1 has 16.");
}

TEST(Placement, TheLargestPartitionDoesNotDependOnWhatIsUsed) {
  EXPECT_EQ(Request("xxxxxxxxxxxxxxxx", 1).MakeRoom().LargestPartition(), 16);
  EXPECT_EQ(Request("xxxxxxxxxxxx", 1).MakeRoom().LargestPartition(), 8);
  // Larger ones take whole ILDs that follow one another.
  EXPECT_EQ(Request("xxxx .... .... xxxx ....", 1, 4).MakeRoom().LargestPartition(), 16);
  EXPECT_EQ(Request("............ ............", 1, 12).MakeRoom().LargestPartition(), 8);
  EXPECT_EQ(Room("a", 4, {{.ipus = 4, .ild = 0}, {.ipus = 4, .ild = 2}}).LargestPartition(), 4);
}

TEST(Placement, FullAllocationIsRefused) {
  EXPECT_EQ(Refusal(Request("xxxxxxxx", 1), absl::StatusCode::kResourceExhausted),
            "No free IPU in allocation c1 (0 free, largest free block 0).");
}

// Whether [first, first+size) may be a partition at all.
bool IsSlot(const PlacementRequest& request, uint32_t first) {
  const uint32_t ild = request.ipus_per_ild, size = request.size;
  if (first + size > request.free.size()) return false;
  if (size > ild) return first % ild == 0 && size % ild == 0;
  if (request.index >= 0)
    return first == request.index * size && first / ild == (first + size - 1) / ild;
  return first / ild == (first + size - 1) / ild && (first % ild) % size == 0;
}

bool IsFree(const PlacementRequest& request, uint32_t first) {
  return std::all_of(request.free.begin() + first, request.free.begin() + first + request.size,
                     [](bool free) { return free; });
}

TEST(Placement, VersionRisesWithEveryChangeAndAcrossRebuilding) {
  Room room("a", 16, {{.ipus = 16}});
  uint64_t last = room.version();
  const auto rose = [&] { return room.version() > std::exchange(last, room.version()); };
  EXPECT_GT(last, 0u);
  EXPECT_TRUE(room.Place(4).ok());
  EXPECT_FALSE(rose());
  room.Take(0, 4);
  EXPECT_TRUE(rose());
  room.SetOutOfService(4, 3);
  EXPECT_TRUE(rose());
  room.SetOutOfService(4, 3);  // as it was
  EXPECT_FALSE(rose());
  room.SetGwLinks(4, false);
  EXPECT_TRUE(rose());
  room.SetGwLinks(4, false);
  EXPECT_FALSE(rose());
  room.Release(0, 4);
  EXPECT_TRUE(rose());
  room = Room("a", 16, {}, room.version());
  EXPECT_TRUE(rose());
}

TEST(Placement, RandomSequencesNeverOverlapAndRefuseOnlyWhatDoesNotFit) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const uint32_t ild = 4 * (1 + random() % 16);
    const uint32_t domains = 1 + random() % 4;
    std::vector<bool> free(ild * domains, true);
    std::vector<std::pair<uint32_t, uint32_t>> taken;  // first, size
    for (int step = 0; step < 300; ++step) {
      if (!taken.empty() && random() % 5 < 2) {
        const size_t victim = random() % taken.size();
        std::fill_n(free.begin() + taken[victim].first, taken[victim].second, true);
        taken.erase(taken.begin() + static_cast<int64_t>(victim));
        continue;
      }
      PlacementRequest request{.free = free, .ipus_per_ild = ild, .size = 1u << random() % 8};
      if (random() % 4 == 0) request.index = random() % 8;
      const auto position = Place(request);
      if (position.ok()) {
        ASSERT_TRUE(IsSlot(request, *position)) << *position << " of " << request.size;
        ASSERT_TRUE(IsFree(request, *position)) << *position << " of " << request.size;
        std::fill_n(free.begin() + *position, request.size, false);
        taken.emplace_back(*position, request.size);
      } else if (request.index < 0) {
        for (uint32_t first = 0; first + request.size <= free.size(); ++first)
          ASSERT_FALSE(IsSlot(request, first) && IsFree(request, first)) << position.status();
      }
    }
  }
}

}  // namespace
}  // namespace vpod::controller
