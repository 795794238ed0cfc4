#include "tools/vipu/listing.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "device/base/id_order.h"
#include "device/base/status.h"

namespace vpod::tools {
namespace {

using Row = std::vector<std::string>;

// "Last Seen" may be written last-seen.
std::string ColumnKey(absl::string_view name) {
  return absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"-", " "}, {"_", " "}});
}

absl::StatusOr<size_t> ColumnOf(const Listing& listing, absl::string_view name) {
  const std::vector<std::string>& headings = listing.table.headings;
  const auto it = std::find_if(headings.begin(), headings.end(), [&](const std::string& heading) {
    return ColumnKey(heading) == ColumnKey(name);
  });
  if (it != headings.end()) return static_cast<size_t>(it - headings.begin());
  return absl::InvalidArgumentError(absl::StrCat("Unknown column '", name, "'; give one of ",
                                                 absl::StrJoin(headings, ", "), "."));
}

// As the table shows it.
absl::string_view Shown(const std::string& cell) {
  return cell.empty() ? absl::string_view("-") : absl::string_view(cell);
}

// Seconds of "5m12s" and "3d4h"; nothing for other text.
std::optional<uint64_t> Duration(absl::string_view text) {
  uint64_t total = 0, number = 0;
  bool has_number = false;
  for (const char c : text) {
    if (absl::ascii_isdigit(static_cast<unsigned char>(c))) {
      number = number * 10 + static_cast<uint64_t>(c - '0');
      has_number = true;
      continue;
    }
    const uint64_t unit = c == 's' ? 1 : c == 'm' ? 60 : c == 'h' ? 3600 : c == 'd' ? 86400 : 0;
    if (unit == 0 || !has_number) return std::nullopt;
    total += number * unit;
    number = 0;
    has_number = false;
  }
  if (text.empty() || has_number) return std::nullopt;
  return total;
}

bool Before(absl::string_view a, absl::string_view b) {
  const auto left = Duration(a), right = Duration(b);
  return left.has_value() && right.has_value() ? *left < *right : base::IdOrder()(a, b);
}

// The rows `order`, in that order.
Listing Rearranged(Listing listing, const std::vector<size_t>& order) {
  std::vector<Row> rows;
  std::vector<size_t> objects;
  for (const size_t row : order) {
    objects.push_back(listing.ObjectOf(row));
    rows.push_back(std::move(listing.table.rows[row]));
  }
  listing.table.rows = std::move(rows);
  listing.object_of_row = std::move(objects);
  return listing;
}

// Without the columns from `columns` on.
render::Table FirstColumns(render::Table table, size_t columns) {
  table.headings.resize(columns);
  if (table.minimum_widths.size() > columns) table.minimum_widths.resize(columns);
  for (Row& row : table.rows) row.resize(columns);
  return table;
}

// Values of leading columns that a row shares with the one before become blank.
void MergeEqual(size_t columns, std::vector<Row>& rows) {
  for (size_t row = rows.size(); row-- > 1;) {
    for (size_t c = 0; c < columns && rows[row][c] == rows[row - 1][c]; ++c)
      rows[row][c].assign(1, ' ');
  }
}

std::string TableText(const Listing& listing, const ListOptions& options) {
  const size_t columns = listing.table.headings.size() -
                         (options.format == ListFormat::kWide ? 0 : listing.wide_columns);
  render::Table table = FirstColumns(listing.table, columns);
  MergeEqual(listing.merged_columns, table.rows);
  if (!options.headings) return render::Rows(table);
  return listing.rule_above ? render::StyleR(table) : render::StyleH(table);
}

// As in RFC 4180, with the line ends of this system.
std::string CsvLine(const Row& cells) {
  return absl::StrCat(
      absl::StrJoin(
          cells, ",",
          [](std::string* out, const std::string& cell) {
            const bool plain = cell.find_first_of(",\"\r\n") == std::string::npos;
            absl::StrAppend(
                out, plain ? cell
                           : absl::StrCat("\"", absl::StrReplaceAll(cell, {{"\"", "\"\""}}), "\""));
          }),
      "\n");
}

std::string CsvText(const Listing& listing, bool headings) {
  std::string text = headings ? CsvLine(listing.table.headings) : "";
  for (const Row& row : listing.table.rows) text += CsvLine(row);
  return text;
}

std::string NameText(const Listing& listing) {
  std::string text;
  std::set<std::string> seen;
  for (const Row& row : listing.table.rows) {
    const std::string& name = row[listing.name_column];
    if (!name.empty() && seen.insert(name).second) absl::StrAppend(&text, name, "\n");
  }
  return text;
}

}  // namespace

absl::StatusOr<ListFormat> ParseListFormat(const std::string& name) {
  constexpr std::pair<const char*, ListFormat> kFormats[] = {
      {"table", ListFormat::kTable}, {"name", ListFormat::kName}, {"wide", ListFormat::kWide},
      {"csv", ListFormat::kCsv},     {"yaml", ListFormat::kYaml}, {"json", ListFormat::kJson}};
  for (const auto& [known, format] : kFormats) {
    if (name == known) return format;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("Flag --output is one of table|name|wide|csv|yaml|json, not '", name, "'."));
}

absl::StatusOr<Listing> Select(Listing listing, const ListOptions& options) {
  if (options.sort_by.empty() && options.filters.empty()) return listing;
  std::vector<size_t> order(listing.table.rows.size());
  std::iota(order.begin(), order.end(), 0);
  for (const std::string& filter : options.filters) {
    const size_t sign = filter.find('=');
    if (sign == std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("Flag --filter needs COLUMN=VALUE, not '", filter, "'."));
    }
    VPOD_ASSIGN_OR_RETURN(const size_t column, ColumnOf(listing, filter.substr(0, sign)));
    std::erase_if(order, [&](size_t row) {
      return !absl::EqualsIgnoreCase(Shown(listing.table.rows[row][column]),
                                     absl::string_view(filter).substr(sign + 1));
    });
  }
  if (!options.sort_by.empty()) {
    VPOD_ASSIGN_OR_RETURN(const size_t column, ColumnOf(listing, options.sort_by));
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return Before(listing.table.rows[a][column], listing.table.rows[b][column]);
    });
  }
  return Rearranged(std::move(listing), order);
}

std::string ListText(const Listing& listing, const ListOptions& options) {
  if (options.format == ListFormat::kCsv) return CsvText(listing, options.headings);
  if (options.format == ListFormat::kName) return NameText(listing);
  return TableText(listing, options);
}

std::vector<size_t> ObjectsOf(const Listing& listing) {
  std::vector<size_t> objects;
  std::set<size_t> seen;
  for (size_t row = 0; row < listing.table.rows.size(); ++row) {
    if (seen.insert(listing.ObjectOf(row)).second) objects.push_back(listing.ObjectOf(row));
  }
  return objects;
}

}  // namespace vpod::tools
