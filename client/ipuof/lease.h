// A lease on a device of the active partition: attach, the events that come with it, and the calls
// that name it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/session/device.h"
#include "client/vipu/ipuof_config.h"
#include "device/base/units.h"
#include "device/shm/segment.h"
#include "proto/ipuof/v1/ipuof.pb.h"

namespace vpod::ipuof {

// How stream data and runs travel; VPOD_TRANSPORT=shm|tcp forces one.
enum class Transport { kSharedMemory, kGrpc };

struct LeaseOptions {
  uint32_t device_id =
      0;  // for Attach its id in the GCD, for AttachParts that in the configuration
  // A device whose IPUs several agents hold is attached in parts, one at each of them.
  std::string endpoint;  // of the agent (host:port)
  uint32_t part = 0, num_parts = 1;
  bool reserve_only = false;  // poprun's parent device
  bool monitoring = false;    // shows temperature and power to monitors, as GCDA_MONITOR=1 does
  v1::JobMember job;
  // Called on an event thread: lines for the user, and the end of the job. By default notices and
  // lost instances go to stderr.
  std::function<void(const std::string& text)> on_notice;
  std::function<void(const v1::JobFailed& failed)> on_job_failed;
  std::function<void(const v1::InstanceStopped& stopped)>
      on_instance_stopped;  // by default nothing
  // The agent, or the way to it, is gone, or it has ended the lease. By default said on stderr.
  std::function<void(const absl::Status& why)> on_lost;
  // Called besides, of every part: Aborted, the job failed; Unavailable, the device is lost.
  std::function<void(const absl::Status& cause)> on_failure;
};

// Thread-safe. The destructor detaches in an orderly way. In a process that is forked from the one
// which attached, Detach, CancelRuns and the destructor do nothing, and nothing else may be called.
class Lease {
 public:
  // Errors carry the agent's words ("device 24 is in use by process …").
  static absl::StatusOr<std::unique_ptr<Lease>> Attach(const vipu::ActivePartition& partition,
                                                       const LeaseOptions& options);
  // A lease at each agent that has IPUs of the device which the job's units need, or, to reserve
  // it, any; endpoint and part are filled in. The first speaks to the user for all.
  static absl::StatusOr<std::vector<std::unique_ptr<Lease>>> AttachParts(
      const vipu::ActivePartition& partition, LeaseOptions options);
  ~Lease();

  // Ends the lease: calls that run fail, and so do later ones.
  void Detach();
  // Ends the run; later runs and the job fail. The program that was loaded and its variables stay.
  void CancelRuns();
  // Tells the agent, for a reservation, that an instance's process has ended: others stop waiting.
  void TellInstanceEnded(const v1::AttachInstanceEnded& ended);

  const v1::Attached& attached() const;
  // The same host was proved, and the lease is bound to this process.
  bool same_host() const;

  // Bytes of an executable and of the table of its origins, which may be none.
  absl::StatusOr<v1::LoadReply> Load(absl::string_view executable, absl::string_view origins,
                                     const session::LoadOptions& options);
  // Begins a run; the returned function, to be called once, waits for its end. With shared memory
  // the run is asked for over a local connection, or else by gRPC.
  using AwaitRun = std::function<absl::StatusOr<base::Cycles>()>;
  AwaitRun StartRun(uint32_t program, uint32_t slot, Transport transport);
  // The stream buffers as shared memory. Unavailable across hosts; the reason for which the lease
  // has ended, if it has.
  absl::StatusOr<shm::Segment> MapStreams();
  // Makes the lease use another part's stream buffers; the errors are those of MapStreams.
  absl::Status ShareStreams(const shm::Segment& streams);
  absl::Status WriteStream(uint32_t slot, uint64_t offset, absl::string_view bytes);
  absl::Status ReadStream(uint32_t slot, uint64_t offset, uint64_t bytes, std::byte* into);
  // On all replicas of the lease, or on a local one.
  absl::Status WriteTensor(absl::string_view variable, absl::string_view bytes,
                           std::optional<uint32_t> replica = std::nullopt);
  absl::StatusOr<std::string> ReadTensor(absl::string_view variable, uint32_t replica);
  absl::StatusOr<std::vector<base::Cycles>> Counters();

 private:
  struct Impl;
  explicit Lease(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Returns a failure to the program. If an instance was lost, the call waits a little for mpirun's
// SIGTERM, so that mpirun blames the instance that was lost; `stopped` ends the wait.
absl::Status AwaitTheEnd(const absl::Status& status, const std::stop_token& stopped = {});

// Resets a device that nobody holds; `initialise_parity` makes its tile memory usable after a
// parity error.
absl::Status ResetDevice(const vipu::ActivePartition& partition, uint32_t device_id,
                         bool initialise_parity);

// This process, as monitors show it.
v1::ProcessInfo ThisProcess();

// The agents (host:port) that hold IPUs [first, first + count) of the configuration, each once, by
// their first IPU.
std::vector<std::string> EndpointsOf(const vipu::ActivePartition& partition, uint32_t first,
                                     uint32_t count);

}  // namespace vpod::ipuof
