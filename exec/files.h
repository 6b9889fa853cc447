#pragma once
/// Writing files so that a reader, or a machine that lost power, finds the old one or the new one and never a part.
#include <filesystem>
#include <string>
#include <string_view>

namespace orrery::exec {

/// Writes to a temporary beside `path`, syncs, renames, syncs the folder. Throws Failure.
void write_atomically(const std::filesystem::path& path, std::string_view text);
/// Syncs a folder, so that a rename in it survives a power cut. Throws Failure.
void sync_folder(const std::filesystem::path& folder);
/// The whole of a regular file. Throws Failure when it cannot be read or is larger than `limit` bytes.
[[nodiscard]] std::string read_file(const std::filesystem::path& path, std::size_t limit);

}  // namespace orrery::exec
