#pragma once
/// Names of models as people write them: "Llama 3.1 8B", "meta-llama/Llama-3.1-8B-Instruct", "llama3-8b".
#include <string>

namespace orrery::models {

/// Letters and digits, in small letters, and points between two digits: "gpt31.75b" of "GPT-3 1.75B".
[[nodiscard]] std::string letters_of(const std::string& name);
/// The name without a minor version: "Llama 3.1 8B" has the shape of "Llama 3 8B". A size, "1.75B", stays.
[[nodiscard]] std::string without_minor_version(std::string name);

}  // namespace orrery::models
