#pragma once
/// Reading and writing files: the only place where inputs are opened.
#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace orrery::apps {

/// The limit for files that are written by hand or dumped by a tool, which are far smaller. What a run measures grows
/// with its steps and ranks.
inline constexpr std::size_t kMostText = std::size_t{64} << 20;
inline constexpr std::size_t kMostMeasured = std::size_t{1} << 30;

/// Reads a whole text file. E0201 if it cannot be read or is not a regular file (a pipe or a device could block, or
/// never end), E0202 if it is larger than `limit` bytes. Reading stops at the first NUL byte, which no text has and
/// every reader reports.
[[nodiscard]] base::Result<std::string> read_file(const std::filesystem::path& path, std::size_t limit = kMostText);
/// The argument that stands for standard input.
inline constexpr const char* kStandardInput = "-";
/// Reads the file that an argument names, or for `-` standard input up to its end, with the same errors. Standard input
/// is read once and kept: whoever asks what it is leaves it to be read.
[[nodiscard]] base::Result<std::string> read_argument(const std::string& argument, std::size_t limit = kMostText);

/// Writes beside the target, then renames, so that a reader never sees half a file; creates missing folders.
/// Throws exec::Failure if the disk refuses.
void write_file(const std::filesystem::path& path, std::string_view text);

/// `path` as written in a file of folder `folder`: absolute paths stay, others start at the folder.
[[nodiscard]] std::filesystem::path relative_to(const std::filesystem::path& folder, const std::string& path);

}  // namespace orrery::apps
