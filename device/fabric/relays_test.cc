#include "device/fabric/relays.h"

#include <gtest/gtest.h>

#include <set>

namespace vpod::fabric {
namespace {

TEST(RelaysTest, InOneDomainAllDealWithTheOwner) {
  Relays relays;
  for (size_t site : {0, 2, 3}) relays.Add(site, 7);
  for (size_t piece = 0; piece < 4; ++piece) {
    EXPECT_EQ(relays.Below(2, 2, piece), (std::vector<size_t>{0, 3}));
    EXPECT_EQ(relays.Above(3, 2, piece), 2u);
    EXPECT_TRUE(relays.Below(3, 2, piece).empty());
  }
}

// Each site reaches the owner, over its domain's relay if there is one in between, and Below is
// the reverse of Above.
TEST(RelaysTest, OneSiteOfEachDomainDealsWithTheOwner) {
  const std::vector<uint32_t> domains = {0, 0, 0, 1, 1, 2};
  Relays relays;
  for (size_t site = 0; site < domains.size(); ++site) relays.Add(site, domains[site]);
  std::set<size_t> relays_of_domain_1;
  for (size_t piece = 0; piece < 6; ++piece) {
    const size_t owner = piece % 3;
    std::set<std::pair<size_t, size_t>> up, down;
    size_t between_domains = 0;
    for (size_t site = 0; site < domains.size(); ++site) {
      const size_t above = relays.Above(site, owner, piece);
      if (site != owner) up.emplace(site, above);
      for (size_t below : relays.Below(site, owner, piece)) down.emplace(below, site);
      between_domains += domains[site] != domains[above];
      EXPECT_EQ(relays.Above(above, owner, piece), owner);
      if (domains[site] == 1 && above == owner) relays_of_domain_1.insert(site);
    }
    EXPECT_EQ(up, down);
    EXPECT_EQ(between_domains, 2u);
  }
  EXPECT_EQ(relays_of_domain_1, (std::set<size_t>{3, 4}));  // in turn
}

}  // namespace
}  // namespace vpod::fabric
