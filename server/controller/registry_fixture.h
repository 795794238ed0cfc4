// A controller and the heartbeats of the process that CreatePod registers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/base/keyed_hash.h"
#include "server/controller/controller_fixture.h"

namespace vpod::controller {

class RegistryTest : public ControllerTest {
 protected:
  // A heartbeat of the process that CreatePod registers; "10.1.2.1" with failed IPUs and links.
  void Heartbeat(const std::vector<uint32_t>& failed_ipus = {},
                 const std::vector<std::string>& failed_links = {},
                 const std::vector<std::string>& detached = {}) {
    vipuagent::HeartbeatRequest request;
    request.set_endpoint("process-1");
    request.set_boot_id("boot-1");
    if (!failed_ipus.empty() || !failed_links.empty()) {
      vipuagent::MachineHealth* health = request.add_unwell();
      health->set_host(Host(0));
      for (const uint32_t ipu : failed_ipus) health->add_failed_ipus(ipu);
      for (const std::string& link : failed_links) health->add_failed_links(link);
    }
    for (const std::string& id : detached) request.add_detached_partitions(id);
    EXPECT_FALSE(controller_->Heartbeat(request).register_());
    gateway_.ConfirmAll();
  }
  // As a controller on the store or a copy of it makes it.
  std::string ProofOf(const std::string& boot_id, uint64_t epoch) {
    return base::KeyedHashHex(store_->key(),
                              absl::StrCat("controller ", boot_id, " of epoch ", epoch));
  }
  void CreateRelocatable(const std::string& id, uint32_t size) {
    vipuuser::CreatePartitionRequest request;
    *request.mutable_requirements() = Wanted(id, size);
    request.set_relocatable(true);
    ASSERT_TRUE(controller_->CreatePartition(request, Anyone()).ok());
    gateway_.ConfirmAll();
  }
};

}  // namespace vpod::controller
