#pragma once
/// What counts as a text file: UTF-8 without control characters. Private to base/*.cpp.
#include <cstddef>
#include <string_view>

#include "base/yaml.h"

namespace orrery::base {

/// Length in bytes of the UTF-8 character at `i`; 0 if there is none (RFC 3629: no surrogates, no overlong forms).
[[nodiscard]] std::size_t utf8_length(std::string_view text, std::size_t i);
/// True when all of the text is UTF-8; control characters are allowed.
[[nodiscard]] bool is_utf8(std::string_view text);
/// JSON strings may contain an unescaped DEL.
enum class TextKind { plain, json };
/// False after reporting E0100: longer than `most_bytes`, not UTF-8, or with control characters other than tab,
/// line feed and carriage return.
[[nodiscard]] bool is_text(std::string_view text, std::size_t most_bytes, Findings& findings,
                           TextKind kind = TextKind::plain);

}  // namespace orrery::base
