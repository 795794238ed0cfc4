// Both ends of a job that spans processes: a part's link to its coordinator, and the coordinator's
// record of a part elsewhere. For the agent's own sources and tests.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/base/mutex.h"
#include "device/fabric/job.h"
#include "proto/vipu/v1/vipuagent.pb.h"
#include "server/agent/peers.h"

namespace vpod::agent {

// The parts of a job as they travel; `here` is the endpoint of the sending or receiving process,
// whose own parts have none in a JobPart.
fabric::v1::JobFormed ToProto(const std::vector<fabric::JobPart>& parts, const std::string& here);
std::vector<fabric::JobPart> FromProto(const fabric::v1::JobFormed& formed,
                                       const std::string& here);

// "agent ag1 at 10.1.2.2:8080": the process of a partition's peer, for messages.
std::string NameOfPeer(const vipuagent::AgentPartition& partition, const std::string& endpoint);

// Away from the coordinator: carries what the job says to the coordinator, and what the coordinator
// says to the job.
class PartLink : public fabric::CoordinatorLink, public std::enable_shared_from_this<PartLink> {
 public:
  using Joined = std::function<void(absl::Status)>;
  struct Options {
    std::string here;              // endpoint of this process
    std::string coordinator;       // endpoint of the coordinator
    std::string coordinator_name;  // for messages
    std::function<void(const std::string&)> notice;
  };
  PartLink(std::weak_ptr<fabric::Job> job, Options options);

  // Joins; `joined` is called once, with the coordinator's answer.
  void Open(PeerGateway& gateway, const fabric::v1::JobJoin& join, Joined joined);

  void Loaded(const std::string& executable_hash) override;
  void Waits() override;
  void Ready(const std::string& address) override;
  void Alive() override;
  void Leave(bool lost, uint64_t runs) override;
  void Fail(const absl::Status& cause, bool lost, uint32_t culprit) override;

 private:
  void Send(const fabric::v1::JobRequest& request);
  void OnEvent(const fabric::v1::JobEvent& event);
  void OnEnd(const absl::Status& status);
  void Answer(const absl::Status& status);

  const std::weak_ptr<fabric::Job> job_;
  const Options options_;
  base::Mutex mutex_;
  Joined joined_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<CoordinatorStream> stream_ ABSL_GUARDED_BY(mutex_);
  // Requests made before the join, since the coordinator may answer before Open returns.
  std::vector<fabric::v1::JobRequest> early_ ABSL_GUARDED_BY(mutex_);
  bool opened_ ABSL_GUARDED_BY(mutex_) = false;
  bool left_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

// At the coordinator: a part elsewhere.
class RemotePart : public std::enable_shared_from_this<RemotePart> {
 public:
  using SendEvent = std::function<void(const fabric::v1::JobEvent&)>;
  RemotePart(std::shared_ptr<fabric::Job> job, uint32_t instance, uint32_t part,
             std::string endpoint, std::string name);

  // Joins the job; events go to `send` until the part is gone.
  absl::Status Join(const fabric::v1::JobJoin& join, const std::string& here, SendEvent send);
  void Request(const fabric::v1::JobRequest& request);
  // The stream has ended; without a word before, the part is lost.
  void Gone();
  // Called now and then: a part that has said nothing for `patience` is lost.
  void Tick(std::chrono::steady_clock::time_point now,
            std::chrono::steady_clock::duration patience);
  // The part has spoken, or may have to a process that hangs and does not hear it.
  void Heard(std::chrono::steady_clock::time_point now);
  const std::shared_ptr<fabric::Job>& job() const { return job_; }

 private:
  const std::shared_ptr<fabric::Job> job_;
  const uint32_t instance_, part_;
  const std::string endpoint_, name_;
  base::Mutex mutex_;
  bool left_ ABSL_GUARDED_BY(mutex_) = false;
  std::chrono::steady_clock::time_point heard_ ABSL_GUARDED_BY(mutex_) =
      std::chrono::steady_clock::now();
};

}  // namespace vpod::agent
