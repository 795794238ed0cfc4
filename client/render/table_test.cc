#include "client/render/table.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace vpod::render {
namespace {

const Table kTable = {
    .headings = {"ID", "Name", "X"}, .minimum_widths = {5}, .rows = {{"1", "alpha beta", ""}}};

TEST(Table, StyleHIsHeadingRuleRowsRule) {
  EXPECT_EQ(StyleH(kTable), R"( ID    | Name       | X
------------------------
 1     | alpha beta | -
------------------------
)");
}

TEST(Table, StyleRBeginsWithARule) { EXPECT_EQ(StyleR(kTable), Rule(kTable) + StyleH(kTable)); }

TEST(Table, ACharacterTakesOneColumn) {
  EXPECT_EQ(Columns(""), 0u);
  EXPECT_EQ(Columns("agent"), 5u);
  EXPECT_EQ(Columns("<agent,…>"), 9u);
}

TEST(Table, ColumnsAreAsWideAsTheirLongestTextOrMinimum) {
  Table table = {.headings = {"A", "B"}, .minimum_widths = {0, 6}, .rows = {{"long", "b"}}};
  EXPECT_EQ(Rule(table), "---------------\n");
  table.rows.push_back({"longer", "longest"});
  EXPECT_EQ(StyleH(table), R"( A      | B
------------------
 long   | b
 longer | longest
------------------
)");
}

TEST(Table, CharactersOfSeveralBytesTakeOneColumn) {
  const Table table = {.headings = {"A", "B"}, .rows = {{"a…", "b"}, {"abc", "Zoë"}}};
  EXPECT_EQ(StyleH(table), " A   | B\n-----------\n a…  | b\n abc | Zoë\n-----------\n");
}

TEST(Table, EmptyOnePrintsHeadingAndRules) {
  const Table table = {.headings = {"A", "B"}, .minimum_widths = {11}};
  EXPECT_EQ(StyleH(table), R"( A           | B
-----------------
-----------------
)");
}

TEST(Table, EmptyCellsPrintADashButEmptyHeadingsDoNot) {
  const Table table = {.headings = {"A", ""}, .rows = {{"", ""}}};
  EXPECT_EQ(StyleH(table), " A |\n------\n - | -\n------\n");
}

TEST(Block, KeysArePaddedToTwenty) {
  EXPECT_EQ(Block({{"Agent ID", "ag10"}, {"IPUoF server version", ""}}),
            R"(-----------------------------
 Agent ID             | ag10
 IPUoF server version | -
)");
}

TEST(Centre, OddBlankGoesRight) {
  EXPECT_EQ(Centre("ab", 6), "  ab  ");
  EXPECT_EQ(Centre("ab", 5), " ab  ");
  EXPECT_EQ(Centre("ab", 3), "ab ");
  EXPECT_EQ(Centre("ab", 2), "ab");
  EXPECT_EQ(Centre("", 3), "   ");
}

TEST(Centre, CountsCharacters) {
  EXPECT_EQ(Centre("Zoë", 5), " Zoë ");
  EXPECT_EQ(Centre("ëëë", 3), "ëëë");
  EXPECT_EQ(Centre("ëëëëë", 4), "...ë");
  EXPECT_EQ(Centre("ëë", 1), "ë");
}

TEST(Centre, LongerTextIsCutToItsEnd) {
  EXPECT_EQ(Centre("172.31.100.130", 13), "...31.100.130");
  EXPECT_EQ(Centre("abcdef", 4), "...f");
  EXPECT_EQ(Centre("abcdef", 3), "def");
  EXPECT_EQ(Centre("abcdef", 1), "f");
  EXPECT_EQ(Centre("abcdef", 0), "");
}

TEST(ShortDuration, HasTwoUnitsAtMost) {
  EXPECT_EQ(ShortDuration(-5), "0s");
  EXPECT_EQ(ShortDuration(0), "0s");
  EXPECT_EQ(ShortDuration(13), "13s");
  EXPECT_EQ(ShortDuration(59), "59s");
  EXPECT_EQ(ShortDuration(60), "1m0s");
  EXPECT_EQ(ShortDuration(241), "4m1s");
  EXPECT_EQ(ShortDuration(3599), "59m59s");
  EXPECT_EQ(ShortDuration(3600), "1h0m");
  EXPECT_EQ(ShortDuration(7500), "2h5m");
  EXPECT_EQ(ShortDuration(86399), "23h59m");
  EXPECT_EQ(ShortDuration(86400), "1d0h");
  EXPECT_EQ(ShortDuration(273600), "3d4h");
}

TEST(Terminal, ProcessesOfMpirunHaveNone) {
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  EXPECT_FALSE(IsTerminal(1));
  EXPECT_FALSE(IsTerminal(2));
  EXPECT_EQ(TerminalColumns(), 0u);
}

}  // namespace
}  // namespace vpod::render
