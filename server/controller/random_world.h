// The agents of the random-operation test: processes that take configurations as real ones do
// (server/agent/agent.cc), lose replies, hang, refuse, and look out for IPUs in two partitions.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/controller/held_agents.h"
#include "server/controller/random_model.h"

namespace vpod::controller {

class RandomWorld : public HeldAgents {
 public:
  explicit RandomWorld(std::mt19937_64& random) : random_(random) {}

  absl::Status ResetMachine(const std::string& endpoint, const std::string& host) override {
    if (!processes[endpoint].alive) return absl::UnavailableError("no connection");
    processes[endpoint].failed.erase(host);
    processes[endpoint].gateways_down.erase(host);
    return absl::OkStatus();
  }

  // Starts or restarts a process.
  void Boot(const std::string& endpoint) {
    ModelProcess& process = processes[endpoint];
    process.alive = true;
    process.boot = absl::StrCat("boot-", ++boots_);
    process.view.clear();
    agents_[endpoint] = {};
  }

  // Answers every call that a process answers; one in twenty replies is lost on its way.
  void AnswerAll() {
    std::deque<Call> held;
    while (!calls.empty()) {
      Call call = TakeCall();
      const ModelProcess& process = processes[call.endpoint];
      if (process.slow && process.alive && process.boot == call.request.agent_boot_id()) {
        held.push_back(std::move(call));
        continue;
      }
      absl::Status status = Apply(call);
      if (status.ok() && random_() % 20 == 0) status = absl::UnavailableError("reply lost");
      call.Answer(status);
    }
    calls = std::move(held);
  }
  // The controller has ended: nobody waits for answers any more.
  void DropCalls() { calls.clear(); }

  vipuagent::RegisterRequest Registration(const std::string& endpoint) const {
    const ModelProcess& process = processes.at(endpoint);
    vipuagent::RegisterRequest request;
    request.set_endpoint(endpoint);
    request.set_boot_id(process.boot);
    request.set_version(kVersion);
    for (const std::string& host : process.hosts) {
      vipuagent::Machine* machine = request.add_machines();
      machine->set_host(host);
      machine->set_port(8080);
    }
    return request;
  }
  vipuagent::HeartbeatRequest Heartbeat(const std::string& endpoint) const {
    const ModelProcess& process = processes.at(endpoint);
    vipuagent::HeartbeatRequest request;
    request.set_endpoint(endpoint);
    request.set_boot_id(process.boot);
    for (const std::string& host : process.hosts) {
      const auto failed = process.failed.find(host);
      const uint32_t mask = failed == process.failed.end() ? 0 : failed->second;
      const bool gateway_down = process.gateways_down.contains(host);
      if (mask == 0 && !gateway_down) continue;
      vipuagent::MachineHealth* health = request.add_unwell();
      health->set_host(host);
      for (uint32_t ipu = 0; ipu < 4; ++ipu) {
        if ((mask >> ipu & 1) != 0) health->add_failed_ipus(ipu);
      }
      if (gateway_down) health->add_failed_links("GW_E is down");
    }
    return request;
  }

  std::map<std::string, ModelProcess> processes;  // by endpoint

 private:
  struct AgentSide {
    std::string controller;
    uint64_t sequence = 0;
    std::map<std::string, std::set<std::string>> ipus;  // of partitions
  };

  absl::Status Apply(const Call& call) {
    ModelProcess& process = processes[call.endpoint];
    AgentSide& agent = agents_[call.endpoint];
    const vipuagent::ConfigureRequest& request = call.request;
    if (!process.alive) return absl::UnavailableError("no connection");
    if (request.agent_boot_id() != process.boot)
      return absl::FailedPreconditionError("another process");
    const bool same = request.controller_boot_id() == agent.controller;
    if (!request.complete() && (!same || request.base_sequence() != agent.sequence))
      return absl::FailedPreconditionError("changes a configuration that is not here");
    for (const auto& partition : request.partitions()) {
      const auto known = process.view.find(partition.id());
      const bool has_it = known != process.view.end() && known->second == partition.generation();
      if (process.rejects.contains(partition.id()) && !has_it)
        return absl::InvalidArgumentError(absl::StrCat(partition.id(), " is not to my liking"));
    }
    agent.controller = request.controller_boot_id();
    agent.sequence = request.sequence();
    if (request.complete()) {
      std::map<std::string, uint64_t> kept;
      for (const auto& partition : request.kept())
        kept[partition.id()] = partition.config_generation();
      std::erase_if(process.view, [&](const auto& known) {
        const auto it = kept.find(known.first);
        return it == kept.end() || known.second < it->second;
      });
      std::erase_if(agent.ipus,
                    [&](const auto& ipus) { return !process.view.contains(ipus.first); });
    }
    for (const auto& removed : request.removed()) {
      const auto known = process.view.find(removed.id());
      if (known == process.view.end() || known->second > removed.generation()) continue;
      process.view.erase(known);
      agent.ipus.erase(removed.id());
    }
    for (const auto& partition : request.partitions())
      process.view.erase(partition.id()), agent.ipus.erase(partition.id());
    for (const auto& partition : request.partitions()) {
      process.view[partition.id()] = partition.generation();
      for (const auto& gcd : partition.gcds()) {
        for (const auto& slice : gcd.slices()) {
          if (slice.endpoint() != call.endpoint) continue;
          for (uint32_t i = 0; i < slice.num_ipus(); ++i) {
            const std::string ipu =
                absl::StrCat(slice.machine_host(), ":", slice.first_pcie_id() - i);
            for (const auto& [other, ipus] : agent.ipus)
              EXPECT_FALSE(ipus.contains(ipu))
                  << ipu << " is in " << other << " and " << partition.id();
            agent.ipus[partition.id()].insert(ipu);
          }
        }
      }
    }
    return absl::OkStatus();
  }

  std::mt19937_64& random_;
  std::map<std::string, AgentSide> agents_;
  int boots_ = 0;
};

}  // namespace vpod::controller
