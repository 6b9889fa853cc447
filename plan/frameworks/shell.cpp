// Statements of a script. Branches that are not taken are walked, too, but leave nothing behind.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "plan/frameworks/arithmetic.h"
#include "plan/frameworks/shell_parts.h"
#include "plan/frameworks/shell_walk.h"

namespace orrery::plan {

void ShellWalk::run() {
  statements({}, true);
  if (at_ < size() && !s_.ended) error(at_, fmt::format("`{}` without its beginning", word_here()));
}

bool ShellWalk::starts(std::string_view word) const {
  return std::string_view(t_.text).substr(at_, word.size()) == word;
}

std::uint32_t ShellWalk::offset(std::size_t at) const {
  return t_.from.empty() ? 0 : t_.from[std::min(at, t_.from.size() - 1)];
}

void ShellWalk::error(std::size_t at, std::string message) {
  if (s_.ended) return;
  base::Diagnostic one{base::Severity::error,
                       "E0651",
                       {},
                       std::move(message),
                       "Orrery reads bash; the file may be cut, or be of another kind",
                       {}};
  one.where.line = static_cast<int>(offset(at));  // an offset still; read_shell makes a place of it
  s_.out.errors.push_back(std::move(one));
  s_.ended = true;
  at_ = size();
}

bool ShellWalk::spend(std::size_t bytes) {
  s_.spent += bytes;
  if (s_.spent <= kMostShellText) return true;
  error(at_, "the script's variables grow beyond what is read (4 MiB)");
  return false;
}

std::string ShellWalk::word_here() const {
  std::size_t end = at_;
  while (end < size() && !is_shell_space(t_.text[end]) && t_.text[end] != ';') ++end;
  return t_.text.substr(at_, std::min<std::size_t>(end - at_, 40));
}

bool ShellWalk::keyword(std::string_view word) const {
  if (!starts(word)) return false;
  const char next = peek(word.size());
  return next == '\0' || is_shell_space(next) || next == ';' || next == '&' || next == '|' || next == ')';
}

bool ShellWalk::take_keyword(std::string_view word) {
  if (!keyword(word)) return false;
  at_ += word.size();
  return true;
}

void ShellWalk::skip_blanks() {
  for (;;) {
    if (is_shell_blank(peek()))
      ++at_;
    else if (peek() == '\\' && peek(1) == '\n')
      at_ += 2;
    else if (peek() == '\\' && peek(1) == '\r' && peek(2) == '\n')
      at_ += 3;
    else if (peek() == '#' &&
             (at_ == 0 || is_shell_space(t_.text[at_ - 1]) || t_.text[at_ - 1] == ';' || t_.text[at_ - 1] == '('))
      while (at_ < size() && peek() != '\n') ++at_;
    else
      return;
  }
}

void ShellWalk::skip_ends() {
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

void ShellWalk::statements(std::initializer_list<std::string_view> until, bool active) {
  if (++nested_ > kMostShellDepth) error(at_, "the script nests too deeply");
  bool runs = active;
  bool last = true;  // whether what ran before `&&` or `||` succeeded; what cannot be told has
  while (at_ < size()) {
    skip_ends();
    if (at_ >= size()) break;
    if (std::any_of(until.begin(), until.end(),
                    [&](std::string_view word) { return word == ")" || word == ";;" ? starts(word) : keyword(word); }))
      break;
    if (until.size() == 0 && (starts(")") || starts(";;") || keyword("fi") || keyword("done") || keyword("esac") ||
                              keyword("}") || keyword("then") || keyword("else") || keyword("elif")))
      break;
    const std::size_t before = at_;
    const std::optional<bool> succeeds = statement(runs && !s_.ended);
    if (runs) last = succeeds.value_or(true);
    skip_blanks();
    if (starts("||") || starts("&&")) {
      const bool or_else = starts("||");
      at_ += 2;
      skip_blanks();
      while (peek() == '\n') ++at_, documents(), skip_blanks();
      runs = active && last != or_else;
    } else if (peek() == '|') {
      at_ += peek(1) == '&' ? 2 : 1;
    } else {
      runs = active;
      last = true;
    }
    if (at_ == before) {
      error(at_, fmt::format("{} is not understood here", base::quoted(std::string(1, peek()))));
      break;
    }
  }
  --nested_;
}

bool ShellWalk::close(std::string_view word, std::size_t opened, const char* what) {
  skip_ends();
  if (word == ")" || word == ";;" ? starts(word) : keyword(word)) {
    at_ += word.size();
    return true;
  }
  error(opened, fmt::format("`{}` without `{}`", what, word));
  return false;
}

std::optional<bool> ShellWalk::statement(bool active) {
  const std::size_t opened = at_;
  bool negated = false;
  for (; take_keyword("!"); skip_blanks()) negated = !negated;
  if (negated) {
    const std::optional<bool> one = statement(active);
    return one ? std::optional(!*one) : one;
  }
  if (starts("[[") || (peek() == '[' && is_shell_space(peek(1)))) return bracket_test(active);
  if (starts("((")) {
    const auto value = double_parentheses(active);
    return value ? std::optional(*value != 0) : std::nullopt;
  }
  for (const auto& [word, succeeds] : {std::pair{"true", true}, {"false", false}, {":", true}})
    if (keyword(word)) {
      simple_command(false);
      return succeeds;
    }
  if (take_keyword("if")) {
    if_statement(active, opened);
  } else if (take_keyword("case")) {
    case_statement(active, opened);
  } else if (take_keyword("for") || take_keyword("select")) {
    for_statement(active, opened);
  } else if (take_keyword("while") || take_keyword("until")) {
    statements({"do"}, false);
    if (!close("do", opened, "while")) return std::nullopt;
    statements({"done"}, false);
    (void)close("done", opened, "while");
    redirections(false);
  } else if (take_keyword("function")) {
    skip_blanks();
    std::string name;
    while (at_ < size() && !is_shell_space(peek()) && peek() != '(') name += t_.text[at_++];
    skip_blanks();
    if (starts("()")) at_ += 2;
    skip_ends();
    define(name, active);
  } else if (take_keyword("{")) {
    statements({"}"}, active);
    if (close("}", opened, "{")) redirections(active);
  } else if (peek() == '(') {
    ++at_;
    statements({")"}, active);
    if (close(")", opened, "(")) redirections(active);
  } else if (!function_definition(active)) {
    return simple_command(active);
  }
  return std::nullopt;
}

void ShellWalk::define(const std::string& name, bool active) {
  const std::size_t begin = at_;
  if (++nested_ > kMostShellDepth) error(at_, "the script nests too deeply");
  (void)statement(false);
  --nested_;
  if (active && !s_.ended) s_.functions[name] = t_.part(std::min(begin, at_), at_);
}

void ShellWalk::call(const TracedText& body, Words words) {
  words.erase(words.begin());
  const auto before = std::exchange(s_.arguments, std::move(words));
  nested(body);
  s_.arguments = before;
}

bool ShellWalk::function_definition(bool active) {
  std::size_t end = at_;
  while (end < size() && (is_shell_name(t_.text[end]) || t_.text[end] == '-')) ++end;
  std::size_t open = end;
  while (open < size() && is_shell_blank(t_.text[open])) ++open;
  if (end == at_ || t_.text.compare(open, 1, "(") != 0) return false;
  std::size_t closing = open + 1;
  while (closing < size() && is_shell_blank(t_.text[closing])) ++closing;
  if (t_.text.compare(closing, 1, ")") != 0) return false;
  const std::string name = t_.text.substr(at_, end - at_);
  at_ = closing + 1;
  skip_ends();
  define(name, active);
  return true;
}

void ShellWalk::if_statement(bool active, std::size_t opened) {
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

bool ShellWalk::condition(bool active, std::string_view until) {
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
    if (starts("[[") || (peek() == '[' && is_shell_space(peek(1))))
      one = bracket_test(active);
    else if (starts("(("))
      one = double_parentheses(active).value_or(0) != 0;
    else if (keyword("true")) {
      at_ += 4;
      one = true;
    } else if (keyword("false"))
      at_ += 5;
    else {
      (void)statement(false);
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

bool ShellWalk::bracket_test(bool active) {
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
    const std::size_t count = words.size();
    if (count >= 2 && words[count - 2] == "-v") {
      words[count - 2] = "-n";
      words[count - 1] = text_of(words[count - 1]) ? "set" : "";
    }
  }
  at_ += closing.size();
  return active && shell_test_holds(words);
}

void ShellWalk::case_statement(bool active, std::size_t opened) {
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
      matches |= pattern == "*" || shell_compare(subject, "==", pattern);
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

void ShellWalk::for_statement(bool active, std::size_t opened) {
  skip_blanks();
  Words values;
  std::string name;
  if (starts("((")) {
    const std::size_t end = t_.text.find("))", at_);
    if (end == std::string::npos) return error(opened, "`((` without `))`");
    const TracedText turns = t_.part(at_ + 2, end);
    at_ = end + 2;
    const std::size_t first = std::min(turns.text.find(';'), turns.text.size());
    const std::size_t second = std::min(turns.text.find(';', first + 1), turns.text.size());
    (void)calculated(turns.part(0, first), active);
    const bool any = first + 1 >= second || calculated(turns.part(first + 1, second), active).value_or(1) != 0;
    if (active && any) values.emplace_back();
  } else {
    while (is_shell_name(peek())) name += t_.text[at_++];
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

std::optional<bool> ShellWalk::simple_command(bool active) {
  Words words;
  std::map<std::string, std::optional<ShellVariable>> before;  // `NAME=value command` sets it for the command alone
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
    if (only_assignments && active && is_shell_name_start(c)) {
      std::string name;
      for (std::size_t i = at_; i < size() && is_shell_name(t_.text[i]); ++i) name += t_.text[i];
      const auto held = s_.variables.find(name);
      before.try_emplace(name, held == s_.variables.end() ? std::nullopt : std::optional(held->second));
    }
    if ((only_assignments || declares) && assignment(active)) continue;
    const std::size_t begin = at_;
    Words more = word_at(active, false);
    if (at_ == begin) {
      error(at_, fmt::format("{} is not understood here", base::quoted(std::string(1, peek()))));
      return std::nullopt;
    }
    only_assignments = false;
    for (TracedText& one : more) words.push_back(std::move(one));
    if (words.size() > kMostShellWords) {
      error(begin, "a command of more words than are read");
      return std::nullopt;
    }
  }
  for (std::size_t i = documents_before; i < open_documents_.size(); ++i) open_documents_[i].target = target;
  if (!active || s_.ended || words.empty()) return std::nullopt;
  if (words.front().text == "test") {
    std::vector<std::string> test;
    for (std::size_t i = 1; i < words.size(); ++i) test.push_back(without_holes(words[i].text));
    return shell_test_holds(test);
  }
  const bool declares = declaration(words.front().text);
  if (!declares) before.erase(words.front().text);  // no assignment: the command's own name
  const auto function = s_.functions.find(words.front().text);
  function != s_.functions.end() ? call(TracedText(function->second), std::move(words)) : command(std::move(words));
  if (declares) return std::nullopt;
  for (auto& [name, value] : before) {
    if (value)
      s_.variables[name] = std::move(*value);
    else
      s_.variables.erase(name);
  }
  return std::nullopt;
}

bool ShellWalk::declaration(const std::string& word) {
  return word == "export" || word == "local" || word == "declare" || word == "readonly" || word == "typeset";
}

bool ShellWalk::assignment(bool active) {
  if (!is_shell_name_start(peek())) return false;
  std::size_t end = at_;
  while (end < size() && is_shell_name(t_.text[end])) ++end;
  const std::string name = t_.text.substr(at_, end - at_);
  std::optional<std::string> key;
  if (t_.text.compare(end, 1, "[") == 0) {  // an element by its index or key
    const std::size_t bracket = t_.text.find(']', end);
    if (bracket == std::string::npos) return false;
    key = t_.text.substr(end + 1, bracket - end - 1);
    end = bracket + 1;
  }
  const bool more = t_.text.compare(end, 2, "+=") == 0;
  if (!more && t_.text.compare(end, 1, "=") != 0) return false;
  at_ = end + (more ? 2 : 1);
  ShellVariable value;
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
      if (value.items.size() > kMostShellWords) {
        error(before, "an array of more words than are read");
        return true;
      }
    }
    ++at_;
  } else {
    TracedText joined;
    if (at_ < size() && !is_shell_space(peek()) && peek() != ';')
      for (const TracedText& one : word_at(active, true)) joined.add(one);
    value.items.push_back(std::move(joined));
  }
  if (!active) return true;
  ShellVariable& at = s_.variables[name];
  if (key) {
    const auto index = arithmetic(*key, [&](const std::string& one) { return text_of(one); });
    if (!index || *index < 0 || *index >= static_cast<std::int64_t>(kMostShellWords)) return true;  // arrays by words
    at.array = true;
    const auto place = static_cast<std::size_t>(*index);
    if (at.items.size() <= place && spend(place)) at.items.resize(place + 1);
    if (place < at.items.size()) at.items[place] = value.items.empty() ? TracedText() : value.items.front();
    return true;
  }
  if (!more) {
    at = std::move(value);
  } else if (value.array || at.array) {
    at.array = true;
    at.items.insert(at.items.end(), value.items.begin(), value.items.end());
    if (at.items.size() > kMostShellWords) error(at_, "an array of more words than are read");
  } else {
    if (at.items.empty()) at.items.emplace_back();
    at.items.front().add(value.items.front());
    (void)spend(at.items.front().text.size());
  }
  return true;
}

void ShellWalk::command(Words words) {
  static const std::set<std::string> kPrefixes = {"exec", "command", "nohup", "time", "sudo", "env", "builtin"};
  while (!words.empty() && kPrefixes.contains(words.front().text)) words.erase(words.begin());
  if (words.empty() || declaration(words.front().text)) return;
  const std::string first = words.front().text;
  const auto others = [&](std::size_t i) {
    if (i >= words.size()) return;
    const std::string name = shell_base_name(words[i].text);
    s_.out.sourced.emplace_back(words[i].text, words[i].from.empty() ? 0 : words[i].from.front());
    const auto found = s_.others.find(name);
    if (found == s_.others.end()) return;
    TracedText text;
    for (const char c : found->second) text.add(c, s_.out.sourced.back().second);
    nested(text);
  };
  if (first == "source" || first == ".") return others(1);
  if (first == "exit" || first == "return") {
    // A run that works does not fail: what ends it with an error is passed over.
    s_.ended = words.size() < 2 || words[1].text == "0";
    return;
  }
  if (first == "echo" || first.starts_with("print")) return;  // a command that is shown is not run
  if (first == "let")
    for (std::size_t i = 1; i < words.size(); ++i) (void)calculated(words[i], true);
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
    const std::string shell = shell_base_name(words[i].text);
    if ((shell == "bash" || shell == "sh") && words[i + 1].text.starts_with("-") && words[i + 1].text.ends_with("c"))
      return i + 2 < words.size() ? nested(words[i + 2]) : void();
    if (shell.ends_with(".sh") && i > 0) s_.out.sourced.emplace_back(words[i].text, words[i].from.front());
  }
  // `srun "python train.py …"`: a launcher gets the whole command as one word.
  for (TracedText& one : words)
    if (one.text.find(".py") != std::string::npos && one.text.find(" --") != std::string::npos) return nested(one);
  s_.out.commands.push_back({std::move(words)});
}

void ShellWalk::nested(const TracedText& text) {
  if (depth_ + 1 > 4 || !spend(text.text.size())) return;
  const TracedText copy = text;
  ShellWalk(s_, copy, depth_ + 1).run();
}

}  // namespace orrery::plan
