/// The listing of `ibnetdiscover` (infiniband-diags, "Topology file format"): a block for each switch and adapter, a
/// line for each live port; every cable is listed at both ends.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/findings.h"
#include "clusters/import/readers.h"

namespace orrery::clusters {
namespace {

constexpr double kGigabit = 1e9 / 8;
constexpr std::size_t kMostNodes = 200'000;

/// Data rate of one lane in Gb/s: the signalling rate less its coding (8b/10b up to QDR, 64b/66b after).
struct Rate {
  std::string_view name;
  double gigabits;
};
constexpr Rate kRates[] = {{"SDR", 2},  {"DDR", 4},  {"QDR", 8},   {"FDR10", 10}, {"FDR", 13.64},
                           {"EDR", 25}, {"HDR", 50}, {"NDR", 100}, {"XDR", 200}};

struct Side {
  int node = 0, port = 0, peer_port = 0;
  std::string peer;
  double bandwidth = 0;
  base::Location where, peer_where;
};

class IbnetdiscoverReader {
 public:
  explicit IbnetdiscoverReader(Lines& text) : text_(text), findings_(text.findings()) {}

  std::optional<FoundFabric> read() {
    for (int n = 1; n <= text_.count() && fabric_.nodes.size() <= kMostNodes && !base::is_full(findings_); ++n)
      read_line(n);
    if (fabric_.nodes.size() > kMostNodes)
      error("E0307", {findings_.file(), 0, 0, 1}, fmt::format("more than {} switches and adapters", kMostNodes));
    if (fabric_.nodes.empty() && !findings_.failed())
      error("E0308", text_.end(), "the listing names no switch and no adapter",
            "capture the whole output of ibnetdiscover");
    if (findings_.failed()) return std::nullopt;
    fabric_.where = fabric_.nodes.front().where;
    join();
    if (findings_.failed()) return std::nullopt;
    return std::move(fabric_);
  }

 private:
  void error(const char* code, base::Location where, std::string message, std::string help = {}) {
    findings_.error(code, std::move(where), std::move(message), std::move(help));
  }

  void read_line(int n) {
    const std::vector<Word> words = text_.words(n);
    if (words.empty() || words[0].text.front() == '#') return;
    const std::string_view word = words[0].text;
    if (word.front() == '[') return read_port(n, static_cast<std::size_t>(words[0].byte));
    if (word == "Switch" || word == "Ca" || word == "Rt") return read_node(n, words);
    const bool heading = word == "Non-Chassis" || word == "Chassis";
    const bool fact = word.find('=') != std::string_view::npos;
    if (heading || fact) return;
    error(n == text_.end().line ? "E0308" : "E0307", text_.place(words[0]),
          fmt::format("a line of ibnetdiscover cannot begin with {}", base::quoted(std::string(word))),
          "known are Switch, Ca, Rt, `[port]` and comments");
  }

  /// The text between the next two quotes from `at` on; moves `at` past them. False if there is none.
  static bool next_quoted(std::string_view line, std::size_t& at, std::string& out) {
    const std::size_t open = line.find('"', at);
    const std::size_t close = open == std::string_view::npos ? open : line.find('"', open + 1);
    if (close == std::string_view::npos) return false;
    out = std::string(line.substr(open + 1, close - open - 1));
    at = close + 1;
    return true;
  }

  void cut(int n, const std::string& what) {
    const bool last = text_.end().line == n;
    error(last ? "E0308" : "E0307", text_.place(n, text_.line(n).size(), 1), what,
          last ? "the listing was cut: capture it again" : "");
  }

  void read_node(int n, const std::vector<Word>& words) {
    const std::string_view line = text_.line(n);
    std::size_t at = 0;
    FabricNode node;
    node.is_switch = words[0].text == "Switch";
    node.where = text_.place(words[0]);
    current_ = -1;
    if (!next_quoted(line, at, node.guid)) return cut(n, "the line names no node");
    if (!next_quoted(line, at, node.name)) return cut(n, "the line has no description of its node");
    skipping_ = words[0].text == "Rt" || node.name.find("Aggregation Node") != std::string::npos;
    if (skipping_) {
      left_out_.insert(node.guid);
      return;
    }
    const std::size_t blank = node.name.find(' ');
    node.host = node.name.substr(0, blank);
    const std::size_t rest = node.name.find_first_not_of(' ', std::min(blank, node.name.size()));
    if (rest != std::string::npos) node.adapter = node.name.substr(rest);
    if (!index_.emplace(node.guid, static_cast<int>(fabric_.nodes.size())).second)
      return error("E0306", node.where, fmt::format("node {} is listed twice", base::quoted(node.guid)));
    current_ = static_cast<int>(fabric_.nodes.size());
    fabric_.nodes.push_back(std::move(node));
  }

  /// `[port]`, optionally `(guid)` or `[ext n]`, the quoted peer with its `[port]`, and at the end `4xHDR`.
  void read_port(int n, std::size_t first) {
    if (skipping_) return;
    if (current_ < 0)
      return findings_.failed() ? void()
                                : error("E0307", text_.place(n, first, 1), "a port comes before any switch or adapter");
    const std::string_view line = text_.line(n);
    Side side;
    side.node = current_;
    std::size_t at = first;
    if (!bracketed(line, at, side.port)) return cut(n, "a port begins with its number in brackets");
    side.where = text_.place(n, first, at - first);
    const std::size_t quote = line.find('"', at);
    if (!next_quoted(line, at, side.peer)) return cut(n, "the port names no peer");
    side.peer_where = text_.place(n, quote, at - quote);
    if (!bracketed(line, at, side.peer_port)) return cut(n, "the peer has no port number in brackets");
    if (!rate_of(n, side.bandwidth)) return;
    sides_.push_back(std::move(side));
  }

  static bool bracketed(std::string_view line, std::size_t& at, int& port) {
    if (at >= line.size() || line[at] != '[') return false;
    const std::size_t close = line.find(']', at);
    long long value = 0;
    if (close == std::string_view::npos || !whole_number(line.substr(at + 1, close - at - 1), value) || value > 1 << 16)
      return false;
    port = static_cast<int>(value);
    at = close + 1;
    return true;
  }

  /// Reads the last word of the form `4xHDR`.
  bool rate_of(int n, double& bandwidth) {
    const std::vector<Word> words = text_.words(n);
    for (auto word = words.rbegin(); word != words.rend(); ++word) {
      const std::size_t x = word->text.find('x');
      long long lanes = 0;
      if (x == std::string_view::npos || !whole_number(word->text.substr(0, x), lanes)) continue;
      for (const Rate& rate : kRates) {
        if (word->text.substr(x + 1) != rate.name || lanes < 1 || lanes > 12) continue;
        bandwidth = static_cast<double>(lanes) * rate.gigabits * kGigabit;
        return true;
      }
      error(text_.end().line == n ? "E0308" : "E0304", text_.place(*word),
            fmt::format("unknown width and rate {}", base::quoted(std::string(word->text))),
            "known are 1x to 12x of SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR, XDR");
      return false;
    }
    cut(n, "the port has no width and rate, such as 4xHDR");
    return false;
  }

  void join() {
    std::map<std::pair<int, int>, const Side*> by_port;
    for (const Side& side : sides_)
      if (!by_port.emplace(std::pair{side.node, side.port}, &side).second)
        error("E0306", side.where, fmt::format("port {} of {} is listed twice", side.port, name(side.node)));
    for (const Side& side : sides_) {
      if (left_out_.count(side.peer) != 0) continue;
      const auto peer = index_.find(side.peer);
      if (peer == index_.end()) {
        error("E0305", side.peer_where,
              fmt::format("the cable leads to {}, which is not listed", base::quoted(side.peer)),
              "the listing is cut or edited: capture it again");
        continue;
      }
      const auto back = by_port.find({peer->second, side.peer_port});
      const bool agrees = back != by_port.end() && back->second->peer_port == side.port &&
                          back->second->peer == fabric_.nodes[static_cast<std::size_t>(side.node)].guid;
      if (!agrees) {
        error("E0306", side.where,
              back == by_port.end()
                  ? fmt::format("port {} of {} does not list this cable", side.peer_port, name(peer->second))
                  : fmt::format("port {} of {} lists another cable (line {})", side.peer_port, name(peer->second),
                                back->second->where.line),
              "every cable is listed twice");
        continue;
      }
      if (back->second->bandwidth != side.bandwidth)
        error("E0306", side.where,
              fmt::format("the other end of this cable (line {}) has another rate", back->second->where.line));
      const FoundPort a{side.node, side.port}, b{peer->second, side.peer_port};
      if (a < b) fabric_.cables.push_back({a, b, side.bandwidth, side.where});
      if (a == b) error("E0306", side.where, "the cable leads back to its own port");
    }
  }

  std::string name(int node) const { return base::quoted(fabric_.nodes[static_cast<std::size_t>(node)].name); }

  Lines& text_;
  base::Findings& findings_;
  FoundFabric fabric_;
  std::map<std::string, int> index_;  ///< by guid
  std::set<std::string> left_out_;
  std::vector<Side> sides_;
  int current_ = -1;
  bool skipping_ = false;
};

}  // namespace

std::optional<FoundFabric> read_ibnetdiscover(Lines& text) {
  return IbnetdiscoverReader(text).read();
}

}  // namespace orrery::clusters
