#include "client/ipuof/program_name.h"

#include <gtest/gtest.h>

namespace vpod::ipuof {
namespace {

TEST(ProgramNameTest, ALinkToAVersionNamesTheProgram) {
  EXPECT_EQ(ProgramName("/usr/bin/python3.11", "/usr/bin/python3"), "python3");
  EXPECT_EQ(ProgramName("/usr/bin/python3.11", "python"), "python");
  EXPECT_EQ(ProgramName("/usr/bin/python3.11", "python3.11"), "python3.11");
  EXPECT_EQ(ProgramName("/usr/bin/python3.11 (deleted)", "/opt/venv/bin/python3"), "python3");
  EXPECT_EQ(ProgramName("/usr/local/bin/train", "./train"), "train");
}

// A program may write over its command line, and its caller chooses the first word.
TEST(ProgramNameTest, OtherNamesAreThoseOfTheFile) {
  EXPECT_EQ(ProgramName("/usr/bin/python3.11", "ray::train"), "python3.11");
  EXPECT_EQ(ProgramName("/usr/bin/python3.11", "-python3"), "python3.11");
  EXPECT_EQ(ProgramName("/usr/bin/python3.11", "python3.11-dbg"), "python3.11");
  EXPECT_EQ(ProgramName("/usr/bin/python3.11", ""), "python3.11");
  EXPECT_EQ(ProgramName("/usr/bin/python3.11", "/usr/bin/"), "python3.11");
  EXPECT_EQ(ProgramName("", "python3"), "");
}

TEST(ProgramNameTest, ThisProgramHasItsName) { EXPECT_EQ(ThisProgramName(), "program_name_test"); }

}  // namespace
}  // namespace vpod::ipuof
