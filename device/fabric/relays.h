// How a piece's data travel between the processes of a collective, on two levels: in an IPU-Link
// domain everyone deals with one process, the domain's relay, and of each domain only the relay
// deals with the piece's owner. Whatever the number of processes, one message of partial results
// and one result a domain pass between racks. The owner is the relay of its own domain; the others'
// change from piece to piece, to share the work. Pure, and the same on every process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace vpod::fabric {

class Relays {
 public:
  // A process that takes part, in ascending order.
  void Add(size_t site, uint32_t domain);

  // The site to which a site hands its partial results of a piece and from which the result
  // comes; for the owner, itself.
  size_t Above(size_t site, size_t owner, size_t piece) const;
  // All whose Above `site` is, other than itself.
  std::vector<size_t> Below(size_t site, size_t owner, size_t piece) const;

 private:
  size_t RelayOf(uint32_t domain, size_t owner, size_t piece) const;

  std::map<size_t, uint32_t> domain_of_;
  std::map<uint32_t, std::vector<size_t>> sites_of_;  // by domain
};

}  // namespace vpod::fabric
