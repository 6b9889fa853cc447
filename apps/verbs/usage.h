#pragma once
/// The command's usage as data, for a man page and for shells that complete words. Generated from the command line
/// itself (apps/command_line.cpp), so that it cannot differ from it.
#include <string>
#include <vector>

namespace orrery::apps {

struct FlagUsage {
  std::vector<std::string> names;  ///< "--output", "-o"
  std::string value;               ///< its value, "N" or "a|b"; empty: none
  std::string says;
  std::vector<std::string> choices;  ///< possible values, if there are few, or names
  bool or_file = false;              ///< a path is possible too
};

struct VerbUsage {
  std::string name, says;
  std::string arguments;  ///< "JOB", "[FILE...]"
  std::string examples;   ///< lines
  std::vector<FlagUsage> flags;
};

struct Usage {
  std::string says;              ///< what the command is for
  std::vector<FlagUsage> flags;  ///< of every verb
  std::vector<VerbUsage> verbs;
};

/// Text below the help of the command, and of a verb with these examples.
[[nodiscard]] std::string footer_of_all();
[[nodiscard]] std::string footer_of(const std::string& examples);
/// A script that makes "bash", "zsh" or "fish" complete the command's words.
[[nodiscard]] std::string completion_script(const Usage& usage, const std::string& shell);
/// A page for man(1), in roff.
[[nodiscard]] std::string man_page(const Usage& usage);

}  // namespace orrery::apps
