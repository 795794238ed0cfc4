#include "tests/system/exhaustion.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/http_get.h"

namespace vpod::testing {

Footprint FootprintOf(int pid) {
  Footprint footprint;
  const std::string at = "/proc/" + std::to_string(pid);
  std::ifstream status(at + "/status");
  for (std::string word; status >> word;) {
    if (word == "VmRSS:") status >> footprint.memory_kib;
    if (word == "VmHWM:") status >> footprint.peak_kib;
    if (word == "Threads:") status >> footprint.threads;
  }
  std::error_code error;
  footprint.descriptors = std::distance(std::filesystem::directory_iterator(at + "/fd", error), {});
  return footprint;
}

void Cost::Begin(int pid) {
  pid_ = pid;
  std::ofstream("/proc/" + std::to_string(pid) + "/clear_refs") << 5;
  before_ = FootprintOf(pid);
}

void Cost::ExpectHeld(const std::string& attack, long most_mib, long most_threads) const {
  const Footprint now = FootprintOf(pid_);
  const long mib = (now.peak_kib - before_.memory_kib) >> 10;
  std::printf("%s: memory +%ld MiB, threads +%ld\n", attack.c_str(), mib,
              now.threads - before_.threads);
  EXPECT_LT(mib, kTimes * most_mib) << attack;
  EXPECT_LT(now.threads - before_.threads, most_threads) << attack;
}

std::string Field(int number, const std::string& contents) {
  std::string text;
  for (uint64_t value : {uint64_t(number) << 3 | 2, uint64_t(contents.size())}) {
    for (; value >= 128; value >>= 7) text += static_cast<char>(value | 128);
    text += static_cast<char>(value);
  }
  return text + contents;
}

grpc::ByteBuffer Buffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

grpc::ByteBuffer Zeros(size_t mib) {
  static const std::string page(1 << 20, '\0');
  const std::vector<grpc::Slice> slices(
      mib, grpc::Slice(page.data(), page.size(), grpc::Slice::STATIC_SLICE));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::vector<base::UniqueFd> ConnectTo(const std::string& endpoint, int count,
                                      const std::string& bytes) {
  rlimit own{};
  getrlimit(RLIMIT_NOFILE, &own);
  own.rlim_cur = own.rlim_max;
  setrlimit(RLIMIT_NOFILE, &own);
  std::vector<base::UniqueFd> connections;
  for (int i = 0; i < count; ++i) {
    connections.push_back(ConnectSocket(endpoint));
    (void)!send(connections.back().get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  return connections;
}

void ExpectMetricsSeen(const std::string& url, const std::string& what) {
  const size_t host = url.find("://") + 3;
  const std::string endpoint = url.substr(host, url.find('/', host) - host);
  const auto idle = ConnectTo(endpoint, 1000);
  for (const char* path : {"/metrics", "/healthz"}) {
    const auto begin = std::chrono::steady_clock::now();
    const std::string answer = HttpGet("http://" + endpoint + path);
    std::printf("%s, while 1,000 connections to them are idle: %s in %ld ms\n", what.c_str(), path,
                Since(begin));
    EXPECT_EQ(answer.substr(0, answer.find("\r\n")), "HTTP/1.0 200 OK") << what << " " << path;
  }
}

long Since(std::chrono::steady_clock::time_point begin) {
  return static_cast<long>(std::chrono::duration_cast<std::chrono::milliseconds>(
                               std::chrono::steady_clock::now() - begin)
                               .count());
}

}  // namespace vpod::testing
