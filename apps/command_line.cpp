// Parses: verbs, help with examples, usage errors as exit 2.
#include "apps/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <string_view>

#include "apps/catalog.h"
#include "apps/exit_codes.h"
#include "apps/flags.h"
#include "apps/terminal.h"
#include "apps/verbs/list.h"
#include "apps/verbs/usage.h"
#include "base/result.h"
#include "reports/tables/table.h"

namespace orrery::apps {
namespace {

constexpr const char* kVerbs = "Verbs";  // their heading in the help
constexpr const char* kHelpExamples = "  orrery help plan\n  orrery help --man | man -l -";
constexpr const char* kCompletionExamples = "  source <(orrery completion bash)";

/// What was asked of the command itself.
struct Asked {
  std::string verb;  ///< whose help is wanted; empty: of all verbs
  bool man = false;
  std::string shell;  ///< whose completion is wanted
};

/// Help no wider than the terminal. What an example does moves below it where both do not fit on one line; the example
/// itself stays whole, to be copied.
class WrappedHelp : public CLI::Formatter {
 public:
  explicit WrappedHelp(std::size_t width) : width_(width) { column_width(std::min<std::size_t>(30, width / 3)); }
  [[nodiscard]] std::string make_option_desc(const CLI::Option* option) const override {
    return beside_names(option->get_description());
  }
  [[nodiscard]] std::string make_subcommand(const CLI::App* verb) const override {
    std::ostringstream out;
    CLI::detail::format_help(out, verb->get_name(), beside_names(verb->get_description()), get_column_width());
    return out.str();
  }
  [[nodiscard]] std::string make_description(const CLI::App* app) const override {
    return reports::wrapped(CLI::Formatter::make_description(app), width_);
  }
  [[nodiscard]] std::string make_footer(const CLI::App* app) const override {
    std::istringstream in(app->get_footer());
    std::string out;
    for (std::string line; std::getline(in, line);) out += fitted(line) + "\n";
    return out;
  }

 private:
  [[nodiscard]] std::string beside_names(const std::string& text) const {
    return reports::wrapped(text, width_ - get_column_width());
  }
  [[nodiscard]] std::string fitted(const std::string& line) const {
    if (line.size() <= width_) return line;
    if (line.rfind("  orrery", 0) != 0) return reports::wrapped(line, width_, line.find_first_not_of(' '));
    const std::size_t gap = line.find("   ", 2);
    if (gap == std::string::npos) return line;
    const std::string does = line.substr(line.find_first_not_of(' ', gap));
    return line.substr(0, gap) + "\n      " + reports::wrapped(does, width_ - 6);
  }
  std::size_t width_;
};

/// Options that every verb takes, before or after its name.
void add_common(CLI::App& app, CommonOptions& common) {
  static const std::map<std::string, Colour> colours{
      {"auto", Colour::automatic}, {"always", Colour::always}, {"never", Colour::never}};
  const auto colour_of = [&common](const std::string& word) { common.colour = colours.at(word); };
  app.add_flag("--json", common.json, "One JSON object on stdout and nothing else");
  app.add_flag("--quiet", common.quiet, "No progress on stderr");
  Flag(*app.add_option_function<std::string>("--color", colour_of, "auto, always or never"))
      .one_of({"auto", "always", "never"})
      .value("WHEN");
  app.add_option("--catalog", common.catalogs, "Folder with further models, clusters and stacks; may be repeated")
      ->allow_extra_args(false)
      ->option_text("DIR");
  app.add_flag("--force", common.force,
               "Make missing folders, and replace what is kept otherwise: others' files, inputs, a run's");
  app.add_flag("--dry-run", common.dry_run, "Only check, and say what would be done: write and launch nothing");
}

/// `help` and `completion`, which are about the command line itself.
void add_helping(CLI::App& app, Asked& asked) {
  CLI::App* help =
      app.add_subcommand("help", "Show a verb's flags and examples, or everything as a man page")->group(kVerbs);
  help->footer(footer_of(kHelpExamples));
  help->add_option("VERB", asked.verb, "Default: all verbs");
  help->add_flag("--man", asked.man, "A page for man(1)");
  CLI::App* completion =
      app.add_subcommand("completion", "Write a script that makes a shell complete verbs and flags")->group(kVerbs);
  completion->footer(footer_of(kCompletionExamples));
  Flag(*completion->add_option("SHELL", asked.shell, "bash, zsh or fish")).required().one_of({"bash", "zsh", "fish"});
}

/// Adds all verbs; the flags only of those that are among the words, or of all for `help` and `completion`.
void add_verbs(CLI::App& app, const std::vector<Verb>& verbs, const std::vector<std::string>& words) {
  const auto said = [&](const std::string& word) { return std::find(words.begin(), words.end(), word) != words.end(); };
  const bool all = said("help") || said("completion");
  for (const Verb& verb : verbs) {
    CLI::App* one = app.add_subcommand(verb.name, verb.says)->group(kVerbs);
    one->footer(footer_of(verb.examples));
    if (all || said(verb.name)) verb.add_flags(Flags(*one));
  }
}

std::string examples_of(const std::string& name, const std::vector<Verb>& verbs) {
  for (const Verb& verb : verbs)
    if (verb.name == name) return verb.examples;
  return name == "help" ? kHelpExamples : kCompletionExamples;
}

/// Splits "auto|always|never" into words; none if `value` names a kind of value, or gives an example.
std::vector<std::string> choices_in(const std::string& value) {
  if (value.find('|') == std::string::npos || value.find_first_of("' .") != std::string::npos) return {};
  std::vector<std::string> out;
  std::stringstream in(value);
  for (std::string word; std::getline(in, word, '|');) {
    if (std::isupper(static_cast<unsigned char>(word.front())) != 0) return {};
    out.push_back(word);
  }
  return out;
}

/// The catalogue's folder whose names a flag takes; null: none.
const char* catalogued(const FlagUsage& flag) {
  const std::string& name = flag.names.front();
  if (flag.value.empty()) return nullptr;
  return name == "--model" || name == "--models"       ? kModels
         : name == "--cluster" || name == "--clusters" ? kClusters
                                                       : nullptr;
}

std::vector<FlagUsage> flags_of(const CLI::App& app) {
  std::vector<FlagUsage> out;
  for (const CLI::Option* one : app.get_options()) {
    if (one->get_positional() || one->get_name() == "--help") continue;
    FlagUsage flag;
    for (const std::string& name : one->get_lnames()) flag.names.push_back("--" + name);
    for (const std::string& name : one->get_snames()) flag.names.push_back("-" + name);
    if (one->get_items_expected_max() > 0)
      flag.value = one->get_option_text().empty() ? "VALUE" : one->get_option_text();
    flag.says = one->get_description();
    flag.choices =
        flag.names.front() == "--color" ? std::vector<std::string>{"auto", "always", "never"} : choices_in(flag.value);
    if (const char* folder = catalogued(flag); folder != nullptr) {
      flag.choices = open_catalog({}).names(folder);
      flag.or_file = true;
    }
    out.push_back(std::move(flag));
  }
  return out;
}

Usage usage_of(const CLI::App& app, const std::vector<Verb>& verbs) {
  Usage usage{app.get_description(), flags_of(app), {}};
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    VerbUsage one{verb->get_name(), verb->get_description(), {}, examples_of(verb->get_name(), verbs), flags_of(*verb)};
    for (const CLI::Option* option : verb->get_options()) {
      if (!option->get_positional()) continue;
      const std::string name = option->get_name(true);
      one.arguments += (one.arguments.empty() ? "" : " ") + (option->get_required() ? name : "[" + name + "]");
    }
    usage.verbs.push_back(std::move(one));
  }
  return usage;
}

/// The first word that is not a flag, where the verb should be; empty if there is none. Values of --color and
/// --catalog do not count.
std::string word_for_verb(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--color" || word == "--catalog")
      ++i;
    else if (!word.empty() && word.front() != '-')
      return word;
  }
  return {};
}

const CLI::App* find_verb(const CLI::App& app, const std::string& name) {
  const auto verbs = app.get_subcommands([&](const CLI::App* one) { return one->get_name() == name; });
  return verbs.empty() ? nullptr : verbs.front();
}

/// The words that no option takes, in the order in which they were written.
std::vector<std::string> left_over(const std::string& message, int argc, const char* const* argv) {
  std::istringstream in(message.substr(message.rfind(':') + 1));
  const std::vector<std::string> said{std::istream_iterator<std::string>(in), {}};
  std::vector<std::string> out;
  for (int i = 1; i < argc; ++i)
    if (std::find(said.begin(), said.end(), argv[i]) != said.end()) out.emplace_back(argv[i]);
  return out;
}

/// Words that look like flags; a flag's value may look so too, so only long ones count.
std::vector<std::string> flags_in(int argc, const char* const* argv) {
  std::vector<std::string> out(argv + 1, argv + argc);
  std::erase_if(out, [](const std::string& one) { return one.rfind("--", 0) != 0; });
  return out;
}

/// Names the first of `words` that is not a flag of the verb, and the flag that was probably meant.
bool name_unknown_flag(base::Diagnostic& found, const CLI::App& app, const std::string& verb,
                       const std::vector<std::string>& words) {
  std::vector<std::string> known = {"--help", "-h"};
  for (const CLI::App* one : {&app, find_verb(app, verb)})
    for (const FlagUsage& option : flags_of(*one)) known.insert(known.end(), option.names.begin(), option.names.end());
  for (const std::string& word : words) {
    const std::string name = word.substr(0, word.find('='));
    if (word.front() != '-' || std::find(known.begin(), known.end(), name) != known.end()) continue;
    found.message = "`" + verb + "` has no flag `" + name + "`";
    // Any one-letter flag is one letter away from any other.
    if (const std::string near = base::did_you_mean(name, known); near.rfind("--", 0) == 0)
      found.help = "did you mean `" + near + "`? ";
    return true;
  }
  return false;
}

/// The verb, perhaps with a flag, that does what others call so; empty: none is known.
std::string verb_for(const std::string& word) {
  static const std::map<std::string, std::string> verbs{
      {"compare", "report"},    {"diff", "report"},   {"show", "report"},  {"plot", "report"}, {"predict", "simulate"},
      {"estimate", "simulate"}, {"run", "train"},     {"launch", "train"}, {"search", "plan"}, {"optimize", "plan"},
      {"tune", "plan"},         {"fit", "calibrate"}, {"new", "init"},     {"create", "init"}, {"check", "doctor"},
      {"measure", "probe"},     {"bench", "probe"},   {"models", "model"}, {"info", "model"},  {"scale", "report"},
      {"man", "help --man"}};
  const auto found = verbs.find(word);
  return found == verbs.end() ? std::string() : found->second;
}

/// `help` of a verb that there is not.
class UnknownVerb : public CLI::ValidationError {
 public:
  explicit UnknownVerb(std::string name) : CLI::ValidationError("VERB", "unknown verb"), name_(std::move(name)) {}
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::string name_;
};

/// "KIND: job, plan or cluster; " of "KIND is required": what the verb lacks, as its help says it.
std::string lacking(const CLI::App& verb, const std::string& message) {
  const std::string name = message.substr(0, message.find(" is required"));
  const CLI::Option* option = verb.get_option_no_throw(name);
  return option != nullptr ? name + ": " + option->get_description() + "; " : std::string();
}

/// CLI11's message; for an unknown verb or flag, also the one that was probably meant.
base::Diagnostic usage_error(const CLI::App& app, const CLI::ParseError& error, const std::string& word, int argc,
                             const char* const* argv) {
  if (const auto* verb = dynamic_cast<const UnknownVerb*>(&error); verb != nullptr && word != verb->name())
    return usage_error(app, error, verb->name(), argc, argv);
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands({})) names.push_back(verb->get_name());
  base::Diagnostic found{base::Severity::error, "U0001", {}, error.what(), {}, {}};
  const bool extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  const bool required = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (const CLI::App* verb = find_verb(app, word); verb != nullptr && (extras || required)) {
    const std::vector<std::string> words = extras ? left_over(error.what(), argc, argv) : flags_in(argc, argv);
    const bool unknown = name_unknown_flag(found, app, word, words);
    if (!unknown && extras && !words.empty()) found.message = "`" + words.front() + "` is one argument too many";
    if (!unknown && required) found.help = lacking(*verb, error.what());
  }
  if (word.empty() && required) found.message = "a verb is missing";
  if (!word.empty() && std::find(names.begin(), names.end(), word) == names.end()) {
    found.message = "unknown verb `" + word + "`";
    // The first letter is rarely mistyped; without this rule "validate" would suggest "calibrate".
    std::string near = verb_for(word);
    if (near.empty()) near = base::did_you_mean(word, names);
    if (!near.empty() && (near == verb_for(word) || near.front() == word.front()))
      found.help = "did you mean `orrery " + near + "`? ";
  }
  found.help += find_verb(app, word) != nullptr
                    ? "`orrery help " + word + "` lists its flags"
                    : std::string("`orrery --help` lists the verbs, `orrery help VERB` their flags");
  return found;
}

/// What `help` prints. Throws if there is no such verb.
std::string help_for(CLI::App& app, const std::vector<Verb>& verbs, const Asked& asked) {
  if (asked.man) return man_page(usage_of(app, verbs));
  const CLI::App* about = asked.verb.empty() ? &app : find_verb(app, asked.verb);
  if (about == nullptr) throw UnknownVerb(asked.verb);
  app.clear();
  return about->help(about == &app ? "" : app.get_name());
}

}  // namespace

Parsed parse_command_line(int argc, const char* const* argv) {
  CLI::App app{"Orrery plans, predicts and runs the training of large models on clusters.", "orrery"};
  CommonOptions common;
  std::vector<Verb> verbs = all_verbs();
  Asked asked;
  app.formatter(std::make_shared<WrappedHelp>(std::max<std::size_t>(40, detect_terminal(common).style.width)));
  app.footer(footer_of_all());
  app.get_formatter()->label("SUBCOMMAND", "VERB");
  app.set_version_flag("--version", "orrery " ORRERY_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  add_common(app, common);
  add_verbs(app, verbs, {argv + 1, argv + argc});
  add_helping(app, asked);

  Parsed parsed;
  try {
    app.parse(argc, argv);
    const std::string name = app.get_subcommands().front()->get_name();
    if (name == "help") {
      parsed.out = help_for(app, verbs, asked);
    } else if (name == "completion") {
      parsed.out = completion_script(usage_of(app, verbs), asked.shell);
    } else {
      const auto verb = std::find_if(verbs.begin(), verbs.end(), [&](const Verb& one) { return one.name == name; });
      if (const std::string missing = verb->missing(); !missing.empty()) throw CLI::RequiredError(missing);
      parsed.command = CommandLine{std::move(common), std::move(*verb)};
    }
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // help or version
      std::ostringstream out, nowhere;
      app.exit(error, out, nowhere);
      parsed.out = out.str();
    } else {
      parsed.word = word_for_verb(argc, argv);
      parsed.error = {usage_error(app, error, parsed.word, argc, argv)};
      if (argc < 2) parsed.help = app.help() + "\n";  // whoever types the name alone looks for the verbs
      parsed.exit_code = kUsage;
      // The parser may have stopped before the flag.
      parsed.json = std::find(argv + 1, argv + argc, std::string_view("--json")) != argv + argc;
    }
  }
  return parsed;
}

}  // namespace orrery::apps
