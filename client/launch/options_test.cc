#include "client/launch/options.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/launch/layout.h"
#include "client/launch/words.h"

namespace vpod::launch {
namespace {

using Words = std::vector<std::string>;

class OptionsTest : public testing::Test {
 protected:
  OptionsTest() {
    unsetenv("POPRUN_LOG_LEVEL");
    unsetenv("SLURM_JOB_NODELIST");
  }
};

// The options of a good command line; `words` get a program behind them.
Options Parse(Words words) {
  words.push_back("app");
  const auto options = ParseOptions(words);
  EXPECT_TRUE(options.ok()) << options.status();
  if (!options.ok()) return {};
  EXPECT_EQ(options->program, Words({"app"})) << testing::PrintToString(words);
  return *options;
}

std::string ErrorOf(const Words& words) {
  const auto options = ParseOptions(words);
  EXPECT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument) << options.status();
  return std::string(options.status().message());
}

TEST_F(OptionsTest, PartitionsAllocationsAndClustersHaveIds) {
  constexpr char kRule[] =
      "Invalid id 'a b'. Ids have 1 to 63 letters, digits, '.', '_' and '-' and begin with a "
      "letter or digit.";
  for (const char* option : {"--vipu-partition", "--vipu-allocation", "--vipu-cluster"})
    EXPECT_EQ(ErrorOf({option, "a b", "app"}), absl::StrCat(option, ": ", kRule));
  setenv("IPUOF_VIPU_API_PARTITION_ID", "a b", 1);
  EXPECT_EQ(ErrorOf({"app"}), absl::StrCat("IPUOF_VIPU_API_PARTITION_ID: ", kRule));
  EXPECT_EQ(Parse({"--vipu-partition", "p1"}).vipu_partition, "p1");
  EXPECT_TRUE(Parse({"--offline-mode"}).offline_mode);
  unsetenv("IPUOF_VIPU_API_PARTITION_ID");
}

TEST_F(OptionsTest, DefaultsAreThoseOfTheGuide) {
  const Options options = Parse({});
  EXPECT_EQ(options.num_replicas, 1u);
  EXPECT_EQ(options.ipus_per_replica, 1u);
  EXPECT_EQ(options.num_instances, 1u);
  EXPECT_FALSE(options.num_ilds.has_value());
  EXPECT_EQ(options.vipu_server_port, 8090u);
  EXPECT_FALSE(options.vipu_server_port_given);
  EXPECT_EQ(options.vipu_server_timeout, 120u);
  EXPECT_EQ(options.vipu_partition_attempts, 1u);
  EXPECT_FALSE(options.update_partition);
  EXPECT_FALSE(options.reset_partition.has_value());
  EXPECT_TRUE(options.remove_partition);
  EXPECT_TRUE(options.allow_run_as_root);
  EXPECT_EQ(options.process_placement, "spreadnuma");
  EXPECT_FALSE(options.print_topology);
  EXPECT_FALSE(options.only_output_from_instance.has_value());
  EXPECT_FALSE(options.offline_mode);
  EXPECT_EQ(options.verbosity, 0);
}

TEST_F(OptionsTest, EveryOptionTakesItsValueAfterABlankOrAnEqualsSign) {
  const std::vector<std::pair<std::string, std::string>> values = {
      {"export-config", "/tmp/x"},
      {"overwrite-config", "1"},
      {"debug", "0"},
      {"host", "h0,h1"},
      {"hostfile", "hosts"},
      {"num-replicas", "8"},
      {"ipus-per-replica", "2"},
      {"num-instances", "4"},
      {"num-ilds", "2"},
      {"vipu-server-host", "10.1.3.101"},
      {"vipu-server-port", "8091"},
      {"vipu-server-timeout", "600"},
      {"vipu-partition", "p64"},
      {"vipu-partition-attempts", "3"},
      {"update-partition", "yes"},
      {"reset-partition", "no"},
      {"remove-partition", "0"},
      {"vipu-cluster", "c64"},
      {"vipu-allocation", "a64"},
      {"sync-type", "ST_POD_NATIVE_DEFAULT"},
      {"executable-cache-path", "cache/x"},
      {"mpi-global-args", "--tag-output"},
      {"mpi-local-args", "-x PATH"},
      {"allow-run-as-root", "1"},
      {"host-subnet", "10.5.0.0/16"},
      {"mpirun", "/opt/mpirun"},
      {"launch-agent", "ssh -q"},
      {"synchronise-python-venv", "1"},
      {"synchronise-poplar-sdk", "yes"},
      {"distribute-ssh-key", "on"},
      {"numa-aware", "1"},
      {"process-placement", "disabled"},
      {"print-topology", "yes"},
      {"only-output-from-instance", "0"},
      {"offline-mode", "on"},
  };
  for (const auto& [name, value] : values) {
    const std::map<std::string, Words> expected = {{name, {value}}};
    EXPECT_EQ(Parse({"--" + name, value}).given, expected);
    EXPECT_EQ(Parse({"--" + name + "=" + value}).given, expected);
  }
}

TEST_F(OptionsTest, ValuesArriveInTheirFields) {
  const Options options = Parse({"-H",
                                 "h0,h1",
                                 "--num-replicas=64",
                                 "--ipus-per-replica",
                                 "2",
                                 "--num-instances=16",
                                 "--num-ilds=2",
                                 "--vipu-server-host=10.1.3.101",
                                 "--vipu-server-port",
                                 "8091",
                                 "--vipu-server-timeout=600",
                                 "--vipu-partition=p64",
                                 "--vipu-partition-attempts=3",
                                 "--update-partition=yes",
                                 "--reset-partition=no",
                                 "--remove-partition=no",
                                 "--vipu-cluster=c1",
                                 "--vipu-allocation=a1",
                                 "--sync-type=ST_C2_COMPATIBLE",
                                 "--executable-cache-path",
                                 "cache/rn50",
                                 "--allow-run-as-root",
                                 "0",
                                 "--host-subnet=eno1",
                                 "--process-placement=disabled",
                                 "--print-topology",
                                 "--only-output-from-instance",
                                 "0",
                                 "--offline-mode=on"});
  EXPECT_EQ(options.host, "h0,h1");
  EXPECT_EQ(options.num_replicas, 64u);
  EXPECT_EQ(options.ipus_per_replica, 2u);
  EXPECT_EQ(options.num_instances, 16u);
  EXPECT_EQ(options.num_ilds, 2u);
  EXPECT_EQ(options.vipu_server_host, "10.1.3.101");
  EXPECT_EQ(options.vipu_server_port, 8091u);
  EXPECT_TRUE(options.vipu_server_port_given);
  EXPECT_EQ(options.vipu_server_timeout, 600u);
  EXPECT_EQ(options.vipu_partition, "p64");
  EXPECT_EQ(options.vipu_partition_attempts, 3u);
  EXPECT_TRUE(options.update_partition);
  EXPECT_EQ(options.reset_partition, false);
  EXPECT_FALSE(options.remove_partition);
  EXPECT_EQ(options.vipu_cluster, "c1");
  EXPECT_EQ(options.vipu_allocation, "a1");
  EXPECT_EQ(options.sync_type, "ST_C2_COMPATIBLE");
  EXPECT_EQ(options.executable_cache_path, "cache/rn50");
  EXPECT_FALSE(options.allow_run_as_root);
  EXPECT_EQ(options.host_subnet, "eno1");
  EXPECT_EQ(options.process_placement, "disabled");
  EXPECT_TRUE(options.print_topology);
  EXPECT_EQ(options.only_output_from_instance, 0u);
  EXPECT_TRUE(options.offline_mode);
}

TEST_F(OptionsTest, BooleansHaveFourSpellingsInAnyCase) {
  for (const char* yes : {"yes", "1", "on", "true", "YES", "On", "True"}) {
    EXPECT_TRUE(Parse({"--offline-mode", yes}).offline_mode) << yes;
    EXPECT_TRUE(Parse({std::string("--offline-mode=") + yes}).offline_mode) << yes;
  }
  for (const char* no : {"no", "0", "off", "false", "NO", "Off", "False"}) {
    EXPECT_FALSE(Parse({"--remove-partition", no}).remove_partition) << no;
    EXPECT_FALSE(Parse({std::string("--remove-partition=") + no}).remove_partition) << no;
  }
}

TEST_F(OptionsTest, BareBooleanMeansYes) {
  EXPECT_TRUE(Parse({"--offline-mode"}).offline_mode);
  EXPECT_TRUE(Parse({"--update-partition", "--num-replicas", "2"}).update_partition);
  EXPECT_EQ(Parse({"--reset-partition"}).reset_partition, true);
}

TEST_F(OptionsTest, BareBooleanLeavesTheProgramAlone) {
  for (const std::string program : {"true", "false", "yes", "no", "1"}) {
    const auto options = ParseOptions({"--offline-mode", program});
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_TRUE(options->offline_mode) << program;
    EXPECT_EQ(options->program, Words({program}));
  }
  // With a word behind it, it is the documented form with a value.
  const auto options = ParseOptions({"--offline-mode", "no", "true"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_FALSE(options->offline_mode);
  EXPECT_EQ(options->program, Words({"true"}));
}

TEST_F(OptionsTest, SyncTypeIsOneOfTwo) {
  EXPECT_EQ(ErrorOf({"--sync-type", "foo", "app"}),
            "the argument ('foo') for option '--sync-type' is invalid. Valid choices are "
            "'ST_POD_NATIVE_DEFAULT' and 'ST_C2_COMPATIBLE'");
  EXPECT_EQ(Parse({"--sync-type=ST_POD_NATIVE_DEFAULT"}).sync_type, "ST_POD_NATIVE_DEFAULT");
  EXPECT_EQ(Parse({}).sync_type, "");
}

TEST_F(OptionsTest, LauncherComesFromOptionsElseTheEnvironment) {
  setenv("POPRUN_MPIRUN", "/opt/mpirun", 1);
  setenv("POPRUN_LAUNCH_AGENT", "/opt/agent", 1);
  const Options named = Parse({"--mpirun=/usr/bin/mpirun", "--launch-agent", "ssh -q"});
  const Options from_environment = Parse({});
  unsetenv("POPRUN_MPIRUN");
  unsetenv("POPRUN_LAUNCH_AGENT");
  EXPECT_EQ(named.mpirun, "/usr/bin/mpirun");
  EXPECT_EQ(named.launch_agent, "ssh -q");
  EXPECT_EQ(from_environment.mpirun, "/opt/mpirun");
  EXPECT_EQ(from_environment.launch_agent, "/opt/agent");
  EXPECT_EQ(Parse({}).launch_agent, "");
}

TEST_F(OptionsTest, BadBooleanIsRefusedWithTheChoices) {
  EXPECT_EQ(ErrorOf({"--offline-mode=maybe", "app"}),
            "the argument ('maybe') for option '--offline-mode' is invalid. Valid choices are "
            "'on|off', 'yes|no', '1|0' and 'true|false'");
  EXPECT_EQ(ErrorOf({"--reset-partition=", "app"}),
            "the argument ('') for option '--reset-partition' is invalid. Valid choices are "
            "'on|off', 'yes|no', '1|0' and 'true|false'");
}

TEST_F(OptionsTest, BadNumberIsRefused) {
  for (const char* bad : {"x", "0", "-1", "1.5", "", "0x10", "99999999999", " 4"}) {
    EXPECT_EQ(ErrorOf({std::string("--num-replicas=") + bad, "app"}),
              std::string("the argument ('") + bad +
                  "') for option '--num-replicas' is invalid. Give an integer from 1 to 65536");
  }
  EXPECT_EQ(ErrorOf({"--num-ilds", "none", "app"}),
            "the argument ('none') for option '--num-ilds' is invalid. Give an integer from 1 to "
            "4294967295");
  EXPECT_EQ(ErrorOf({"--vipu-server-port=65536", "app"}),
            "the argument ('65536') for option '--vipu-server-port' is invalid. Give an integer "
            "from 1 to 65535");
}

TEST_F(OptionsTest, BadNetworkIsRefused) {
  for (const char* bad : {"10.5.0.0/99", "10.5.0.0/", "10.5.0/16", "/", "eth0/24"}) {
    EXPECT_EQ(ErrorOf({std::string("--host-subnet=") + bad, "app"}),
              std::string("the argument ('") + bad +
                  "') for option '--host-subnet' is invalid. Give an interface (eth0) or a network "
                  "(10.5.0.0/16, at most /32)");
  }
  EXPECT_EQ(Parse({"--host-subnet=10.5.0.0/32"}).host_subnet, "10.5.0.0/32");
}

TEST_F(OptionsTest, UnambiguousPrefixStandsForItsOption) {
  EXPECT_EQ(Parse({"--num-instance", "4"}).num_instances, 4u);
  EXPECT_TRUE(Parse({"--off"}).offline_mode);
}

TEST_F(OptionsTest, ExactNameWinsOverLongerOnes) {
  EXPECT_EQ(Parse({"--host", "h0"}).host, "h0");
  EXPECT_EQ(Parse({"--vipu-partition=p1"}).vipu_partition, "p1");
}

TEST_F(OptionsTest, AmbiguousPrefixIsRefusedWithItsMatches) {
  EXPECT_EQ(ErrorOf({"--vipu-server", "h", "app"}),
            "option '--vipu-server' is ambiguous and matches '--vipu-server-host', "
            "'--vipu-server-port', and '--vipu-server-timeout'");
  EXPECT_EQ(ErrorOf({"--vipu-server=h", "app"}),
            "option '--vipu-server' is ambiguous and matches '--vipu-server-host', "
            "'--vipu-server-port', and '--vipu-server-timeout'");
}

TEST_F(OptionsTest, UnknownOptionIsRefused) {
  EXPECT_EQ(ErrorOf({"--foo", "app"}), "unrecognised option '--foo'");
  EXPECT_EQ(ErrorOf({"--foo=1", "app"}), "unrecognised option '--foo'");
  EXPECT_EQ(ErrorOf({"-x", "app"}), "unrecognised option '-x'");
}

TEST_F(OptionsTest, MissingValueIsRefused) {
  EXPECT_EQ(ErrorOf({"--host"}), "the required argument for option '--host' is missing");
  EXPECT_EQ(ErrorOf({"-H"}), "the required argument for option '--host' is missing");
}

TEST_F(OptionsTest, MissingProgramIsRefused) {
  constexpr char kText[] = "no program given; usage: poprun [options] program [program args]";
  EXPECT_EQ(ErrorOf({}), kText);
  EXPECT_EQ(ErrorOf({"--num-replicas=2"}), kText);
  EXPECT_EQ(ErrorOf({"--num-replicas=2", "--"}), kText);
}

TEST_F(OptionsTest, VerbositySpellings) {
  EXPECT_EQ(Parse({"-v"}).verbosity, 1);
  EXPECT_EQ(Parse({"--verbose"}).verbosity, 1);
  EXPECT_EQ(Parse({"-vv"}).verbosity, 2);
  EXPECT_EQ(Parse({"--vv"}).verbosity, 2);
  EXPECT_EQ(Parse({"--vv", "-v"}).verbosity, 2);
  EXPECT_EQ(Parse({"--debug"}).verbosity, 3);
  EXPECT_EQ(Parse({"--vv=no"}).verbosity, 0);
}

TEST_F(OptionsTest, LogLevelComesFromTheEnvironmentUnlessTheCommandLineSaysIt) {
  const std::map<std::string, int> levels = {{"TRACE", 3}, {"DEBUG", 2},  {"INFO", 1},
                                             {"WARN", 0},  {"ERROR", -1}, {"OFF", -2}};
  for (const auto& [name, verbosity] : levels) {
    setenv("POPRUN_LOG_LEVEL", name.c_str(), 1);
    EXPECT_EQ(Parse({}).verbosity, verbosity) << name;
    EXPECT_EQ(Parse({"-v"}).verbosity, 1) << name;
  }
  setenv("POPRUN_LOG_LEVEL", "LOUD", 1);
  EXPECT_EQ(ErrorOf({"app"}),
            "POPRUN_LOG_LEVEL is 'LOUD'; give TRACE, DEBUG, INFO, WARN, ERROR or OFF");
  unsetenv("POPRUN_LOG_LEVEL");
}

TEST_F(OptionsTest, LastOfARepeatedOptionWins) {
  EXPECT_EQ(Parse({"--num-replicas", "2", "--num-replicas=4"}).num_replicas, 4u);
  EXPECT_FALSE(Parse({"--offline-mode", "--offline-mode=no"}).offline_mode);
}

TEST_F(OptionsTest, MpiArgumentsAppendAndAreSplitLikeAShellDoes) {
  const Options options =
      Parse({"--mpi-global-args=--tag-output", "--mpi-global-args=--allow-run-as-root",
             "--mpi-global-args", " --mca oob_tcp_if_include\n\t\"10.5.0.0/16\"",
             "--mpi-local-args=-x 'A=b c' -x D"});
  EXPECT_EQ(options.mpi_global_args, Words({"--tag-output", "--allow-run-as-root", "--mca",
                                            "oob_tcp_if_include", "10.5.0.0/16"}));
  EXPECT_EQ(options.mpi_local_args, Words({"-x", "A=b c", "-x", "D"}));
}

TEST_F(OptionsTest, UnclosedQuoteInMpiArgumentsIsRefused) {
  EXPECT_EQ(ErrorOf({"--mpi-local-args=-x 'A", "app"}), "a quote is not closed in '-x 'A'");
}

TEST_F(OptionsTest, AnAccessKeyAmongMpiArgumentsIsRefused) {
  for (const std::string option :
       {"--mpi-local-args=-x VIPU_CLI_API_ACCESS_KEY",
        "--instance-mpi-local-args=0:-x "
        "VIPU_CLI_API_ACCESS_KEY=k",
        "--mpi-global-args=--mca mca_base_env_list VIPU_CLI_API_ACCESS_KEY=k"}) {
    EXPECT_EQ(ErrorOf({option, "app"}),
              "VIPU_CLI_API_ACCESS_KEY cannot be an argument of mpirun, which does not keep it "
              "secret; instances on other hosts read the access key from ~/.vipu.hcl there");
  }
}

TEST_F(OptionsTest, ParsingEndsAtTheProgram) {
  const auto options = ParseOptions({"--ipus-per-replica=4", "python3", "train.py",
                                     "--ipus-per-replica", "8", "--foo", "-v", "--"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->ipus_per_replica, 4u);
  EXPECT_EQ(options->verbosity, 0);
  EXPECT_EQ(options->program,
            Words({"python3", "train.py", "--ipus-per-replica", "8", "--foo", "-v", "--"}));
}

TEST_F(OptionsTest, TwoDashesEndTheOptions) {
  const auto options = ParseOptions({"--num-replicas=2", "--", "--odd-program", "--num-replicas"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->program, Words({"--odd-program", "--num-replicas"}));
}

TEST_F(OptionsTest, NumaAwareIsTheOlderNameOfPlacement) {
  EXPECT_EQ(Parse({"--numa-aware=yes"}).process_placement, "spreadnuma");
  EXPECT_EQ(Parse({"--numa-aware=no"}).process_placement, "disabled");
  EXPECT_EQ(Parse({"--numa-aware=no", "--process-placement=spreadnuma"}).process_placement,
            "spreadnuma");
  EXPECT_EQ(Parse({"--numa-aware", "1", "--process-placement=disabled"}).process_placement,
            "disabled");
  EXPECT_NE(ErrorOf({"--process-placement=everywhere", "app"}).find("'spreadnuma' and 'disabled'"),
            std::string::npos);
}

TEST_F(OptionsTest, HelpAndVersionNeedNoProgram) {
  const auto help = ParseOptions({"--help"});
  ASSERT_TRUE(help.ok()) << help.status();
  EXPECT_TRUE(help->help);
  EXPECT_NE(help->help_text.find("-H [ --host ] arg"), std::string::npos) << help->help_text;
  const auto version = ParseOptions({"--version"});
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_TRUE(version->version);
  EXPECT_EQ(version->version_format, "text");
  EXPECT_EQ(ErrorOf({"--version", "--version-format=xml"}),
            "the argument ('xml') for option '--version-format' is invalid. Valid choices are "
            "'text' and 'json' and 'full-text' and 'full-json'");
}

TEST(SplitWords, QuotesAndBackslashesProtect) {
  EXPECT_EQ(*SplitWords(R"(  a "b c" 'd "e"' f\ g "h\"i" '' j"k"l)"),
            Words({"a", "b c", "d \"e\"", "f g", "h\"i", "", "jkl"}));
  EXPECT_EQ(*SplitWords(" \n\t "), Words());
}

// The commands of public applications (spec/poprun.md 14), one a line.
TEST_F(OptionsTest, CommandsOfPublicApplicationsParseAndLayOut) {
  std::ifstream file("client/launch/testdata/commands.tsv");
  std::set<int> rows;
  for (std::string line; std::getline(file, line);) {
    if (line[0] == '#') continue;
    SCOPED_TRACE(line);
    const Words columns = absl::StrSplit(line, '\t');
    ASSERT_EQ(columns.size(), 6u);
    rows.insert(std::atoi(columns[0].c_str()));
    const auto words = SplitWords(columns[5]);
    ASSERT_TRUE(words.ok()) << words.status();
    const auto options = ParseOptions(*words);
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_EQ(std::to_string(options->num_instances), columns[1]);
    EXPECT_EQ(std::to_string(options->num_replicas), columns[2]);
    EXPECT_EQ(std::to_string(options->ipus_per_replica), columns[3]);
    EXPECT_EQ(options->program[0], columns[4]);
    Words warnings;
    const auto layout = MakeLayout(*options, warnings);
    EXPECT_TRUE(layout.ok()) << layout.status();
  }
  EXPECT_EQ(rows.size(), 34u);
}

}  // namespace
}  // namespace vpod::launch
