// Propagation of absl::Status. Errors are values in this project; no exception crosses a room's
// border.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define VPOD_RETURN_IF_ERROR(expression)       \
  do {                                         \
    absl::Status vpod_status = (expression);   \
    if (!vpod_status.ok()) return vpod_status; \
  } while (false)

#define VPOD_CONCAT_INNER(a, b) a##b
#define VPOD_CONCAT(a, b) VPOD_CONCAT_INNER(a, b)

// VPOD_ASSIGN_OR_RETURN(auto value, F());
#define VPOD_ASSIGN_OR_RETURN(lhs, expression) \
  VPOD_ASSIGN_OR_RETURN_INNER(VPOD_CONCAT(vpod_statusor_, __LINE__), lhs, expression)
#define VPOD_ASSIGN_OR_RETURN_INNER(statusor, lhs, expression) \
  auto statusor = (expression);                                \
  if (!statusor.ok()) return statusor.status();                \
  lhs = *std::move(statusor)
