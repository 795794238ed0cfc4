#include "client/launch/hosts.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/vipu/config.h"
#include "device/base/file.h"
#include "device/base/status.h"

namespace vpod::launch {
namespace {

using Hosts = std::vector<std::string>;
constexpr size_t kMostHosts = 65536;

bool AllDigits(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

// "0-2,04" → 0 1 2 04; false for anything else.
bool ExpandRanges(absl::string_view ranges, Hosts& numbers) {
  for (absl::string_view part : absl::StrSplit(ranges, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    uint32_t first = 0, last = 0;
    if (ends.size() > 2 || !AllDigits(ends[0]) || !AllDigits(ends.back()) ||
        !absl::SimpleAtoi(ends[0], &first) || !absl::SimpleAtoi(ends.back(), &last) ||
        last < first || last - first >= kMostHosts) {
      return false;
    }
    for (uint32_t number = first;; ++number) {
      std::string digits = absl::StrCat(number);
      if (digits.size() < ends[0].size()) digits.insert(0, ends[0].size() - digits.size(), '0');
      numbers.push_back(digits);
      if (number == last) break;
    }
  }
  return numbers.size() <= kMostHosts;
}

// "r[1-2]n[0-1]" → r1n0 r1n1 r2n0 r2n1; false if the brackets or ranges are malformed.
bool ExpandBrackets(absl::string_view item, Hosts& names) {
  names = {""};
  while (true) {
    const size_t open = item.find_first_of("[]");
    for (std::string& name : names) absl::StrAppend(&name, item.substr(0, open));
    if (open == absl::string_view::npos) return true;
    const size_t close = item.find(']', open);
    if (item[open] == ']' || close == absl::string_view::npos) return false;
    Hosts numbers, longer;
    if (!ExpandRanges(item.substr(open + 1, close - open - 1), numbers) ||
        names.size() * numbers.size() > kMostHosts) {
      return false;
    }
    for (const std::string& name : names) {
      for (const std::string& number : numbers) longer.push_back(name + number);
    }
    names = std::move(longer);
    item.remove_prefix(close + 1);
  }
}

// mpirun's -H separates hosts by ',' and slots by ':', and the launch agent must not take a name
// for an option.
bool IsHostName(const std::string& name) {
  return !name.empty() && name[0] != '-' &&
         name.find_first_not_of(
             "0123456789"
             "abcdefghijklmnopqrstuvwxyz"
             "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
             "._-") == std::string::npos;
}

// Splits at the commas outside of brackets.
Hosts SplitList(const std::string& text) {
  Hosts items(1);
  int depth = 0;
  for (const char c : text) {
    if (c == ',' && depth <= 0) {
      items.emplace_back();
      continue;
    }
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    items.back() += c;
  }
  return items;
}

// The addresses of a name, as text; empty when it has none.
std::set<std::string> Resolve(const std::string& host) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  std::set<std::string> addresses;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(entry->ai_addr, entry->ai_addrlen, text, sizeof(text), nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      addresses.insert(text);
    }
  }
  freeaddrinfo(list);
  return addresses;
}

std::set<std::string> AddressesOfThisHost() {
  std::set<std::string> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    const socklen_t length = family == AF_INET    ? sizeof(sockaddr_in)
                             : family == AF_INET6 ? sizeof(sockaddr_in6)
                                                  : 0;
    char text[NI_MAXHOST];
    if (length != 0 &&
        getnameinfo(entry->ifa_addr, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0) {
      addresses.insert(text);
    }
  }
  freeifaddrs(list);
  return addresses;
}

}  // namespace

absl::StatusOr<Hosts> ParseHosts(const std::string& text, const std::string& source) {
  const auto wrong = [&](auto... parts) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": ", parts...));
  };
  Hosts hosts;
  std::set<std::string> seen;
  for (const std::string& item : SplitList(text)) {
    if (item.empty()) return wrong("empty host name");
    Hosts names;
    if (!ExpandBrackets(item, names)) return wrong("bad range in '", item, "'");
    if (hosts.size() + names.size() > kMostHosts) return wrong("more than ", kMostHosts, " hosts");
    for (const std::string& name : names) {
      if (!IsHostName(name)) return wrong("'", name, "' is not a host name or IPv4 address");
      if (!seen.insert(name).second)
        return absl::InvalidArgumentError(absl::StrCat("duplicate host '", name, "'"));
      hosts.push_back(name);
    }
  }
  return hosts;
}

absl::StatusOr<Hosts> ReadHostFile(const std::string& path) {
  const auto file = base::ReadNamedFile(path);
  if (!file.ok())
    return absl::FailedPreconditionError(absl::StrCat("--hostfile: ", file.status().message()));
  Hosts hosts;
  std::set<std::string> seen;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(*file, '\n')) {
    ++number;
    const std::string text(absl::StripAsciiWhitespace(line.substr(0, line.find('#'))));
    if (text.empty()) continue;
    VPOD_ASSIGN_OR_RETURN(const Hosts found,
                          ParseHosts(text, absl::StrCat("--hostfile: ", path, " line ", number)));
    for (const std::string& host : found) {
      if (!seen.insert(host).second)
        return absl::InvalidArgumentError(absl::StrCat("duplicate host '", host, "'"));
      hosts.push_back(host);
    }
  }
  if (hosts.empty())
    return absl::InvalidArgumentError(absl::StrCat("--hostfile: no host in ", path));
  return hosts;
}

absl::StatusOr<Hosts> SlurmHosts() {
  const std::string nodes = vipu::Environment("SLURM_JOB_NODELIST");
  if (nodes.empty()) return Hosts();
  return ParseHosts(nodes, "SLURM_JOB_NODELIST");
}

bool IsThisHost(const std::string& host) {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  const std::string ours = name;
  if (host == "localhost" || host == ours || host == ours.substr(0, ours.find('.'))) return true;
  const std::set<std::string> here = AddressesOfThisHost();
  for (const std::string& address : Resolve(host)) {
    if (here.contains(address)) return true;
  }
  return false;
}

bool IsLoopback(const std::string& host) {
  if (host == "localhost") return true;
  const std::set<std::string> addresses = Resolve(host);
  return !addresses.empty() &&
         std::all_of(addresses.begin(), addresses.end(), [](const std::string& address) {
           return address.rfind("127.", 0) == 0 || address == "::1";
         });
}

}  // namespace vpod::launch
