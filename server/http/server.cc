#include "server/http/server.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
// clang-format off
#include <utility>  // Asio 1.74's coroutine headers need it before them
// clang-format on
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <list>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace vpod::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;
using boost::system::error_code;
using Parser = beast::http::request_parser<beast::http::empty_body>;

// Every failure comes as an error code: a peer that goes away is nothing exceptional.
auto Into(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

Response Plain(int status, absl::string_view text) {
  return {.status = status, .body = absl::StrCat(text, "\n")};
}

const Handler* Find(const Routes& routes, absl::string_view path, std::string& rest) {
  const auto exact = routes.find(std::string(path));
  if (exact != routes.end()) return &exact->second;
  for (const auto& [prefix, handler] : routes) {
    if (!absl::EndsWith(prefix, "/") || !absl::StartsWith(path, prefix)) continue;
    rest = std::string(path.substr(prefix.size()));
    return &handler;
  }
  return nullptr;
}

Response Answer(const Routes& routes, const Parser::value_type& request) {
  const absl::string_view target(request.target().data(), request.target().size());
  const auto accept = request[beast::http::field::accept];
  Request ours{.rest = "", .accept = std::string(accept.data(), accept.size())};
  const Handler* handler = Find(routes, target.substr(0, target.find('?')), ours.rest);
  if (handler == nullptr) return Plain(404, "not found");
  if (request.method() != beast::http::verb::get && request.method() != beast::http::verb::head)
    return Plain(405, "only GET and HEAD are answered");
  try {
    return (*handler)(ours);
  } catch (const std::exception& error) {
    spdlog::error("http: {}", error.what());
    return Plain(500, "internal error");
  }
}

// Returns the status for a request that could not be read; 0 if nobody is there to hear it.
int StatusOfReadError(const error_code& code) {
  using beast::http::error;
  if (code == error::end_of_stream || code == error::partial_message) return 0;
  if (code == error::header_limit) return 431;
  if (code == error::body_limit || code == error::unexpected_body) return 413;
  return code.category() == make_error_code(error::bad_method).category() ? 400 : 0;
}

// Connections that do the same; the one that has done it for longest comes first.
struct Place;
using Places = std::list<Place>;
struct Place {
  beast::tcp_stream& stream;
  Places* in;
};

void MoveTo(Places& places, Places::iterator place) {
  places.splice(places.end(), *place->in, place);
  place->in = &places;
}

}  // namespace

struct Server::Impl {
  Impl(Routes routes, ServerOptions options)
      : routes(std::move(routes)), options(options), acceptor(context) {}
  ~Impl() {
    context.stop();
    if (thread.joinable()) thread.join();
  }

  error_code Listen(const std::string& address);
  size_t MostConnections() const;
  asio::awaitable<void> Accept();
  // Makes room for a connection. Returns false if there is none to close.
  bool CloseOldest();
  asio::awaitable<void> Serve(beast::tcp_stream stream);
  asio::awaitable<bool> Write(beast::tcp_stream& stream, const Response& response, unsigned version,
                              bool head, bool keep_alive);

  const Routes routes;
  const ServerOptions options;
  Places idle, answered, closed;  // touched by the thread alone
  asio::io_context context;       // destroys the coroutines, which use the members above
  tcp::acceptor acceptor;
  std::thread thread;
};

error_code Server::Impl::Listen(const std::string& address) {
  error_code error;
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]"))
    host = host.substr(1, host.size() - 2);
  uint32_t port = 0;
  // Boost would take 70000 for 4464.
  if (!absl::SimpleAtoi(address.substr(colon + 1), &port) || port > 65535)
    return asio::error::invalid_argument;
  tcp::resolver resolver(context);
  const auto found = resolver.resolve(host, absl::StrCat(port), error);
  if (error) return error;
  const tcp::endpoint endpoint = *found.begin();
  if (acceptor.open(endpoint.protocol(), error); error) return error;
  if (acceptor.set_option(tcp::acceptor::reuse_address(true), error); error) return error;
  if (acceptor.bind(endpoint, error); error) return error;
  acceptor.listen(asio::socket_base::max_listen_connections, error);
  return error;
}

size_t Server::Impl::MostConnections() const {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return options.max_connections;
  return std::min<size_t>(options.max_connections, std::max<rlim_t>(limit.rlim_cur / 8, 1));
}

bool Server::Impl::CloseOldest() {
  Places& places = idle.empty() ? answered : idle;
  if (places.empty()) return false;
  const Places::iterator oldest = places.begin();
  MoveTo(closed, oldest);
  oldest->stream.close();
  return true;
}

asio::awaitable<void> Server::Impl::Accept() {
  asio::steady_timer pause(context);
  while (true) {
    error_code error;
    tcp::socket socket(context);
    co_await acceptor.async_accept(socket, Into(error));
    if (error) {
      // Out of descriptors, most likely.
      if (!CloseOldest()) spdlog::warn("http: {}", error.message());
      pause.expires_after(std::chrono::milliseconds(200));
      co_await pause.async_wait(Into(error));
      continue;
    }
    while (idle.size() + answered.size() >= MostConnections()) CloseOldest();
    asio::co_spawn(context, Serve(beast::tcp_stream(std::move(socket))),
                   [](const std::exception_ptr&) {});
  }
}

asio::awaitable<void> Server::Impl::Serve(beast::tcp_stream stream) {
  const Places::iterator place = idle.insert(idle.end(), Place{stream, &idle});
  const absl::Cleanup leave = [place] { place->in->erase(place); };
  beast::flat_buffer buffer(2 * options.max_header_bytes);
  while (place->in != &closed) {
    MoveTo(idle, place);
    Parser parser;
    parser.header_limit(static_cast<std::uint32_t>(options.max_header_bytes));
    parser.body_limit(0);
    error_code error;
    stream.expires_after(options.patience);
    co_await beast::http::async_read(stream, buffer, parser, Into(error));
    if (place->in == &closed) break;
    MoveTo(answered, place);
    if (error) {
      const int status = StatusOfReadError(error);
      if (status != 0) co_await Write(stream, Plain(status, error.message()), 11, false, false);
      break;
    }
    const auto& request = parser.get();
    const Response response = Answer(routes, request);
    const bool head = request.method() == beast::http::verb::head;
    if (!co_await Write(stream, response, request.version(), head, request.keep_alive())) break;
    if (!request.keep_alive()) break;
  }
  error_code ignored;
  stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
}

asio::awaitable<bool> Server::Impl::Write(beast::tcp_stream& stream, const Response& response,
                                          unsigned version, bool head, bool keep_alive) {
  // The body is not copied: a scrape of a large POD has megabytes.
  beast::http::response<beast::http::span_body<const char>> message(
      static_cast<beast::http::status>(response.status), version);
  message.set(beast::http::field::content_type, response.content_type);
  message.set(beast::http::field::cache_control, "no-store");
  message.set("X-Content-Type-Options", "nosniff");
  if (response.status == 405) message.set(beast::http::field::allow, "GET, HEAD");
  message.content_length(response.body.size());
  message.keep_alive(keep_alive);
  message.body() = {response.body.data(), response.body.size()};
  beast::http::response_serializer<beast::http::span_body<const char>> serializer(message);
  error_code error;
  stream.expires_after(options.patience);
  if (head) {
    co_await beast::http::async_write_header(stream, serializer, Into(error));
  } else {
    co_await beast::http::async_write(stream, serializer, Into(error));
  }
  co_return !error;
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const std::string& address, Routes routes,
                                                      ServerOptions options) {
  auto impl = std::make_unique<Impl>(std::move(routes), options);
  if (const error_code error = impl->Listen(address); error) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, " for HTTP: ", error.message()));
  }
  error_code error;
  const std::string endpoint = absl::StrCat(address.substr(0, address.rfind(':')), ":",
                                            impl->acceptor.local_endpoint(error).port());
  asio::co_spawn(impl->context, impl->Accept(), asio::detached);
  impl->thread = std::thread([context = &impl->context] { context->run(); });
  return std::unique_ptr<Server>(new Server(std::move(impl), endpoint));
}

Server::Server(std::unique_ptr<Impl> impl, std::string endpoint)
    : impl_(std::move(impl)), endpoint_(std::move(endpoint)) {}
Server::~Server() = default;

}  // namespace vpod::http
