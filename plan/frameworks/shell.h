#pragma once
/// Reads a launch script (bash) far enough to know the words of the commands that it would run, without running
/// anything: variables, arrays, quotes, `${x:-default}`, `$(( ))`, tests, `if`, `case`, here-documents, `bash -c`. What
/// only a run can tell (`$(date)`, a variable of the environment) stays in a word as a hole, which has a name.
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace orrery::plan {

/// A text each of whose characters knows where in a file it was written.
struct TracedText {
  std::string text;
  std::vector<std::uint32_t> from;  ///< offsets in the script; as long as `text`
  void add(char c, std::uint32_t offset) { text += c, from.push_back(offset); }
  void add(const TracedText& more) {
    text += more.text;
    from.insert(from.end(), more.from.begin(), more.from.end());
  }
  [[nodiscard]] TracedText part(std::size_t begin, std::size_t end) const {
    return {text.substr(begin, end - begin),
            {from.begin() + static_cast<std::ptrdiff_t>(begin), from.begin() + static_cast<std::ptrdiff_t>(end)}};
  }
};

/// A hole in a word: this, the name of what is missing, and this again.
inline constexpr char kHole = '\x1a';
/// The name of the first hole ("$NODES"); empty: there is none.
[[nodiscard]] std::string hole_in(std::string_view word);

struct ShellCommand {
  std::vector<TracedText> words;
};

/// What `#SBATCH` lines ask for; 0: they do not say.
struct BatchRequest {
  int nodes = 0, gpus_per_node = 0, tasks = 0, tasks_per_node = 0;
};

struct ShellScript {
  std::vector<ShellCommand> commands;                          ///< in the order of a run
  std::map<std::string, TracedText> documents;                 ///< here-documents, by the file that they are written to
  std::map<std::string, std::uint32_t> missing;                ///< names of holes and where the first of them is
  std::vector<std::pair<std::string, std::uint32_t>> sourced;  ///< other scripts that are read or run from this one
  std::map<std::string, TracedText> variables;  ///< as the script leaves them; of an array, its words with spaces
  BatchRequest batch;
  base::Diagnostics errors;
};

/// `defined`: variables that the environment has. Where `others` has a script that this one sources, by its file's
/// name without folders, it is read in its place; its characters are placed at the `source`. E0651: the text is not a
/// script, or breaks off (an open quote, an `if` without `fi`).
[[nodiscard]] ShellScript read_shell(std::string_view text, const std::string& file,
                                     const std::map<std::string, std::string>& defined = {},
                                     const std::map<std::string, std::string>& others = {});

/// The place of an offset in a text.
[[nodiscard]] base::Location place_in(std::string_view text, const std::string& file, std::size_t offset);

}  // namespace orrery::plan
