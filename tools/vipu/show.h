// Common parts of list and get commands.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "device/base/status.h"
#include "tools/vipu/commands.h"
#include "tools/vipu/json.h"
#include "tools/vipu/listing.h"

namespace vpod::tools {

// Prints a result as JSON with --showjson, else what `text` makes of it.
template <class Result, class Text>
absl::Status Show(const Call& call, const absl::StatusOr<Result>& result, const Text& text) {
  if (!result.ok()) return result.status();
  if (call.arguments.Switch(kShowJson)) {
    call.out << ToJson(*result).dump(2) << "\n";
  } else {
    call.out << text(*result);
  }
  return absl::OkStatus();
}

// Returns the options of a list from its flags. UsageError.
absl::StatusOr<ListOptions> ListOptionsOf(const Arguments& arguments);
// UsageError of an InvalidArgument.
absl::Status AsUsageError(const absl::Status& status);

// Prints the text once, or again and again with --watch until nobody reads it.
absl::Status PrintList(const Call& call, const ListOptions& options,
                       const std::function<absl::StatusOr<std::string>()>& text);
// Objects of a list as --output says.
std::string ObjectsText(const ListOptions& options, const Json& objects);

// Prints the objects that `fetch` gets, as the flags say; `rows` makes a Listing of them.
template <class Fetch, class Rows>
absl::Status ShowList(const Call& call, const Fetch& fetch, const Rows& rows) {
  VPOD_ASSIGN_OR_RETURN(const ListOptions options, ListOptionsOf(call.arguments));
  using Objects = typename decltype(fetch(options))::value_type;
  // A column that does not exist is wrong usage, also while there are no rows.
  VPOD_RETURN_IF_ERROR(AsUsageError(Select(rows(Objects()), options).status()));
  return PrintList(call, options, [&]() -> absl::StatusOr<std::string> {
    VPOD_ASSIGN_OR_RETURN(const Objects objects, fetch(options));
    VPOD_ASSIGN_OR_RETURN(const Listing listing, Select(rows(objects), options));
    if (!options.is_json()) return ListText(listing, options);
    Json list = Json::array();
    for (const size_t object : ObjectsOf(listing)) list.push_back(ToJson(objects[object]));
    return ObjectsText(options, list);
  });
}

}  // namespace vpod::tools
