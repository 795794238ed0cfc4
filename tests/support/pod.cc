#include "tests/support/pod.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "device/base/file.h"

namespace vpod::testing {
namespace {

namespace fs = std::filesystem;

// Links every program that the test has among its data into one directory.
void LinkPrograms(const std::string& bin) {
  fs::create_directories(bin);
  for (const auto& entry : fs::recursive_directory_iterator(Program(""))) {
    std::error_code taken;
    if (entry.is_regular_file() && access(entry.path().c_str(), X_OK) == 0)
      fs::create_symlink(entry.path(), bin + "/" + entry.path().filename().string(), taken);
  }
}

int ReadPid(const std::string& path) {
  int pid = 0;
  std::ifstream(path) >> pid;
  return pid;
}

// A socket bound to a port of 127.0.0.1; invalid if the port is taken.
base::UniqueFd Bound(int port) {
  base::UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return {};
  return fd;
}

}  // namespace

std::string Program(const std::string& path) {
  const char* runfiles = std::getenv("TEST_SRCDIR");
  return fs::absolute(std::string(runfiles == nullptr ? "." : runfiles) + "/virtual_ipu_pod/" +
                      path)
      .string();
}

int FreePort() {
  // Below the ports that the kernel gives to clients: one of those may be taken a moment later.
  thread_local std::mt19937 random(std::random_device{}());
  std::uniform_int_distribution<int> any(10000, 32767);
  int port;
  do {
    port = any(random);
  } while (!Bound(port).valid());
  return port;
}

base::UniqueFd ListenOn(int port) {
  base::UniqueFd fd = Bound(port);
  EXPECT_TRUE(fd.valid()) << "port " << port;
  EXPECT_EQ(listen(fd.get(), 1), 0) << "port " << port;
  return fd;
}

TestPod::TestPod(int ipus, const std::vector<std::string>& options,
                 const std::map<std::string, std::string>& environment) {
  char name[] = "/tmp/vpod-test-XXXXXX";
  directory_ = mkdtemp(name);
  home_ = directory_ + "/pod";
  const std::string bin = directory_ + "/bin";
  LinkPrograms(bin);
  port_ = FreePort();
  const char* path = std::getenv("PATH");
  environment_ = {{"PATH", bin + ":" + (path == nullptr ? "/usr/bin:/bin" : path)},
                  {"HOME", directory_},
                  {"VPOD_HOME", home_},
                  {"VIPU_CLI_API_HOST", "127.0.0.1"},
                  {"VIPU_CLI_API_PORT", std::to_string(port_)},
                  {"IPUOF_CONFIG_DIR", home_ + "/ipuof.conf.d"},
                  {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                  {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                  {"OMP_NUM_THREADS", "1"},
                  {"TMPDIR", "/tmp"},
                  {"IPUOF_CONFIG_PATH", ""},
                  {"IPUOF_VIPU_API_HOST", ""}};
  for (const auto& [name, value] : environment) environment_[name] = value;
  if (ipus == 0) return;
  const auto bring_up = [&] {
    std::vector<std::string> words = {
        "vpod",           "up",  "--pod", std::to_string(ipus), "--api-port", std::to_string(port_),
        "--memory-limit", "4096"};
    words.insert(words.end(), options.begin(), options.end());
    return Run(words);
  };
  Outcome up = bring_up();
  // Another process may take the port before the controller does.
  for (int tries = 0; tries < 4 && up.err.find("the port is in use") != std::string::npos;
       ++tries) {
    port_ = FreePort();
    environment_["VIPU_CLI_API_PORT"] = std::to_string(port_);
    up = bring_up();
  }
  EXPECT_EQ(up.code, 0) << up.err;
}

TestPod::~TestPod() {
  Run({"vpod", "down"});
  std::error_code error;
  if (::testing::Test::HasFailure()) {
    for (const auto& entry : fs::directory_iterator(home_, error)) {
      const std::string log = entry.path().filename().string();
      if (entry.path().extension() != ".log") continue;
      fprintf(stderr, "--- %s\n%s\n", log.c_str(), base::ReadFile(entry.path()).c_str());
    }
  }
  fs::remove_all(directory_, error);
}

Outcome TestPod::Run(const std::vector<std::string>& words, std::chrono::seconds limit) {
  return Command(words, environment_).Wait(limit);
}

std::unique_ptr<Command> TestPod::Start(const std::vector<std::string>& words) {
  return std::make_unique<Command>(words, environment_);
}

void TestPod::CreatePartition(const std::string& id, int size) {
  const Outcome created = Run({"vipu-admin", "create", "partition", id, "--size",
                               std::to_string(size), "--reconfigurable"});
  ASSERT_EQ(created.code, 0) << created.err;
}

int TestPod::ServerPid() const { return ReadPid(home_ + "/vipu-server.pid"); }
int TestPod::AgentPid(int agent) const {
  return ReadPid(home_ + "/vipu-agent" + (agent == 0 ? "" : "." + std::to_string(agent)) + ".pid");
}

int TestPod::AttachedIpus() {
  const Outcome outcome = Run({"gc-monitor", "-j"});
  const auto json = nlohmann::json::parse(outcome.out, nullptr, false);
  int attached = 0;
  if (!json.is_object()) return -1;
  for (const auto& card : json["cards"]) {
    for (const auto& ipu : card["ipus"]) attached += ipu.contains("PID");
  }
  return attached;
}

}  // namespace vpod::testing
