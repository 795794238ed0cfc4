// The built-in backend: Open MPI, whose MPI_COMM_WORLD holds exactly the instances.
#pragma once

#include "client/popdist/backend_plugin.hpp"

namespace popdist {

// The one of this process.
Backend* MpiBackend();

}  // namespace popdist
