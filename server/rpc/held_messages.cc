#include "server/rpc/held_messages.h"

#include <algorithm>
#include <map>
#include <queue>
#include <utility>

namespace vpod::rpc {
namespace {

struct Host {
  uint64_t bytes = 0;
  std::vector<size_t> connections;  // the one with most is last
};

}  // namespace

std::vector<size_t> ConnectionsToEnd(const std::vector<HeldMessages>& connections, uint64_t limit) {
  uint64_t all = 0;
  for (const HeldMessages& each : connections) all += each.bytes;
  if (all <= limit) return {};
  std::map<std::string, Host> by_name;
  for (size_t i = 0; i < connections.size(); ++i) {
    if (connections[i].bytes == 0) continue;
    Host& host = by_name[connections[i].host];
    host.bytes += connections[i].bytes;
    host.connections.push_back(i);
  }
  std::priority_queue<std::pair<uint64_t, Host*>> hosts;  // that with most first
  for (auto& [name, host] : by_name) {
    std::stable_sort(host.connections.begin(), host.connections.end(), [&](size_t a, size_t b) {
      return connections[a].bytes < connections[b].bytes;
    });
    hosts.emplace(host.bytes, &host);
  }
  std::vector<size_t> ended;
  while (all > limit) {
    Host& host = *hosts.top().second;
    hosts.pop();
    const size_t most = host.connections.back();
    host.connections.pop_back();
    ended.push_back(most);
    all -= connections[most].bytes;
    host.bytes -= connections[most].bytes;
    if (!host.connections.empty()) hosts.emplace(host.bytes, &host);
  }
  return ended;
}

}  // namespace vpod::rpc
