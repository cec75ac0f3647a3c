// A blocking HTTP client on a bare socket, for tests: it sends any bytes and shows what came back.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <utility>

#include "glog/logging.h"

namespace sluice::router {

struct HttpAnswer {
  int code = 0;                                // 0: the connection ended first
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // without chunk framing
};

class HttpClient {
 public:
  explicit HttpClient(int port, int receive_buffer = 0) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(uint16_t(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ~HttpClient() { Close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void HalfClose() { shutdown(fd_, SHUT_WR); }

  void Send(const std::string& bytes) {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;  // the server has closed it already
      sent += size_t(n);
    }
  }

  static std::string Request(const std::string& method, const std::string& target, const std::string& body = "",
                             const std::string& headers = "") {
    return method + " " + target + " HTTP/1.1\r\nHost: test\r\n" + headers +
           (body.empty() ? "" : "Content-Length: " + std::to_string(body.size()) + "\r\n") + "\r\n" + body;
  }
  HttpAnswer Call(const std::string& method, const std::string& target, const std::string& body = "",
                  const std::string& headers = "") {
    Send(Request(method, target, body, headers));
    return Read(method == "HEAD");
  }
  HttpAnswer Post(const std::string& body, const std::string& headers = "") {
    return Call("POST", "/v1/completions", body, headers);
  }

  // The next answer; whole, or up to the end of the connection.
  HttpAnswer Read(bool head_only = false) {
    HttpAnswer answer;
    while (received_.find("\r\n\r\n") == std::string::npos) {
      if (!More()) return answer;
    }
    const size_t end = received_.find("\r\n\r\n");
    ParseHead(received_.substr(0, end), answer);
    received_.erase(0, end + 4);
    if (head_only || answer.code == 100 || answer.code == 204) return answer;
    if (answer.headers.contains("content-length")) {
      answer.body = Take(std::stoul(answer.headers["content-length"]));
    } else if (answer.headers.contains("transfer-encoding")) {
      while (true) {
        const std::string line = TakeLine();
        const size_t size = line.empty() ? 0 : std::stoul(line, nullptr, 16);
        answer.body += Take(size);
        if (TakeLine() != "" || size == 0) break;
      }
    } else {
      while (More()) {
      }
      answer.body = std::exchange(received_, "");
    }
    return answer;
  }

  // Waits until `text` has been received.
  bool WaitFor(const std::string& text) {
    while (received_.find(text) == std::string::npos) {
      if (!More()) return false;
    }
    return true;
  }
  // True when the server closes the connection (or resets it) and nothing more came.
  bool Closed() {
    while (More()) {
    }
    return ended_ && received_.empty();
  }

 private:
  static void ParseHead(const std::string& head, HttpAnswer& answer) {
    answer.code = std::stoi(head.substr(head.find(' ') + 1));
    for (size_t at = head.find("\r\n"); at != std::string::npos;) {
      const size_t next = head.find("\r\n", at + 2);
      const std::string line = head.substr(at + 2, next == std::string::npos ? next : next - at - 2);
      const size_t colon = line.find(": ");
      std::string name = line.substr(0, colon);
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return char(std::tolower(c)); });
      answer.headers[name] = colon == std::string::npos ? "" : line.substr(colon + 2);
      at = next;
    }
  }
  std::string Take(size_t size) {
    while (received_.size() < size && More()) {
    }
    const std::string taken = received_.substr(0, size);
    received_.erase(0, size);
    return taken;
  }
  std::string TakeLine() {
    while (received_.find("\r\n") == std::string::npos) {
      if (!More()) return "";
    }
    const size_t end = received_.find("\r\n");
    const std::string line = received_.substr(0, end);
    received_.erase(0, end + 2);
    return line;
  }
  bool More() {
    pollfd ready{fd_, POLLIN, 0};
    if (poll(&ready, 1, 30000) <= 0) return false;
    char bytes[65536];
    const ssize_t n = recv(fd_, bytes, sizeof(bytes), 0);
    ended_ |= n <= 0;
    if (n > 0) received_.append(bytes, size_t(n));
    return n > 0;
  }

  int fd_;
  bool ended_ = false;
  std::string received_;
};

}  // namespace sluice::router
