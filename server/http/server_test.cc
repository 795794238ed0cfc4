#include "server/http/server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <stdexcept>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "device/base/unique_fd.h"
#include "tests/support/http_get.h"

namespace vpod::http {
namespace {

using vpod::testing::ReadAll;

constexpr size_t kLarge = 64 << 20;  // more than sockets buffer

class ServerTest : public ::testing::Test {
 protected:
  void Start(ServerOptions options = {}) {
    auto server = Server::Start(
        "127.0.0.1:0",
        {{"/hello",
          [](const Request& request) { return Response{.body = "[" + request.accept + "]"}; }},
         {"/items/",
          [](const Request& request) { return Response{.body = "item " + request.rest}; }},
         {"/large", [](const Request&) { return Response{.body = std::string(kLarge, 'x')}; }},
         {"/broken", [](const Request&) -> Response { throw std::runtime_error("broken"); }}},
        options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  base::UniqueFd Connect() const { return vpod::testing::ConnectSocket(server_->endpoint()); }

  static void Send(const base::UniqueFd& fd, const std::string& bytes) {
    (void)!send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  // Sends a request, and reads nothing of its answer but the first byte: by then the server has
  // taken the connection.
  static void Begin(const base::UniqueFd& fd, const std::string& target) {
    Send(fd, absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: x\r\n\r\n"));
    char byte;
    ASSERT_EQ(recv(fd.get(), &byte, 1, 0), 1);
  }

  std::string Exchange(const std::string& request) const {
    const base::UniqueFd fd = Connect();
    Send(fd, request);
    return ReadAll(fd);
  }

  // A request after which the server closes.
  std::string Ask(const std::string& method, const std::string& target,
                  const std::string& headers = "") const {
    return Exchange(absl::StrCat(method, " ", target,
                                 " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", headers, "\r\n"));
  }

  std::unique_ptr<Server> server_;
};

int StatusOf(const std::string& answer) {
  int status = 0;
  return answer.size() > 12 && absl::SimpleAtoi(answer.substr(9, 3), &status) ? status : 0;
}

std::string BodyOf(const std::string& answer) {
  const size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

TEST_F(ServerTest, AnswersGetAndHead) {
  Start();
  const std::string get = Ask("GET", "/hello?agent=a", "Accept: text/html\r\n");
  EXPECT_EQ(StatusOf(get), 200);
  EXPECT_EQ(BodyOf(get), "[text/html]");
  EXPECT_TRUE(absl::StrContains(get, "Content-Type: text/plain; charset=utf-8\r\n")) << get;
  const std::string head = Ask("HEAD", "/hello");
  EXPECT_EQ(StatusOf(head), 200);
  EXPECT_EQ(BodyOf(head), "");
  EXPECT_TRUE(absl::StrContains(head, "Content-Length: 2\r\n")) << head;
  EXPECT_EQ(BodyOf(Ask("GET", "/items/a/b")), "item a/b");
  EXPECT_EQ(BodyOf(Ask("GET", "/large")).size(), kLarge);
}

TEST_F(ServerTest, RefusesWithTheRightStatus) {
  Start();
  EXPECT_EQ(StatusOf(Ask("GET", "/")), 404);
  EXPECT_EQ(StatusOf(Ask("GET", "/hello/")), 404);
  EXPECT_EQ(StatusOf(Ask("GET", "/../hello")), 404);
  const std::string post = Ask("POST", "/hello");
  EXPECT_EQ(StatusOf(post), 405);
  EXPECT_TRUE(absl::StrContains(post, "Allow: GET, HEAD\r\n")) << post;
  EXPECT_EQ(StatusOf(Ask("DELETE", "/hello")), 405);
  EXPECT_EQ(StatusOf(Ask("POST", "/hello", "Content-Length: 5\r\n")), 413);
  EXPECT_EQ(StatusOf(Ask("GET", "/hello", "X: " + std::string(9000, 'x') + "\r\n")), 431);
  EXPECT_EQ(StatusOf(Ask("GET", "/" + std::string(9000, 'x'))), 431);
  EXPECT_EQ(StatusOf(Exchange("nonsense\r\n\r\n")), 400);
  EXPECT_EQ(StatusOf(Ask("GET", "/broken")), 500);
  EXPECT_EQ(StatusOf(Ask("GET", "/hello")), 200);
}

TEST_F(ServerTest, KeepsConnectionsAndAnswersPipelinedRequestsInOrder) {
  Start();
  const std::string one = "GET /items/1 HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::string two = "GET /items/2 HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::string last = "GET /items/3 HTTP/1.0\r\n\r\n";
  const std::string answers = Exchange(one + two + last);
  const size_t first = answers.find("item 1"), second = answers.find("item 2");
  EXPECT_LT(first, second);
  EXPECT_LT(second, answers.find("item 3"));
  EXPECT_NE(answers.find("item 3"), std::string::npos) << answers;
}

TEST_F(ServerTest, EndsConnectionsThatStall) {
  Start({.patience = std::chrono::milliseconds(50)});
  EXPECT_EQ(Exchange(""), "");
  EXPECT_EQ(Exchange("GET /hello HT"), "");
}

TEST_F(ServerTest, GivesUpOnOneThatAsksForMuchAndReadsNothing) {
  constexpr std::chrono::milliseconds kPatience{50};
  Start({.patience = kPatience});
  const base::UniqueFd fd = Connect();
  Begin(fd, "/large");
  const auto begin = std::chrono::steady_clock::now();
  bool over = false;
  do {  // an answer after the time shows that the server has looked at its clocks
    over = std::chrono::steady_clock::now() > begin + kPatience;
    ASSERT_EQ(StatusOf(Ask("GET", "/hello")), 200);
  } while (!over);
  EXPECT_EQ(StatusOf(Ask("GET", "/hello")), 200);
  EXPECT_LT(ReadAll(fd).size(), kLarge);
}

TEST_F(ServerTest, TheConnectionThatIsIdleLongestMakesRoom) {
  Start({.patience = std::chrono::minutes(10), .max_connections = 3});
  const base::UniqueFd answered = Connect(), first = Connect(), second = Connect();
  Begin(answered, "/large");
  for (const base::UniqueFd* fd : {&first, &second, &first}) Begin(*fd, "/hello");
  EXPECT_EQ(StatusOf(Ask("GET", "/hello")), 200);
  EXPECT_GT(ReadAll(second).size(), 0u);  // the rest of its answer; then the server closed it
  Send(first, "GET /hello HTTP/1.0\r\n\r\n");
  const std::string three = ReadAll(first);
  EXPECT_TRUE(absl::StrContains(three.substr(three.size() / 2), "HTTP/1.")) << three;
  Send(answered, "GET /hello HTTP/1.0\r\n\r\n");
  EXPECT_GT(ReadAll(answered).size(), kLarge);
}

TEST_F(ServerTest, OneThatReadsNothingMakesRoomIfNoneIsIdle) {
  Start({.max_connections = 1});
  const base::UniqueFd fd = Connect();
  Begin(fd, "/large");
  EXPECT_EQ(StatusOf(Ask("GET", "/hello")), 200);
  EXPECT_LT(ReadAll(fd).size(), kLarge);
}

TEST_F(ServerTest, IdleConnectionsKeepNobodyOut) {
  Start();
  std::vector<base::UniqueFd> idle;
  for (int i = 0; i < 300; ++i) idle.push_back(Connect());
  EXPECT_EQ(StatusOf(Ask("GET", "/hello")), 200);
  for (const base::UniqueFd& fd : idle) Send(fd, "GET /hel");
  EXPECT_EQ(StatusOf(Ask("GET", "/hello")), 200);
}

TEST_F(ServerTest, EndsWithConnectionsOpen) {
  Start();
  const base::UniqueFd idle = Connect(), busy = Connect();
  Send(busy, "GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
  char byte;
  ASSERT_EQ(recv(busy.get(), &byte, 1, 0), 1);
  server_.reset();
  EXPECT_EQ(ReadAll(idle), "");
}

TEST_F(ServerTest, RefusesAPortInUseAndNonsense) {
  Start();
  const auto taken = Server::Start(server_->endpoint(), {});
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(taken.status().message(), server_->endpoint())) << taken.status();
  EXPECT_FALSE(Server::Start("127.0.0.1:x", {}).ok());
  EXPECT_FALSE(Server::Start("127.0.0.1", {}).ok());
  EXPECT_FALSE(Server::Start("127.0.0.1:70000", {}).ok());
  EXPECT_FALSE(Server::Start("nowhere.invalid:0", {}).ok());
}

TEST_F(ServerTest, SurvivesMutatedBytes) {
  Start({.patience = std::chrono::milliseconds(200)});
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  const std::string whole =
      "GET /hello?x=1 HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain;q=0.5,*/*\r\n"
      "Content-Length: 0\r\nConnection: close\r\n\r\n";
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = whole;
    const int changes = 1 + static_cast<int>(random() % 8);
    for (int change = 0; change < changes; ++change) {
      const size_t at = random() % bytes.size();
      switch (random() % 3) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, random() % 16);
          break;
        default:
          bytes.insert(at, 1 + random() % 16, static_cast<char>(random()));
      }
      if (bytes.empty()) bytes = "\r\n";
    }
    const base::UniqueFd fd = Connect();
    Send(fd, bytes);
    shutdown(fd.get(), SHUT_WR);
    const std::string answer = ReadAll(fd);
    EXPECT_TRUE(answer.empty() || absl::StartsWith(answer, "HTTP/1.")) << bytes;
  }
  EXPECT_EQ(StatusOf(Ask("GET", "/hello")), 200);
}

}  // namespace
}  // namespace vpod::http
