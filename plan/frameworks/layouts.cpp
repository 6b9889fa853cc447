// Both are read by descent, bounded in what they repeat.
#include "plan/frameworks/layouts.h"

#include <fmt/core.h>

#include <cctype>
#include <charconv>

#include "plan/spec/words.h"

namespace orrery::plan {
namespace {

using Bits = std::optional<std::vector<bool>>;

class LayerLists {
 public:
  explicit LayerLists(std::string_view text) : text_(text) {}
  Bits whole() {
    Bits out = sum(0);
    skip();
    return at_ == text_.size() ? out : std::nullopt;
  }

 private:
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\\')) ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::optional<std::int64_t> number() {
    skip();
    std::int64_t value = 0;
    const auto [end, failed] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (failed != std::errc()) return std::nullopt;
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }
  Bits sum(int depth) {
    Bits out = product(depth);
    while (out && take('+')) {
      const Bits more = product(depth);
      if (!more || out->size() + more->size() > static_cast<std::size_t>(kMostLayers)) return std::nullopt;
      out->insert(out->end(), more->begin(), more->end());
    }
    return out;
  }
  Bits product(int depth) {
    Bits out = list(depth);
    while (out && take('*')) {
      const auto times = number();
      if (!times || *times < 0 || static_cast<std::int64_t>(out->size()) * *times > kMostLayers || *times > kMostLayers)
        return std::nullopt;
      const std::vector<bool> once = *out;
      out->clear();
      for (std::int64_t i = 0; i < *times; ++i) out->insert(out->end(), once.begin(), once.end());
    }
    return out;
  }
  Bits list(int depth) {
    if (depth > 16) return std::nullopt;
    if (take('(')) {
      Bits out = sum(depth + 1);
      return take(')') ? out : std::nullopt;
    }
    if (!take('[')) return std::nullopt;
    std::vector<bool> out;
    while (!take(']')) {
      const auto value = number();
      if (!value || (*value != 0 && *value != 1) || out.size() >= static_cast<std::size_t>(kMostLayers))
        return std::nullopt;
      out.push_back(*value == 1);
      if (!take(',')) {
        if (!take(']')) return std::nullopt;
        break;
      }
    }
    return out;
  }
  std::string_view text_;
  std::size_t at_ = 0;
};

/// `t*3`, `(t|)*2` and the like, written out.
std::optional<std::string> written_out(std::string_view text, std::size_t& at, int depth) {
  constexpr std::size_t kMost = 4 * kMostLayers;
  std::string out;
  while (at < text.size() && text[at] != ')') {
    std::string one;
    const char c = text[at++];
    if (c == '(') {
      if (depth > 16) return std::nullopt;
      auto inner = written_out(text, at, depth + 1);
      if (!inner || at >= text.size()) return std::nullopt;
      ++at;
      one = *inner;
    } else if (c == ',' || c == ' ') {
      continue;
    } else {
      one = c;
    }
    std::int64_t times = 1;
    if (at < text.size() && text[at] == '*') {
      const auto [end, failed] = std::from_chars(text.data() + at + 1, text.data() + text.size(), times);
      if (failed != std::errc() || times < 0 || times > kMostLayers) return std::nullopt;
      at = static_cast<std::size_t>(end - text.data());
    }
    for (std::int64_t i = 0; i < times; ++i) {
      out += one;
      if (out.size() > kMost) return std::nullopt;
    }
  }
  return out;
}

}  // namespace

std::optional<std::vector<bool>> layers_of_pattern(std::string_view text, std::int64_t layers) {
  std::int64_t period = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), period);
  if (failed == std::errc() && end == text.data() + text.size()) {
    if (period < 1 || layers > kMostLayers) return std::nullopt;
    std::vector<bool> out;
    for (std::int64_t i = 0; i < layers; ++i) out.push_back(i % period == 0);
    return out;
  }
  auto out = LayerLists(text).whole();
  if (out && static_cast<std::int64_t>(out->size()) != layers) return std::nullopt;
  return out;
}

std::string layout_text(const Plan& plan) {
  const PlanSpec& s = plan.spec();
  std::string out = "E";
  for (int place = 0; place < s.places(); ++place) {
    const std::int64_t layers = plan.chunk_layers(s.stage_at(place), place / s.mesh.pipeline);
    if (place > 0) out += '|';
    if (layers > 0) out += fmt::format("t*{}", layers);
  }
  return out + "L";
}

std::optional<std::vector<std::int64_t>> stages_of_layout(std::string_view text) {
  std::size_t at = 0;
  const auto plain = written_out(text, at, 0);
  if (!plain || at != text.size()) return std::nullopt;
  std::vector<std::int64_t> out(1, 0);
  for (const char c : *plain) {
    if (c == '|')
      out.push_back(0);
    else if (c == 't')
      ++out.back();
    else if (c != 'E' && c != 'L' && c != 'm')
      return std::nullopt;
  }
  return out;
}

}  // namespace orrery::plan
