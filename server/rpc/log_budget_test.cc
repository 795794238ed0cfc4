#include "server/rpc/log_budget.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace vpod::rpc {
namespace {

using std::chrono::seconds;

std::string Refused(absl::string_view user, int number) {
  return absl::StrCat("refused call=\"get partition\" user=\"", user, "\" peer=\"ipv4:10.1.2.3:1\"",
                      " code=NOT_FOUND reason=\"Partition p", number, " does not exist.\"");
}
std::string RefusedClaim(absl::string_view user, int number) {
  return absl::StrReplaceAll(Refused(user, number), {{" user=", " claimed_user="}});
}
std::string Attached(absl::string_view user) {
  return absl::StrCat("attach lease=0123abcd user=\"", user, "\" pid=1 partition=p1");
}

class LogBudgetTest : public testing::Test {
 protected:
  // Bytes written of so many lines.
  template <class Line>
  uint64_t Write(int lines, const Line& line) {
    uint64_t bytes = 0;
    for (int i = 0; i < lines; ++i) {
      const std::string text = line(i);
      if (budget_.Take(text, now_)) bytes += text.size();
    }
    return bytes;
  }
  LogBudget budget_;
  LogBudget::Clock::time_point now_{std::chrono::hours(1)};
};

TEST_F(LogBudgetTest, AUserHasSoManyBytesAMinute) {
  EXPECT_LE(Write(5000, [](int i) { return Refused("mallory", i); }), LogBudget::kEachUser);
  EXPECT_FALSE(budget_.Take(Refused("mallory", 1), now_ + seconds(59)));
  EXPECT_TRUE(budget_.Take(Refused("alice", 1), now_)) << "another user has as many";
  EXPECT_TRUE(budget_.Take(Attached("mallory"), now_)) << "who claims the name takes nothing else";
  EXPECT_TRUE(budget_.Take("serving users on 127.0.0.1:8090", now_));
  now_ += seconds(60);
  const std::string left_out = budget_.LeftOut(now_);
  EXPECT_EQ(left_out.rfind("the log's limits left out lines=", 0), 0u) << left_out;
  EXPECT_NE(left_out.find(" of users=\"mallory\""), std::string::npos) << left_out;
  EXPECT_EQ(budget_.LeftOut(now_), "");
  EXPECT_TRUE(budget_.Take(Refused("mallory", 1), now_));
}

// Callers who make up a name for each call, or claim the names of others.
TEST_F(LogBudgetTest, MadeUpNamesShareABudget) {
  EXPECT_LE(Write(50000, [](int i) { return Refused(absl::StrCat("mallory", i), i); }),
            LogBudget::kAllRefused);
  EXPECT_TRUE(budget_.Take(Attached("alice"), now_));
  now_ += seconds(60);
  EXPECT_LE(Write(50000, [](int i) { return RefusedClaim(i % 2 == 0 ? "alice" : "bob", i); }),
            LogBudget::kEachUser);
  EXPECT_TRUE(budget_.Take(Refused("alice", 1), now_));
}

TEST_F(LogBudgetTest, WhatUsersDoAndTheDaemonItselfHaveBounds) {
  EXPECT_LE(Write(50000, [](int i) { return Attached(absl::StrCat("u", i)); }),
            LogBudget::kAllUsers);
  const uint64_t own =
      Write(50000, [](int i) { return absl::StrCat("connection ", i, " of many"); });
  EXPECT_LE(own, LogBudget::kDaemon);
  EXPECT_GT(own, LogBudget::kDaemon / 2);
}

}  // namespace
}  // namespace vpod::rpc
