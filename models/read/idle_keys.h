#pragma once
/// Keys of a config.json that nothing asked for: those that change nothing here, and a warning of the others.
#include "base/yaml.h"
#include "models/read/which_family.h"

namespace orrery::models {

/// E0113, a warning, at each other key that no reader asked for: in the language model's part, with a key that it may
/// have been meant for; outside it, where that is another model's, only if it resembles one. To be called last.
void warn_of_unread(const base::Cursor& root, const LanguagePart& part);

}  // namespace orrery::models
