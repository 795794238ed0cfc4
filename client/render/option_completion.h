// Completion for tools whose command line is Boost.Program_options'.
#pragma once

#include <boost/program_options.hpp>
#include <functional>
#include <string>
#include <vector>

#include "client/render/completion.h"

namespace vpod::render {

// Candidates for the value of an option, by its long name.
using ValuesOf = std::function<Candidates(const std::string& option)>;

// Returns the completions of the last word: options that were not given yet, or values of one.
// Words that are not options, such as a program with its arguments, end the options and are files.
Candidates CompleteOptions(const boost::program_options::options_description& options,
                           const std::vector<std::string>& words, const ValuesOf& values);

}  // namespace vpod::render
