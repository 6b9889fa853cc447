// Local sockets in the abstract name space: no file remains, whichever process dies.
#include "exec/launch/lifeline.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "exec/failure.h"
#include "exec/launch/process_tree.h"

namespace orrery::exec {
namespace {

constexpr std::size_t kMostLine = 1 << 20;  // longer lines are dropped: none of ours is that long
constexpr int kSendBuffer = 1 << 20;
constexpr int kPatience = 3000;  // milliseconds for which an important line waits for a supervisor that does not read
constexpr int kLost = 1;         // exit code of a rank whose supervisor is gone

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
};

Address address_of(const std::string& mark) {
  Address address;
  address.name.sun_family = AF_UNIX;
  const std::string text = "orrery-" + mark;
  const std::size_t n = std::min(text.size(), sizeof address.name.sun_path - 1);
  std::memcpy(address.name.sun_path + 1, text.data(), n);  // the leading zero marks an abstract name, not a file
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + n);
  return address;
}

/// The process at the other end; 0 if it is another user's.
int peer_of(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != geteuid()) return 0;
  return peer.pid;
}

int rank_by_environment() {
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"})
    if (const char* text = std::getenv(name)) {
      int rank = -1;
      const auto [end, error] = std::from_chars(text, text + std::strlen(text), rank);
      if (error == std::errc() && *end == '\0') return rank;
    }
  return -1;
}

std::optional<int> number_in(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// The first message carries the recorder's descriptor.
bool send_hello(int socket, const std::string& text, int descriptor) {
  iovec part{const_cast<char*>(text.data()), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

[[noreturn]] void end_without_supervisor(int launcher) {
  if (launcher > 1 && getppid() == launcher) kill(launcher, SIGKILL);  // it may be stopped, and would wait for ever
  _exit(kLost);
}

}  // namespace

std::unique_ptr<Lifeline> Lifeline::connect(const Recorder& recorder, std::function<void()> on_stop) {
  const char* mark = std::getenv(kRunMark);
  if (mark == nullptr || *mark == '\0') return nullptr;
  const int launcher = getppid();
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const Address address = address_of(mark);
  const std::string hello = fmt::format("rank {}\n", rank_by_environment());
  if (socket < 0 || ::connect(socket, reinterpret_cast<const sockaddr*>(&address.name), address.length) != 0 ||
      peer_of(socket) == 0 || !send_hello(socket, hello, recorder.descriptor()))
    end_without_supervisor(launcher);
  setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
  return std::unique_ptr<Lifeline>(new Lifeline(socket, std::move(on_stop)));
}

Lifeline::Lifeline(int socket, std::function<void()> on_stop)
    : socket_(socket), launcher_(getppid()), on_stop_(std::move(on_stop)), listener_([this] { listen(); }) {}

Lifeline::~Lifeline() {
  ending_ = true;
  shutdown(socket_, SHUT_RD);  // wakes the listener
  listener_.join();
  close(socket_);
}

void Lifeline::listen() {
  std::array<char, 256> text;
  for (;;) {
    const ssize_t n = recv(socket_, text.data(), text.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (ending_) return;
      end_without_supervisor(launcher_);
    }
    if (std::string_view(text.data(), static_cast<std::size_t>(n)).find("stop\n") != std::string_view::npos) on_stop_();
  }
}

void Lifeline::say(const std::string& line, bool may_be_lost) {
  const std::string text = line + "\n";
  const std::lock_guard guard(writing_);  // keeps lines whole, whichever thread sends them
  std::size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t n = send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      sent += static_cast<std::size_t>(n);
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) return;  // the listener notices the end too
    if (sent == 0 && may_be_lost) return;
    pollfd writable{socket_, POLLOUT, 0};
    if (poll(&writable, 1, kPatience) <= 0 && sent == 0) return;
  }
}

void Lifeline::is_rank(int rank) {
  say(fmt::format("rank {}", rank));
}

void Lifeline::fails(const std::string& why, bool late) {
  std::string line = why;
  std::replace(line.begin(), line.end(), '\n', ' ');
  say((late ? "late " : "fails ") + line);
}

void Lifeline::done(int code) {
  say(fmt::format("done {}", code));
}

void Lifeline::exits(int code) {
  say(fmt::format("exits {}", code));
}

struct Lifelines::End {
  explicit End(int s) : socket(s) {}
  ~End() {
    if (socket >= 0) close(socket);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  int socket;
  std::string rest;  ///< an unfinished line
};

Lifelines::Lifelines(const std::string& mark) {
  listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const Address address = address_of(mark);
  if (listener_ < 0 || bind(listener_, reinterpret_cast<const sockaddr*>(&address.name), address.length) != 0 ||
      ::listen(listener_, SOMAXCONN) != 0) {
    const int error = errno;
    if (listener_ >= 0) close(listener_);
    throw Failure(fmt::format("cannot listen for ranks: {}", std::strerror(error)), FailureKind::environment);
  }
}

Lifelines::~Lifelines() {
  close(listener_);
}

std::vector<int> Lifelines::descriptors() const {
  std::vector<int> out{listener_};
  for (std::size_t i = 0; i < ends_.size(); ++i)
    if (!lines_[i]->gone) out.push_back(ends_[i]->socket);
  return out;
}

void Lifelines::accept_all() {
  for (;;) {
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) return;
    const int process = peer_of(socket);
    if (process == 0) {
      close(socket);
      continue;
    }
    ends_.push_back(std::make_unique<End>(socket));
    lines_.push_back(std::make_unique<RankLine>());
    lines_.back()->process = process;
    if (stopping_) send(socket, "stop\n", 5, MSG_NOSIGNAL);
  }
}

void Lifelines::serve(const std::function<void(const std::string&)>& event) {
  accept_all();
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    RankLine& line = *lines_[i];
    End& end = *ends_[i];
    std::array<char, 65536> chunk;
    while (!line.gone) {
      iovec part{chunk.data(), chunk.size()};
      alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      const ssize_t n = recvmsg(end.socket, &message, MSG_CMSG_CLOEXEC);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) break;
      if (n <= 0) {
        line.gone = true;
        line.gone_at = std::chrono::steady_clock::now();
        break;
      }
      if (const cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr && header->cmsg_type == SCM_RIGHTS) {
        int descriptor = -1;
        std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
        line.recorder = RecorderView(descriptor);
      }
      take(line, end, {chunk.data(), static_cast<std::size_t>(n)}, event);
    }
  }
}

void Lifelines::take(RankLine& line, End& end, const std::string& text,
                     const std::function<void(const std::string&)>& event) {
  end.rest += text;
  std::size_t begin = 0;
  for (std::size_t stop = 0; (stop = end.rest.find('\n', begin)) != std::string::npos; begin = stop + 1) {
    const std::string_view one(end.rest.data() + begin, stop - begin);
    const std::size_t word = std::min(one.find(' '), one.size());
    const std::string_view what = one.substr(0, word), rest = one.substr(std::min(word + 1, one.size()));
    if (what == "rank") {
      if (const auto number = number_in(rest)) line.rank = *number >= 0 ? number : std::nullopt;
    } else if (what == "done") {
      line.done_with = number_in(rest);
    } else if (what == "exits") {
      line.exited_with = number_in(rest);
    } else if (what == "fails" || what == "late") {
      if (!line.failure.empty()) continue;
      line.failure = rest;
      line.late = what == "late";
      line.failed_at = std::chrono::steady_clock::now();
    } else {
      event(std::string(one));
    }
  }
  end.rest.erase(0, begin);
  if (end.rest.size() > kMostLine) end.rest.clear();
}

void Lifelines::stop() {
  stopping_ = true;
  for (std::size_t i = 0; i < ends_.size(); ++i)
    if (!lines_[i]->gone) send(ends_[i]->socket, "stop\n", 5, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace orrery::exec
