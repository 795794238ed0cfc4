// A controller for tests of its clients: it records what it is asked and gives the answers it was
// told to give. It has no rules of its own; tests of those are in tests/system.
#pragma once

#include <google/protobuf/message.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "device/base/mutex.h"

namespace vpod::vipu {

class FakeController {
 public:
  FakeController();  // listens on a free port of the loopback
  ~FakeController();

  std::string address() const;
  // The answers to every call of a method, e.g. "ListAgents": several messages for a stream, none
  // for an empty reply; then the status.
  void Answer(const std::string& method, const std::vector<const google::protobuf::Message*>& reply,
              const absl::Status& status = absl::OkStatus());
  // Refuses the first `calls` calls of a method; later ones get their answers.
  void RefuseFirst(const std::string& method, int calls, const absl::Status& status);
  // How often a method was called.
  int Calls(const std::string& method);
  // The last request of a method. Fails the test when there was none.
  template <class Request>
  Request Last(const std::string& method) {
    Request request;
    request.ParseFromString(LastBytes(method));
    return request;
  }
  // Credentials of the last call.
  std::string user_id();
  std::string access_key();

 private:
  friend class FakeCall;
  struct Canned {
    std::vector<std::string> replies;
    absl::Status status;
  };
  std::string LastBytes(const std::string& method);

  base::Mutex mutex_;
  std::map<std::string, Canned> answers_ ABSL_GUARDED_BY(mutex_);
  struct Refusals {
    int calls = 0;
    absl::Status status;
  };
  std::map<std::string, Refusals> refusals_ ABSL_GUARDED_BY(mutex_);  // that are still to come
  std::map<std::string, std::string> requests_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> calls_ ABSL_GUARDED_BY(mutex_);
  std::string user_id_ ABSL_GUARDED_BY(mutex_), access_key_ ABSL_GUARDED_BY(mutex_);
  struct Server;
  std::unique_ptr<Server> server_;
};

}  // namespace vpod::vipu
