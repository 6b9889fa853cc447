// Shell completions and the man page.
#include "apps/verbs/usage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace orrery::apps {
namespace {

constexpr const char* kBegin = R"(Examples:
  orrery init --model gpt2-124m --cluster hgx-h100       write a commented job.yaml
  orrery plan examples/gpt3-175b-a100-1024.yaml          rank plans for GPT-3 175B on 1,024 A100s
  orrery plan examples/tiny-gpt-localhost-2.yaml -o plan.yaml
  orrery simulate plan.yaml --trace trace.json           predict a step; open the trace in Perfetto
  orrery train plan.yaml --run runs/first                run it on this machine's ranks
  orrery calibrate runs/first -o calibration.yaml        learn from what was measured
  orrery report runs/first --calibration calibration.yaml -o report.html

`orrery help VERB` has a verb's flags and examples.
)";
constexpr const char* kExitCodes = R"(
Exit codes: 0 ok, 1 failure, 2 usage, 3 bad input, 4 no feasible plan,
5 a check failed, 6 something is missing, 130 stopped by ^C.)";
constexpr const char* kEverywhere = R"(
Every verb takes --json, --quiet, --color and --catalog too, and what it writes
or launches heeds --dry-run and --force (orrery --help).
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

/// Escapes text for single quotes of any of the three shells.
std::string quoted(const std::string& text) {
  return replaced(text, "'", "'\\''");
}

std::string names_of(const std::vector<VerbUsage>& verbs) {
  std::vector<std::string> names;
  for (const VerbUsage& one : verbs) names.push_back(one.name);
  return fmt::format("{}", fmt::join(names, " "));
}

std::string words_of(const std::vector<FlagUsage>& flags) {
  std::vector<std::string> words;
  for (const FlagUsage& one : flags) words.insert(words.end(), one.names.begin(), one.names.end());
  return fmt::format("{}", fmt::join(words, " "));
}

/// Completes a flag's value by its choices, else by files if it takes a value.
std::string bash_values(const std::vector<FlagUsage>& flags, const std::string& indent) {
  std::string out;
  for (const FlagUsage& one : flags) {
    if (one.value.empty()) continue;
    const std::string names = fmt::format("{}", fmt::join(one.names, "|"));
    out += one.choices.empty() ? fmt::format("{}{}) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n", indent, names)
                               : fmt::format("{}{}) COMPREPLY=($(compgen -W '{}'{} -- \"$word\")); return ;;\n", indent,
                                             names, fmt::join(one.choices, " "), one.or_file ? " -f" : "");
  }
  return out;
}

std::string bash(const Usage& usage) {
  std::string out =
      "# Completion of orrery for bash: source <(orrery completion bash)\n"
      "_orrery() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb= i\n"
      "  compopt -o filenames 2>/dev/null\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
      "    case ${COMP_WORDS[i]} in --color | --catalog) ((++i)) ;; -*) ;; *) verb=${COMP_WORDS[i]}; break ;; esac\n"
      "  done\n";
  out += fmt::format("  case $before in\n{}  esac\n", bash_values(usage.flags, "    "));
  out +=
      fmt::format("  if [[ -z $verb ]]; then\n    COMPREPLY=($(compgen -W '{} {}' -- \"$word\"))\n    return\n  fi\n",
                  names_of(usage.verbs), words_of(usage.flags));
  out += "  local words=\n  case $verb in\n";
  for (const VerbUsage& verb : usage.verbs) {
    const std::string values = bash_values(verb.flags, "        ");
    out += fmt::format("    {})\n", verb.name);
    if (!values.empty()) out += fmt::format("      case $before in\n{}      esac\n", values);
    out += fmt::format("      words='{}' ;;\n", words_of(verb.flags));
  }
  out += fmt::format("  esac\n  if [[ $word == -* ]]; then COMPREPLY=($(compgen -W \"$words {}\" -- \"$word\"))\n",
                     words_of(usage.flags));
  out += fmt::format("  elif [[ $verb == help ]]; then COMPREPLY=($(compgen -W '{}' -- \"$word\"))\n",
                     names_of(usage.verbs));
  out +=
      "  elif [[ $verb == completion ]]; then COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$word\"))\n"
      "  else COMPREPLY=($(compgen -f -- \"$word\"))\n  fi\n}\ncomplete -F _orrery orrery\n";
  return out;
}

std::string zsh_flags(const std::vector<FlagUsage>& flags) {
  std::string out;
  for (const FlagUsage& one : flags)
    for (const std::string& name : one.names) {
      const std::string says = quoted(replaced(replaced(replaced(one.says, "[", "("), "]", ")"), ":", "\\:"));
      std::string value;
      if (one.or_file)
        value = fmt::format(":{}:{{compadd -- {}; _files}}", one.names.front(), fmt::join(one.choices, " "));
      else if (!one.choices.empty())
        value = fmt::format(":{}:({})", one.names.front(), fmt::join(one.choices, " "));
      else if (!one.value.empty())
        value = fmt::format(":{}:_files", quoted(replaced(one.value, ":", " ")));
      out += fmt::format("    '*{}[{}]{}' \\\n", name, says, value);
    }
  return out;
}

// zsh runs the whole script as the function's body the first time that it loads it from a folder of $fpath.
std::string zsh(const Usage& usage) {
  std::string out = "#compdef orrery\n# Completion of orrery for zsh: source <(orrery completion zsh)\n_orrery() {\n";
  out += "  local -a verbs common\n  verbs=(\n";
  for (const VerbUsage& verb : usage.verbs)
    out += fmt::format("    '{}:{}'\n", verb.name, quoted(replaced(verb.says, ":", "\\:")));
  out += "  )\n  if ((CURRENT == 2)); then _describe verb verbs; return; fi\n  case ${words[2]} in\n";
  for (const VerbUsage& verb : usage.verbs)
    out += fmt::format("  {})\n    _arguments -s \\\n{}{}    '*:file:_files' ;;\n", verb.name, zsh_flags(verb.flags),
                       zsh_flags(usage.flags));
  out += "  esac\n}\n";
  out += "if [[ $funcstack[1] == _orrery ]]; then _orrery \"$@\"; else compdef _orrery orrery; fi\n";
  return out;
}

void fish_flags(std::string& out, const std::string& when, const std::vector<FlagUsage>& flags) {
  for (const FlagUsage& one : flags) {
    out += fmt::format("complete -c orrery{}", when);
    for (const std::string& name : one.names)
      out += name.rfind("--", 0) == 0 ? " -l " + name.substr(2) : " -s " + name.substr(1);
    if (!one.choices.empty())
      out += fmt::format(" {} -a '{}'", one.or_file ? "-r" : "-x", fmt::join(one.choices, " "));
    else if (!one.value.empty())
      out += " -r";
    out += fmt::format(" -d '{}'\n", replaced(one.says, "'", "\\'"));
  }
}

std::string fish(const Usage& usage) {
  std::string out = "# Completion of orrery for fish: orrery completion fish | source\n";
  for (const VerbUsage& verb : usage.verbs)
    out += fmt::format("complete -c orrery -f -n __fish_use_subcommand -a {} -d '{}'\n", verb.name,
                       replaced(verb.says, "'", "\\'"));
  fish_flags(out, "", usage.flags);
  for (const VerbUsage& verb : usage.verbs)
    fish_flags(out, fmt::format(" -n '__fish_seen_subcommand_from {}'", verb.name), verb.flags);
  return out;
}

/// Escapes text for roff: no line begins with a request, and no hyphen is typographic.
std::string roff(const std::string& text) {
  std::string out = replaced(replaced(text, "\\", "\\e"), "-", "\\-");
  if (!out.empty() && (out.front() == '.' || out.front() == '\'')) out.insert(0, "\\&");
  return replaced(replaced(out, "\n.", "\n\\&."), "\n'", "\n\\&'");
}

std::string man_flags(const std::vector<FlagUsage>& flags) {
  std::string out;
  for (const FlagUsage& one : flags) {
    std::vector<std::string> names;
    for (const std::string& name : one.names) names.push_back("\\fB" + roff(name) + "\\fR");
    out += fmt::format(".TP\n{}{}\n{}\n", fmt::join(names, ", "),
                       one.value.empty() ? "" : " \\fI" + roff(one.value) + "\\fR", roff(one.says));
  }
  return out;
}

}  // namespace

std::string footer_of_all() {
  return std::string(kBegin) + kExitCodes;
}

std::string footer_of(const std::string& examples) {
  return "Examples:\n" + examples + "\n" + kEverywhere + kExitCodes;
}

std::string completion_script(const Usage& usage, const std::string& shell) {
  return shell == "zsh" ? zsh(usage) : shell == "fish" ? fish(usage) : bash(usage);
}

std::string man_page(const Usage& usage) {
  std::string out = ".TH ORRERY 1 \"\" \"orrery " ORRERY_VERSION
                    "\" \"User Commands\"\n.SH NAME\norrery \\- plan, predict and run the training of large models\n";
  out += ".SH SYNOPSIS\n.B orrery\n\\fIVERB\\fR [\\fIARGUMENT\\fR...] [\\fIFLAG\\fR...]\n.SH DESCRIPTION\n";
  out += roff(usage.says) + "\n.SH VERBS\n";
  for (const VerbUsage& verb : usage.verbs) {
    out += fmt::format(".SS \"orrery {}{}{}\"\n{}.\n", verb.name, verb.arguments.empty() ? "" : " ",
                       roff(verb.arguments), roff(verb.says));
    out += man_flags(verb.flags);
    if (!verb.examples.empty()) out += fmt::format(".PP\n.nf\n.RS\n{}\n.RE\n.fi\n", roff(verb.examples));
  }
  out += ".SH FLAGS OF EVERY VERB\n" + man_flags(usage.flags);
  out +=
      ".SH EXIT STATUS\n0 ok, 1 failure, 2 usage, 3 bad input, 4 no feasible plan, 5 a check failed, 6 something is "
      "missing in the environment, 130 stopped by ^C.\n";
  return out;
}

}  // namespace orrery::apps
