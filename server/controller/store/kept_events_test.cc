#include "server/controller/store/kept_events.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace vpod::controller {
namespace {

using Taken = std::vector<uint64_t>;

Taken TakeAll(KeptEvents& kept) {
  Taken taken;
  while (const auto number = kept.TakeExcess()) taken.push_back(*number);
  return taken;
}

TEST(KeptEvents, EventsWithoutAUserCountByTheKindOfTheirObject) {
  KeptEvents kept(3);
  kept.Load(1, KeptEvents::OwnerOf("", "agent ag0"));
  for (uint64_t number = 2; number <= 5; ++number)
    kept.Add(number, KeptEvents::OwnerOf("", "partition p" + std::to_string(number)));
  EXPECT_EQ(TakeAll(kept), (Taken{2, 3}));
  // Nobody can count as the agents by their name.
  for (const char* user : {"agent", "kind agent", "user u"})
    EXPECT_NE(KeptEvents::OwnerOf(user, "agent ag0"), KeptEvents::OwnerOf("", "agent ag0"));
  EXPECT_EQ(KeptEvents::OwnerOf("", "controller"), KeptEvents::OwnerOf("", "controller x"));
  EXPECT_EQ(KeptEvents::OwnerOf("u", "agent a"), KeptEvents::OwnerOf("u", "partition p"));
}

TEST(KeptEvents, TheUserWithTheMostLosesTheOldest) {
  KeptEvents kept(5);
  kept.Add(1, "quiet");
  kept.Add(2, "");
  for (uint64_t number = 3; number <= 9; ++number) kept.Add(number, "busy");
  EXPECT_EQ(TakeAll(kept), (Taken{3, 4, 5, 6}));
  kept.Add(10, "quiet");
  EXPECT_EQ(TakeAll(kept), Taken{7});
  kept.Add(11, "other");  // two of `quiet` and two of `busy`: the oldest of these
  EXPECT_EQ(TakeAll(kept), Taken{1});
  EXPECT_EQ(TakeAll(kept), Taken());
}

TEST(KeptEvents, TheOldestGoesIfAllUsersHaveAsMany) {
  KeptEvents kept(3);
  for (const char* user : {"c", "b", "a"}) kept.Load(static_cast<uint64_t>('d' - *user), user);
  kept.Add(4, "");
  EXPECT_EQ(TakeAll(kept), Taken{1});
  kept.Add(5, "c");
  EXPECT_EQ(TakeAll(kept), Taken{2});
}

TEST(KeptEvents, ATransactionThatIsRolledBackLeavesEverythingAsItWas) {
  KeptEvents kept(2);
  kept.Load(1, "a");
  kept.Load(2, "b");
  for (int time = 0; time < 3; ++time) {
    for (const uint64_t number : {3, 4, 5}) kept.Add(number, "c");
    kept.Add(6, "a");
    EXPECT_EQ(TakeAll(kept), (Taken{3, 1, 4, 2})) << time;
    kept.RolledBack();
    EXPECT_EQ(TakeAll(kept), Taken()) << time;
  }
  kept.Add(3, "c");
  EXPECT_EQ(TakeAll(kept), Taken{1});
  kept.Committed();
  kept.RolledBack();  // of a transaction without events
  kept.Add(4, "c");
  EXPECT_EQ(TakeAll(kept), Taken{3});
}

// Against a search of all events.
TEST(KeptEvents, RandomTransactionsTakeWhatASearchFinds) {
  constexpr size_t kMost = 20;
  std::mt19937 random(7);
  KeptEvents kept(kMost);
  std::map<uint64_t, std::string> events;
  uint64_t number = 0;
  for (int transaction = 0; transaction < 3000; ++transaction) {
    const auto before = events;
    for (auto more = random() % 30; more > 0; --more) {
      const std::string user(random() % 4 == 0 ? 1 : 0, static_cast<char>('a' + random() % 26));
      events[++number] = user;
      kept.Add(number, user);
    }
    while (events.size() > kMost) {
      std::map<std::string, size_t> counts;
      for (const auto& event : events) ++counts[event.second];
      size_t most = 0;
      for (const auto& user : counts) most = std::max(most, user.second);
      const auto goes = std::find_if(events.begin(), events.end(), [&](const auto& event) {
        return counts[event.second] == most;
      });
      ASSERT_EQ(kept.TakeExcess(), goes->first);
      events.erase(goes);
    }
    ASSERT_EQ(kept.TakeExcess(), std::nullopt);
    if (random() % 3 == 0) {
      kept.RolledBack();
      events = before;
    } else {
      kept.Committed();
    }
  }
}

}  // namespace
}  // namespace vpod::controller
