#include "tools/gc_options.h"

#include <cstdio>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"

namespace vpod::tools {

void validate(boost::any& value, const std::vector<std::string>& words, DeviceOption*, int) {
  po::validators::check_first_occurrence(value);
  const std::string& text = po::validators::get_single_string(words);
  DeviceOption device;
  if (text.empty() || !absl::ascii_isdigit(static_cast<unsigned char>(text[0])) ||
      !absl::SimpleAtoi(text, &device.id)) {
    throw po::invalid_option_value(text);
  }
  value = device;
}

int ParseGcOptions(const std::string& tool, int argc, char** argv,
                   const po::options_description& options, po::variables_map& values) {
  try {
    // No positional words: a stray one is an error, not ignored.
    po::store(po::command_line_parser(argc, argv).options(options).positional({}).run(), values);
    po::notify(values);
  } catch (const po::error& error) {
    std::fprintf(stderr, "%s: error: %s. Try '%s --help'.\n", tool.c_str(), error.what(),
                 tool.c_str());
    return 2;
  }
  if (values.count("help") > 0) {
    std::cout << "Usage: " << tool << " [options]\n" << options;
    return 0;
  }
  return -1;
}

void GcError(const std::string& tool, const absl::Status& status) {
  std::fprintf(stderr, "%s: error: %s\n", tool.c_str(), std::string(status.message()).c_str());
}

}  // namespace vpod::tools
