// The network interfaces of this host.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace vpod::rpc {

// As they were when it was made. Pure afterwards.
class NetworkInterfaces {
 public:
  // An interface's network; addresses in host order.
  struct Network {
    std::string interface;
    uint32_t address = 0, mask = 0;
  };

  // The interfaces of this host.
  static NetworkInterfaces OfHost();
  explicit NetworkInterfaces(std::vector<Network> networks) : networks_(std::move(networks)) {}

  // The interface with the smallest network that an IPv4 address lies in; empty: none.
  std::string Find(const std::string& address) const;

 private:
  std::vector<Network> networks_;
};

}  // namespace vpod::rpc
