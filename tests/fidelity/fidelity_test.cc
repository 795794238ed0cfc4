// The errors of predictions stay within what docs/fidelity.md promises.
#include <gtest/gtest.h>

#include "tests/fidelity/rows.h"

namespace vpod::fidelity {
namespace {

TEST(FidelityTest, ErrorsStayWithinTheirBounds) {
  Report report(/*quiet=*/true);
  ASSERT_TRUE(AddRows(report).ok());
  EXPECT_GE(report.rows(), 16u);
  EXPECT_LE(report.median(), 8);
  EXPECT_LE(report.worst(), 20);
  EXPECT_LE(report.worst_check(), 10);
  EXPECT_TRUE(report.exact_figures_agree());
  EXPECT_TRUE(report.notes_agree());
}

}  // namespace
}  // namespace vpod::fidelity
