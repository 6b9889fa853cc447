// Parse, run, print: the frame around every verb, and the one place that catches failures of the outside world.
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <stdexcept>

#include "apps/command.h"
#include "apps/command_line.h"
#include "apps/exit_codes.h"
#include "apps/files.h"
#include "apps/interrupt.h"
#include "apps/output.h"
#include "exec/failure.h"

namespace orrery::apps {
namespace {

int exit_code_of(exec::FailureKind kind) {
  switch (kind) {
    case exec::FailureKind::run: return kFailure;
    case exec::FailureKind::environment: return kMissing;
    case exec::FailureKind::check: return kCheckFailed;
    case exec::FailureKind::input: return kBadInput;
  }
  return kFailure;
}

Outcome failed(int exit_code, const char* code, const std::string& message) {
  return {exit_code, {}, {}, base::fail(code, message).value()};
}

/// The verb's outcome; an exception becomes one too.
Outcome caught(const Verb& verb, const Context& context) {
  try {
    return verb.run(context);
  } catch (const exec::Failure& failure) {
    return failed(exit_code_of(failure.kind()), "R0001", failure.what());
  } catch (const std::bad_alloc&) {
    return failed(kFailure, "R0002", "out of memory");
  } catch (const std::length_error&) {  // more than any memory can hold
    return failed(kFailure, "R0002", "out of memory");
  } catch (const std::exception& error) {
    return failed(kFailure, "R0003", error.what());
  }
}

/// An error if standard input is asked for more than once: whoever writes `-` twice expects two files.
base::Diagnostics named_twice(const std::vector<std::string>& inputs) {
  const auto times = std::count(inputs.begin(), inputs.end(), kStandardInput);
  if (times < 2) return {};
  return base::fail("U0001", fmt::format("standard input can be one file, but `-` is named {} times", times),
                    "write the others to files")
      .value();
}

bool writes_a_file(const std::vector<OutputFile>& files) {
  return std::any_of(files.begin(), files.end(), [](const OutputFile& one) { return !one.path.empty(); });
}

/// What ^C has left undone.
base::Diagnostic stopped(const std::vector<std::string>& owed) {
  return {base::Severity::warning,
          "R0009",
          {},
          owed.empty() ? std::string("stopped by ^C; the result is not complete")
                       : fmt::format("stopped by ^C; not written: {}", fmt::join(owed, ", ")),
          {},
          {}};
}

/// A result that could not be printed is not a success.
int printed(bool written, int exit_code) {
  return written || exit_code != kOk ? exit_code : kFailure;
}

int parse_run_and_print(int argc, const char* const* argv) {
  // From the start: a scheduler's signal to a run that is only starting counts too.
  std::optional<Interrupt> early(Interrupt::By::anybody);
  const Parsed parsed = parse_command_line(argc, argv);
  if (!parsed.command) {
    if (parsed.error.empty()) return printed(print_text(parsed.out), parsed.exit_code);
    std::fputs(parsed.help.c_str(), stderr);
    const Outcome outcome{parsed.exit_code, {}, {}, parsed.error};
    return printed(print(parsed.word, outcome, parsed.json, detect_terminal({})), parsed.exit_code);
  }
  const CommandLine& command = *parsed.command;
  if (!command.verb.saves_when_stopped) {
    early.reset();
    if (Interrupt::requested()) return kInterrupted;
  }
  const Terminal terminal = detect_terminal(command.common);
  const Catalog catalog = open_catalog(command.common.catalogs);
  const Outputs outputs(command.common);
  const Context context{catalog, terminal, outputs, command.common.quiet, command.common.json};
  const std::vector<std::string> inputs = command.verb.inputs();
  base::Diagnostics refused = missing_catalogs(command.common.catalogs);
  if (refused.empty()) refused = named_twice(inputs);
  const std::vector<OutputFile> files = command.verb.outputs();
  if (refused.empty()) refused = outputs.refused(files, inputs);
  // `orrery plan job.yaml -o plan.yaml | head`: the file counts, whoever has stopped reading the text.
  if (writes_a_file(files)) std::signal(SIGPIPE, SIG_IGN);
  Outcome outcome = refused.empty() ? caught(command.verb, context) : Outcome{kUsage, {}, {}, std::move(refused)};
  if (outcome.exit_code == kInterrupted && !command.verb.saves_when_stopped)
    outcome.diagnostics.push_back(stopped(outputs.not_written(files)));
  return printed(print(command.verb.name, outcome, command.common.json, terminal), outcome.exit_code);
}

/// Libraries that promise not to throw but allocate all the same (CLI11, nlohmann) end here, where nothing can catch
/// the exception.
[[noreturn]] void end_without_memory() {
  try {
    if (const std::exception_ptr cause = std::current_exception()) std::rethrow_exception(cause);
  } catch (const std::bad_alloc&) {
    std::fputs("error[R0002]: out of memory\n", stderr);
    std::_Exit(kFailure);
  } catch (...) {
    std::abort();
  }
  std::abort();
}

}  // namespace

int run_command(int argc, const char* const* argv) {
  std::set_terminate(end_without_memory);
  // Before and after the verb there is no result that could carry a failure; without memory, no JSON either.
  try {
    return parse_run_and_print(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("error[R0002]: out of memory\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error[R0003]: %s\n", error.what());
  }
  return kFailure;
}

}  // namespace orrery::apps
