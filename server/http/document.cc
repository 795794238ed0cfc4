#include "server/http/document.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/types/span.h"
#include "server/http/families.h"

namespace vpod::http {
namespace {

constexpr absl::string_view kIntroduction = R"(# Metrics of a POD

The controller serves `/metrics` at `--metrics-listen` of `vipu-server` (127.0.0.1:2113), every agent process at that of
`vipu-agent` (127.0.0.1:2112). If such a default port is taken, they use a free one. `vpod status` shows the controller's
address, row `Exporter` of `vipu-admin get agent` the machine's. The format is Prometheus text 0.0.4, or OpenMetrics 1.0 if
the reader prefers it. Both also answer `/healthz`.

The controller lists its machines' exporters at `/api/v1/exporters`, in the form of Prometheus' HTTP service discovery, and
its objects as JSON at `/api/v1/agents`, `clusters`, `allocations` and `partitions` (not with `--secure`). Every
client that can reach the port can read all of this, including names of partitions and users; beyond loopback it is served
only with `--insecure-listen`.

One exporter serves all machines of its process, told apart by `agent`. A process with more than 64 machines leaves out those
without a partition, and links that were never used. `partition` and `user` (its
owner) are empty for a free IPU. Counters start at zero with their daemon, those of links also with a reset of their agent.

`prometheus.yml`, `recording_rules.yml` and `alert_rules.yml` beside this file, and `../grafana`, use these metrics. This file
is written by `bazel run //server/http:document`.
)";

void AppendTable(absl::string_view title, absl::Span<const Family* const> families,
                 std::string& text) {
  absl::StrAppend(&text, "\n## ", title,
                  "\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n");
  for (const Family* family : families) {
    absl::StrAppend(
        &text, "| `", family->name, "` | ", KindText(family->kind), " | ",
        family->labels.empty() ? "–" : absl::StrReplaceAll(family->labels, {{",", ", "}}), " | ",
        family->help, " |\n");
  }
}

}  // namespace

std::string MetricsDocument() {
  std::string text(kIntroduction);
  AppendTable("Controller", kControllerFamilies, text);
  AppendTable("Machine exporter", kMachineFamilies, text);
  return text;
}

}  // namespace vpod::http
