#pragma once
/// The formats of training data, one row each: the word that names them in checkpoints, and what they count.
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace orrery::exec {

enum class DataFormat { bytes, llm_c, megatron, criteo, criteo_binary, generated };

struct DataFormatTraits {
  DataFormat format{};
  const char* word = "";
  const char* pieces = "";  ///< what a file's size and a run's position are counted in
};

inline constexpr auto kDataFormats = std::to_array<DataFormatTraits>({
    {DataFormat::bytes, "bytes", "tokens"},
    {DataFormat::llm_c, "llm.c", "tokens"},
    {DataFormat::megatron, "megatron", "tokens"},
    {DataFormat::criteo, "criteo", "samples"},
    {DataFormat::criteo_binary, "criteo-binary", "samples"},
    {DataFormat::generated, "generated", "samples"},
});

[[nodiscard]] constexpr const DataFormatTraits& traits_of(DataFormat format) {
  return kDataFormats[static_cast<std::size_t>(format)];
}
[[nodiscard]] constexpr std::optional<DataFormat> data_format(std::string_view word) {
  for (const DataFormatTraits& one : kDataFormats)
    if (word == one.word) return one.format;
  return std::nullopt;
}

// Rows are in the order of the enumeration.
static_assert([] {
  for (std::size_t i = 0; i < kDataFormats.size(); ++i)
    if (static_cast<std::size_t>(kDataFormats[i].format) != i) return false;
  return true;
}());

}  // namespace orrery::exec
