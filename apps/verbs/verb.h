#pragma once
/// A verb of the command as one record: its description, its flags, what it writes and what it does. Each verb's file
/// makes its own; apps/verbs/list.cpp has them all.
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "apps/catalog.h"
#include "apps/flags.h"
#include "apps/outcome.h"
#include "apps/outputs.h"
#include "apps/terminal.h"

namespace orrery::apps {

/// What a verb is run with besides its own options.
struct Context {
  const Catalog& catalog;
  const Terminal& terminal;
  const Outputs& outputs;
  bool quiet = false;
  bool json = false;
};

/// A verb and the values that were read for it. Copies share the values.
struct Verb {
  std::string name;
  std::string says;      ///< one line of help
  std::string examples;  ///< lines that show it in use
  /// It saves its work when it is asked to stop, from its very start on; other verbs just end.
  bool saves_when_stopped = false;
  std::function<void(Flags)> add_flags;
  std::function<std::string()> missing;              ///< an argument that it cannot do without; empty: none
  std::function<std::vector<OutputFile>()> outputs;  ///< files that it will write
  std::function<std::vector<std::string>()> inputs;  ///< what it reads: files, folders, `-` for standard input
  std::function<Outcome(const Context&)> run;
};

/// The parts of a verb whose values are read into `Options`.
template <class Options>
struct VerbOf {
  const char* name;
  const char* says;
  const char* examples;
  void (*flags)(Flags flags, Options& into);
  Outcome (*run)(const Options& options, const Context& context);
  std::vector<OutputFile> (*outputs)(const Options& options) = nullptr;
  std::vector<std::string> (*inputs)(const Options& options) = nullptr;
  std::string (*missing)(const Options& options) = nullptr;
  bool saves_when_stopped = false;
};

/// Several lists of names as one.
[[nodiscard]] inline std::vector<std::string> all_of(std::initializer_list<std::vector<std::string>> lists) {
  std::vector<std::string> out;
  for (const std::vector<std::string>& one : lists) out.insert(out.end(), one.begin(), one.end());
  return out;
}

template <class Options>
[[nodiscard]] Verb verb_of(const VerbOf<Options>& parts) {
  const auto options = std::make_shared<Options>();
  return {parts.name,
          parts.says,
          parts.examples,
          parts.saves_when_stopped,
          [=](Flags flags) { parts.flags(flags, *options); },
          [=] { return parts.missing ? parts.missing(*options) : std::string(); },
          [=] { return parts.outputs ? parts.outputs(*options) : std::vector<OutputFile>(); },
          [=] { return parts.inputs ? parts.inputs(*options) : std::vector<std::string>(); },
          [=](const Context& context) { return parts.run(*options, context); }};
}

}  // namespace orrery::apps
