// Errors in the status register of an IPU's SoC, by which people test how software takes them.
#pragma once

#include <algorithm>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace vpod::arch {

// The values of the register's field CIUERRVR.FIRSTERROR (spec/gc-tools.md 1.7), with '|' between
// them.
inline constexpr char kSocErrors[] =
    "SOC0PGMERR|SOC1PGMERR|ELINKPGMERR|HEXOVERFLOWERR|MCUPGMERR|SOC0SOFTERR|SOC1SOFTERR|"
    "ELINKSOFTERR|IPUSOFTERR|NMLINKDN0|NMLINKDN1|MCUSOFTERR";

inline constexpr auto kNumSocErrors =
    1 + std::count(std::begin(kSocErrors), std::end(kSocErrors), '|');

bool IsSocError(absl::string_view name);
// InvalidArgument: "<what> is 'x', must be one of SOC0PGMERR, …" unless the name is that of one.
absl::Status CheckSocError(absl::string_view what, absl::string_view name);

}  // namespace vpod::arch
