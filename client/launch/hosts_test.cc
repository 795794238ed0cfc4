#include "client/launch/hosts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace vpod::launch {
namespace {

using Words = std::vector<std::string>;

std::string Error(const std::string& text) {
  const auto hosts = ParseHosts(text, "--host");
  EXPECT_EQ(hosts.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(hosts.status().message());
}

std::string File(const std::string& text) {
  const std::string path = testing::TempDir() + "/hosts-" +
                           testing::UnitTest::GetInstance()->current_test_info()->name();
  std::ofstream(path) << text;
  return path;
}

// The forms that Slurm writes, padding included, and plain lists.
TEST(ParseHosts, ListsAndRangesExpandInOrder) {
  const std::vector<std::pair<std::string, Words>> cases = {
      {"host0,host1", {"host0", "host1"}},
      {"host[0-2,4]", {"host0", "host1", "host2", "host4"}},
      {"host[01-04]", {"host01", "host02", "host03", "host04"}},
      {"gc-poplar-[02-04],x", {"gc-poplar-02", "gc-poplar-03", "gc-poplar-04", "x"}},
      {"a[9-11]", {"a9", "a10", "a11"}},
      {"a[098-101]", {"a098", "a099", "a100", "a101"}},
      {"a[3,1]", {"a3", "a1"}},
      {"10.1.3.[101-102]", {"10.1.3.101", "10.1.3.102"}},
      {"n[0-1]-ib", {"n0-ib", "n1-ib"}},
      {"rack[1-2]node[01-02]", {"rack1node01", "rack1node02", "rack2node01", "rack2node02"}},
      {"r[1,3],gpu[5-6],login", {"r1", "r3", "gpu5", "gpu6", "login"}},
      {"localhost", {"localhost"}}};
  for (const auto& [text, expected] : cases) {
    const auto hosts = ParseHosts(text, "--host");
    ASSERT_TRUE(hosts.ok()) << text << ": " << hosts.status();
    EXPECT_EQ(*hosts, expected) << text;
  }
}

TEST(ParseHosts, BadRangesAreRefused) {
  for (const std::string bad : {"h[3-1]", "h[0-2", "h0-2]", "h[]", "h[a-b]", "h[1-2-3]", "h[1,]",
                                "h[[0-1]]", "h[0-99999999]", "h[-1]", "h[1-]", "h[ 1-2]", "h[+1-2]",
                                "h]1[", "h[4294967290-4294967296]", "a[0-999]b[0-999]"}) {
    EXPECT_EQ(Error(bad), "--host: bad range in '" + bad + "'");
  }
}

TEST(ParseHosts, DuplicatesAndEmptyNamesAreRefused) {
  EXPECT_EQ(Error("h1,h[0-2]"), "duplicate host 'h1'");
  EXPECT_EQ(Error("h0,,h1"), "--host: empty host name");
  EXPECT_EQ(Error("h0,"), "--host: empty host name");
  EXPECT_EQ(Error(""), "--host: empty host name");
}

TEST(ParseHosts, NamesThatMpirunOrSshWouldMisreadAreRefused) {
  for (const std::string bad : {"h0:4", "fd00::2", "-oProxyCommand=x", "h 1", "h;id", "u@h"})
    EXPECT_EQ(Error(bad), "--host: '" + bad + "' is not a host name or IPv4 address");
}

TEST(ParseHosts, TheLargestPodsHostsAreEnough) {
  EXPECT_EQ(ParseHosts("h[0-65535]", "--host")->size(), 65536u);
  EXPECT_EQ(Error("h[0-65535],x"), "--host: more than 65536 hosts");
}

TEST(ReadHostFile, HasHostsALineCommentsAndBlanks) {
  const auto hosts = ReadHostFile(File("# rack 1\r\nh0\r\n\n  h[1-2]  # two\nh3,h4"));
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_EQ(*hosts, Words({"h0", "h1", "h2", "h3", "h4"}));
}

TEST(ReadHostFile, ErrorsNameFileAndLine) {
  const auto error = [](const std::string& path) {
    return std::string(ReadHostFile(path).status().message());
  };
  const std::string slots = File("h0\nh1 slots=4\n");
  EXPECT_EQ(error(slots),
            "--hostfile: " + slots + " line 2: 'h1 slots=4' is not a host name or IPv4 address");
  EXPECT_EQ(error(File("h0\n\nh0\n")), "duplicate host 'h0'");
  const std::string empty = File("# nobody\n");
  EXPECT_EQ(error(empty), "--hostfile: no host in " + empty);
  EXPECT_EQ(error(empty + ".missing"),
            "--hostfile: cannot read " + empty + ".missing: No such file or directory");
  EXPECT_EQ(error(testing::TempDir()),
            "--hostfile: cannot read " + testing::TempDir() + ": it is a directory");
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadHostFile(empty + ".missing").status()));
}

TEST(SlurmHosts, AreTheNodesOfTheJob) {
  unsetenv("SLURM_JOB_NODELIST");
  EXPECT_EQ(*SlurmHosts(), Words());
  setenv("SLURM_JOB_NODELIST", "gc-poplar-[02,04],gpu1", 1);
  EXPECT_EQ(*SlurmHosts(), Words({"gc-poplar-02", "gc-poplar-04", "gpu1"}));
  setenv("SLURM_JOB_NODELIST", "gc-[4-2]", 1);
  EXPECT_EQ(SlurmHosts().status().message(), "SLURM_JOB_NODELIST: bad range in 'gc-[4-2]'");
  unsetenv("SLURM_JOB_NODELIST");
}

TEST(IsThisHost, KnowsItsNameAndTheAddressesOfItsInterfaces) {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  EXPECT_TRUE(IsThisHost(name));
  EXPECT_TRUE(IsThisHost("localhost"));
  EXPECT_TRUE(IsThisHost("127.0.0.1"));
  EXPECT_FALSE(IsThisHost("127.0.0.2"));     // so does mpirun
  EXPECT_FALSE(IsThisHost("203.0.113.77"));  // an address of documentation
}

TEST(IsLoopback, KnowsAddressesThatStayOnTheMachine) {
  for (const char* host : {"localhost", "127.0.0.1", "127.10.0.3", "::1"})
    EXPECT_TRUE(IsLoopback(host)) << host;
  for (const char* host : {"10.1.3.101", "203.0.113.77", "fd00::1"})
    EXPECT_FALSE(IsLoopback(host)) << host;
}

}  // namespace
}  // namespace vpod::launch
