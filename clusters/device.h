#pragma once
/// Reads a device: a mapping, or a catalogue name found as "devices/NAME". For the readers of this folder.
#include <string>

#include "clusters/read.h"

namespace orrery::clusters {

/// A device given in full.
[[nodiscard]] Device read_device(const base::Cursor& at);
/// A device given in full, by its catalogue name, or `like` one of that name with some keys changed (C01 if there is no
/// such entry).
[[nodiscard]] Device resolve_device(const base::Cursor& at, const Find& find);

/// Text as a YAML double-quoted scalar.
[[nodiscard]] std::string quoted(const std::string& text);

}  // namespace orrery::clusters
