#include "device/fabric/relays.h"

#include <algorithm>

namespace vpod::fabric {

void Relays::Add(size_t site, uint32_t domain) {
  domain_of_[site] = domain;
  sites_of_[domain].push_back(site);
}

size_t Relays::RelayOf(uint32_t domain, size_t owner, size_t piece) const {
  if (domain == domain_of_.at(owner)) return owner;
  const std::vector<size_t>& sites = sites_of_.at(domain);
  return sites[piece % sites.size()];
}

size_t Relays::Above(size_t site, size_t owner, size_t piece) const {
  const size_t relay = RelayOf(domain_of_.at(site), owner, piece);
  return site == relay ? owner : relay;
}

std::vector<size_t> Relays::Below(size_t site, size_t owner, size_t piece) const {
  const uint32_t domain = domain_of_.at(site);
  if (site != RelayOf(domain, owner, piece)) return {};
  std::vector<size_t> below = sites_of_.at(domain);
  std::erase(below, site);
  if (site != owner) return below;
  for (const auto& [other, sites] : sites_of_) {
    if (other != domain) below.push_back(RelayOf(other, owner, piece));
  }
  return below;
}

}  // namespace vpod::fabric
