// A small HTTP/1.1 server for monitoring: answers GET and HEAD from a table of paths. One thread
// serves all connections, handlers included, so handlers compute what they answer and do not wait.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace vpod::http {

struct Request {
  std::string rest;    // of the path, behind the one that the table names
  std::string accept;  // header, empty when not sent
};

struct Response {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

using Handler = std::function<Response(const Request&)>;
// By path. One that ends in '/' answers for everything below it. Query strings are ignored.
using Routes = std::map<std::string, Handler>;

struct ServerOptions {
  // A connection ends when a request has not come, or an answer has not gone, within so long.
  std::chrono::milliseconds patience{30000};
  size_t max_header_bytes = 8192;  // longer is answered with 431
  // When one more connection comes, or descriptors run out, the connection that has waited longest
  // for a request is closed, or, if all are being answered, the one whose answer takes longest. The
  // limit is an eighth of the process's descriptors if that is less.
  size_t max_connections = 64;
};

class Server {
 public:
  // Listens on `address` (host:port, port 0 takes a free one). Unavailable when that is not
  // possible, e.g. because the port is in use.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const std::string& address, Routes routes,
                                                       ServerOptions options = {});
  // Ends all connections; afterwards no handler runs any more.
  ~Server();

  // host:port that it listens on.
  const std::string& endpoint() const { return endpoint_; }

 private:
  struct Impl;
  Server(std::unique_ptr<Impl> impl, std::string endpoint);
  std::unique_ptr<Impl> impl_;
  const std::string endpoint_;
};

}  // namespace vpod::http
