#include "client/graph/origin_table.h"

#include <utility>

#include "device/base/text.h"

namespace vpod::graph {
namespace {

// "…" takes the place of what is cut off.
std::string Shown(const std::string& text) {
  return base::Printable(text, program::kMostOriginBytes - 3);
}

}  // namespace

uint32_t OriginTable::Add(const program::v1::Origin& origin) {
  const auto [number, is_new] =
      numbers_.try_emplace({origin.scope(), origin.op(), origin.phase(), origin.stage()},
                           static_cast<uint32_t>(origins_.size() + 1));
  if (is_new) {
    program::v1::Origin& added = origins_.emplace_back(origin);
    added.set_scope(Shown(origin.scope()));
    added.set_op(Shown(origin.op()));
  }
  return number->second;
}

uint32_t OriginTable::Add(std::string scope, std::string op) {
  program::v1::Origin origin;
  origin.set_scope(std::move(scope));
  origin.set_op(std::move(op));
  return Add(origin);
}

}  // namespace vpod::graph
