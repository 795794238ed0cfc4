#include "tools/gc_options.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/render/option_completion.h"
#include "device/base/stdout.h"
#include "device/base/text.h"
#include "device/base/version.h"

namespace vpod::tools {

namespace {

bool ParseNumber(const std::string& text, uint32_t& number) {
  return !text.empty() && absl::ascii_isdigit(static_cast<unsigned char>(text[0])) &&
         absl::SimpleAtoi(text, &number);
}

// As po::invalid_option_value, with the range behind it.
class InvalidDevice : public po::error_with_option_name {
 public:
  explicit InvalidDevice(const std::string& text)
      : po::error_with_option_name(
            "the argument ('%value%') for option '%canonical_option%' is invalid. Give a number "
            "from 0 to 4294967295") {
    set_substitute("value", text);
  }
};

// Whether the tool prints JSON. A process has one command line.
bool wants_json = false;

bool IsJsonOption(const std::string& name) { return name == "json" || name == "json-output"; }

// As far as it can be told of a command line that cannot be parsed.
bool HasJsonWord(int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc, [](const std::string& word) {
    return word == "-j" || (word.rfind("--", 0) == 0 && IsJsonOption(word.substr(2)));
  });
}

std::string ErrorJson(const std::string& what) {
  // Boost repeats words of the command line, whatever their bytes.
  return nlohmann::ordered_json({{"error", what}})
      .dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void PrintFailure(const std::string& json) {
  if (wants_json) std::printf("%s\n", json.c_str());
}

}  // namespace

void validate(boost::any& value, const std::vector<std::string>& words, DeviceOption*, int) {
  po::validators::check_first_occurrence(value);
  const std::string& text = po::validators::get_single_string(words);
  DeviceOption device;
  if (!ParseNumber(text, device.id)) throw InvalidDevice(text);
  value = device;
}

void validate(boost::any& value, const std::vector<std::string>& words, NumberOption*, int) {
  po::validators::check_first_occurrence(value);
  const std::string& text = po::validators::get_single_string(words);
  NumberOption number;
  if (!ParseNumber(text, number.value)) number.no_number = absl::StrCat("'", text, "'");
  value = number;
}

std::ostream& operator<<(std::ostream& stream, const NumberOption& number) {
  return stream << number.value;
}

absl::Status CheckRange(const std::string& option, NumberOption number, uint32_t low,
                        uint32_t high) {
  const bool is_number = number.no_number.empty();
  if (is_number && number.value >= low && number.value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", option, " is ", is_number ? absl::StrCat(number.value) : number.no_number,
                   ", must be ", low, " to ", high));
}

absl::Status CheckOneOf(const std::string& option, const std::string& word,
                        const std::vector<std::string>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), word) != allowed.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", option, " is '", word, "', must be one of ",
                                                 absl::StrJoin(allowed, ", ")));
}

std::string VersionLine() { return absl::StrCat("Poplar version: ", base::kSdkVersion); }

bool AnswerCompletion(int argc, char** argv, const po::options_description& options) {
  if (argc < 2 || std::string(argv[1]) != render::kCompleteWord) return false;
  const std::vector<std::string> words(argv + 2, argv + argc);
  std::cout << render::CompletionText(render::CompleteOptions(options, words, nullptr),
                                      words.empty() ? "" : words.back());
  return true;
}

int ParseGcOptions(const std::string& tool, int argc, char** argv,
                   const po::options_description& options, po::variables_map& values,
                   const po::options_description& hidden) {
  base::CheckStdoutAtExit();
  wants_json = HasJsonWord(argc, argv);
  po::options_description all;
  all.add(options).add(hidden);
  if (AnswerCompletion(argc, argv, options)) return 0;
  try {
    const po::parsed_options parsed = po::command_line_parser(argc, argv).options(all).run();
    for (const po::option& option : parsed.options) {
      if (option.position_key < 0) continue;
      return UsageError(tool, absl::StrCat("unexpected argument '", option.value.front(), "'"));
    }
    po::store(parsed, values);
    po::notify(values);
    wants_json = std::any_of(values.begin(), values.end(), [](const auto& value) {
      return IsJsonOption(value.first) && value.second.template as<bool>();
    });
  } catch (const po::error& error) {
    return UsageError(tool, error.what());
  }
  if (values.count("help") > 0) {
    std::cout << "Usage: " << tool << " [options]\n" << options;
    return 0;
  }
  if (values.count("version") > 0) {
    std::printf("%s\n", VersionLine().c_str());
    return 0;
  }
  return -1;
}

int UsageError(const std::string& tool, const std::string& what) {
  std::fprintf(stderr, "%s: error: %s. Try '%s --help'.\n", tool.c_str(),
               base::OneLine(what).c_str(), tool.c_str());
  PrintFailure(ErrorJson(what));
  return 2;
}

int GcError(const std::string& tool, const absl::Status& status, const std::string& json) {
  std::fprintf(stderr, "%s: error: %s\n", tool.c_str(), base::OneLine(status.message()).c_str());
  PrintFailure(json.empty() ? ErrorJson(std::string(status.message())) : json);
  return 1;
}

}  // namespace vpod::tools
