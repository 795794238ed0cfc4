#include "client/compiler/checkpoints.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace vpod::compiler {
namespace {

// Operations of equal size, each read by the next and by gradients.
std::vector<ChainLink> Equal(size_t operations) {
  std::vector<ChainLink> chain(operations);
  for (size_t i = 0; i < operations; ++i)
    chain[i] = {.read_bytes = 100, .bytes = 100, .last_reader = std::min(i + 1, operations - 1)};
  return chain;
}

// Bytes at the peak: the largest part, and what others keep for it.
uint64_t Peak(const std::vector<ChainLink>& chain, std::vector<size_t> beginnings) {
  beginnings.insert(beginnings.begin(), 0);
  beginnings.push_back(chain.size());
  uint64_t kept = 0, largest = 0;
  for (size_t part = 0; part + 1 < beginnings.size(); ++part) {
    uint64_t held = 0;
    for (size_t i = beginnings[part]; i < beginnings[part + 1]; ++i) {
      held += chain[i].read_bytes;
      if (chain[i].last_reader >= beginnings[part + 1]) kept += chain[i].bytes;
    }
    largest = std::max(largest, held);
  }
  return kept + largest;
}

// Chen et al., "Training deep nets with sublinear memory cost", 2016: 2 √n for n equal operations.
TEST(CheckpointsTest, AChainOfEqualOperationsNeedsTwiceTheRoot) {
  for (size_t n : {16, 64, 144}) {
    const auto chain = Equal(n);
    const auto root = static_cast<uint64_t>(std::sqrt(n));
    const auto beginnings = BeginningsOfParts(chain);
    EXPECT_LE(Peak(chain, beginnings), 100 * 2 * root) << n;
    EXPECT_TRUE(std::is_sorted(beginnings.begin(), beginnings.end()));
  }
}

TEST(CheckpointsTest, CutsWhereLittleIsHandedOn) {
  auto chain = Equal(12);
  for (size_t i : {3, 7}) chain[i].bytes = chain[i].read_bytes = 1;
  const auto beginnings = BeginningsOfParts(chain);
  for (size_t cut : {4, 8})
    EXPECT_TRUE(std::count(beginnings.begin(), beginnings.end(), cut)) << cut;
}

// A result that all later operations read is kept once, wherever the cuts are.
TEST(CheckpointsTest, AResultThatAllReadIsKeptOnce) {
  auto chain = Equal(16);
  chain[0].last_reader = 15;
  EXPECT_LE(Peak(chain, BeginningsOfParts(chain)), 100u * 8);
}

TEST(CheckpointsTest, NothingIsGainedFromFewOrEmptyOperations) {
  EXPECT_TRUE(BeginningsOfParts({}).empty());
  EXPECT_TRUE(BeginningsOfParts(Equal(1)).empty());
  EXPECT_TRUE(BeginningsOfParts(Equal(2)).empty());
  EXPECT_TRUE(BeginningsOfParts(std::vector<ChainLink>(5)).empty());
}

}  // namespace
}  // namespace vpod::compiler
