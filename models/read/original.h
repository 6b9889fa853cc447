#pragma once
/// How a model here differs from the one whose file it was read from, where parameters are the same but results are
/// not. Predictions are valid all the same; weights of the original would compute something else.
#include <string>
#include <string_view>
#include <vector>

#include "models/model.h"

namespace orrery::models {

/// Begins such a remark among a model's sources.
inline constexpr std::string_view kDiffers = "differs from the original: ";

/// These remarks, without their beginning; empty: the model computes what the original does.
[[nodiscard]] inline std::vector<std::string> differences(const Model& model) {
  std::vector<std::string> out;
  for (const std::string& source : model.sources)
    if (source.starts_with(kDiffers)) out.push_back(source.substr(kDiffers.size()));
  return out;
}

}  // namespace orrery::models
