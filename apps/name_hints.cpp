// Which names of the catalogue somebody may have meant.
#include "apps/name_hints.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>

#include "apps/catalog.h"
#include "apps/software_names.h"
#include "base/result.h"
#include "models/names.h"

namespace orrery::apps {
namespace {

/// The names that contain the word, whatever its case: "H100" is in "hgx-h100".
std::string names_with(std::string word, const std::vector<std::string>& names) {
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  std::string out;
  for (const std::string& one : names)
    if (word.size() > 1 && one.find(word) != one.npos) out += (out.empty() ? "`" : ", `") + one + "`";
  return out;
}

std::string small_letters(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// The clusters with the device that is a word of the name, or ends one: by `dgx-h100` or `dgxh100` people mean
/// `hgx-h100` rather than `dgx-a100`. All clusters if none has it.
std::vector<std::string> with_its_device(const std::string& name, const std::vector<std::string>& names,
                                         const std::function<std::string(const std::string&)>& device_of) {
  std::vector<std::string> devices;
  for (const std::string& one : names) devices.push_back(small_letters(device_of(one)));
  const auto is = [](int (*kind)(int)) { return [kind](char c) { return kind(static_cast<unsigned char>(c)) != 0; }; };
  for (std::size_t at = 0; at < name.size();) {
    std::size_t end = at;
    while (end < name.size() && is(std::isalnum)(name[end])) ++end;
    std::string word = small_letters(name.substr(at, end - at));
    at = end + 1;
    for (; std::ranges::any_of(word, is(std::isalpha)) && std::ranges::any_of(word, is(std::isdigit));
         word.erase(0, 1)) {
      std::vector<std::string> out;
      for (std::size_t i = 0; i < names.size(); ++i)
        if (names[i].find(word) != std::string::npos || devices[i].find(word) != std::string::npos)
          out.push_back(names[i]);
      if (!out.empty()) return out;
    }
  }
  return names;
}

std::string names_in(const std::string& name, const std::vector<std::string>& names) {
  constexpr std::size_t kShortest = 4;  // letters that say something
  const std::string wanted = models::letters_of(name.substr(name.rfind('/') + 1));
  if (wanted.size() < kShortest) return {};
  std::string longest, begins;
  for (const std::string& one : names) {
    const std::string letters = models::letters_of(one);
    if (letters.size() >= kShortest && letters.size() > models::letters_of(longest).size() &&
        wanted.find(letters) != wanted.npos)
      longest = one;
    if (letters.starts_with(wanted)) begins += (begins.empty() ? "`" : ", `") + one + "`";
  }
  return longest.empty() ? begins : "`" + longest + "`";
}

}  // namespace

std::string names_like(const std::string& name, const std::vector<std::string>& names) {
  std::string like = names_in(name, names);
  return like.empty() ? names_in(models::without_minor_version(name), names) : like;
}

std::string help_with(const char* folder, const std::string& name, const std::vector<std::string>& all,
                      const std::function<std::string(const std::string&)>& device_of) {
  const std::vector<std::string> names = folder == kClusters ? with_its_device(name, all, device_of) : all;
  const bool of_device = names.size() < all.size();
  std::string help;
  if (const auto nearest = folder == kStacks ? nearest_stack(name) : std::nullopt) {
    help = fmt::format("the nearest is `{}`: {}", nearest->stack, nearest->why);
  } else if (const std::string like = folder == kModels ? names_like(name, names) : std::string(); !like.empty()) {
    help = fmt::format("did you mean {}{}?", like.find(", ") == like.npos ? "" : "one of ", like);
  } else if (const std::string near = base::did_you_mean(name, names); !near.empty()) {
    help = fmt::format("did you mean `{}`?", near);
  } else if (const std::string holding = names_with(name, names); !of_device && !holding.empty()) {
    help = fmt::format("did you mean {}{}?", holding.find(", ") == holding.npos ? "" : "one of ", holding);
  } else {
    const char* const begin = !of_device         ? "known: "
                              : names.size() > 1 ? "with this device there are "
                                                 : "with this device there is ";
    for (const std::string& known : names) help += (help.empty() ? begin : ", ") + known;
  }
  if (folder == kStacks)
    help += fmt::format(
        "{} For other software use `generic-eager` or `generic-compiled`; `orrery calibrate --rows` "
        "fits a stack to it",
        help.ends_with('?') ? "" : ".");
  return help;
}

}  // namespace orrery::apps
