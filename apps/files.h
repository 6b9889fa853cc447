#pragma once
/// Reading and writing files: the only place where inputs are opened.
#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace orrery::apps {

/// The whole file. E0201 when it cannot be read, E0202 when it is larger than `limit` bytes.
[[nodiscard]] base::Result<std::string> read_file(const std::filesystem::path& path, std::size_t limit = 1u << 30);

/// Writes beside the target and renames, so that a reader never sees half a file; makes missing folders.
/// Throws exec::Failure when the disk refuses.
void write_file(const std::filesystem::path& path, std::string_view text);

/// `path` as written in a file of folder `folder`: absolute paths stay, others start at the folder.
[[nodiscard]] std::filesystem::path relative_to(const std::filesystem::path& folder, const std::string& path);

}  // namespace orrery::apps
