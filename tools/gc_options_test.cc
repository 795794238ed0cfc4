// Command lines of the gc-* tools: spellings, prefixes, wrong usage.
#include "tools/gc_options.h"

#include <gtest/gtest.h>

namespace vpod::tools {
namespace {

using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

struct Parsed {
  int code = 0;
  uint32_t device = 0;
  NumberOption iterations;
  bool all_links = false, all_partitions = false, json = false;
  std::string out, err;
};

Parsed Parse(std::vector<std::string> words) {
  DeviceOption device;
  NumberOption iterations{100};
  Parsed parsed;
  po::options_description options("Allowed options");
  options.add_options()("help,h", "help")("version,v", "version")              //
      ("device-id,d", po::value(&device)->default_value({}, "0"), "device")    //
      ("iterations,i", po::value(&iterations)->default_value(iterations), "")  //
      ("json-output,j", po::bool_switch(&parsed.json), "")                     //
      ("all-links", po::bool_switch(&parsed.all_links), "")                    //
      ("all-partitions", po::bool_switch(&parsed.all_partitions), "");
  words.insert(words.begin(), "gc-tool");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  po::variables_map values;
  CaptureStdout();
  CaptureStderr();
  parsed.code =
      ParseGcOptions("gc-tool", static_cast<int>(argv.size()), argv.data(), options, values);
  parsed.out = GetCapturedStdout();
  parsed.err = GetCapturedStderr();
  parsed.device = device.id;
  parsed.iterations = iterations;
  return parsed;
}

TEST(GcOptionsTest, SpellingsOfADeviceAreEqual) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"-d7"},
                                                {"-d", "7"},
                                                {"--device-id", "7"},
                                                {"--device-id=7"},
                                                {"--dev", "7"}}) {
    const Parsed parsed = Parse(words);
    EXPECT_EQ(parsed.code, -1) << words[0];
    EXPECT_EQ(parsed.device, 7u) << words[0];
    EXPECT_EQ(parsed.iterations.value, 100u);
  }
}

TEST(GcOptionsTest, PrefixesMustBeUnambiguous) {
  EXPECT_TRUE(Parse({"--all-l"}).all_links);
  const Parsed parsed = Parse({"--all"});
  EXPECT_EQ(parsed.code, 2);
  EXPECT_NE(parsed.err.find("is ambiguous and matches"), std::string::npos) << parsed.err;
}

TEST(GcOptionsTest, WrongUsageIsOneLine) {
  for (const auto& [words, text] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--foo"}, "unrecognised option '--foo'"},
           {{"-i", "2", "word"}, "unexpected argument 'word'"},
           {{"-d"}, "the required argument for option '--device-id' is missing"},
           {{"-d", "-1"},
            "the argument ('-1') for option '--device-id' is invalid. Give a number from 0 to "
            "4294967295. Try"},
           {{"-d", "a\nb\x1b[31m\xff"}, "the argument ('a\uFFFDb\uFFFD[31m\uFFFD') for option"},
           {{"--f\noo"}, "unrecognised option '--f\uFFFDoo'"},
           {{"-d", std::string(5000, 'x')}, "x') for option '--device-id' is invalid. Give a"},
           {{"-i", "2", "-i", "3"}, "option '--iterations' cannot be specified more than once"}}) {
    const Parsed parsed = Parse(words);
    EXPECT_EQ(parsed.code, 2) << text;
    EXPECT_EQ(parsed.out, "");
    EXPECT_EQ(parsed.err.rfind("gc-tool: error: ", 0), 0u) << parsed.err;
    EXPECT_NE(parsed.err.find(text), std::string::npos) << parsed.err;
    EXPECT_EQ(parsed.err.find('\n'), parsed.err.size() - 1) << parsed.err;
  }
}

TEST(GcOptionsTest, WordsThatAreNoNumberAreNamedWithTheRange) {
  for (const std::string word : {"x", "-5", "4294967296", "1.5", "0x4"}) {
    const Parsed parsed = Parse({"-i", word});
    EXPECT_EQ(parsed.code, -1) << word;
    EXPECT_EQ(CheckRange("iterations", parsed.iterations, 1, 10).message(),
              "--iterations is '" + word + "', must be 1 to 10");
  }
  EXPECT_EQ(CheckRange("iterations", Parse({"-i", "11"}).iterations, 1, 10).message(),
            "--iterations is 11, must be 1 to 10");
  EXPECT_TRUE(CheckRange("iterations", Parse({"-i", "10"}).iterations, 1, 10).ok());
}

TEST(GcOptionsTest, FailuresAreJsonIfThatIsAskedFor) {
  const auto failure = [](const std::vector<std::string>& words, const std::string& json = "") {
    EXPECT_EQ(Parse(words).code, -1);
    CaptureStdout();
    CaptureStderr();
    EXPECT_EQ(GcError("gc-tool", absl::NotFoundError("no \"x\""), json), 1);
    EXPECT_EQ(GetCapturedStderr(), "gc-tool: error: no \"x\"\n");
    return GetCapturedStdout();
  };
  EXPECT_EQ(failure({}), "");
  EXPECT_EQ(failure({"-j"}), "{\n \"error\": \"no \\\"x\\\"\"\n}\n");
  EXPECT_EQ(failure({"--json-o"}, "{}"), "{}\n");
  EXPECT_EQ(failure({}, "{}"), "");
  const Parsed parsed = Parse({"-j", "--foo"});
  EXPECT_EQ(parsed.code, 2);
  EXPECT_EQ(parsed.out, "{\n \"error\": \"unrecognised option '--foo'\"\n}\n");
  EXPECT_EQ(Parse({"-j", "--f\xff"}).out,
            "{\n \"error\": \"unrecognised option '--f\xef\xbf\xbd'\"\n}\n");
}

TEST(GcOptionsTest, HelpAndVersionAreData) {
  const Parsed help = Parse({"-h"});
  EXPECT_EQ(help.code, 0);
  EXPECT_EQ(help.out.rfind("Usage: gc-tool [options]\nAllowed options:\n", 0), 0u) << help.out;
  EXPECT_NE(help.out.find("-i [ --iterations ] arg (=100)"), std::string::npos) << help.out;
  const Parsed version = Parse({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.out, "Poplar version: 3.2.0\n");
}

TEST(GcOptionsTest, RangesAndWordsAreNamed) {
  EXPECT_TRUE(CheckRange("tiles", {1}, 1, 1472).ok());
  EXPECT_TRUE(CheckRange("tiles", {1472}, 1, 1472).ok());
  EXPECT_EQ(CheckRange("tiles", {0}, 1, 1472).message(), "--tiles is 0, must be 1 to 1472");
  EXPECT_TRUE(CheckOneOf("fp", "FP16", {"FP16", "FP32"}).ok());
  EXPECT_EQ(CheckOneOf("fp", "x", {"FP16", "FP32"}).message(),
            "--fp is 'x', must be one of FP16, FP32");
}

}  // namespace
}  // namespace vpod::tools
