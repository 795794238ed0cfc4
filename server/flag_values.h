// Values of flags on the command lines of the daemons, and in their configuration files.
#pragma once

#include <CLI/CLI.hpp>
#include <set>
#include <string>

namespace vpod {

// Call after all options have been added: CLI11 itself takes any text and any number for true, and
// some flags decide who is let in.
inline void RefuseOtherFlagValues(CLI::App& app) {
  const CLI::Validator yes_or_no(
      [](const std::string& value) {
        static const std::set<std::string> kValues = {"true", "false", "1",   "0",
                                                      "on",   "off",   "yes", "no"};
        return kValues.contains(value) ? "" : "'" + value + "' is neither true nor false";
      },
      "");
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 0) option->check(yes_or_no);
  }
}

}  // namespace vpod
