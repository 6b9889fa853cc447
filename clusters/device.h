#pragma once
/// Reading a device: a mapping, or a catalogue name found as "devices/NAME". For the readers of this room.
#include <string>

#include "clusters/read.h"

namespace orrery::clusters {

/// A device written out in full.
[[nodiscard]] Device read_device(const base::Cursor& at);
/// A device in full, or the catalogue's by name (C01 where there is none).
[[nodiscard]] Device resolve_device(const base::Cursor& at, const Find& find);

/// Text as a YAML double-quoted scalar.
[[nodiscard]] std::string quoted(const std::string& text);

}  // namespace orrery::clusters
