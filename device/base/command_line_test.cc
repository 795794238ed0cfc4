#include "device/base/command_line.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "device/base/whole_number.h"

namespace vpod::base {
namespace {

// A tool with commands, as vpod, and options of every kind.
class CommandLineTest : public testing::Test {
 protected:
  CommandLineTest() : app_("A tool.", "tool") {
    app_.require_subcommand(1);
    auto* list = app_.add_subcommand("list", "lists");
    list->add_option("what", what_, "a noun")->required();
    list->add_option("-n,--lines", lines_, "a number")->transform(WholeNumber(1, 9));
    list->add_option("--width", width_, "a number that nothing checks");
    list->add_option("--colour", colour_, "a word")->check(OneOf({"red", "blue"}));
    auto* json = list->add_flag("--json", json_, "JSON")->disable_flag_override();
    list->add_flag("--csv", csv_, "CSV")->excludes(json);
    list->add_flag("--pretty", pretty_, "with blanks")->needs(json);
    app_.add_subcommand("write", "writes")->add_option("--html", what_, "a file")->required();
  }

  // What is wrong; empty if nothing is.
  std::string Wrong(std::vector<std::string> words) {
    testing::internal::CaptureStderr();
    const std::optional<int> code = ParseCommandLine(app_, words);
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_EQ(code.has_value(), !text.empty()) << text;
    EXPECT_EQ(code.value_or(2), 2);
    return text;
  }

  CLI::App app_;
  std::string what_, colour_;
  int lines_ = 0;
  double width_ = 0;
  bool json_ = false, csv_ = false, pretty_ = false;
};

TEST_F(CommandLineTest, TakesWhatIsRight) {
  EXPECT_EQ(Wrong({"list", "pods", "--lines", "3", "--colour", "blue", "--json", "--pretty"}), "");
  EXPECT_EQ(what_, "pods");
  EXPECT_EQ(lines_, 3);
  EXPECT_EQ(colour_, "blue");
}

TEST_F(CommandLineTest, SaysWhatIsWrongInItsOwnWords) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "a command is missing; use one of list, write. Try 'tool --help'."},
      {{"look"}, "unknown command 'look'. Try 'tool --help'."},
      {{""}, "unknown command ''. Try 'tool --help'."},
      {{"look", "--help"}, "unknown command 'look'. Try 'tool --help'."},
      {{"--look"}, "unknown option '--look'. Try 'tool --help'."},
      {{"list"}, "the argument what is missing. Try 'tool list --help'."},
      {{"list", "--look"}, "unknown option '--look'. Try 'tool list --help'."},
      {{"write", "-l"}, "unknown option '-l'. Try 'tool write --help'."},
      {{"write"}, "the option --html is missing. Try 'tool write --help'."},
      {{"list", "pods", "more"}, "unexpected argument 'more'. Try 'tool list --help'."},
      {{"list", "pods", "more", "words"}, "unexpected argument 'more'. Try 'tool list --help'."},
      {{"list", "pods", "--look"}, "unknown option '--look'. Try 'tool list --help'."},
      {{"list", "pods", "--lines", "0"},
       "--lines: 0 is not a whole number from 1 to 9. Try 'tool list --help'."},
      {{"list", "pods", "--lines"}, "--lines needs a value. Try 'tool list --help'."},
      {{"list", "pods", "-n", "1", "-n", "2"},
       "--lines is given 2 times, at most 1 is allowed. Try 'tool list --help'."},
      {{"list", "pods", "--width", "wide"},
       "--width is 'wide', must be a number. Try 'tool list --help'."},
      {{"list", "pods", "--colour", "green"},
       "--colour: 'green' is not one of red, blue. Try 'tool list --help'."},
      {{"list", "pods", "--json=3"}, "--json takes no value. Try 'tool list --help'."},
      {{"list", "pods", "--csv=x"}, "--csv is 'x', must be true or false. Try 'tool list --help'."},
      {{"list", "pods", "--json", "--csv"},
       "--json and --csv cannot be given together. Try 'tool list --help'."},
      {{"list", "pods", "--pretty"}, "--pretty needs --json. Try 'tool list --help'."}};
  for (const auto& [words, message] : cases) {
    EXPECT_EQ(Wrong(words), "tool: error: " + message + "\n");
    app_.clear();
  }
}

TEST_F(CommandLineTest, AnswersAQuestionForHelp) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(ParseCommandLine(app_, {"list", "--help"}), 0);
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_TRUE(absl::StrContains(text, "TEXT:{red,blue}")) << text;
}

TEST(WithHelpHintTest, NamesTheProgram) {
  const CLI::App app("", "tool");
  EXPECT_EQ(WithHelpHint(app, "it is wrong"), "it is wrong. Try 'tool --help'.");
}

}  // namespace
}  // namespace vpod::base
