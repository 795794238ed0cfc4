#include "server/rpc/portions.h"

#include <algorithm>

namespace vpod::rpc {

std::vector<vipuagent::ConfigureRequest> SplitInPortions(const vipuagent::ConfigureRequest& whole,
                                                         size_t portion_bytes) {
  if (whole.ByteSizeLong() <= std::min(kSingleBytes, portion_bytes)) return {whole};
  std::vector<vipuagent::ConfigureRequest> portions(1);
  portions[0].set_complete(whole.complete());
  portions[0].set_sequence(whole.sequence());
  portions[0].set_base_sequence(whole.base_sequence());
  portions[0].set_controller_boot_id(whole.controller_boot_id());
  portions[0].set_agent_boot_id(whole.agent_boot_id());
  portions[0].set_controller_epoch(whole.controller_epoch());
  portions[0].set_controller_store(whole.controller_store());
  portions[0].set_controller_proof(whole.controller_proof());
  portions[0].set_more_follow(true);
  vipuagent::ConfigureRequest& second = portions.emplace_back();
  *second.mutable_removed() = whole.removed();
  *second.mutable_kept() = whole.kept();
  size_t bytes = 0;
  for (const vipuagent::AgentPartition& partition : whole.partitions()) {
    const size_t more = partition.ByteSizeLong();
    if (bytes + more > portion_bytes && portions.back().partitions_size() > 0) {
      portions.back().set_more_follow(true);
      portions.emplace_back();
      bytes = 0;
    }
    *portions.back().add_partitions() = partition;
    bytes += more;
  }
  return portions;
}

}  // namespace vpod::rpc
