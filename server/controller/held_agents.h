// Agents' processes as tests of the controller need them: they hold configurations until the test
// answers, and do whatever else they are asked.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "server/controller/controller.h"

namespace vpod::controller {

class HeldAgents : public AgentGateway {
 public:
  // A configuration that waits for its answer.
  struct Call {
    std::string endpoint;
    vipuagent::ConfigureRequest request;
    std::function<void(absl::StatusOr<vipuagent::ConfigureReply>)> done;

    // The process takes it, or not.
    void Answer(const absl::Status& status, const vipuagent::ConfigureReply& reply = {}) const {
      if (status.ok()) return done(reply);
      done(status);
    }
  };

  void Configure(const std::string& endpoint, const vipuagent::ConfigureRequest& request,
                 std::function<void(absl::StatusOr<vipuagent::ConfigureReply>)> done) override {
    calls.push_back({endpoint, request, std::move(done)});
  }
  absl::StatusOr<vipuagent::DescribeMachineReply> DescribeMachine(const std::string&,
                                                                  const std::string&) override {
    return absl::UnavailableError("these agents have no machines");
  }
  absl::Status ResetMachine(const std::string&, const std::string&) override {
    return absl::OkStatus();
  }
  absl::StatusOr<vipuagent::TestLinkReply> TestLink(const std::string&,
                                                    const vipuagent::TestLinkRequest&) override {
    vipuagent::TestLinkReply reply;
    reply.set_passed(true);
    return reply;
  }
  absl::Status Inject(const std::string&, const vipuagent::InjectRequest&) override {
    return absl::OkStatus();
  }
  void Forget(const std::string&) override {}
  // Takes out the oldest call.
  Call TakeCall() {
    Call call = std::move(calls.front());
    calls.pop_front();
    return call;
  }

  std::deque<Call> calls;
};

}  // namespace vpod::controller
