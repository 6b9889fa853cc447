#pragma once
/// A command line of the public DLRM benchmark in words: which argument it gives, with what value, at which column.
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/spec/dlrm_arguments.h"

namespace orrery::plan {

/// Words between spaces, quoted as in a shell.
struct DlrmWord {
  std::string text;
  int column = 1;
};
[[nodiscard]] std::vector<DlrmWord> dlrm_words(std::string_view text);

/// The arguments of one script, and what is wrong with them.
class DlrmWords {
 public:
  struct Given {
    std::string value;
    int column = 1, width = 1;
  };

  /// `words`: without what launches the script. Unknown and refused arguments become findings.
  DlrmWords(std::string_view text, std::span<const DlrmWord> words, DlrmScript script);

  /// None: the argument is not given.
  [[nodiscard]] const Given* given(const char* name) const;
  [[nodiscard]] bool has(const char* name) const { return given(name) != nullptr; }
  /// Where a finding about an argument belongs: where it is given, else at the first column.
  [[nodiscard]] Given at(const char* name) const;
  [[nodiscard]] std::string text(const char* name, const char* usual) const;
  [[nodiscard]] std::int64_t integer(const char* name, std::int64_t usual, std::int64_t low, std::int64_t high);
  [[nodiscard]] double number(const char* name, double usual, double low, double high);
  /// Positive sizes with `separator` between them; empty where they cannot be read.
  [[nodiscard]] std::vector<std::int64_t> sizes(const char* name, const char* usual, char separator);
  /// A word that must be one of those supported.
  std::string word(const char* name, const char* usual, std::initializer_list<const char*> known, const char* help);

  void error(const char* code, const Given& at, std::string message, std::string help);
  [[nodiscard]] bool failed() const { return !found_.empty(); }
  void add(const base::Diagnostics& more) { found_.insert(found_.end(), more.begin(), more.end()); }
  /// The command with a note of what is without effect; else the findings, by column.
  [[nodiscard]] base::Result<DlrmCommand> finish(DlrmCommand command) const;

 private:
  /// "Without effect here: --print-freq, --use-gpu."; empty: none is given.
  [[nodiscard]] std::string without_effect() const;
  [[nodiscard]] base::Diagnostics findings() const;
  void refuse(const DlrmArgument& argument, const Given& given);

  std::string_view text_;
  DlrmScript script_;
  std::map<std::string, Given> given_;
  base::Diagnostics found_;
};

}  // namespace orrery::plan
