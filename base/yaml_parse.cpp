// From text to the tree behind Cursor, in one pass over yaml-cpp's events. yaml-cpp itself accepts duplicate keys,
// unbounded alias expansion, aliases to themselves, tags, NUL bytes and invalid UTF-8; all of these are refused here.
#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <array>
#include <istream>
#include <map>
#include <streambuf>

#include "base/ensure.h"
#include "base/printable.h"
#include "base/text.h"
#include "base/yaml_node.h"

namespace orrery::base {
namespace {

constexpr std::size_t kMostBytes = std::size_t{4} << 20;
constexpr std::size_t kMostDepth = 64;
constexpr std::size_t kMostNodes = 200'000;                   // after alias expansion
constexpr std::size_t kMostExpanded = std::size_t{16} << 20;  // bytes of keys and scalars, after it
constexpr std::size_t kMostSigns = 1'000'000;                 // about six per JSON value

constexpr std::size_t kMostKey = 1000;  // bytes, including any quotes and escapes

using Node = Cursor::Node;
using Kind = Node::Kind;

// Ends parsing; the finding is already recorded.
struct Stop {};

// A stream over a view: no second copy of the text.
class ViewBuffer : public std::streambuf {
 public:
  explicit ViewBuffer(std::string_view text) {
    char* begin = const_cast<char*>(text.data());  // the get area is never written
    setg(begin, begin, begin + text.size());
  }
};

class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::shared_ptr<Findings> findings) : findings_(std::move(findings)) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1)
      stop("E0101", at(mark, 1), "a second document begins here", "keep one document in a file; remove the `---`");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { place(make(Kind::null, mark, anchor)); }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const bool plain = tag == "?";
    refuse_tag(mark, plain || tag == "!" ? std::string{} : tag);
    // yaml-cpp turns the escapes "\N" and "\_" into single bytes that are not UTF-8.
    if (!is_utf8(value))
      stop("E0101", at(mark, 1), "an escape in this text is not supported", "write the character itself");
    auto node = make(Kind::scalar, mark, anchor);
    node->plain = plain;
    node->value = value;
    node->where.length = plain ? plain_length(value) : findings_->quoted_length(node->location(node->where));
    add_bytes(value.size(), mark);
    place(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    refuse_tag(mark, tag);
    open(make(Kind::sequence, mark, anchor));
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    refuse_tag(mark, tag);
    open(make(Kind::map, mark, anchor));
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapEnd() override { open_.pop_back(); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto it = anchors_.find(anchor);
    if (it == anchors_.end()) stop("E0101", at(mark, 1), "this alias names nothing above it");
    for (const Level& level : open_) {
      if (level.node == it->second)
        stop("E0108", at(mark, 1), "this alias is inside what it names", "write the value out");
    }
    place(copy(*it->second, mark, open_.size()));
  }

  [[nodiscard]] std::shared_ptr<Node> root() const { return root_; }

 private:
  // An open collection; for a map, also the key that waits for its value.
  struct Level {
    std::shared_ptr<Node> node;
    bool has_key = false;
    std::string key;
    Node::Place key_where;
  };

  [[noreturn]] void stop(std::string code, Node::Place where, std::string message, std::string help = {}) {
    stop(std::move(code), Location{findings_->file(), where.line, where.column, where.length}, std::move(message),
         std::move(help));
  }
  [[noreturn]] void stop(std::string code, Location where, std::string message, std::string help = {}) {
    findings_->error(std::move(code), std::move(where), std::move(message), std::move(help));
    throw Stop{};
  }

  Location at(const YAML::Mark& mark, int length) const {
    return findings_->location(mark.line + 1, mark.column, length);
  }

  void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!")
      stop("E0101", at(mark, 1), fmt::format("tag {} is not supported", quoted(tag)), "remove the tag");
  }

  static int plain_length(const std::string& value) {
    int characters = 0;
    for (const char c : value) {
      if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) ++characters;
    }
    return std::max(1, characters);
  }

  void count(const YAML::Mark& mark) {
    if (++nodes_ > kMostNodes) {
      stop("E0108", at(mark, 1), fmt::format("more than {} values once aliases are written out", kMostNodes));
    }
  }

  // Without aliases, bytes cannot exceed the original text; aliases multiply them.
  void add_bytes(std::size_t bytes, const YAML::Mark& mark) {
    bytes_ += bytes;
    if (bytes_ > kMostExpanded)
      stop("E0108", at(mark, 1), fmt::format("more than {} bytes once aliases are written out", kMostExpanded),
           "write the file without aliases");
  }

  std::shared_ptr<Node> make(Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    count(mark);
    auto node = std::make_shared<Node>();
    node->kind = kind;
    const Location where = at(mark, 1);
    node->where = {where.line, where.column, where.length};
    node->findings = findings_;
    if (anchor != 0) anchors_[anchor] = node;
    return node;
  }

  // Expands an alias, within the budget of nodes and depth, so that no reader meets shared or cyclic nodes.
  std::shared_ptr<Node> copy(const Node& from, const YAML::Mark& mark, std::size_t depth) {
    count(mark);
    if (depth > kMostDepth) stop("E0108", at(mark, 1), fmt::format("nested deeper than {} levels", kMostDepth));
    auto node = std::make_shared<Node>();
    node->kind = from.kind;
    node->where = from.where;
    node->findings = findings_;
    add_bytes(from.value.size(), mark);
    node->value = from.value;
    node->plain = from.plain;
    for (const auto& item : from.items) node->items.push_back(copy(*item, mark, depth + 1));
    for (const auto& entry : from.entries) {
      add_bytes(entry.key.size(), mark);
      node->index.emplace(entry.key, node->entries.size());
      node->entries.push_back({entry.key, entry.where, copy(*entry.value, mark, depth + 1)});
    }
    return node;
  }

  void open(std::shared_ptr<Node> node) {
    if (open_.size() >= kMostDepth) stop("E0108", node->where, fmt::format("nested deeper than {} levels", kMostDepth));
    if (!open_.empty() && open_.back().node->kind == Kind::map && !open_.back().has_key) {
      stop("E0101", node->where, "a key must be plain text, not a list or a map",
           "if this is to be a value, close its bracket");
    }
    place(node);
    open_.push_back({std::move(node), false, {}, {}});
  }

  void place(std::shared_ptr<Node> node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Level& level = open_.back();
    if (level.node->kind == Kind::sequence) {
      level.node->items.push_back(std::move(node));
    } else if (!level.has_key) {
      take_key(level, *node);
    } else {
      level.has_key = false;
      if (node->kind == Kind::null) node->where = level.key_where;  // yaml-cpp places it on the next line
      Node& map = *level.node;
      if (const auto* first = map.find(level.key)) {
        findings_->error("E0107", map.location(level.key_where),
                         fmt::format("key {} is given twice", quoted(level.key)),
                         fmt::format("it was first given on line {}; keep one of them", first->where.line));
        return;
      }
      map.index.emplace(level.key, map.entries.size());
      map.entries.push_back({level.key, level.key_where, std::move(node)});
    }
  }

  void take_key(Level& level, const Node& node) {
    if (node.kind != Kind::scalar) stop("E0101", node.where, "a key must be plain text");
    if (node.value.empty()) stop("E0101", node.where, "a key is empty text");
    if (!is_one_line(node.value)) stop("E0101", node.where, "a key holds control characters", "remove them");
    if (node.plain && node.value == "<<")
      stop("E0101", node.where, "merge keys `<<` are not supported", "write the keys out");
    if (yaml_text(node.value).size() > kMostKey)  // yaml-cpp needs `?` before longer keys; dump() writes none
      stop("E0108", node.where, fmt::format("a key takes more than {} bytes", kMostKey));
    level.has_key = true;
    level.key = node.value;
    level.key_where = node.where;
  }

  std::shared_ptr<Findings> findings_;
  std::shared_ptr<Node> root_;
  std::vector<Level> open_;
  std::map<YAML::anchor_t, std::shared_ptr<Node>> anchors_;
  std::size_t nodes_ = 0, bytes_ = 0;
  int documents_ = 0;
};

// Runs when the tree is complete, since a copied alias has another parent than its original.
void set_parents(const std::shared_ptr<Node>& node) {
  const auto adopt = [&](const std::shared_ptr<Node>& child, std::size_t at) {
    child->parent = node;
    child->at = static_cast<std::uint32_t>(at);
    set_parents(child);
  };
  for (std::size_t i = 0; i < node->items.size(); ++i) adopt(node->items[i], i);
  for (std::size_t i = 0; i < node->entries.size(); ++i) adopt(node->entries[i].value, i);
}

/// yaml-cpp scans a whole flow collection before it reports anything about it, and takes some 240 bytes per token. So
/// possible tokens are counted first, in comments and quotes as well; no file of this project comes near the limit.
bool has_few_signs(std::string_view text, Findings& findings) {
  constexpr std::string_view kSigns = "[]{},:&*!|>'\"";
  const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; };
  std::array<bool, 256> is_sign{};
  for (const char c : kSigns) is_sign[static_cast<unsigned char>(c)] = true;
  const auto blank = [&](std::size_t i) { return i >= text.size() || is_space(text[i]); };
  std::size_t signs = 0, opening = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    opening += c == '[' || c == '{' ? 1 : 0;
    signs += is_sign[static_cast<unsigned char>(c)] || ((c == '-' || c == '?') && blank(i + 1)) ? 1 : 0;
    if (signs <= kMostSigns && opening <= kMostNodes) continue;
    const auto line = static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(i), '\n'));
    const std::size_t begin = text.rfind('\n', i);
    findings.error("E0108", findings.location(line + 1, static_cast<int>(i - (begin + 1)), 1),
                   opening > kMostNodes ? fmt::format("more than {} opening brackets", kMostNodes)
                                        : fmt::format("more than {} brackets, commas, colons and quotes", kMostSigns));
    return false;
  }
  return true;
}

/// Whether line `line` (from 0) is indented with a tab: yaml-cpp fails later on, with a misleading message.
bool has_tab_ahead(std::string_view text, int line) {
  for (; line > 0; --line) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return false;
    text.remove_prefix(end + 1);
  }
  const std::string_view ahead = text.substr(0, text.find_first_not_of(" \t"));
  return ahead.find('\t') != std::string_view::npos;
}

std::string hint_for(const std::string& message) {
  if (message.find("illegal map value") != std::string::npos) return "put a text that holds `: ` in quotes";
  if (message.find("illegal flow end") != std::string::npos) return "another kind of bracket is still open";
  if (message.find("end of map") != std::string::npos || message.find("end of sequence") != std::string::npos) {
    return "check that keys of one map begin in the same column, and that every bracket is closed";
  }
  if (message.find("unknown token") != std::string::npos) return "put the text in quotes; indent with spaces, not tabs";
  return {};
}

}  // namespace

std::shared_ptr<Node> parse_yaml(std::string_view text, const std::shared_ptr<Findings>& findings) {
  if (!is_text(text, kMostBytes, *findings) || !has_few_signs(text, *findings)) return nullptr;
  ViewBuffer buffer(text);
  std::istream stream(&buffer);
  TreeBuilder builder(findings);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const Stop&) {
    return nullptr;
  } catch (const YAML::Exception& e) {
    const bool placed = !e.mark.is_null();
    const bool tab = placed && has_tab_ahead(text, e.mark.line);
    findings->error("E0101",
                    placed ? findings->location(e.mark.line + 1, e.mark.column, 1) : Location{findings->file()},
                    fmt::format("this is not YAML: {}", e.msg),
                    tab ? "indent with spaces: YAML takes no tabs there" : hint_for(e.msg));
    return nullptr;
  }
  auto root = builder.root();
  if (root == nullptr || root->kind == Kind::null) {
    findings->error("E0101", {findings->file()}, "the file is empty", "no key stands in it: was it saved?");
    return nullptr;
  }
  set_parents(root);
  return root;
}

}  // namespace orrery::base
