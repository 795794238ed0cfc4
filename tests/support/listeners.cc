#include "tests/support/listeners.h"

#include <filesystem>
#include <fstream>
#include <sstream>

namespace vpod::testing {
namespace {

namespace fs = std::filesystem;

constexpr char kListen[] = "0A", kEstablished[] = "01";

// Inodes of the sockets that the process has open: a listener that it inherited or passed on counts
// too.
std::set<std::string> InodesOf(const std::string& process) {
  std::set<std::string> inodes;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(process + "/fd", gone)) {
    const std::string to = fs::read_symlink(entry.path(), gone).string();
    const std::string prefix = "socket:[";
    if (to.starts_with(prefix)) inodes.insert(to.substr(prefix.size(), to.size() - 9));
  }
  return inodes;
}

// The port in "0100007F:1F90".
std::string PortOf(const std::string& address) {
  return std::to_string(std::stoul(address.substr(address.rfind(':') + 1), nullptr, 16));
}

}  // namespace

Sockets SocketsOf(pid_t pid) {
  const std::string process = "/proc/" + std::to_string(pid);
  const std::set<std::string> inodes = InodesOf(process);
  Sockets sockets;
  for (const std::string protocol : {"tcp", "tcp6", "udp", "udp6"}) {
    std::ifstream table(process + "/net/" + protocol);
    std::string line;
    std::getline(table, line);  // headings
    while (std::getline(table, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >>
          timeout >> inode;
      if (!inodes.contains(inode)) continue;
      const std::string kind = protocol.substr(0, 3);
      if (kind == "udp" || state == kListen) {
        sockets.listening.insert(kind + " " + PortOf(local));
      } else if (state == kEstablished) {
        sockets.connected.insert(PortOf(local) + " to " + PortOf(remote));
      }
    }
  }
  return sockets;
}

}  // namespace vpod::testing
