// The configuration file of vipu-server.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

class ServerConfigTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& text) {
    const std::string path = pod_.directory() + "/vipu-server.hcl";
    std::ofstream(path) << text;
    return path;
  }
  void ExpectRefused(const Outcome& outcome, const std::string& text, int code = 2) {
    EXPECT_EQ(outcome.code, code);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err.rfind("vipu-server: error: ", 0), 0u) << outcome.err;
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }

  TestPod pod_{0};
};

TEST_F(ServerConfigTest, OptionsComeFromTheFileAndTheCommandLineWins) {
  const std::string file =
      Write("# our controller\nstorage=\"" + pod_.directory() +
            "/one.db\"\nuser-api-listen = \"127.0.0.1:" + std::to_string(pod_.port()) +
            "\"\nmetrics-listen=\"127.0.0.1:" + std::to_string(FreePort()) + "\"\n");
  const auto server = pod_.Start({"vipu-server", "--config", file});
  ASSERT_TRUE(server->WaitForOutput("serving users on 127.0.0.1:" + std::to_string(pod_.port())))
      << server->Err();
  EXPECT_EQ(pod_.Run({"vipu", "--server-version"}).code, 0);
  EXPECT_TRUE(std::filesystem::exists(pod_.directory() + "/one.db"));

  const std::string other = pod_.directory() + "/two.db";
  const Outcome init = pod_.Run({"vipu-server", "--config", file, "--storage", other, "--init"});
  EXPECT_EQ(init.code, 0) << init.err;
  EXPECT_EQ(init.out, "Initialised storage: " + other + "\n");
}

// A storage without certificates would be in the way of the next attempt.
TEST_F(ServerConfigTest, InitMakesNothingIfANameIsWrong) {
  const std::string storage = pod_.directory() + "/new.db", certs = pod_.directory() + "/certs";
  const auto init = [&](const std::string& option, const std::string& value) {
    return pod_.Run({"vipu-server", "--config", "/dev/null", "--storage", storage, "--certs-dir",
                     certs, "--init", "--secure", option, value});
  };
  ExpectRefused(init("--tls-hosts", "a b"), "--tls-hosts: 'a b' is not a name or address");
  ExpectRefused(init("--default-user-id", "a b"), "Invalid id 'a b'");
  EXPECT_FALSE(std::filesystem::exists(storage));
  EXPECT_FALSE(std::filesystem::exists(certs));
  EXPECT_EQ(init("--tls-hosts", "ctrl.site.example").code, 0);
}

TEST_F(ServerConfigTest, WhatIsWrongIsNamed) {
  const auto run = [&](const std::string& file) {
    return pod_.Run({"vipu-server", "--config", file, "--init"});
  };
  const std::string missing = pod_.directory() + "/missing.hcl";
  ExpectRefused(run(missing), missing, /*code=*/1);  // a failure: nothing is wrong in it
  const std::string file = Write("colour=\"blue\"\n");
  ExpectRefused(run(file), "unknown setting 'colour' in " + file);
  ExpectRefused(run(Write("log-level=\"loud\"\n")), "log level 'loud'");
  ExpectRefused(run(Write("user-api-listen=\"0.0.0.0:8090\"\n")),
                "--user-api-listen: address '0.0.0.0:8090' reaches beyond this host");
}

}  // namespace
}  // namespace vpod::testing
