// For tests: shows an access key and waits for the answer.
#pragma once

#include <future>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/controller/users.h"

namespace vpod::controller {

inline absl::StatusOr<Caller> ShowKey(Users& users, const std::string& id,
                                      const std::string& access_key) {
  const auto answer = std::make_shared<std::promise<absl::StatusOr<Caller>>>();
  users.Authenticate(id, access_key,
                     [answer](const absl::StatusOr<Caller>& caller) { answer->set_value(caller); });
  return answer->get_future().get();
}

}  // namespace vpod::controller
