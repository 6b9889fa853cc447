#pragma once
/// The command line as a record. Errors in it are values too: nothing here prints or exits.
#include <optional>
#include <string>

#include "apps/common_options.h"
#include "apps/verbs/verb.h"
#include "base/result.h"

namespace orrery::apps {

struct CommandLine {
  CommonOptions common;
  Verb verb;
};

/// Either a command to run, or text (help, version, a usage error) and an exit code.
struct Parsed {
  std::optional<CommandLine> command;
  std::string out;          ///< help or version, for stdout
  std::string help;         ///< what may help with the usage error, for stderr: the verbs where none was given
  base::Diagnostics error;  ///< the usage error
  std::string word;         ///< word in the place of the verb, known or not
  bool json = false;        ///< print a usage error in the envelope
  int exit_code = 0;
};

[[nodiscard]] Parsed parse_command_line(int argc, const char* const* argv);

}  // namespace orrery::apps
