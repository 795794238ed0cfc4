// Calls with headers that no gRPC client sends, by plain HTTP/2. With the version of gRPC that is
// packaged, some of them are known to end servers (CVE-2023-1428, see deploy/known-holes.txt), or
// to keep their threads busy (CVE-2023-33953).
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "client/vipu/client.h"
#include "device/base/unique_fd.h"
#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

using Headers = std::vector<std::pair<std::string, std::string>>;

// RFC 9113.
constexpr char kHeadersFrame = 1, kSettingsFrame = 4, kContinuationFrame = 9;
constexpr char kEndHeaders = 4;
constexpr size_t kMostInFrame = 16384;

std::string BigEndian(size_t number, int bytes) {
  std::string text;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
    text += static_cast<char>(number >> shift);
  return text;
}

std::string Frame(char kind, char flags, uint32_t stream, const std::string& content) {
  return BigEndian(content.size(), 3) + kind + flags + BigEndian(stream, 4) + content;
}

// A length before a string, with seven bits in its first byte (RFC 7541, 5.1).
std::string Length(size_t length) {
  constexpr size_t kLimit = 127;
  if (length < kLimit) return std::string(1, static_cast<char>(length));
  std::string text(1, static_cast<char>(kLimit));
  for (length -= kLimit; length >= 128; length >>= 7)
    text += static_cast<char>(128 | (length & 127));
  return text + static_cast<char>(length);
}

// One call's headers as the frames of a stream: each a literal without an index.
std::string HeaderFrames(const Headers& headers) {
  std::string block;
  for (const auto& [name, value] : headers)
    block += std::string(1, '\0') + Length(name.size()) + name + Length(value.size()) + value;
  std::string frames;
  for (size_t at = 0; at < block.size(); at += kMostInFrame) {
    const char end = at + kMostInFrame >= block.size() ? kEndHeaders : 0;
    frames +=
        Frame(at == 0 ? kHeadersFrame : kContinuationFrame, end, 1, block.substr(at, kMostInFrame));
  }
  return frames;
}

// A connection that has begun to speak HTTP/2.
base::UniqueFd Connect(const std::string& endpoint) {
  const size_t colon = endpoint.rfind(':');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(endpoint.substr(colon + 1))));
  EXPECT_EQ(inet_pton(AF_INET, endpoint.substr(0, colon).c_str(), &address.sin_addr), 1);
  base::UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0)
      << endpoint << " takes no connection";
  const std::string bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettingsFrame, 0, 0, "");
  send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  return fd;
}

// Sends a call over a connection of its own and reads until there is an answer, the end of the
// connection or a pause.
void Call(const std::string& endpoint, const Headers& headers) {
  const base::UniqueFd fd = Connect(endpoint);
  const timeval pause{0, 200000};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &pause, sizeof(pause));
  const std::string bytes = HeaderFrames(headers);
  send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  char answer[4096];
  while (recv(fd.get(), answer, sizeof(answer), 0) > 0) {
  }
}

// The headers of a call that is in order, but for one, and more after it.
Headers WithHeader(const std::string& name, const std::string& value, size_t more_bytes) {
  Headers headers;
  for (const auto& header : Headers{{":method", "POST"},
                                    {":scheme", "http"},
                                    {":path", "/vipuuser.VipuUser/GetServerInfo"},
                                    {":authority", "pod"},
                                    {"content-type", "application/grpc"},
                                    {"te", "trailers"}}) {
    if (header.first != name) headers.push_back(header);
  }
  headers.emplace_back(name, value);
  for (size_t i = 0; i < more_bytes / 1000; ++i)
    headers.emplace_back("more-" + std::to_string(i), std::string(1000, 'x'));
  return headers;
}

TEST(Http2HeadersTest, NoHeaderEndsADaemon) {
  TestPod pod(4);
  pod.CreatePartition("p1", 1);
  vipu::ClientConfig config;
  config.host = "127.0.0.1";
  config.port = static_cast<uint32_t>(pod.port());
  vipu::Client client(config, std::chrono::seconds(20));
  const auto partition = client.GetPartitionConfig("p1", 0);
  ASSERT_TRUE(partition.ok()) << partition.status();
  const int server = pod.ServerPid(), agent = pod.AgentPid();
  for (const std::string& endpoint :
       {"127.0.0.1:" + std::to_string(pod.port()), partition->devices(0).endpoint()}) {
    for (const auto& [name, value] : Headers{{"te", "x"},
                                             {":scheme", "x"},
                                             {"grpclb_client_stats", "x"},
                                             {"te", std::string(9000, 'x')},
                                             {":path", ""},
                                             {"", "x"},
                                             {"grpc-timeout", "x"}}) {
      for (const size_t more : {0, 9000, 40000}) Call(endpoint, WithHeader(name, value, more));
    }
  }
  const Outcome outcome = pod.Run({"vipu", "list", "partitions"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const Outcome devices = pod.Run({"gc-info", "--ipu-count"});
  EXPECT_EQ(devices.code, 0) << devices.err;
  EXPECT_EQ(pod.ServerPid(), server);
  EXPECT_EQ(pod.AgentPid(), agent);
}

// Sends headers that do not end, most of them in frames of one byte, until the connection ends.
// Returns how many bytes of them the daemon took; at most `most`.
size_t SendEndlessHeaders(const std::string& endpoint, size_t most) {
  const base::UniqueFd fd = Connect(endpoint);
  const timeval patience{30, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  // A header whose value of 16 MiB begins.
  std::string frames = Frame(kHeadersFrame, 0, 1, std::string("\0\1x", 3) + Length(16 << 20));
  std::string small;
  for (int i = 0; i < 400; ++i) small += Frame(kContinuationFrame, 0, 1, "a");
  for (size_t sent = 0; sent < most;
       frames = sent < most / 2 ? Frame(kContinuationFrame, 0, 1, std::string(kMostInFrame, 'a'))
                                : small) {
    const ssize_t now = send(fd.get(), frames.data(), frames.size(), MSG_NOSIGNAL);
    if (now < 0 && errno == EAGAIN) return most;  // it neither reads nor ends the connection
    if (now <= 0) return sent;
    sent += static_cast<size_t>(now);
  }
  return most;
}

TEST(Http2HeadersTest, EndlessHeadersEndTheirConnection) {
  TestPod pod(4);
  pod.CreatePartition("p1", 1);
  vipu::ClientConfig config;
  config.host = "127.0.0.1";
  config.port = static_cast<uint32_t>(pod.port());
  const auto partition = vipu::Client(config, std::chrono::seconds(20)).GetPartitionConfig("p1", 0);
  ASSERT_TRUE(partition.ok()) << partition.status();
  // The buffers of the sockets hold some of what was sent, too.
  constexpr size_t kMost = 64 << 20;
  for (const std::string& endpoint :
       {"127.0.0.1:" + std::to_string(pod.port()), partition->devices(0).endpoint()}) {
    for (int i = 0; i < 5; ++i) EXPECT_LT(SendEndlessHeaders(endpoint, kMost), kMost) << endpoint;
  }
  const Outcome outcome = pod.Run({"vipu", "list", "partitions"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const Outcome devices = pod.Run({"gc-info", "--ipu-count"});
  EXPECT_EQ(devices.code, 0) << devices.err;
}

}  // namespace
}  // namespace vpod::testing
