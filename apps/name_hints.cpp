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

std::string small_letters(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// The names that contain the word, whatever its case: "H100" is in "hgx-h100".
std::vector<std::string> names_with(const std::string& text, const std::vector<std::string>& names) {
  const std::string word = small_letters(text);
  std::vector<std::string> out;
  for (const std::string& one : names)
    if (word.size() > 1 && one.find(word) != one.npos) out.push_back(one);
  return out;
}

/// "did you mean `a`?", "did you mean one of `a`, `b`?"
std::string meant(const std::vector<std::string>& names) {
  return fmt::format("did you mean {}`{}`?", names.size() > 1 ? "one of " : "", fmt::join(names, "`, `"));
}

auto is(int (*kind)(int)) {
  return [kind](char c) { return kind(static_cast<unsigned char>(c)) != 0; };
}

using Words = std::vector<std::string>;

/// A size or a count, which says nothing of a machine: 8g, 80gb, 24xlarge, x8, 8x.
bool is_size(const std::string& word) {
  const std::string::const_iterator unit = std::ranges::find_if_not(word, is(std::isdigit));
  const std::string_view behind(unit, word.end());
  if (unit == word.begin())
    return word.size() > 1 && word[0] == 'x' && std::all_of(unit + 1, word.end(), is(std::isdigit));
  constexpr std::string_view kUnits[] = {"g", "gb", "gib", "t", "tb", "x", "xl", "xlarge", "gpu", "gpus"};
  return std::ranges::find(kUnits, behind) != std::end(kUnits);
}

/// What stands between hyphens, points and the like, in small letters, without sizes and counts.
Words words_in(const std::string& name) {
  Words out;
  for (std::size_t at = 0; at < name.size();) {
    std::size_t end = at;
    while (end < name.size() && is(std::isalnum)(name[end])) ++end;
    const std::string word = small_letters(name.substr(at, end - at));
    if (!word.empty() && !is_size(word)) out.push_back(word);
    at = end + 1;
  }
  return out;
}

/// No letter goes on at `at`, nor a number.
bool run_ends(const std::string& word, std::size_t at) {
  return at == word.size() || is(std::isdigit)(word[at - 1]) != is(std::isdigit)(word[at]);
}

/// Whether what `wanted` has from `at` on is made of beginnings of the words from `first` on, in their order: `rtx4090`
/// of pcie-rtx-4090, `ndv5` of azure-nd96isr-h100-v5, `mi250` of mi250x. A number does not go on: `h20` is not of
/// hgx-h200. One letter is no beginning.
bool made_of(const Words& words, const std::string& wanted, std::size_t first = 0, std::size_t at = 0) {
  if (at == wanted.size()) return true;
  for (std::size_t i = first; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (at > 0 && is(std::isdigit)(wanted[at - 1]) && is(std::isdigit)(word[0])) continue;
    std::size_t same = 0;
    while (same < word.size() && at + same < wanted.size() && word[same] == wanted[at + same]) ++same;
    for (; same > 0; --same)
      if (run_ends(word, same) && (same > 1 || is(std::isdigit)(word[0])) && made_of(words, wanted, i + 1, at + same))
        return true;
  }
  return false;
}

/// The runs of letters and of digits of a word, in turn.
Words runs_of(const std::string& word) {
  Words out;
  for (std::size_t at = 0; at < word.size(); ++at) {
    if (at == 0 || run_ends(word, at)) out.emplace_back();
    out.back() += word[at];
  }
  return out;
}

/// Whether one of the words has the same letters and the same number first, whatever comes then (`p4de` and p4d,
/// `v5litepod` and v5e), or the same name before another number (`nvl72` and nvl64, `trn3` and trn2).
bool of_one_line(const Words& words, const std::string& wanted) {
  constexpr std::size_t kName = 3;  // letters that are a name
  const Words asked = runs_of(wanted);
  if (asked.size() < 2 || is(std::isdigit)(wanted[0])) return false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool joins = i + 1 < words.size() && !is(std::isdigit)(words[i].back()) && is(std::isdigit)(words[i + 1][0]);
    const Words has = runs_of(joins ? words[i] + words[i + 1] : words[i]);
    if (has.size() > 1 && has[0] == asked[0] && (has[1] == asked[1] || asked[0].size() >= kName)) return true;
  }
  return false;
}

/// The clusters that a word of the name, or else what ends one, may mean: by `dgx-h100` or `dgxh100` people mean
/// `hgx-h100` rather than `dgx-a100`. Where it is a device, those with it. All clusters if there is none.
struct Alike {
  std::vector<std::string> names;
  bool of_device = false;  ///< the word is a device
};
Alike clusters_like(const std::string& name, const std::vector<std::string>& names,
                    const std::function<std::string(const std::string&)>& device_of) {
  constexpr std::size_t kLongest = 64;  // a longer text is no name
  if (name.size() > kLongest) return {names, false};
  std::vector<Words> all, devices;
  for (const std::string& one : names) all.push_back(words_in(one)), devices.push_back(words_in(device_of(one)));
  const auto those = [&](const std::vector<Words>& of, const auto& fits) {
    std::vector<std::string> out;
    for (std::size_t i = 0; i < names.size(); ++i)
      if (fits(of[i])) out.push_back(names[i]);
    return out;
  };
  const auto found = [&](const auto& fits) {
    Alike out{those(devices, fits), true};
    return out.names.empty() ? Alike{those(all, fits), false} : out;
  };
  constexpr std::size_t kShortest = 4;  // of what ends a word
  const auto says = [](const std::string& word) {
    return std::ranges::any_of(word, is(std::isalpha)) && std::ranges::any_of(word, is(std::isdigit));
  };
  const Words asked = words_in(name);
  for (const bool exact : {true, false})
    for (std::string word : asked)
      for (bool whole = true; says(word) && (whole || word.size() >= kShortest); word.erase(0, 1), whole = false)
        if (Alike out = found([&](const Words& of) { return exact ? made_of(of, word) : of_one_line(of, word); });
            !out.names.empty())
          return out;
  return {names, false};
}

/// Which of the names was meant, but for a typing error, or for capitals; empty: none.
std::string but_for_typing(const std::string& name, const std::vector<std::string>& names) {
  const std::string near = base::did_you_mean(name, names);
  return near.empty() ? base::did_you_mean(small_letters(name), names) : near;
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
  } else if (const std::string near = but_for_typing(name, names); !near.empty()) {
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
