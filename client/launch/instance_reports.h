// The supervisors' reports to poprun, and the instance that ended first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "client/launch/instance_report.h"
#include "device/base/mutex.h"
#include "device/base/unique_fd.h"

namespace vpod::launch {

// An instance that ended on its own before any other did.
struct FirstEnd {
  int instance = 0;
  pid_t pid = 0;              // 0: its program never ran
  std::string host;           // empty: not known
  std::optional<int> status;  // as wait(2) has it; none: its supervisor went with it
  std::string pid_namespace;  // as InstanceReport::pid_namespace
};

// For a job that failed. Reports are in the order of their arrival, with times of this host's
// clock. The first is the one that ended earliest with an error and without having been told to
// end. When nobody reported such an end, it is the one instance that has not said what became of
// it: the others have all been told to end. Empty if there is not exactly one such.
std::optional<FirstEnd> FindFirstEnd(const std::vector<InstanceReport>& reports, int instances);

// The place of the connection that makes room for another: the oldest of the address that has most,
// so that a process elsewhere cannot push out supervisors, however fast it connects. For each
// connection, oldest first, the IPv4 address in host order, or nothing if it has shown the token
// and keeps its place. Empty if all have.
std::optional<size_t> FindPlaceToFree(const std::vector<std::optional<uint32_t>>& strangers);

// Listens for the supervisors of a job on a thread of its own, from its making to its end.
class InstanceReports {
 public:
  struct Options {
    int instances = 1;
    // For instances on other hosts: at all addresses of this host, or those of a network
    // (10.5.0.0/16). Else on the loopback interface only.
    bool other_hosts = false;
    std::string subnet;
    // Called on the thread that listens, as soon as an instance has ended without an error and
    // without having been told to.
    std::function<void(const InstanceReport&)> on_success = [](const InstanceReport&) {};
  };
  static absl::StatusOr<std::unique_ptr<InstanceReports>> Listen(const Options& options);
  ~InstanceReports();

  // Value of kSupervisorVariable. The token in it is a secret of the job's processes.
  const std::string& where() const { return where_; }
  // Call once, after mpirun has ended: waits for what is on its way, for a second at most.
  std::vector<InstanceReport> Finish();

 private:
  struct Connection {
    base::UniqueFd fd;
    uint32_t address;  // IPv4, in host order
    std::string received;
    bool has_shown_token = false;
  };
  InstanceReports(Options options, std::string token, base::UniqueFd listener, std::string where);
  void Serve();
  // False when nothing came within the limit.
  bool ServeOnce(int limit_ms);
  void Accept();
  // False: there is none, and nobody can be disconnected.
  bool MakeRoom();
  void Read(Connection& connection);
  void Add(InstanceReport report);

  const Options options_;
  const std::string token_, where_, boot_id_ = BootId();
  base::UniqueFd listener_, finish_;     // finish_: an eventfd
  std::vector<Connection> connections_;  // the thread's
  std::vector<InstanceReport> reports_;  // the thread's until it has ended
  std::thread thread_;
};

}  // namespace vpod::launch
