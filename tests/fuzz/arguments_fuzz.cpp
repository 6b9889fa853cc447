// Words of a command line, one a line: a command, or something to say and a code to leave with.
#include <vector>

#include "apps/command_line.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(arguments) {
  std::vector<std::string> words = {"orrery"};
  while (!text.empty()) words.emplace_back(orrery::fuzz::take_part(text, "\n"));
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  const auto parsed = orrery::apps::parse_command_line(static_cast<int>(pointers.size()), pointers.data());
  orrery::fuzz::must(parsed.command.has_value() != (!parsed.out.empty() || !parsed.error.empty()),
                     "either a command or something to say");
  orrery::fuzz::must(!parsed.error.empty() == (parsed.exit_code != 0), "an error has a code");
  (void)orrery::base::render(parsed.error, true);
}
