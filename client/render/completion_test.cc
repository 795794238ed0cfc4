#include "client/render/completion.h"

#include <gtest/gtest.h>

#include "client/render/option_completion.h"

namespace vpod::render {
namespace {

namespace po = boost::program_options;

class OptionCompletionTest : public ::testing::Test {
 protected:
  OptionCompletionTest() : options_("Allowed options") {
    options_.add_options()("help,h", "help")                        //
        ("device-id,d", po::value<int>(), "device to test")         //
        ("json,j", po::bool_switch(), "JSON")                       //
        ("import-config", po::value<std::string>(), "read a file")  //
        ("sync-type", po::value<std::string>(), "kind of sync");
  }

  std::string Complete(const std::vector<std::string>& words) {
    const auto values = [](const std::string& option) -> Candidates {
      if (option == "sync-type") return {{"ST_ONE", "the first"}, {"ST_TWO", ""}};
      return {};
    };
    return CompletionText(CompleteOptions(options_, words, values),
                          words.empty() ? "" : words.back());
  }

  po::options_description options_;
};

TEST_F(OptionCompletionTest, OptionsThatWereNotGiven) {
  EXPECT_EQ(Complete({"--j"}), "--json\tJSON\n");
  EXPECT_EQ(Complete({"--json", "--j"}), "");
  EXPECT_EQ(Complete({"-j", "--j"}), "");
  EXPECT_EQ(Complete({"-d", "3", "--he"}), "--help\thelp\n");
  EXPECT_EQ(Complete({"-d3", "--he"}), "--help\thelp\n");
  EXPECT_EQ(Complete({"--device-id=3", "--d"}), "");
  EXPECT_EQ(Complete({""}), Complete({}));
  EXPECT_NE(Complete({""}).find("--sync-type\tkind of sync\n"), std::string::npos);
}

TEST_F(OptionCompletionTest, ValuesOfOptions) {
  EXPECT_EQ(Complete({"--sync-type", ""}), "ST_ONE\tthe first\nST_TWO\n");
  EXPECT_EQ(Complete({"--sync-type=ST_T"}), "--sync-type=ST_TWO\n");
  EXPECT_EQ(Complete({"--device-id", ""}), "");
  EXPECT_EQ(Complete({"--import-config", "x"}), ":files\n");
  EXPECT_EQ(Complete({"--json="}), "");
}

TEST_F(OptionCompletionTest, WhatFollowsTheOptionsAreFiles) {
  EXPECT_EQ(Complete({"app"}), ":files\n");
  EXPECT_EQ(Complete({"-j", "app", "--j"}), ":files\n");
  EXPECT_EQ(Complete({"--", "--j"}), ":files\n");
  EXPECT_EQ(Complete({"--bogus", ""}), "");
}

TEST(CompletionScriptTest, EachShellHasItsOwn) {
  EXPECT_NE(CompletionScript("bash", "gc-info").find("complete -F _gc_info_complete gc-info\n"),
            std::string::npos);
  EXPECT_EQ(CompletionScript("zsh", "gc-info").rfind("#compdef gc-info\n", 0), 0u);
  EXPECT_NE(CompletionScript("fish", "gc-info").find("complete -c gc-info "), std::string::npos);
}

}  // namespace
}  // namespace vpod::render
