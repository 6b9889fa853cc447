#pragma once
/// What kind of file somebody named: a job, a plan, a model and so on, and what to do about one where another is
/// wanted.
#include <string>

#include "base/result.h"
#include "base/yaml.h"

namespace orrery::apps {

/// What a file holds, by the keys that only its kind has. `printed`: the object that a verb prints with --json; `rows`:
/// of published runs.
enum class InputKind { unknown, plan, job, printed, model, cluster, stack, calibration, rows };
/// `unknown` also for what is neither a file nor standard input, or cannot be read.
[[nodiscard]] InputKind kind_of_input(const std::string& path);
/// E0125 with what to do about it if a file's text is known to be of another kind than the one that is wanted.
[[nodiscard]] base::Diagnostics wrong_kind(const std::string& text, const std::string& file, InputKind wanted);
/// What to do about a name of the catalogue's that is of another kind than the one that is wanted.
[[nodiscard]] std::string help_with_name(InputKind is, const std::string& name, InputKind wanted);
/// "a cluster".
[[nodiscard]] const char* name_of(InputKind kind);
/// The same of a document that is read already.
[[nodiscard]] base::Diagnostics other_kind(const base::Document& document, const std::string& text, InputKind wanted);

}  // namespace orrery::apps
