#include "server/rpc/network_interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <memory>
#include <utility>

namespace vpod::rpc {
namespace {

uint32_t AddressOf(const sockaddr* address) {
  return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
}

}  // namespace

NetworkInterfaces NetworkInterfaces::OfHost() {
  std::vector<Network> networks;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return NetworkInterfaces({});
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_netmask == nullptr) continue;
    if (each->ifa_addr->sa_family != AF_INET) continue;
    networks.push_back({each->ifa_name, AddressOf(each->ifa_addr), AddressOf(each->ifa_netmask)});
  }
  return NetworkInterfaces(std::move(networks));
}

std::string NetworkInterfaces::Find(const std::string& address) const {
  in_addr parsed{};
  if (inet_pton(AF_INET, address.c_str(), &parsed) != 1) return "";
  const uint32_t wanted = ntohl(parsed.s_addr);
  const Network* best = nullptr;
  for (const Network& network : networks_) {
    if ((wanted & network.mask) != (network.address & network.mask)) continue;
    if (best == nullptr || network.mask > best->mask) best = &network;
  }
  return best == nullptr ? "" : best->interface;
}

}  // namespace vpod::rpc
