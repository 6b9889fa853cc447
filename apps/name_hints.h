#pragma once
/// What a name that is not in the catalogue may have meant.
#include <functional>
#include <string>
#include <vector>

namespace orrery::apps {

/// Catalogue names that differ from a name in what people add to it or leave out: `gpt-3` is `gpt3-175b`, and
/// `meta-llama/Meta-Llama-3-8B-Instruct` has `llama3-8b` in it. "`a`, `b`"; empty: none.
[[nodiscard]] std::string names_like(const std::string& name, const std::vector<std::string>& names);
/// What to do about a name that is neither in the catalogue nor a file. `device_of`: of a cluster of the catalogue.
[[nodiscard]] std::string help_with(const char* folder, const std::string& name, const std::vector<std::string>& all,
                                    const std::function<std::string(const std::string&)>& device_of);

}  // namespace orrery::apps
