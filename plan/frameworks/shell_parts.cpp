// Tests by descent, batch lines one by one, and a script as a whole.
#include "plan/frameworks/shell_parts.h"

#include <fnmatch.h>
#include <regex.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <set>
#include <tuple>

#include "plan/frameworks/arithmetic.h"
#include "plan/frameworks/shell_walk.h"

namespace orrery::plan {
namespace {

constexpr int kMostTestDepth = 48;

bool is_blank_in_batch(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

bool alternatives(const std::vector<std::string>& words, std::size_t& next, int depth);

bool single_test(const std::vector<std::string>& words, std::size_t& next, int depth);

bool conjunction(const std::vector<std::string>& words, std::size_t& next, int depth);

bool alternatives(const std::vector<std::string>& words, std::size_t& next, int depth) {
  bool holds = conjunction(words, next, depth);
  while (next < words.size() && (words[next] == "||" || words[next] == "-o")) {
    ++next;
    const bool other = conjunction(words, next, depth);
    holds = holds || other;
  }
  return holds;
}
bool conjunction(const std::vector<std::string>& words, std::size_t& next, int depth) {
  bool holds = single_test(words, next, depth);
  while (next < words.size() && (words[next] == "&&" || words[next] == "-a")) {
    ++next;
    const bool other = single_test(words, next, depth);
    holds = holds && other;
  }
  return holds;
}
bool single_test(const std::vector<std::string>& words, std::size_t& next, int depth) {
  if (next >= words.size() || depth > kMostTestDepth) return false;
  const auto at = [&](std::size_t i) { return i < words.size() ? words[i] : std::string(); };
  if (words[next] == "!") return !single_test(words, ++next, depth + 1);
  if (words[next] == "(") {
    const bool holds = alternatives(words, ++next, depth + 1);
    if (at(next) == ")") ++next;
    return holds;
  }
  const std::string op = at(next + 1);
  static const std::set<std::string> kBinary = {"=",   "==",  "!=",  "-eq", "-ne", "-lt",
                                                "-gt", "-le", "-ge", "=~",  "<",   ">"};
  if (kBinary.contains(op)) {
    const std::string left = words[next], right = at(next + 2);
    next += 3;
    return shell_compare(left, op, right);
  }
  if (words[next].size() == 2 && words[next][0] == '-' && next + 1 < words.size() && op != "&&" && op != "||") {
    const std::string test = words[next], value = op;
    next += 2;
    if (test == "-z") return value.empty();
    if (test == "-n") return !value.empty();
    return !value.empty();  // files are taken to be there, as in a run that works
  }
  return !words[next++].empty();
}
int leading_number(std::string_view text) {
  int value = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), value);
  return std::max(0, value);
}

/// As bash's `=~`. Patterns that count or refer back, which may take long, are not followed.
bool found_by(const std::string& pattern, const std::string& text) {
  constexpr std::size_t kMostPattern = 256;
  if (pattern.empty() || pattern.size() > kMostPattern || text.size() > kMostPattern) return false;
  if (pattern.find('{') != std::string::npos) return false;
  for (std::size_t i = 0; i + 1 < pattern.size(); ++i)
    if (pattern[i] == '\\' && std::isdigit(static_cast<unsigned char>(pattern[i + 1])) != 0) return false;
  regex_t compiled;
  if (::regcomp(&compiled, pattern.c_str(), REG_EXTENDED | REG_NOSUB) != 0) return false;
  const bool found = ::regexec(&compiled, text.c_str(), 0, nullptr, 0) == 0;
  ::regfree(&compiled);
  return found;
}

}  // namespace

std::string without_holes(const std::string& word) {
  std::string out;
  bool hole = false;
  for (const char c : word) {
    if (c == kHole)
      hole = !hole;
    else if (!hole)
      out += c;
  }
  return out;
}
bool shell_compare(const std::string& left, const std::string& op, const std::string& right) {
  constexpr std::size_t kMostPattern = 1024;
  constexpr std::ptrdiff_t kMostStars = 4;
  if (op == "=" || op == "==" || op == "!=") {
    const bool small = right.size() <= kMostPattern && left.size() <= kMostPattern &&
                       std::count(right.begin(), right.end(), '*') <= kMostStars;
    const bool fits = left == right || (small && ::fnmatch(right.c_str(), left.c_str(), 0) == 0);
    return fits == (op != "!=");
  }
  if (op == "=~") return found_by(right, left);
  const auto none = [](const std::string&) { return std::optional<std::string>(); };
  const auto a = arithmetic(left, none), b = arithmetic(right, none);
  if (!a || !b) return false;
  if (op == "-eq") return *a == *b;
  if (op == "-ne") return *a != *b;
  if (op == "-lt" || op == "<") return *a < *b;
  if (op == "-gt" || op == ">") return *a > *b;
  if (op == "-le") return *a <= *b;
  return *a >= *b;
}

bool shell_test_holds(const std::vector<std::string>& words) {
  std::size_t next = 0;
  return alternatives(words, next, 0);
}

/// `#SBATCH --nodes=4`, `-N 4`, `--gres=gpu:a100:8`.
BatchRequest batch_of(std::string_view text) {
  BatchRequest out;
  for (std::size_t line = 0; line < text.size();) {
    const std::size_t end = std::min(text.find('\n', line), text.size());
    std::string_view one = text.substr(line, end - line);
    line = end + 1;
    if (!one.starts_with("#SBATCH")) continue;
    one.remove_prefix(7);
    while (!one.empty() && is_blank_in_batch(one.front())) one.remove_prefix(1);
    const std::size_t cut = one.find_first_of("= \t");
    if (cut == std::string_view::npos) continue;
    const std::string_view key = one.substr(0, cut);
    std::string_view value = one.substr(cut + 1);
    while (!value.empty() && is_blank_in_batch(value.front())) value.remove_prefix(1);
    value = value.substr(0, value.find_first_of(" \t\r#"));
    const std::string_view last = value.substr(value.find_last_of(':') + 1);  // npos + 1 is 0
    if (key == "--nodes" || key == "-N") out.nodes = leading_number(value);
    if (key == "--gpus-per-node") out.gpus_per_node = leading_number(last);
    if (key == "--gres" && value.starts_with("gpu")) out.gpus_per_node = leading_number(last);
    if (key == "--ntasks" || key == "-n") out.tasks = leading_number(value);
    if (key == "--ntasks-per-node") out.tasks_per_node = leading_number(value);
  }
  return out;
}

std::string hole_in(std::string_view word) {
  const std::size_t begin = word.find(kHole);
  if (begin == std::string_view::npos) return {};
  const std::size_t end = word.find(kHole, begin + 1);
  return std::string(word.substr(begin + 1, end == std::string_view::npos ? end : end - begin - 1));
}

base::Location place_in(std::string_view text, const std::string& file, std::size_t offset) {
  offset = std::min(offset, text.size());
  const std::string_view before = text.substr(0, offset);
  const std::size_t line_start = before.find_last_of('\n') + 1;  // npos + 1 is 0
  int column = 1;
  for (const char c : before.substr(line_start)) column += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
  return {file, 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n')), column, 1};
}

ShellScript read_shell(std::string_view text, const std::string& file,
                       const std::map<std::string, std::string>& defined,
                       const std::map<std::string, std::string>& others) {
  ShellState state{{}, {}, {}, others};
  state.out.batch = batch_of(text);
  const auto define = [&](const std::string& name, const std::string& value) {
    TracedText item;
    for (const char c : value) item.add(c, 0);
    state.variables[name] = {{item}, false};
  };
  const BatchRequest& batch = state.out.batch;
  const int tasks = batch.tasks > 0 ? batch.tasks : batch.nodes * batch.tasks_per_node;
  const std::tuple<const char*, int> known[] = {{"SLURM_NNODES", batch.nodes},
                                                {"SLURM_JOB_NUM_NODES", batch.nodes},
                                                {"SLURM_NTASKS", tasks},
                                                {"SLURM_NPROCS", tasks},
                                                {"SLURM_NTASKS_PER_NODE", batch.tasks_per_node},
                                                {"SLURM_GPUS_PER_NODE", batch.gpus_per_node},
                                                {"SLURM_GPUS_ON_NODE", batch.gpus_per_node}};
  for (const auto& [name, value] : known)
    if (value > 0) define(name, std::to_string(value));
  for (const auto& [name, value] : defined) define(name, value);
  TracedText all;
  all.text.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == kHole || text[i] == '\0') {
      state.out.errors.push_back({base::Severity::error,
                                  "E0651",
                                  place_in(text, file, i),
                                  "a control character, which no script has",
                                  "is this a launch script?",
                                  {}});
      return std::move(state.out);
    }
    all.add(text[i], static_cast<std::uint32_t>(i));
  }
  ShellWalk(state, all, 0).run();
  for (base::Diagnostic& one : state.out.errors)
    one.where = place_in(text, file, static_cast<std::size_t>(one.where.line));
  for (const auto& [name, value] : state.variables) {
    TracedText joined;
    for (const TracedText& item : value.items) {
      if (!joined.text.empty()) joined.add(' ', item.from.empty() ? 0 : item.from.front());
      joined.add(item);
    }
    state.out.variables[name] = std::move(joined);
  }
  return std::move(state.out);
}

}  // namespace orrery::plan
