// A POD of its own for a test: temporary state directory, random free port, the programs of this
// build on PATH. It is brought down when the object ends, whatever happened.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "device/base/unique_fd.h"
#include "tests/support/command.h"

namespace vpod::testing {

class TestPod {
 public:
  // Brings a POD up; fails the test when that does not work. `ipus` 0 makes the directory and
  // environment only.
  // `options` are further words of `vpod up`, `environment` is set for it and all that follows.
  explicit TestPod(int ipus = 16, const std::vector<std::string>& options = {},
                   const std::map<std::string, std::string>& environment = {});
  ~TestPod();

  const std::string& home() const { return home_; }            // VPOD_HOME
  const std::string& directory() const { return directory_; }  // for the test's own files
  int port() const { return port_; }
  std::map<std::string, std::string>& environment() { return environment_; }

  // Runs a command to its end with the POD's environment.
  Outcome Run(const std::vector<std::string>& words,
              std::chrono::seconds limit = std::chrono::seconds(120));
  // The same through a shell, for pipes.
  Outcome Shell(const std::string& script) { return Run({"bash", "-c", script}); }
  // Starts one in the background.
  std::unique_ptr<Command> Start(const std::vector<std::string>& words);

  // Creates a reconfigurable partition and waits for it; fails the test otherwise.
  void CreatePartition(const std::string& id, int size);
  // Pids of the daemons, from their pid files.
  int ServerPid() const;
  int AgentPid(int agent = 0) const;
  // Number of devices that telemetry shows as attached.
  int AttachedIpus();

 private:
  std::string directory_, home_;
  int port_ = 0;
  std::map<std::string, std::string> environment_;
};

// Path of a built program, by its label without slashes: "tools/vipu/vipu".
std::string Program(const std::string& path);

// A TCP port of 127.0.0.1 on which nobody listened just now.
int FreePort();
// Listens on a port of 127.0.0.1: connections are taken, and nothing is ever answered.
base::UniqueFd ListenOn(int port);

}  // namespace vpod::testing
