#pragma once
/// Reading and writing files: the only place where inputs are opened.
#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace orrery::apps {

/// What is written by hand or dumped by a tool is far smaller; what a run measures grows with its steps and ranks.
inline constexpr std::size_t kMostText = std::size_t{64} << 20;
inline constexpr std::size_t kMostMeasured = std::size_t{1} << 30;

/// A whole text file. E0201 when it cannot be read or is no regular file (a pipe or a device would block, or never
/// end), E0202 when it is larger than `limit` bytes. It is read up to the first NUL byte, which no text has and every
/// reader reports.
[[nodiscard]] base::Result<std::string> read_file(const std::filesystem::path& path, std::size_t limit = kMostText);
/// What an argument names: a file, or with `-` standard input up to its end, of which the same holds.
[[nodiscard]] base::Result<std::string> read_argument(const std::string& argument, std::size_t limit = kMostText);

/// Writes beside the target and renames, so that a reader never sees half a file; makes missing folders.
/// Throws exec::Failure when the disk refuses.
void write_file(const std::filesystem::path& path, std::string_view text);

/// `path` as written in a file of folder `folder`: absolute paths stay, others start at the folder.
[[nodiscard]] std::filesystem::path relative_to(const std::filesystem::path& folder, const std::string& path);

}  // namespace orrery::apps
