// Verbs, help with examples, usage errors as exit 2. Only this file and apps/command_flags.cpp know CLI11.
#include "apps/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <sstream>
#include <string_view>

#include "apps/command_flags.h"
#include "apps/exit_codes.h"
#include "apps/verbs/usage.h"
#include "base/result.h"

namespace orrery::apps {
namespace {

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

/// Options of a verb, including its groups.
std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  std::vector<const CLI::Option*> out = app.get_options();
  for (const CLI::App* group : app.get_subcommands([](const CLI::App* one) { return one->get_name().empty(); })) {
    const std::vector<const CLI::Option*> more = group->get_options();
    out.insert(out.end(), more.begin(), more.end());
  }
  return out;
}

std::vector<FlagUsage> flags_of(const CLI::App& app) {
  std::vector<FlagUsage> out;
  for (const CLI::Option* one : options_of(app)) {
    if (one->get_positional() || one->get_name() == "--help") continue;
    FlagUsage flag;
    for (const std::string& name : one->get_lnames()) flag.names.push_back("--" + name);
    for (const std::string& name : one->get_snames()) flag.names.push_back("-" + name);
    if (one->get_items_expected_max() > 0)
      flag.value = one->get_option_text().empty() ? "VALUE" : one->get_option_text();
    flag.says = one->get_description();
    flag.choices =
        flag.names.front() == "--color" ? std::vector<std::string>{"auto", "always", "never"} : choices_in(flag.value);
    out.push_back(std::move(flag));
  }
  return out;
}

Usage usage_of(const CLI::App& app) {
  Usage usage{app.get_description(), flags_of(app), {}};
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    VerbUsage one{verb->get_name(), verb->get_description(), {}, examples_of(verb->get_name()), flags_of(*verb)};
    for (const CLI::Option* option : options_of(*verb)) {
      if (!option->get_positional()) continue;
      const std::string name = option->get_name(true);
      one.arguments += (one.arguments.empty() ? "" : " ") + (option->get_required() ? name : "[" + name + "]");
    }
    usage.verbs.push_back(std::move(one));
  }
  return usage;
}

Verb chosen(const std::string& name, Verbs& verbs) {
  if (name == "probe") return std::move(verbs.probe);
  if (name == "init") return std::move(verbs.init);
  if (name == "model") return std::move(verbs.model);
  if (name == "plan") return std::move(verbs.plan);
  if (name == "simulate") return std::move(verbs.simulate);
  if (name == "train") return std::move(verbs.train);
  if (name == "calibrate") return std::move(verbs.calibrate);
  if (name == "report") return std::move(verbs.report);
  if (name == "validate") return std::move(verbs.validate);
  if (name == "explain") return std::move(verbs.explain);
  if (name == "export") return std::move(verbs.export_);
  if (name == "import") return std::move(verbs.import_);
  if (name == "schema") return std::move(verbs.schema);
  if (name == "collective") return std::move(verbs.collective);
  return std::move(verbs.doctor);
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

/// "plan.tensor=4": keys joined by dots.
bool is_setting(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return false;
  const std::string key = text.substr(0, equals);
  return key.front() != '.' && key.back() != '.' && key.find("..") == std::string::npos;
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
    if (const std::string near = base::did_you_mean(name, known); !near.empty())
      found.help = "did you mean `" + near + "`? ";
    return true;
  }
  return false;
}

/// CLI11's message; for an unknown verb or flag, also the one that was probably meant.
base::Diagnostic usage_error(const CLI::App& app, const CLI::ParseError& error, const std::string& word, int argc,
                             const char* const* argv) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands({})) names.push_back(verb->get_name());
  base::Diagnostic found{base::Severity::error, "U0001", {}, error.what(), {}, {}};
  const bool extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (find_verb(app, word) != nullptr && (extras || dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)) {
    const std::vector<std::string> words = extras ? left_over(error.what(), argc, argv) : flags_in(argc, argv);
    if (!name_unknown_flag(found, app, word, words) && extras && !words.empty())
      found.message = "`" + words.front() + "` is one argument too many";
  }
  if (!word.empty() && std::find(names.begin(), names.end(), word) == names.end()) {
    found.message = "unknown verb `" + word + "`";
    // The first letter is rarely mistyped; without this rule "validate" would suggest "calibrate".
    if (const std::string near = base::did_you_mean(word, names); !near.empty() && near.front() == word.front())
      found.help = "did you mean `orrery " + near + "`? ";
  }
  found.help += find_verb(app, word) != nullptr
                    ? "`orrery help " + word + "` lists its flags"
                    : std::string("`orrery --help` lists the verbs, `orrery help VERB` their flags");
  return found;
}

}  // namespace

Parsed parse_command_line(int argc, const char* const* argv) {
  CLI::App app{"Orrery plans, predicts and runs the training of large models on clusters.", "orrery"};
  CommonOptions common;
  Verbs verbs;
  Asked asked;
  app.footer(footer_of_all());
  app.set_version_flag("--version", "orrery " ORRERY_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  add_flags(app, common, verbs, asked);
  for (CLI::App* verb : app.get_subcommands({})) verb->footer(footer_of(verb->get_name()));

  Parsed parsed;
  try {
    app.parse(argc, argv);
    if (app.got_subcommand("help")) {
      if (!asked.man) {
        const CLI::App* about = asked.verb.empty() ? &app : find_verb(app, asked.verb);
        if (about == nullptr) throw CLI::ValidationError("VERB", "unknown verb `" + asked.verb + "`");
        app.clear();
        parsed.out = about->help(about == &app ? "" : app.get_name());
      } else {
        parsed.out = man_page(usage_of(app));
      }
      return parsed;
    }
    if (app.got_subcommand("completion")) {
      parsed.out = completion_script(usage_of(app), asked.shell);
      return parsed;
    }
    if (app.got_subcommand("train") && verbs.train.plan.empty() && !verbs.train.sample)
      throw CLI::RequiredError("PLAN");
    if (app.got_subcommand("calibrate") && verbs.calibrate.runs.empty() && verbs.calibrate.rows.empty())
      throw CLI::RequiredError("RUN or --rows");
    for (const std::vector<std::string>* settings : {&verbs.plan.settings, &verbs.report.settings})
      for (const std::string& one : *settings)
        if (!is_setting(one)) throw CLI::ValidationError("--set", "`" + one + "` is no KEY=VALUE");
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // help or version
      std::ostringstream out, nowhere;
      app.exit(error, out, nowhere);
      parsed.out = out.str();
    } else {
      parsed.word = word_for_verb(argc, argv);
      parsed.error = {usage_error(app, error, parsed.word, argc, argv)};
      parsed.exit_code = kUsage;
      // The parser may have stopped before the flag.
      parsed.json = std::find(argv + 1, argv + argc, std::string_view("--json")) != argv + argc;
    }
    return parsed;
  }
  const std::string name = app.get_subcommands().front()->get_name();
  parsed.command = CommandLine{std::move(common), name, chosen(name, verbs)};
  return parsed;
}

}  // namespace orrery::apps
