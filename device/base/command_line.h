// Command lines that CLI11 parses: its errors in our own words.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace vpod::base {

// For Option::check: accepts these words and names them in the error. --help and completions find
// them in the name of the option's type, "TEXT:{exact,tanh}".
CLI::Validator OneOf(const std::vector<std::string>& words);

// A sentence about wrong usage and the command whose --help explains it: "--json takes no value.
// Try 'vpod list --help'." `app` is the one that has thrown the error while it parsed. Errors of
// validators keep the validators' words.
std::string DescribeWrongUsage(const CLI::App& app, const CLI::ParseError& error);

// The same for mistakes that the program finds after parsing.
std::string WithHelpHint(const CLI::App& app, const std::string& what);

// Parses the words after the program's name. Returns the exit status if the program is to end: 0
// after --help and --version, which are answered on stdout, 2 after wrong usage, for which there is
// one line on stderr.
std::optional<int> ParseCommandLine(CLI::App& app, const std::vector<std::string>& words);

}  // namespace vpod::base
