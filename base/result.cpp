// How diagnostics are printed, and which word is nearest to a misspelt one.
#include "base/result.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/printable.h"

namespace orrery::base {
namespace {

struct Colours {
  const char* red = "";
  const char* yellow = "";
  const char* blue = "";
  const char* bold = "";
  const char* off = "";
};

Colours colours(bool on) {
  if (!on) return {};
  return {"\033[1;31m", "\033[1;33m", "\033[1;34m", "\033[1m", "\033[0m"};
}

// Blanks up to `column`, keeping tabs so that the caret stands under its text whatever the tab width.
std::string padding(const std::string& line, int column) {
  std::string out;
  int at = 1;
  for (const char c : line) {
    if (at >= column) break;
    if ((static_cast<unsigned char>(c) & 0xC0) == 0x80) continue;  // inside a UTF-8 character
    out += c == '\t' ? '\t' : ' ';
    ++at;
  }
  if (at < column) out.append(static_cast<std::size_t>(column - at), ' ');
  return out;
}

/// A line of source and where in it the carets stand: column from 1 and length, both in characters.
struct Excerpt {
  std::string line;
  int column, length;
};

/// What a message shows of a line. A machine writes a whole file as one line: of a long one only what stands around the
/// column is shown, with dots where something is left out.
Excerpt excerpt_of(const std::string& line, int column, int length) {
  constexpr std::size_t kMost = 100, kBefore = 30;  // characters
  std::vector<std::size_t> begins;                  // of each character, in bytes
  for (std::size_t i = 0; i < line.size(); ++i)
    if ((static_cast<unsigned char>(line[i]) & 0xC0) != 0x80) begins.push_back(i);
  if (begins.size() <= kMost) return {line, column, length};
  const auto at = std::min(static_cast<std::size_t>(column) - 1, begins.size());
  const std::size_t first = std::min(at - std::min(at, kBefore), begins.size() - kMost), last = first + kMost;
  begins.push_back(line.size());
  const std::string before = first > 0 ? "..." : "", after = last + 1 < begins.size() ? "..." : "";
  const int from = static_cast<int>(at - first + before.size()) + 1;
  return {before + line.substr(begins[first], begins[last] - begins[first]) + after, from,
          std::min(length, static_cast<int>(kMost + before.size()) + 1 - from)};
}

std::string source_lines(const Diagnostic& d, const Colours& c, const char* accent, const std::string& gutter) {
  const auto [line, column, length] = excerpt_of(blanked(d.source_line), std::max(1, d.where.column), d.where.length);
  const std::string carets(static_cast<std::size_t>(std::max(1, length)), '^');
  std::string out = fmt::format("{} {}|{}\n", gutter, c.blue, c.off);
  out += fmt::format("{}{} |{} {}\n", c.blue, d.where.line, c.off, line);
  out += fmt::format("{} {}|{} {}{}{}{}\n", gutter, c.blue, c.off, padding(line, column), accent, carets, c.off);
  return out;
}

// Optimal string alignment: insert, delete, replace, or swap two neighbours, each at cost 1.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string render(const Diagnostic& d, bool colour) {
  const Colours c = colours(colour);
  const char* word = "error";
  const char* accent = c.red;
  if (d.severity == Severity::warning) {
    word = "warning";
    accent = c.yellow;
  } else if (d.severity == Severity::note) {
    word = "note";
    accent = c.blue;
  }
  const std::string code = d.code.empty() ? "" : fmt::format("[{}]", d.code);
  std::string out = fmt::format("{}{}{}{}{}: {}{}\n", accent, word, code, c.off, c.bold, printable(d.message), c.off);
  const bool shows_line = d.where.line > 0 && !d.source_line.empty();
  const std::string gutter(shows_line ? fmt::formatted_size("{}", d.where.line) : 1, ' ');
  if (!d.where.file.empty()) {
    out += fmt::format("{}{}-->{} {}", gutter, c.blue, c.off, printable(d.where.file));
    if (d.where.line > 0) out += fmt::format(":{}:{}", d.where.line, d.where.column);
    out += '\n';
  }
  if (shows_line) out += source_lines(d, c, accent, gutter);
  if (!d.help.empty()) {
    if (shows_line) out += fmt::format("{} {}|{}\n", gutter, c.blue, c.off);
    out += fmt::format("{} {}={} {}help{}: {}\n", gutter, c.blue, c.off, c.bold, c.off, printable(d.help));
  }
  return out;
}

std::string render(const Diagnostics& diagnostics, bool colour) {
  std::string out;
  for (const Diagnostic& d : diagnostics) {
    if (!out.empty()) out += '\n';
    out += render(d, colour);
  }
  return out;
}

namespace {

/// "--num-heads" in parts: num, heads.
std::vector<std::string> parts_of(const std::string& word) {
  std::vector<std::string> parts(1);
  for (const char c : word) {
    if (c == '_' || c == '-' || c == '.')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  std::erase(parts, "");
  return parts;
}

/// The candidate that is made of most parts of the word and of no others: `heads` for "num_heads", of several the
/// first; empty if there is none.
std::string within(const std::string& word, const std::vector<std::string>& candidates) {
  const std::vector<std::string> parts = parts_of(word);
  std::string best;
  std::size_t most = 0;
  for (const std::string& candidate : candidates) {
    const std::vector<std::string> its = parts_of(candidate);
    const bool all = !its.empty() && std::all_of(its.begin(), its.end(), [&](const std::string& one) {
      return one.size() > 1 && std::find(parts.begin(), parts.end(), one) != parts.end();
    });
    if (all && its.size() < parts.size() && its.size() > most) {
      best = candidate;
      most = its.size();
    }
  }
  return best;
}

}  // namespace

std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates) {
  constexpr std::size_t kLongest = 64;  // longer words are not typing errors, and the distance is quadratic
  if (word.empty() || word.size() > kLongest) return {};
  std::string best;
  std::size_t best_distance = word.size();
  for (const std::string& candidate : candidates) {
    const auto [shorter, longer] = std::minmax({word.size(), candidate.size()});
    const std::size_t near = std::max<std::size_t>(1, longer / 3);
    if (longer > kLongest || longer - shorter > near) continue;  // their lengths alone differ by too much
    const std::size_t distance = edit_distance(word, candidate);
    if (distance <= near && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  // One wrong letter says more than a part in common, which says more than several wrong letters.
  if (best_distance <= 1 && !best.empty()) return best;
  const std::string part = within(word, candidates);
  return part.empty() ? best : part;
}

std::string quoted(const std::string& text) {
  constexpr std::size_t kMost = 60;
  std::string cut = text;
  if (cut.size() > kMost) {
    std::size_t end = kMost;
    while (end > 0 && (static_cast<unsigned char>(cut[end]) & 0xC0) == 0x80) --end;  // do not cut inside a character
    cut = cut.substr(0, end) + "...";
  }
  return "`" + printable(cut) + "`";
}

}  // namespace orrery::base
