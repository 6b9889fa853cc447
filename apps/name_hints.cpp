// Which names of the catalogue somebody may have meant.
#include "apps/name_hints.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

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
std::vector<std::string> names_with(std::string word, const std::vector<std::string>& names) {
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  std::vector<std::string> out;
  for (const std::string& one : names)
    if (word.size() > 1 && one.find(word) != one.npos) out.push_back(one);
  return out;
}

/// "did you mean `a`?", "did you mean one of `a`, `b`?"
std::string meant(const std::vector<std::string>& names) {
  return fmt::format("did you mean {}`{}`?", names.size() > 1 ? "one of " : "", fmt::join(names, "`, `"));
}

std::string small_letters(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

auto is(int (*kind)(int)) {
  return [kind](char c) { return kind(static_cast<unsigned char>(c)) != 0; };
}

/// Whether the word is in the text, wherever this has hyphens: `rtx4090` is in `pcie-rtx-4090`. A number does not go
/// on: `h20` is not in `hgx-h200`.
bool has_word(const std::string& text, const std::string& word) {
  for (std::size_t begin = 0; begin < text.size(); ++begin) {
    std::size_t at = begin, found = 0;
    while (at < text.size() && found < word.size()) {
      if (found > 0 && !is(std::isalnum)(text[at])) {
        ++at;
      } else if (text[at] == word[found]) {
        ++at, ++found;
      } else {
        break;
      }
    }
    const bool goes_on = at < text.size() && is(std::isdigit)(text[at]) && is(std::isdigit)(word.back());
    if (found == word.size() && !goes_on) return true;
  }
  return false;
}

/// The clusters of which a word of the name, or what ends one, is the device or a part of their name: by `dgx-h100` or
/// `dgxh100` people mean `hgx-h100` rather than `dgx-a100`. All clusters if there is none.
struct Alike {
  std::vector<std::string> names;
  bool of_device = false;  ///< the word is a device
};
Alike clusters_like(const std::string& name, const std::vector<std::string>& names,
                    const std::function<std::string(const std::string&)>& device_of) {
  std::vector<std::string> devices;
  for (const std::string& one : names) devices.push_back(small_letters(device_of(one)));
  for (std::size_t at = 0; at < name.size();) {
    std::size_t end = at;
    while (end < name.size() && is(std::isalnum)(name[end])) ++end;
    std::string word = small_letters(name.substr(at, end - at));
    at = end + 1;
    for (; std::ranges::any_of(word, is(std::isalpha)) && std::ranges::any_of(word, is(std::isdigit));
         word.erase(0, 1)) {
      Alike out;
      for (std::size_t i = 0; i < names.size(); ++i) {
        const bool device = has_word(devices[i], word);
        if (device || has_word(names[i], word)) out.names.push_back(names[i]);
        out.of_device = out.of_device || device;
      }
      if (!out.names.empty()) return out;
    }
  }
  return {names, false};
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
  const auto [names, of_device] = folder == kClusters ? clusters_like(name, all, device_of) : Alike{all, false};
  const bool some = names.size() < all.size();
  std::string help;
  if (const auto nearest = folder == kStacks ? nearest_stack(name) : std::nullopt) {
    help = fmt::format("the nearest is `{}`: {}", nearest->stack, nearest->why);
  } else if (const std::string like = folder == kModels ? names_like(name, names) : std::string(); !like.empty()) {
    help = fmt::format("did you mean {}{}?", like.find(", ") == like.npos ? "" : "one of ", like);
  } else if (const std::string near = base::did_you_mean(name, names); !near.empty()) {
    help = fmt::format("did you mean `{}`?", near);
  } else if (const auto holding = some ? names : names_with(name, names); !of_device && !holding.empty()) {
    help = meant(holding);
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
