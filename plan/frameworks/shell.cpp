// A walk through the grammar of bash, as far as launch scripts go. Branches that are not taken are walked, too, but leave
// nothing behind.
#include "plan/frameworks/shell.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <set>
#include <tuple>

#include "plan/frameworks/arithmetic.h"

namespace orrery::plan {
namespace {

constexpr std::size_t kMostText = std::size_t{1} << 22;   // of all expansions together
constexpr std::size_t kMostWords = std::size_t{1} << 16;  // of one array or command
constexpr int kMostDepth = 48;

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
bool is_space(char c) { return is_blank(c) || c == '\n'; }

std::string base_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

struct Variable {
  std::vector<TracedText> items;
  bool array = false;
};

/// State that nested texts share.
struct ShellState {
  ShellScript out;
  std::map<std::string, Variable> variables;
  std::set<std::string> functions;
  const std::map<std::string, std::string>& others;
  std::size_t spent = 0;
  bool ended = false;  ///< by `exit`, or because nothing can be read after an error
};

class ShellWalk {
 public:
  ShellWalk(ShellState& state, const TracedText& text, int depth) : s_(state), t_(text), depth_(depth) {}

  void run() {
    statements({}, true);
    if (at_ < size() && !s_.ended) error(at_, fmt::format("`{}` without its beginning", word_here()));
  }

 private:
  using Words = std::vector<TracedText>;

  [[nodiscard]] std::size_t size() const { return t_.text.size(); }
  [[nodiscard]] char peek(std::size_t ahead = 0) const { return at_ + ahead < size() ? t_.text[at_ + ahead] : '\0'; }
  [[nodiscard]] bool starts(std::string_view word) const {
    return std::string_view(t_.text).substr(at_, word.size()) == word;
  }
  [[nodiscard]] std::uint32_t offset(std::size_t at) const {
    return t_.from.empty() ? 0 : t_.from[std::min(at, t_.from.size() - 1)];
  }

  void error(std::size_t at, std::string message) {
    if (s_.ended) return;
    base::Diagnostic one{base::Severity::error, "E0651", {}, std::move(message),
                         "Orrery reads bash; the file may be cut, or be of another kind", {}};
    one.where.line = static_cast<int>(offset(at));  // an offset still; read_shell makes a place of it
    s_.out.errors.push_back(std::move(one));
    s_.ended = true;
    at_ = size();
  }
  bool spend(std::size_t bytes) {
    s_.spent += bytes;
    if (s_.spent <= kMostText) return true;
    error(at_, "the script's variables grow beyond what is read (4 MiB)");
    return false;
  }

  [[nodiscard]] std::string word_here() const {
    std::size_t end = at_;
    while (end < size() && !is_space(t_.text[end]) && t_.text[end] != ';') ++end;
    return t_.text.substr(at_, std::min<std::size_t>(end - at_, 40));
  }
  [[nodiscard]] bool keyword(std::string_view word) const {
    if (!starts(word)) return false;
    const char next = peek(word.size());
    return next == '\0' || is_space(next) || next == ';' || next == '&' || next == '|' || next == ')';
  }
  bool take_keyword(std::string_view word) {
    if (!keyword(word)) return false;
    at_ += word.size();
    return true;
  }

  void skip_blanks() {
    for (;;) {
      if (is_blank(peek()))
        ++at_;
      else if (peek() == '\\' && peek(1) == '\n')
        at_ += 2;
      else if (peek() == '\\' && peek(1) == '\r' && peek(2) == '\n')
        at_ += 3;
      else if (peek() == '#' && (at_ == 0 || is_space(t_.text[at_ - 1]) || t_.text[at_ - 1] == ';' ||
                                 t_.text[at_ - 1] == '('))
        while (at_ < size() && peek() != '\n') ++at_;
      else
        return;
    }
  }
  /// Between statements. A line's end is where here-documents begin.
  void skip_ends() {
    for (;;) {
      skip_blanks();
      if (peek() == '\n') {
        ++at_;
        documents();
      } else if (peek() == ';' && peek(1) != ';') {
        ++at_;
      } else if (peek() == '&') {
        ++at_;
      } else {
        return;
      }
    }
  }

  /// Statements up to one of these words, which is not taken.
  void statements(std::initializer_list<std::string_view> until, bool active) {
    if (++nested_ > kMostDepth) error(at_, "the script nests too deeply");
    bool runs = active;
    while (at_ < size()) {
      skip_ends();
      if (at_ >= size()) break;
      if (std::any_of(until.begin(), until.end(), [&](std::string_view word) {
            return word == ")" || word == ";;" ? starts(word) : keyword(word);
          }))
        break;
      if (until.size() == 0 && (starts(")") || starts(";;") || keyword("fi") || keyword("done") || keyword("esac") ||
                                keyword("}") || keyword("then") || keyword("else") || keyword("elif")))
        break;
      const std::size_t before = at_;
      statement(runs && !s_.ended);
      skip_blanks();
      runs = active;
      if (starts("||")) {  // what follows a failure does not run
        at_ += 2;
        runs = false;
      } else if (starts("&&")) {
        at_ += 2;
      } else if (peek() == '|') {
        at_ += peek(1) == '&' ? 2 : 1;
      }
      if (at_ == before) {
        error(at_, fmt::format("{} is not understood here", base::quoted(std::string(1, peek()))));
        break;
      }
    }
    --nested_;
  }
  bool close(std::string_view word, std::size_t opened, const char* what) {
    skip_ends();
    if (word == ")" || word == ";;" ? starts(word) : keyword(word)) {
      at_ += word.size();
      return true;
    }
    error(opened, fmt::format("`{}` without `{}`", what, word));
    return false;
  }

  void statement(bool active) {
    const std::size_t opened = at_;
    if (take_keyword("!")) skip_blanks();
    if (take_keyword("if")) return if_statement(active, opened);
    if (take_keyword("case")) return case_statement(active, opened);
    if (take_keyword("for") || take_keyword("select")) return for_statement(active, opened);
    if (take_keyword("while") || take_keyword("until")) {
      statements({"do"}, false);
      if (!close("do", opened, "while")) return;
      statements({"done"}, false);
      (void)close("done", opened, "while");
      return redirections(false);
    }
    if (take_keyword("function")) {
      skip_blanks();
      s_.functions.insert(word_here());
      while (at_ < size() && !is_space(peek()) && peek() != '(') ++at_;
      skip_blanks();
      if (starts("()")) at_ += 2;
      skip_ends();
      return statement(false);
    }
    if (take_keyword("{")) {
      statements({"}"}, active);
      if (close("}", opened, "{")) redirections(active);
      return;
    }
    if (starts("((")) {
      const std::size_t end = t_.text.find("))", at_);
      if (end == std::string::npos) return error(opened, "`((` without `))`");
      at_ = end + 2;
      return;
    }
    if (peek() == '(') {
      ++at_;
      statements({")"}, active);
      if (close(")", opened, "(")) redirections(active);
      return;
    }
    if (function_definition()) return;
    simple_command(active);
  }

  bool function_definition() {
    std::size_t end = at_;
    while (end < size() && (is_name(t_.text[end]) || t_.text[end] == '-')) ++end;
    std::size_t open = end;
    while (open < size() && is_blank(t_.text[open])) ++open;
    if (end == at_ || t_.text.compare(open, 1, "(") != 0) return false;
    std::size_t closing = open + 1;
    while (closing < size() && is_blank(t_.text[closing])) ++closing;
    if (t_.text.compare(closing, 1, ")") != 0) return false;
    s_.functions.insert(t_.text.substr(at_, end - at_));
    at_ = closing + 1;
    skip_ends();
    if (++nested_ > kMostDepth) error(at_, "the script nests too deeply");
    statement(false);
    --nested_;
    return true;
  }

  void if_statement(bool active, std::size_t opened) {
    bool done = false;
    for (;;) {
      const bool holds = condition(active && !done, "then");
      if (!close("then", opened, "if")) return;
      statements({"elif", "else", "fi"}, active && !done && holds);
      done |= holds;
      if (take_keyword("elif")) continue;
      if (take_keyword("else")) statements({"fi"}, active && !done);
      if (close("fi", opened, "if")) redirections(active);
      return;
    }
  }

  /// Tests before `then`. What cannot be told does not hold.
  bool condition(bool active, std::string_view until) {
    bool holds = false, negated_next = false, first = true, by_or = false;
    while (at_ < size()) {
      skip_ends();
      if (keyword(until) || at_ >= size()) break;
      if (take_keyword("!")) {
        negated_next = !negated_next;
        continue;
      }
      bool one = false;
      const std::size_t before = at_;
      if (starts("[[") || (peek() == '[' && is_space(peek(1))))
        one = bracket_test(active);
      else if (starts("(("))
        one = arithmetic_test();
      else if (keyword("true")) {
        at_ += 4;
        one = true;
      } else if (keyword("false"))
        at_ += 5;
      else {
        statement(false);
      }
      if (negated_next) one = !one;
      negated_next = false;
      holds = first ? one : by_or ? holds || one : holds && one;
      first = false;
      skip_blanks();
      by_or = starts("||");
      if (starts("||") || starts("&&"))
        at_ += 2;
      else if (peek() == '|')
        ++at_;
      if (at_ == before) {
        error(at_, fmt::format("{} is not understood here", base::quoted(std::string(1, peek()))));
        break;
      }
    }
    return holds;
  }

  bool arithmetic_test() {
    const std::size_t end = t_.text.find("))", at_);
    if (end == std::string::npos) {
      error(at_, "`((` without `))`");
      return false;
    }
    const TracedText inner = expanded(t_.part(at_ + 2, end));
    at_ = end + 2;
    const auto value = arithmetic(inner.text, [&](const std::string& name) { return text_of(name); });
    return value && *value != 0;
  }

  /// `[ … ]` and `[[ … ]]`.
  bool bracket_test(bool active) {
    const std::size_t opened = at_;
    const bool wide = starts("[[");
    at_ += wide ? 2 : 1;
    const std::string_view closing = wide ? "]]" : "]";
    std::vector<std::string> words;
    for (;;) {
      skip_blanks();
      while (peek() == '\n') ++at_, skip_blanks();
      if (at_ >= size() || s_.ended) {
        error(opened, fmt::format("`{}` without `{}`", wide ? "[[" : "[", closing));
        return false;
      }
      if (starts(closing)) break;
      if (starts("&&") || starts("||")) {
        words.emplace_back(t_.text.substr(at_, 2));
        at_ += 2;
        continue;
      }
      if (peek() == '(' || peek() == ')' || peek() == '<' || peek() == '>') {
        words.emplace_back(1, peek());
        ++at_;
        continue;
      }
      const std::size_t before = at_;
      std::string word;  // one word even if it is empty or has spaces: quotes are expected around it
      for (const TracedText& one : word_at(active, true)) word += (word.empty() ? "" : " ") + one.text;
      words.push_back(without_holes(word));
      if (at_ == before) ++at_;
    }
    at_ += closing.size();
    std::size_t next = 0;
    return active && alternatives(words, next, 0);
  }
  /// Of a variable that nobody sets nothing is left.
  static std::string without_holes(const std::string& word) {
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
  static bool alternatives(const std::vector<std::string>& words, std::size_t& next, int depth) {
    bool holds = conjunction(words, next, depth);
    while (next < words.size() && (words[next] == "||" || words[next] == "-o")) {
      ++next;
      const bool other = conjunction(words, next, depth);
      holds = holds || other;
    }
    return holds;
  }
  static bool conjunction(const std::vector<std::string>& words, std::size_t& next, int depth) {
    bool holds = single_test(words, next, depth);
    while (next < words.size() && (words[next] == "&&" || words[next] == "-a")) {
      ++next;
      const bool other = single_test(words, next, depth);
      holds = holds && other;
    }
    return holds;
  }
  static bool single_test(const std::vector<std::string>& words, std::size_t& next, int depth) {
    if (next >= words.size() || depth > kMostDepth) return false;
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
      return compare(left, op, right);
    }
    if (words[next].size() == 2 && words[next][0] == '-' && next + 1 < words.size() && op != "&&" && op != "||") {
      const std::string test = words[next], value = op;
      next += 2;
      if (test == "-z") return value.empty();
      if (test == "-n") return !value.empty();
      if (test == "-v") return false;
      return false;  // files: nothing is looked up
    }
    return !words[next++].empty();
  }
  static bool compare(const std::string& left, const std::string& op, const std::string& right) {
    if (op == "=" || op == "==") {
      const std::size_t star = right.find('*');  // a pattern with one star
      if (star == std::string::npos) return left == right;
      const std::string head = right.substr(0, star), tail = right.substr(star + 1);
      return left.size() >= head.size() + tail.size() && left.starts_with(head) && left.ends_with(tail);
    }
    if (op == "!=") return left != right;
    if (op == "=~") return !right.empty() && left.find(right) != std::string::npos;
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

  void case_statement(bool active, std::size_t opened) {
    skip_blanks();
    std::string subject;
    for (const TracedText& one : word_at(active, true)) subject += one.text;
    subject = without_holes(subject);
    skip_ends();
    if (!take_keyword("in")) return error(opened, "`case` without `in`");
    bool done = false;
    for (;;) {
      skip_ends();
      if (take_keyword("esac")) return redirections(active);
      if (at_ >= size() || s_.ended) return error(opened, "`case` without `esac`");
      if (peek() == '(') ++at_;
      bool matches = false;
      while (at_ < size() && peek() != ')') {
        skip_blanks();
        const std::size_t before = at_;
        std::string pattern;
        for (const TracedText& one : word_at(active, true)) pattern += one.text;
        matches |= pattern == "*" || compare(subject, "==", pattern);
        skip_blanks();
        if (peek() == '|') ++at_;
        if (at_ == before) return error(at_, "a pattern of `case` that is not understood");
      }
      if (peek() == ')') ++at_;
      statements({";;", "esac"}, active && matches && !done);
      done |= matches;
      if (starts(";;")) at_ += peek(2) == '&' ? 3 : 2;
    }
  }

  /// The body runs once, for the first word.
  void for_statement(bool active, std::size_t opened) {
    skip_blanks();
    Words values;
    std::string name;
    if (starts("((")) {
      const std::size_t end = t_.text.find("))", at_);
      if (end == std::string::npos) return error(opened, "`((` without `))`");
      at_ = end + 2;
    } else {
      while (is_name(peek())) name += t_.text[at_++];
      skip_ends();
      if (take_keyword("in"))
        for (skip_blanks(); at_ < size() && peek() != '\n' && peek() != ';'; skip_blanks()) {
          const std::size_t before = at_;
          for (TracedText& one : word_at(active, false)) values.push_back(std::move(one));
          if (at_ == before) return error(at_, "a word of `for` that is not understood");
        }
    }
    if (!close("do", opened, "for")) return;
    const bool runs = active && !values.empty();
    if (runs && !name.empty()) s_.variables[name] = {{values.front()}, false};
    statements({"done"}, runs);
    if (close("done", opened, "for")) redirections(active);
  }

  /// `>file`, `2>&1`, `<<EOT`: taken. Returns the file that output goes to.
  bool redirection(bool active, std::string& target) {
    std::size_t sign = at_;
    while (sign < size() && std::isdigit(static_cast<unsigned char>(t_.text[sign])) != 0) ++sign;
    if (sign - at_ > 1) return false;
    const bool both = sign == at_ && starts("&>");
    if (!both && (sign >= size() || (t_.text[sign] != '<' && t_.text[sign] != '>'))) return false;
    at_ = both ? at_ + 1 : sign;
    if ((starts("<(") || starts(">("))) {
      ++at_;
      parenthesis();
      return true;
    }
    if (starts("<<<")) {
      at_ += 3;
    } else if (starts("<<")) {
      at_ += 2;
      Document one;
      one.tabs = peek() == '-';
      if (one.tabs) ++at_;
      skip_blanks();
      while (at_ < size() && !is_space(peek()) && peek() != ';' && peek() != '|' && peek() != '>') {
        const char c = t_.text[at_++];
        if (c == '\'' || c == '"' || c == '\\')
          one.literal = true;
        else
          one.end += c;
      }
      one.active = active;
      one.opened = at_;
      open_documents_.push_back(one);
      return true;
    } else {
      const bool out = peek() == '>';
      ++at_;
      if (peek() == '>' || peek() == '|') ++at_;
      if (peek() == '&') {
        ++at_;
        while (is_name(peek()) || peek() == '-') ++at_;
        return true;
      }
      skip_blanks();
      Words name = word_at(active, true);
      if (out && !name.empty()) target = name.front().text;
      return true;
    }
    skip_blanks();
    (void)word_at(active, true);
    return true;
  }
  void redirections(bool active) {
    std::string target;
    for (skip_blanks(); redirection(active, target); skip_blanks()) {
    }
  }

  struct Document {
    std::string end, target;
    bool literal = false, tabs = false, active = false;
    std::size_t opened = 0;
  };
  void documents() {
    for (const Document& one : std::exchange(open_documents_, {})) {
      const std::size_t begin = at_;
      std::size_t last = size();
      for (std::size_t line = at_;;) {
        if (line >= size()) return error(one.opened, fmt::format("a here-document without its end, `{}`", one.end));
        const std::size_t end = std::min(t_.text.find('\n', line), size());
        std::size_t from = line, to = end;
        while (one.tabs && from < to && t_.text[from] == '\t') ++from;
        while (to > from && t_.text[to - 1] == '\r') --to;
        if (t_.text.compare(from, to - from, one.end) == 0) {
          last = line;
          at_ = std::min(end + 1, size());
          break;
        }
        line = end + 1;
      }
      if (!one.active || one.target.empty()) continue;
      TracedText body = t_.part(begin, last);
      s_.out.documents[one.target] = one.literal ? body : expanded(body);
    }
  }

  void simple_command(bool active) {
    Words words;
    std::string target;
    bool only_assignments = true;
    const std::size_t documents_before = open_documents_.size();
    while (at_ < size() && !s_.ended) {
      skip_blanks();
      const char c = peek();
      if (c == '\0' || c == '\n' || c == ';' || c == '|' || c == ')' || starts("&&") || (c == '&' && peek(1) != '>'))
        break;
      if (redirection(active, target)) continue;
      if (c == '(') {  // a subshell in a strange place
        parenthesis();
        continue;
      }
      const bool declares = !words.empty() && declaration(words.front().text);
      if ((only_assignments || declares) && assignment(active)) continue;
      const std::size_t before = at_;
      Words more = word_at(active, false);
      if (at_ == before) {
        error(at_, fmt::format("{} is not understood here", base::quoted(std::string(1, peek()))));
        return;
      }
      only_assignments = false;
      for (TracedText& one : more) words.push_back(std::move(one));
      if (words.size() > kMostWords) return error(before, "a command of more words than are read");
    }
    for (std::size_t i = documents_before; i < open_documents_.size(); ++i) open_documents_[i].target = target;
    if (active && !s_.ended && !words.empty()) command(std::move(words));
  }
  static bool declaration(const std::string& word) {
    return word == "export" || word == "local" || word == "declare" || word == "readonly" || word == "typeset";
  }

  /// `NAME=…`, `NAME+=…`, `NAME=(…)`.
  bool assignment(bool active) {
    if (!is_name_start(peek())) return false;
    std::size_t end = at_;
    while (end < size() && is_name(t_.text[end])) ++end;
    const std::string name = t_.text.substr(at_, end - at_);
    bool one_item = false;
    if (t_.text.compare(end, 1, "[") == 0) {  // an element by its index or key
      const std::size_t bracket = t_.text.find(']', end);
      if (bracket == std::string::npos) return false;
      end = bracket + 1;
      one_item = true;
    }
    const bool more = t_.text.compare(end, 2, "+=") == 0;
    if (!more && t_.text.compare(end, 1, "=") != 0) return false;
    at_ = end + (more ? 2 : 1);
    Variable value;
    if (peek() == '(') {
      const std::size_t opened = at_++;
      value.array = true;
      for (;;) {
        skip_blanks();
        while (peek() == '\n') ++at_, skip_blanks();
        if (peek() == ')') break;
        if (at_ >= size() || s_.ended) {
          error(opened, fmt::format("the array `{}` without `)`", name));
          return true;
        }
        const std::size_t before = at_;
        for (TracedText& one : word_at(active, false)) value.items.push_back(std::move(one));
        if (at_ == before) {
          error(at_, fmt::format("{} is not understood in the array `{}`", base::quoted(std::string(1, peek())), name));
          return true;
        }
        if (value.items.size() > kMostWords) {
          error(before, "an array of more words than are read");
          return true;
        }
      }
      ++at_;
    } else {
      TracedText joined;
      if (at_ < size() && !is_space(peek()) && peek() != ';')
        for (const TracedText& one : word_at(active, true)) joined.add(one);
      value.items.push_back(std::move(joined));
    }
    if (!active) return true;
    Variable& at = s_.variables[name];
    if (one_item) return true;  // arrays by key are left as they are
    if (!more) {
      at = std::move(value);
    } else if (value.array || at.array) {
      at.array = true;
      at.items.insert(at.items.end(), value.items.begin(), value.items.end());
      if (at.items.size() > kMostWords) error(at_, "an array of more words than are read");
    } else {
      if (at.items.empty()) at.items.emplace_back();
      at.items.front().add(value.items.front());
      (void)spend(at.items.front().text.size());
    }
    return true;
  }

  void command(Words words) {
    static const std::set<std::string> kPrefixes = {"exec", "command", "nohup", "time", "sudo", "env", "builtin"};
    while (!words.empty() && kPrefixes.contains(words.front().text)) words.erase(words.begin());
    if (words.empty() || declaration(words.front().text)) return;
    const std::string first = words.front().text;
    const auto others = [&](std::size_t i) {
      if (i >= words.size()) return;
      const std::string name = base_name(words[i].text);
      s_.out.sourced.emplace_back(words[i].text, words[i].from.empty() ? 0 : words[i].from.front());
      const auto found = s_.others.find(name);
      if (found == s_.others.end()) return;
      TracedText text;
      for (const char c : found->second) text.add(c, s_.out.sourced.back().second);
      nested(text);
    };
    if (first == "source" || first == ".") return others(1);
    if (first == "exit" || first == "return") {
      s_.ended = true;
      return;
    }
    if (first == "unset")
      for (std::size_t i = 1; i < words.size(); ++i) s_.variables.erase(words[i].text);
    if (first == "eval") {
      TracedText all;
      for (std::size_t i = 1; i < words.size(); ++i) {
        if (i > 1) all.add(' ', words[i].from.empty() ? 0 : words[i].from.front());
        all.add(words[i]);
      }
      return nested(all);
    }
    if ((first == "bash" || first == "sh") && words.size() > 1 && !words[1].text.starts_with("-")) return others(1);
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      const std::string shell = base_name(words[i].text);
      if ((shell == "bash" || shell == "sh") && words[i + 1].text.starts_with("-") && words[i + 1].text.ends_with("c"))
        return i + 2 < words.size() ? nested(words[i + 2]) : void();
      if (shell.ends_with(".sh") && i > 0) s_.out.sourced.emplace_back(words[i].text, words[i].from.front());
    }
    // `srun "python train.py …"`: a launcher gets the whole command as one word.
    for (TracedText& one : words)
      if (one.text.find(".py") != std::string::npos && one.text.find(" --") != std::string::npos) return nested(one);
    s_.out.commands.push_back({std::move(words)});
  }
  void nested(const TracedText& text) {
    if (depth_ + 1 > 4 || !spend(text.text.size())) return;
    const TracedText copy = text;
    ShellWalk(s_, copy, depth_ + 1).run();
  }

  // Words.

  [[nodiscard]] std::optional<std::string> text_of(const std::string& name) const {
    const auto at = s_.variables.find(name);
    if (at == s_.variables.end() || at->second.items.empty()) return std::nullopt;
    return at->second.items.front().text;
  }

  void hole(TracedText& into, const std::string& name, std::size_t at) {
    const std::uint32_t from = offset(at);
    s_.out.missing.emplace(name, from);
    into.add(kHole, from);
    for (const char c : name) into.add(c, from);
    into.add(kHole, from);
  }

  /// A text that is not divided into words: a here-document's, an arithmetic expression's.
  TracedText expanded(const TracedText& text) {
    if (depth_ > 8) return text;
    ShellWalk inner(s_, text, depth_ + 1);
    TracedText out;
    while (inner.at_ < inner.size() && !s_.ended) {
      const char c = inner.peek();
      if (c == '\\' && (inner.peek(1) == '$' || inner.peek(1) == '`' || inner.peek(1) == '\\')) {
        out.add(inner.peek(1), inner.offset(inner.at_ + 1));
        inner.at_ += 2;
      } else if (c == '$' || c == '`') {
        Words parts = inner.dollar(true, true);
        for (std::size_t i = 0; i < parts.size(); ++i) {
          if (i > 0) out.add(' ', inner.offset(inner.at_));
          out.add(parts[i]);
        }
      } else {
        out.add(c, inner.offset(inner.at_++));
      }
      if (!spend(1)) break;
    }
    return out;
  }

  /// A word, expanded and, unless it is `whole`, divided at the spaces that unquoted variables bring.
  Words word_at(bool active, bool whole) {
    if (++nested_ > 4 * kMostDepth) error(at_, "the script nests too deeply");
    Words out;
    TracedText word;
    bool open = false;
    const auto finish = [&] {
      if (open) out.push_back(std::move(word));
      word = {};
      open = false;
    };
    const auto put = [&](Words parts, bool quoted) {
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (i > 0) finish();
        if (quoted || whole) {
          word.add(parts[i]);
          open = true;
          continue;
        }
        bool inside = false;
        for (std::size_t k = 0; k < parts[i].text.size(); ++k) {
          const char c = parts[i].text[k];
          inside ^= c == kHole;
          if (!inside && is_space(c)) {
            finish();
          } else {
            word.add(c, parts[i].from[k]);
            open = true;
          }
        }
        if (!spend(parts[i].text.size())) return;
      }
    };
    while (at_ < size() && !s_.ended) {
      const char c = peek();
      if (is_space(c) || c == ';' || c == '|' || c == '&' || c == '(' || c == ')' || c == '<' || c == '>') break;
      if (c == '\\') {
        if (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n')) break;
        if (at_ + 1 < size()) word.add(peek(1), offset(at_ + 1)), open = true;
        at_ += 2;
      } else if (c == '\'') {
        const std::size_t end = t_.text.find('\'', at_ + 1);
        if (end == std::string::npos) {
          error(at_, "a quote that does not end");
          break;
        }
        word.add(t_.part(at_ + 1, end));
        open = true;
        at_ = end + 1;
      } else if (c == '"') {
        open = true;
        quoted(active, [&](Words parts) { put(std::move(parts), true); });
      } else if (c == '$' || c == '`') {
        put(dollar(active, false), false);
      } else {
        word.add(c, offset(at_++));
        open = true;
      }
    }
    at_ = std::min(at_, size());
    finish();
    --nested_;
    return out;
  }

  template <class Put>
  void quoted(bool active, const Put& put) {
    const std::size_t opened = at_++;
    TracedText literal;
    while (at_ < size() && peek() != '"' && !s_.ended) {
      const char c = peek();
      if (c == '\\' && at_ + 1 < size()) {
        const char next = peek(1);
        if (next == '\n') {
          at_ += 2;
        } else if (next == '"' || next == '\\' || next == '$' || next == '`') {
          literal.add(next, offset(at_ + 1));
          at_ += 2;
        } else {
          literal.add(c, offset(at_++));
        }
      } else if (c == '$' || c == '`') {
        put({std::exchange(literal, {})});
        Words parts = dollar(active, true);
        if (!parts.empty()) put(std::move(parts));
      } else {
        literal.add(c, offset(at_++));
      }
    }
    if (peek() != '"') return error(opened, "a quote that does not end");
    ++at_;
    put({std::move(literal)});
  }

  /// Takes a balanced `( … )`.
  void parenthesis() {
    const std::size_t opened = at_;
    int open = 0;
    char quote = 0;
    for (; at_ < size(); ++at_) {
      const char c = peek();
      if (c == '\\') {
        ++at_;
      } else if (quote != 0) {
        if (c == quote) quote = 0;
      } else if (c == '\'' || c == '"') {
        quote = c;
      } else if (c == '(') {
        ++open;
      } else if (c == ')' && --open == 0) {
        ++at_;
        return;
      }
    }
    error(opened, "`(` without `)`");
  }

  /// What stands at a `$` or a backtick.
  Words dollar(bool active, bool in_quotes) {
    const std::size_t begin = at_;
    TracedText out;
    if (peek() == '`') {
      const std::size_t end = t_.text.find('`', at_ + 1);
      if (end == std::string::npos) {
        error(at_, "a backtick that does not end");
        return {};
      }
      at_ = end + 1;
      hole(out, t_.text.substr(begin, std::min<std::size_t>(at_ - begin, 40)), begin);
      return {out};
    }
    const char next = peek(1);
    if (next == '(' && peek(2) == '(') return arithmetic_at(begin);
    if (next == '(') {
      ++at_;
      parenthesis();
      hole(out, t_.text.substr(begin, std::min<std::size_t>(at_ - begin, 40)), begin);
      return {out};
    }
    if (next == '{') return braces(active, in_quotes);
    if (is_name_start(next)) {
      ++at_;
      std::string name;
      while (is_name(peek())) name += t_.text[at_++];
      return value_of(name, begin, false, in_quotes);
    }
    if (next == '@' || next == '*') {  // the script's own arguments: it is read as called without any
      at_ += 2;
      return {};
    }
    if (std::isdigit(static_cast<unsigned char>(next)) != 0) {
      at_ += 2;
      hole(out, std::string("$") + next, begin);
      return {out};
    }
    if (next == '#') {
      at_ += 2;
      out.add('0', offset(begin));
      return {out};
    }
    if (next == '?' || next == '$' || next == '!' || next == '-') {
      at_ += 2;
      hole(out, std::string("$") + next, begin);
      return {out};
    }
    if (next == '\'') {  // $'…'
      ++at_;
      return {};
    }
    out.add('$', offset(at_++));
    return {out};
  }

  Words arithmetic_at(std::size_t begin) {
    std::size_t end = begin + 3;
    for (int open = 2; end < size(); ++end) {
      open += t_.text[end] == '(' ? 1 : t_.text[end] == ')' ? -1 : 0;
      if (open == 0) break;
    }
    if (end >= size()) {
      error(begin, "`$((` without `))`");
      return {};
    }
    const TracedText inner = expanded(t_.part(begin + 3, end - 1));
    at_ = end + 1;
    TracedText out;
    std::string missing = hole_in(inner.text);
    const auto value = arithmetic(inner.text, [&](const std::string& name) {
      auto text = text_of(name);
      if (missing.empty()) missing = text ? hole_in(*text) : "$" + name;
      return text;
    });
    if (value)
      for (const char c : std::to_string(*value)) out.add(c, offset(begin));
    else
      hole(out, missing.empty() ? t_.text.substr(begin, std::min<std::size_t>(at_ - begin, 40)) : missing, begin);
    return {out};
  }

  Words value_of(const std::string& name, std::size_t begin, bool all, bool in_quotes) {
    const auto at = s_.variables.find(name);
    TracedText out;
    if (at == s_.variables.end()) {
      hole(out, "$" + name, begin);
      return {out};
    }
    const Variable& v = at->second;
    std::size_t bytes = 0;
    for (const TracedText& one : v.items) bytes += one.text.size() + 1;
    if (!spend(bytes)) return {};
    if (all) return v.items;
    if (v.items.empty()) return in_quotes ? Words{out} : Words{};
    return {v.items.front()};
  }

  /// `${…}`.
  Words braces(bool active, bool in_quotes) {
    const std::size_t begin = at_;
    at_ += 2;
    TracedText out;
    const auto unknown = [&]() -> Words {
      int open = 1;
      while (at_ < size() && open > 0) {
        if (peek() == '\\') ++at_;
        open += peek() == '{' ? 1 : peek() == '}' ? -1 : 0;
        ++at_;
      }
      at_ = std::min(at_, size());
      if (open > 0) {
        error(begin, "`${` without `}`");
        return {};
      }
      hole(out, t_.text.substr(begin, std::min<std::size_t>(at_ - begin, 40)), begin);
      return {out};
    };
    std::string name;
    if (peek() == '#' || peek() == '!') return unknown();
    while (is_name(peek())) name += t_.text[at_++];
    bool all = false;
    if (name.empty() && (peek() == '@' || peek() == '*')) {
      ++at_;
      if (peek() != '}') return unknown();
      ++at_;
      return {};
    }
    if (name.empty()) return unknown();
    std::optional<std::size_t> index;
    if (peek() == '[') {
      const std::size_t end = t_.text.find(']', at_);
      if (end == std::string::npos) return unknown();
      const std::string key = t_.text.substr(at_ + 1, end - at_ - 1);
      all = key == "@" || key == "*";
      std::size_t number = 0;
      const auto [stop, failed] = std::from_chars(key.data(), key.data() + key.size(), number);
      if (!all && (failed != std::errc() || stop != key.data() + key.size())) return unknown();
      if (!all) index = number;
      at_ = end + 1;
    }
    const bool positional = std::isdigit(static_cast<unsigned char>(name[0])) != 0;
    const auto held = s_.variables.find(name);
    const bool set = !positional && held != s_.variables.end();
    if (peek() == '}') {
      ++at_;
      if (index) {
        if (set && *index < held->second.items.size()) return {held->second.items[*index]};
        hole(out, fmt::format("${{{}[{}]}}", name, *index), begin);
        return {out};
      }
      return value_of(name, begin, all, in_quotes);
    }
    const bool colon = peek() == ':';
    const char op = peek(colon ? 1 : 0);
    if (op != '-' && op != '=' && op != '?' && op != '+') return unknown();
    at_ += colon ? 2 : 1;
    TracedText other = brace_word(active, begin);
    const bool empty = !set || (colon && (held->second.items.empty() || held->second.items.front().text.empty()));
    if (op == '+') return empty ? Words{} : Words{other};
    if (!empty) return value_of(name, begin, all, in_quotes);
    if (op == '?') {
      hole(out, "$" + name, begin);
      return {out};
    }
    if (op == '=' && active) s_.variables[name] = {{other}, false};
    if (all && other.text.empty()) return {};
    return {other};
  }
  /// The word of `${x:-word}`, up to its `}`.
  TracedText brace_word(bool active, std::size_t begin) {
    TracedText out;
    if (++nested_ > 4 * kMostDepth) error(at_, "the script nests too deeply");
    while (at_ < size() && peek() != '}' && !s_.ended) {
      const char c = peek();
      const auto put = [&](const Words& parts) {
        for (std::size_t i = 0; i < parts.size(); ++i) {
          if (i > 0) out.add(' ', offset(at_));
          out.add(parts[i]);
        }
      };
      if (c == '"') {
        quoted(active, put);
      } else if (c == '\'') {
        const std::size_t end = t_.text.find('\'', at_ + 1);
        if (end == std::string::npos) {
          error(at_, "a quote that does not end");
          break;
        }
        out.add(t_.part(at_ + 1, end));
        at_ = end + 1;
      } else if (c == '$' || c == '`') {
        put(dollar(active, false));
      } else {
        if (c == '\\' && at_ + 1 < size()) ++at_;
        out.add(peek(), offset(at_));
        ++at_;
      }
    }
    --nested_;
    if (at_ >= size())
      error(begin, "`${` without `}`");
    else
      ++at_;
    return out;
  }

  ShellState& s_;
  const TracedText& t_;
  std::size_t at_ = 0;
  int depth_, nested_ = 0;
  std::vector<Document> open_documents_;
};

int leading_number(std::string_view text) {
  int value = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), value);
  return std::max(0, value);
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
    while (!one.empty() && is_blank(one.front())) one.remove_prefix(1);
    const std::size_t cut = one.find_first_of("= \t");
    if (cut == std::string_view::npos) continue;
    const std::string_view key = one.substr(0, cut);
    std::string_view value = one.substr(cut + 1);
    while (!value.empty() && is_blank(value.front())) value.remove_prefix(1);
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

}  // namespace

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
  const std::tuple<const char*, int> known[] = {
      {"SLURM_NNODES", batch.nodes},           {"SLURM_JOB_NUM_NODES", batch.nodes},
      {"SLURM_NTASKS", tasks},                 {"SLURM_NPROCS", tasks},
      {"SLURM_NTASKS_PER_NODE", batch.tasks_per_node}, {"SLURM_GPUS_PER_NODE", batch.gpus_per_node},
      {"SLURM_GPUS_ON_NODE", batch.gpus_per_node}};
  for (const auto& [name, value] : known)
    if (value > 0) define(name, std::to_string(value));
  for (const auto& [name, value] : defined) define(name, value);
  TracedText all;
  all.text.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == kHole || text[i] == '\0') {
      state.out.errors.push_back({base::Severity::error, "E0651", place_in(text, file, i),
                                  "a control character, which no script has", "is this a launch script?", {}});
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
