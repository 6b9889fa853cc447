#pragma once
/// The walk through the grammar of bash, statements (shell.cpp) and words (shell_words.cpp). Private to this folder.
#include <cctype>
#include <functional>
#include <optional>
#include <set>

#include "plan/frameworks/shell.h"

namespace orrery::plan {

inline constexpr std::size_t kMostShellText = std::size_t{1} << 22;   // of all expansions together
inline constexpr std::size_t kMostShellWords = std::size_t{1} << 16;  // of one array or command
inline constexpr int kMostShellDepth = 48;

inline bool is_shell_name_start(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
}
inline bool is_shell_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}
inline bool is_shell_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}
inline bool is_shell_space(char c) {
  return is_shell_blank(c) || c == '\n';
}

inline std::string shell_base_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

struct ShellVariable {
  std::vector<TracedText> items;
  bool array = false;
};

/// State that nested texts share.
struct ShellState {
  ShellScript out;
  std::map<std::string, ShellVariable> variables;
  std::map<std::string, TracedText> functions;  ///< their bodies
  const std::map<std::string, std::string>& others;
  std::size_t spent = 0;
  bool ended = false;                                     ///< by `exit`, or because nothing can be read after an error
  std::optional<std::vector<TracedText>> arguments = {};  ///< of the function that runs
};

class ShellWalk {
 public:
  ShellWalk(ShellState& state, const TracedText& text, int depth) : s_(state), t_(text), depth_(depth) {}

  void run();

 private:
  using Words = std::vector<TracedText>;

  [[nodiscard]] std::size_t size() const { return t_.text.size(); }
  [[nodiscard]] char peek(std::size_t ahead = 0) const { return at_ + ahead < size() ? t_.text[at_ + ahead] : '\0'; }
  [[nodiscard]] bool starts(std::string_view word) const;
  [[nodiscard]] std::uint32_t offset(std::size_t at) const;

  void error(std::size_t at, std::string message);
  bool spend(std::size_t bytes);

  [[nodiscard]] std::string word_here() const;
  [[nodiscard]] bool keyword(std::string_view word) const;
  bool take_keyword(std::string_view word);

  void skip_blanks();
  /// Between statements. A line's end is where here-documents begin.
  void skip_ends();

  /// Statements up to one of these words, which is not taken.
  void statements(std::initializer_list<std::string_view> until, bool active);
  bool close(std::string_view word, std::size_t opened, const char* what);

  /// Whether it succeeds, where that can be told.
  std::optional<bool> statement(bool active);

  /// The statement behind a function's name, kept for its calls.
  void define(const std::string& name, bool active);
  bool function_definition(bool active);
  void call(const TracedText& body, Words words);

  void if_statement(bool active, std::size_t opened);

  /// Tests before `then`. What cannot be told does not hold.
  bool condition(bool active, std::string_view until);

  /// `(( … ))`: its value, after its assignments.
  std::optional<std::int64_t> double_parentheses(bool active);
  /// Expressions between commas, each of which may set a variable.
  std::optional<std::int64_t> calculated(const TracedText& text, bool active);
  std::optional<std::int64_t> calculated_once(std::string_view text, std::size_t at, bool active);
  void set_number(const std::string& name, std::optional<std::int64_t> value, std::size_t at);

  /// `[ … ]` and `[[ … ]]`.
  bool bracket_test(bool active);
  void case_statement(bool active, std::size_t opened);

  /// The body runs once, for the first word.
  void for_statement(bool active, std::size_t opened);

  /// `>file`, `2>&1`, `<<EOT`: taken. Returns the file that output goes to.
  bool redirection(bool active, std::string& target);
  void redirections(bool active);

  struct Document {
    std::string end, target;
    bool literal = false, tabs = false, active = false;
    std::size_t opened = 0;
  };
  void documents();

  std::optional<bool> simple_command(bool active);
  static bool declaration(const std::string& word);

  /// `NAME=…`, `NAME+=…`, `NAME=(…)`.
  bool assignment(bool active);

  void command(Words words);
  void nested(const TracedText& text);

  // Words.

  [[nodiscard]] std::optional<std::string> text_of(const std::string& name) const;

  void hole(TracedText& into, const std::string& name, std::size_t at);

  /// A hole that an outer text left: its name is no text of a script.
  bool take_hole(TracedText& into);

  /// A text that is not divided into words: a here-document's, an arithmetic expression's.
  TracedText expanded(const TracedText& text);

  /// A word, expanded and, unless it is `whole`, divided at the spaces that unquoted variables bring.
  Words word_at(bool active, bool whole);

  void quoted(bool active, const std::function<void(Words)>& put);

  /// Takes a balanced `( … )`.
  void parenthesis();

  /// What stands at a `$` or a backtick.
  Words dollar(bool active, bool in_quotes);

  Words arithmetic_at(std::size_t begin);

  Words value_of(const std::string& name, std::size_t begin, bool all, bool in_quotes);

  /// `${…}`.
  Words braces(bool active, bool in_quotes);
  /// The word of `${x:-word}`, up to its `}`.
  TracedText brace_word(bool active, std::size_t begin);

  ShellState& s_;
  const TracedText& t_;
  std::size_t at_ = 0;
  int depth_, nested_ = 0;
  std::vector<Document> open_documents_;
};

}  // namespace orrery::plan
