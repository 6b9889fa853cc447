// Redirections, and the here-documents behind a line.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "plan/frameworks/shell_walk.h"

namespace orrery::plan {

bool ShellWalk::redirection(bool active, std::string& target) {
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
    while (at_ < size() && !is_shell_space(peek()) && peek() != ';' && peek() != '|' && peek() != '>') {
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
      while (is_shell_name(peek()) || peek() == '-') ++at_;
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

void ShellWalk::redirections(bool active) {
  std::string target;
  for (skip_blanks(); redirection(active, target); skip_blanks()) {
  }
}

void ShellWalk::documents() {
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

}  // namespace orrery::plan
