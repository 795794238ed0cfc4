#include "tests/support/http_get.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cstdint>

namespace vpod::testing {

base::UniqueFd ConnectSocket(const std::string& endpoint) {
  base::UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const size_t colon = endpoint.rfind(':');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(endpoint.substr(colon + 1))));
  inet_pton(AF_INET, endpoint.substr(0, colon).c_str(), &address.sin_addr);
  connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  return fd;
}

std::string ReadAll(const base::UniqueFd& fd) {
  std::string all;
  char buffer[4096];
  ssize_t size;
  while ((size = recv(fd.get(), buffer, sizeof(buffer), 0)) > 0)
    all.append(buffer, static_cast<size_t>(size));
  return all;
}

std::string HttpGet(const std::string& url, const std::string& accept) {
  const std::string rest = url.substr(url.find("://") + 3);
  const size_t slash = rest.find('/');
  const base::UniqueFd fd = ConnectSocket(rest.substr(0, slash));
  const timeval patience{10, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  const std::string request =
      "GET " + rest.substr(slash) + " HTTP/1.0\r\nAccept: " + accept + "\r\n\r\n";
  if (send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return "";
  return ReadAll(fd);
}

}  // namespace vpod::testing
