// Lists as rows and columns, and the ways to choose and print them: what `list` and `discover`
// commands have in common.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/render/table.h"

namespace vpod::tools {

// A list of objects. Most have one row each.
struct Listing {
  render::Table table;        // the columns of the table, then those of `-o wide`
  size_t wide_columns = 0;    // the last so many
  size_t name_column = 0;     // what `-o name` prints
  size_t merged_columns = 0;  // the first so many are printed once for rows that share them
  bool rule_above = false;
  std::vector<size_t> object_of_row;  // empty: row i is object i

  size_t ObjectOf(size_t row) const { return object_of_row.empty() ? row : object_of_row[row]; }
};

enum class ListFormat { kTable, kName, kWide, kCsv, kYaml, kJson };

// Options of a list, from its flags.
struct ListOptions {
  ListFormat format = ListFormat::kTable;
  bool headings = true;
  std::string sort_by;               // a column; empty: as the controller has them
  std::vector<std::string> filters;  // COLUMN=VALUE; a row must match all

  double watch_seconds = 0;  // 0: once

  bool is_watch() const { return watch_seconds > 0; }
  bool is_json() const { return format == ListFormat::kJson || format == ListFormat::kYaml; }
  // Whether nothing but the table is needed.
  bool is_plain() const {
    return (format == ListFormat::kTable || format == ListFormat::kName) && sort_by.empty() &&
           filters.empty();
  }
};

// "table", …; InvalidArgument.
absl::StatusOr<ListFormat> ParseListFormat(const std::string& name);

// Keeps the rows that the filters let through, in the order that is asked for. InvalidArgument
// names the columns when there is none of a name.
absl::StatusOr<Listing> Select(Listing listing, const ListOptions& options);

// The text of a list that is not JSON or YAML.
std::string ListText(const Listing& listing, const ListOptions& options = {});

// The objects that have rows, in the order of their first.
std::vector<size_t> ObjectsOf(const Listing& listing);

}  // namespace vpod::tools
