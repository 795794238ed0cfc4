#include "tools/vipu/listing.h"

#include <gtest/gtest.h>

namespace vpod::tools {
namespace {

Listing Machines() {
  Listing listing;
  listing.table.headings = {"Agent ID", "Status", "Last Seen", "Error"};
  listing.table.rows = {
      {"ag10", "Up", "1m2s", "a \"b\", c"}, {"ag2", "Down", "3d4h", ""}, {"ag1", "Up", "59s", ""}};
  listing.wide_columns = 1;
  return listing;
}

std::string Text(const ListOptions& options, Listing listing = Machines()) {
  const auto selected = Select(std::move(listing), options);
  return selected.ok() ? ListText(*selected, options) : std::string(selected.status().message());
}

TEST(ListingTest, TablesLeaveOutTheWideColumns) {
  EXPECT_EQ(Text({}), R"( Agent ID | Status | Last Seen
-------------------------------
 ag10     | Up     | 1m2s
 ag2      | Down   | 3d4h
 ag1      | Up     | 59s
-------------------------------
)");
  EXPECT_EQ(Text({.format = ListFormat::kWide, .headings = false}),
            " ag10     | Up     | 1m2s      | a \"b\", c\n"
            " ag2      | Down   | 3d4h      | -\n"
            " ag1      | Up     | 59s       | -\n");
}

TEST(ListingTest, RowsAreSortedAsPeopleCountAndTimesByLength) {
  EXPECT_EQ(Text({.format = ListFormat::kName, .sort_by = "agent-id"}), "ag1\nag2\nag10\n");
  EXPECT_EQ(Text({.format = ListFormat::kName, .sort_by = "Last Seen"}), "ag1\nag10\nag2\n");
  EXPECT_EQ(Text({.format = ListFormat::kName, .sort_by = "STATUS"}), "ag2\nag10\nag1\n");
}

TEST(ListingTest, FiltersComparedWithWhatIsShown) {
  EXPECT_EQ(Text({.format = ListFormat::kName, .filters = {"status=up"}}), "ag10\nag1\n");
  EXPECT_EQ(Text({.format = ListFormat::kName, .filters = {"status=up", "error=-"}}), "ag1\n");
  EXPECT_EQ(Text({.format = ListFormat::kName, .filters = {"last_seen=1s"}}), "");
}

TEST(ListingTest, CsvQuotesWhatNeedsQuotes) {
  EXPECT_EQ(Text({.format = ListFormat::kCsv}),
            "Agent ID,Status,Last Seen,Error\n"
            "ag10,Up,1m2s,\"a \"\"b\"\", c\"\n"
            "ag2,Down,3d4h,\n"
            "ag1,Up,59s,\n");
  EXPECT_EQ(Text({.format = ListFormat::kCsv, .headings = false, .filters = {"agent id=ag2"}}),
            "ag2,Down,3d4h,\n");
}

TEST(ListingTest, UnknownColumnsAreNamed) {
  EXPECT_EQ(Text({.sort_by = "Size"}),
            "Unknown column 'Size'; give one of Agent ID, Status, Last Seen, Error.");
  EXPECT_EQ(Text({.filters = {"Size=4"}}),
            "Unknown column 'Size'; give one of Agent ID, Status, Last Seen, Error.");
  EXPECT_EQ(Text({.filters = {"Status"}}), "Flag --filter needs COLUMN=VALUE, not 'Status'.");
}

TEST(ListingTest, SharedValuesArePrintedOnceAndObjectsNamedOnce) {
  Listing listing;
  listing.table.headings = {"Agent", "IPU", "Attribute"};
  listing.table.rows = {{"a", "0", "x"}, {"a", "0", "y"}, {"a", "1", "x"}, {"b", "1", "x"}};
  listing.merged_columns = 2;
  listing.object_of_row = {0, 0, 1, 2};
  EXPECT_EQ(Text({.headings = false}, listing),
            " a     | 0   | x\n"
            "       |     | y\n"
            "       | 1   | x\n"
            " b     | 1   | x\n");
  const ListOptions descending = {.filters = {"attribute=x"}};
  EXPECT_EQ(ObjectsOf(*Select(listing, descending)), (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(ObjectsOf(*Select(listing, {.filters = {"attribute=y"}})), std::vector<size_t>{0});
  EXPECT_EQ(ObjectsOf(listing).size(), 3u);
}

}  // namespace
}  // namespace vpod::tools
