#include "device/base/host_name.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/base/text.h"

namespace vpod::base {

std::string HostTrouble(absl::string_view host) {
  const bool good =
      !host.empty() && host.size() <= 253 && std::all_of(host.begin(), host.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
               absl::StrContains("._-:[]", absl::string_view(&c, 1));
      });
  if (good) return "";
  return absl::StrCat("'", Printable(host),
                      "' is not a name or address; give 1 to 253 letters, digits and '._-:[]'");
}

}  // namespace vpod::base
