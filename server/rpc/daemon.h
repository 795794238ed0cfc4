// Functions that the daemons' main functions share: signals, logging, address checks, the addresses
// of a local POD.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "device/base/unique_fd.h"

namespace vpod::rpc {

// Blocks SIGTERM, SIGINT and SIGHUP in this thread and those it starts; call first thing in main.
void BlockStopSignals();
// Raises the limit of open descriptors as far as the system lets this process: each client of an
// agent takes several.
void AllowManyDescriptors();
// Waits for SIGTERM or SIGINT; returns its number. SIGHUP stops nothing. The process ignores both
// from then on, so that others see in /proc/<pid>/status that it is ending: `vpod up` does not take
// such a daemon for one that serves.
int WaitForStopSignal();

// Tells the service manager that started this process (systemd, Type=notify) that it serves. Does
// nothing when none asked to be told.
void NotifyReady();
// Tells it that the daemon lives (WatchdogSec). Call from where a stuck daemon would be stuck.
void NotifyAlive();

// Ends the process after that time, whatever is still under way: a kernel that runs for minutes
// must not keep a daemon that was told to stop. State to be kept is on the disk already.
void EndWithin(std::chrono::seconds limit);

// Sends the log to `file`, which is rotated by size, or to stderr when empty, within the limits of
// log_budget.h. `level` is trace, debug, info, warn, error or off. InvalidArgument: it is none of
// these. FailedPrecondition: the file cannot be written.
absl::Status SetUpLog(const std::string& level, const std::string& file);

// Whether `address` (host:port) is one of loopback. A name other than localhost may lead anywhere.
bool IsOnLoopback(absl::string_view address);

// The options that let an end-point listen beyond loopback.
inline constexpr char kTlsOrInsecureListen[] = "TLS, or --insecure-listen";
inline constexpr char kInsecureListen[] = "--insecure-listen, because TLS does not reach it";

// InvalidArgument, which names `option`, unless its `address` is host:port, and on loopback if it
// is not `allowed_beyond`; `permit` says what would allow that.
absl::Status CheckEndPointOption(absl::string_view option, absl::string_view address,
                                 bool allowed_beyond, absl::string_view permit);

// Makes the kernel end the connections accepted on `port` from now on when the other host does not
// answer for three seconds; it asks only where nothing is on its way, as on a lease's Pulse. gRPC
// has no public way to set options of its sockets, but those of its listening ones are inherited.
void EndConnectionsOfLostHosts(int port);

// A free pair of second octets for the machines of a POD: 127.(10+2k) management, 127.(11+2k) data
// plane. The descriptor keeps the pair taken.
struct AddressPair {
  std::string management_prefix;  // "127.10"
  std::string data_prefix;        // "127.11"
  base::UniqueFd claim;
};
// The pair of a management prefix ("127.10"), without claiming it.
absl::StatusOr<AddressPair> AddressPairOf(const std::string& management_prefix);
// With `management_prefix` ("127.10") that pair only, as a restarted POD needs its old addresses.
absl::StatusOr<AddressPair> ClaimAddressPair(const std::string& management_prefix = "");

}  // namespace vpod::rpc
