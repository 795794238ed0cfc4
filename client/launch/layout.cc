#include "client/launch/layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/launch/hosts.h"
#include "client/render/table.h"
#include "device/arch/device_id.h"
#include "device/arch/hardware.h"
#include "device/base/counted.h"
#include "device/base/status.h"

namespace vpod::launch {
namespace {

absl::Status Wrong(const std::string& text) { return absl::InvalidArgumentError(text); }

std::string CentredRow(const std::string& label, const std::vector<std::string>& cells,
                       const std::vector<size_t>& widths) {
  std::string line = absl::StrCat("| ", label, std::string(10 - label.size(), ' '), "|");
  for (size_t i = 0; i < cells.size(); ++i)
    absl::StrAppend(&line, render::Centre(cells[i], widths[i]), "|");
  return line + "\n";
}

// From --host, --hostfile or Slurm, else this host. A job of Slurm on one node is a local one.
absl::Status FindHosts(const Options& options, Layout& layout) {
  if (!options.host.empty() && !options.hostfile.empty())
    return Wrong("--host and --hostfile exclude each other");
  layout.hosts_given = true;
  if (!options.host.empty()) {
    VPOD_ASSIGN_OR_RETURN(layout.hosts, ParseHosts(options.host, "--host"));
  } else if (!options.hostfile.empty()) {
    VPOD_ASSIGN_OR_RETURN(layout.hosts, ReadHostFile(options.hostfile));
  } else {
    VPOD_ASSIGN_OR_RETURN(layout.hosts, SlurmHosts());
    layout.hosts_given = layout.hosts.size() > 1;
  }
  if (layout.hosts.empty()) layout.hosts = {"localhost"};
  return absl::OkStatus();
}

// Text for a cell that keeps a blank on each side, cut to end in up to three dots.
std::string Clipped(const std::string& text, size_t width) {
  const size_t room = width - 2;
  if (text.size() <= room) return text;
  const size_t dots = std::min<size_t>(3, room);
  return text.substr(0, room - dots) + std::string(dots, '.');
}

}  // namespace

absl::Status CheckIlds(const Layout& layout) {
  if (layout.instances < layout.ilds) {
    return Wrong(absl::StrCat("--num-instances (", layout.instances,
                              ") must be at least --num-ilds (", layout.ilds, ")"));
  }
  if (layout.replicas % layout.ilds != 0) {
    return Wrong(absl::StrCat("--num-replicas (", layout.replicas,
                              ") must be a multiple of --num-ilds (", layout.ilds, ")"));
  }
  return absl::OkStatus();
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
  if (const uint64_t ipus = uint64_t{layout.replicas} * layout.ipus_per_replica;
      ipus > arch::kMaxIpusPerPod) {
    return Wrong(absl::StrCat(base::Counted(layout.replicas, "replica"), " x ",
                              base::Counted(layout.ipus_per_replica, "IPU"), " = ", ipus,
                              " IPUs; the largest POD has ", arch::kMaxIpusPerPod));
  }
  VPOD_RETURN_IF_ERROR(FindHosts(options, layout));
  const auto hosts = static_cast<uint32_t>(layout.hosts.size());
  if (layout.instances < hosts) {
    layout.hosts.resize(layout.instances);
    warnings.push_back(absl::StrCat(layout.instances, " instance(s) on ", hosts, " hosts; using ",
                                    absl::StrJoin(layout.hosts, ", "), " only"));
  } else if (layout.instances % hosts != 0) {
    return Wrong(absl::StrCat("--num-instances (", layout.instances,
                              ") must be a multiple of the number of hosts (", hosts, ")"));
  }
  VPOD_RETURN_IF_ERROR(CheckIlds(layout));
  if (!options.offline_mode &&
      (!arch::IsPowerOfTwo(layout.ipus_per_instance()) || !arch::IsPowerOfTwo(layout.ipus()))) {
    return Wrong(absl::StrCat(base::Counted(layout.instances, "instance"), " x ",
                              base::Counted(layout.ipus_per_instance(), "IPU"), " = ",
                              layout.ipus(),
                              " IPUs; IPUs per instance and in total must be powers of two"));
  }
  if (!options.unavailable.empty() && layout.hosts.size() > 1) {
    warnings.push_back(absl::StrCat("--", absl::StrJoin(options.unavailable, ", --"),
                                    ": nothing is copied; the hosts need the same files at the "
                                    "same places, and a login without a password"));
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
  const bool fit = std::all_of(layout.hosts.begin(), layout.hosts.end(),
                               [&](const auto& host) { return Clipped(host, host_width) == host; });
  std::string legend;
  for (size_t i = 0; !fit && i < host_cells.size(); ++i) {
    const std::string index = absl::StrCat("[", i, "]");
    absl::StrAppend(&legend, index, ": ", layout.hosts[i], "\n");
    host_cells[i] = Clipped(index, host_width);
  }
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
                      render::Centre(Clipped("poprun topology", inside), inside), "|\n|",
                      std::string(inside, '='), "|\n",
                      CentredRow("hosts", host_cells, equal(host_cells.size())), rule,
                      CentredRow("ILDs", numbers(layout.ilds), equal(layout.ilds)), rule,
                      CentredRow("instances", numbers(layout.instances), equal(layout.instances)),
                      rule, replicas, "\n ", std::string(inside, '-'), "\n", legend);
}

}  // namespace vpod::launch
