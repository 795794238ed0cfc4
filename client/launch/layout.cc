#include "client/launch/layout.h"

#include <fstream>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/render/table.h"
#include "client/vipu/config.h"
#include "device/arch/device_id.h"
#include "device/base/status.h"

namespace vpod::launch {
namespace {

absl::Status Wrong(const std::string& text) { return absl::InvalidArgumentError(text); }

// "h[0-2,4]" → h0 h1 h2 h4; numbers keep their leading zeros.
absl::Status Expand(const std::string& item, std::vector<std::string>& hosts) {
  const size_t open = item.find('[');
  if (open == std::string::npos) {
    if (item.empty()) return Wrong("--host: empty host name");
    hosts.push_back(item);
    return absl::OkStatus();
  }
  const auto bad = [&] { return Wrong(absl::StrCat("--host: bad range in '", item, "'")); };
  if (item.back() != ']') return bad();
  const std::string prefix = item.substr(0, open);
  for (absl::string_view part :
       absl::StrSplit(item.substr(open + 1, item.size() - open - 2), ',')) {
    const std::vector<std::string> ends = absl::StrSplit(part, '-');
    uint32_t first = 0, last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends[0], &first) ||
        !absl::SimpleAtoi(ends.back(), &last) || last < first || last - first > 65535) {
      return bad();
    }
    for (uint32_t number = first; number <= last; ++number) {
      std::string digits = absl::StrCat(number);
      if (digits.size() < ends[0].size()) digits.insert(0, ends[0].size() - digits.size(), '0');
      hosts.push_back(prefix + digits);
    }
  }
  return absl::OkStatus();
}

std::string CentredRow(const std::string& label, const std::vector<std::string>& cells,
                       const std::vector<size_t>& widths) {
  std::string line = absl::StrCat("| ", label, std::string(10 - label.size(), ' '), "|");
  for (size_t i = 0; i < cells.size(); ++i)
    absl::StrAppend(&line, render::Centre(cells[i], widths[i]), "|");
  return line + "\n";
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseHosts(const std::string& text) {
  std::vector<std::string> hosts;
  std::string item;
  int depth = 0;
  for (char c : text + ",") {
    if (c == ',' && depth == 0) {
      VPOD_RETURN_IF_ERROR(Expand(item, hosts));
      item.clear();
      continue;
    }
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    item += c;
  }
  if (depth != 0) return Wrong(absl::StrCat("--host: bad range in '", text, "'"));
  std::set<std::string> seen;
  for (const std::string& host : hosts) {
    if (!seen.insert(host).second) return Wrong(absl::StrCat("duplicate host '", host, "'"));
  }
  return hosts;
}

absl::StatusOr<Layout> MakeLayout(const Options& options, std::vector<std::string>& warnings) {
  Layout layout;
  layout.instances = options.num_instances;
  layout.replicas = options.num_replicas;
  layout.ipus_per_replica = options.ipus_per_replica;
  layout.ilds = options.num_ilds.value_or(1);
  if (layout.instances > layout.replicas) {
    return Wrong(absl::StrCat("--num-instances (", layout.instances,
                              ") must not exceed --num-replicas (", layout.replicas, ")"));
  }
  if (layout.replicas % layout.instances != 0) {
    return Wrong(absl::StrCat("--num-replicas (", layout.replicas,
                              ") must be a multiple of --num-instances (", layout.instances, ")"));
  }
  if (!options.host.empty() && !options.hostfile.empty())
    return Wrong("--host and --hostfile exclude each other");
  if (!options.host.empty()) {
    VPOD_ASSIGN_OR_RETURN(layout.hosts, ParseHosts(options.host));
  } else if (!options.hostfile.empty()) {
    std::ifstream file(options.hostfile);
    if (!file) return Wrong(absl::StrCat("--hostfile: cannot read ", options.hostfile));
    std::string all, line;
    while (std::getline(file, line)) {
      const absl::string_view name = absl::StripAsciiWhitespace(line);
      if (!name.empty()) absl::StrAppend(&all, all.empty() ? "" : ",", name);
    }
    VPOD_ASSIGN_OR_RETURN(layout.hosts, ParseHosts(all));
  } else if (const std::string nodes = vipu::Environment("SLURM_JOB_NODELIST"); !nodes.empty()) {
    VPOD_ASSIGN_OR_RETURN(layout.hosts, ParseHosts(nodes));
    layout.hosts_given = layout.hosts.size() > 1;
  }
  if (!options.host.empty() || !options.hostfile.empty()) layout.hosts_given = true;
  if (layout.hosts.empty()) layout.hosts = {"localhost"};
  const auto hosts = static_cast<uint32_t>(layout.hosts.size());
  if (layout.instances < hosts) {
    layout.hosts.resize(layout.instances);
    warnings.push_back(absl::StrCat(layout.instances, " instance(s) on ", hosts, " hosts; using ",
                                    layout.hosts[0], layout.instances > 1 ? " and the next" : "",
                                    " only"));
  } else if (layout.instances % hosts != 0) {
    return Wrong(absl::StrCat("--num-instances (", layout.instances,
                              ") must be a multiple of the number of hosts (", hosts, ")"));
  }
  if (layout.instances < layout.ilds) {
    return Wrong(absl::StrCat("--num-instances (", layout.instances,
                              ") must be at least --num-ilds (", layout.ilds, ")"));
  }
  if (layout.replicas % layout.ilds != 0) {
    return Wrong(absl::StrCat("--num-replicas (", layout.replicas,
                              ") must be a multiple of --num-ilds (", layout.ilds, ")"));
  }
  if (!options.offline_mode &&
      (!arch::IsPowerOfTwo(layout.ipus_per_instance()) || !arch::IsPowerOfTwo(layout.ipus()))) {
    return Wrong(absl::StrCat(layout.instances, " instances x ", layout.ipus_per_instance(),
                              " IPUs = ", layout.ipus(),
                              " IPUs; IPUs per instance and in total must be powers of two"));
  }
  if (options.only_output_from_instance.has_value() &&
      *options.only_output_from_instance >= layout.instances) {
    return Wrong(absl::StrCat("--only-output-from-instance (", *options.only_output_from_instance,
                              ") must be less than --num-instances (", layout.instances, ")"));
  }
  return layout;
}

std::string TopologyTable(const Layout& layout) {
  const size_t cell = absl::StrCat(layout.replicas - 1).size() + 2;
  // Width of a cell that spans `n` replicas: theirs and the bars between them.
  const auto span = [&](size_t n) { return n * cell + n - 1; };
  const size_t inside = 11 + 1 + span(layout.replicas);
  const std::string rule =
      absl::StrCat("|-----------|", std::string(span(layout.replicas), '-'), "|\n");

  std::vector<std::string> host_cells = layout.hosts;
  const size_t host_width = span(layout.replicas / layout.hosts.size());
  bool fit = true;
  for (const std::string& host : host_cells) fit = fit && host.size() <= host_width;
  for (size_t i = 0; !fit && i < host_cells.size(); ++i) host_cells[i] = absl::StrCat("[", i, "]");
  const auto numbers = [](uint32_t n) {
    std::vector<std::string> cells;
    for (uint32_t i = 0; i < n; ++i) cells.push_back(absl::StrCat(i));
    return cells;
  };
  std::string replicas = "| replicas  |";
  for (const std::string& number : numbers(layout.replicas)) {
    absl::StrAppend(&replicas, " ", number, std::string(cell - 1 - number.size(), ' '), "|");
  }
  const auto equal = [&](size_t n) { return std::vector<size_t>(n, span(layout.replicas / n)); };
  return absl::StrCat(" ", std::string(inside, '='), "\n|",
                      render::Centre("poprun topology", inside), "|\n|", std::string(inside, '='),
                      "|\n", CentredRow("hosts", host_cells, equal(host_cells.size())), rule,
                      CentredRow("ILDs", numbers(layout.ilds), equal(layout.ilds)), rule,
                      CentredRow("instances", numbers(layout.instances), equal(layout.instances)),
                      rule, replicas, "\n ", std::string(inside, '-'), "\n");
}

}  // namespace vpod::launch
