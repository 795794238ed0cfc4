// gc-links: how the IPU-Links of the active partition have trained.
#include <cstdio>

#include "client/vipu/ipuof_config.h"
#include "tools/gc-links/links.h"
#include "tools/gc_options.h"
#include "tools/link_test/partition_links.h"

namespace vpod::tools {
namespace {

constexpr char kTool[] = "gc-links";

int Main(int argc, char** argv) {
  bool json = false;
  po::options_description options("Allowed options");
  options.add_options()("help,h", "help")("version,v", "version")  //
      ("json-output,j", po::bool_switch(&json), "JSON");
  po::variables_map values;
  if (const int code = ParseGcOptions(kTool, argc, argv, options, values); code >= 0) return code;
  const auto partition = vipu::FindPartitionToInspect();
  if (!partition.ok()) return GcError(kTool, partition.status());
  const auto links = LinksOf(*partition);
  if (!links.ok()) return GcError(kTool, links.status());
  std::fputs((json ? LinksJson(*links) : LinksText(*links)).c_str(), stdout);
  return AllTrained(*links) ? 0 : 1;
}

}  // namespace
}  // namespace vpod::tools

int main(int argc, char** argv) { return vpod::tools::Main(argc, argv); }
