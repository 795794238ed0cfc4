#include "client/popdist/run.hpp"

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/popdist/communicator.h"
#include "client/popdist/context.hpp"

namespace popdist {
namespace {

bool Synchronised() {
  const char* disabled = std::getenv("POPDIST_RUN_DISABLE_SYNC");
  return isPopdistEnvSet() && getNumInstances() > 1 &&
         (disabled == nullptr || std::strcmp(disabled, "1") != 0);
}

}  // namespace

absl::StatusOr<vpod::base::Cycles> run(vpod::session::Session& session, const std::string& program,
                                       const std::string& debug_name) {
  if (Synchronised() && !Agree(EveryInstance(), {Operation::kRun, 0, 0, 0, program})) {
    throw popdist_error(absl::StrCat("run", debug_name.empty() ? "" : " ", debug_name,
                                     ": the instances run different programs, this one '", program,
                                     "'"));
  }
  return session.Run(program);
}

}  // namespace popdist
