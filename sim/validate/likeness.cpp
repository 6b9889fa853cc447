/// Takes names of devices apart.
#include "sim/validate/likeness.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <set>
#include <string_view>
#include <vector>

namespace orrery::sim {

namespace {

bool digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

std::vector<std::string> parts_of_name(const std::string& name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!words.back().empty())
      words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

/// Generations that have a second name: JAX calls a TPU v5e "TPU v5 lite".
struct SecondName {
  std::string_view said, then;  ///< a word, and the one behind it, if it takes two
  const char* meant;
};
constexpr SecondName kSecondNames[] = {
    {"v5", "lite", "v5e"},    {"v5", "litepod", "v5e"}, {"v6", "lite", "v6e"},   {"v5lite", "", "v5e"},
    {"v5litepod", "", "v5e"}, {"v6lite", "", "v6e"},    {"trillium", "", "v6e"}, {"trainium1", "", "trainium"},
};

/// The words with the catalogue's names in place of second ones; "v6e (Trillium)" names it once.
std::vector<std::string> with_usual_names(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  std::set<std::string> meant;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i];
    const std::string next = i + 1 < words.size() ? words[i + 1] : std::string();
    for (const SecondName& one : kSecondNames) {
      if (words[i] != one.said || (!one.then.empty() && next != one.then)) continue;
      word = one.meant;
      meant.insert(word);
      if (!one.then.empty()) ++i;
      break;
    }
    if (meant.count(word) == 0 || std::find(out.begin(), out.end(), word) == out.end()) out.push_back(std::move(word));
  }
  return out;
}

/// The number at the beginning of a word, if all that follows is `unit`.
std::optional<std::int64_t> number_with(const std::string& word, std::initializer_list<std::string_view> units) {
  const auto end = static_cast<std::size_t>(
      std::distance(word.begin(), std::find_if_not(word.begin(), word.end(), [](char c) { return digit(c); })));
  constexpr std::size_t kMostDigits = 6;
  if (end == 0 || end > kMostDigits) return std::nullopt;
  const std::string_view unit = std::string_view(word).substr(end);
  if (std::find(units.begin(), units.end(), unit) == units.end()) return std::nullopt;
  return std::strtoll(word.c_str(), nullptr, 10);  // NOLINT: decimal
}

/// Makers, families that every model of a maker has, and kinds of memory say nothing of the model.
constexpr std::array<std::string_view, 24> kSilent = {
    "nvidia", "amd",    "instinct", "tesla",   "geforce", "quadro",     "rtx",   "gtx",
    "gpu",    "gpus",   "hpu",      "intel",   "hbm2",    "hbm2e",      "hbm3",  "hbm3e",
    "gddr6",  "gddr6x", "gddr7",    "edition", "tpu",     "generation", "gaudi", "habana"};

}  // namespace

DeviceWords device_words(const std::string& name) {
  DeviceWords out;
  const std::vector<std::string> words = with_usual_names(parts_of_name(name));
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i];
    if (std::find(kSilent.begin(), kSilent.end(), word) != kSilent.end()) continue;
    if (const auto gb = number_with(word, {"gb", "g", "gib"})) {
      out.gb = gb;
    } else if (i + 1 < words.size() && (words[i + 1] == "gb" || words[i + 1] == "gib") && number_with(word, {""})) {
      out.gb = number_with(word, {""});
      ++i;
    } else if (const auto watts = number_with(word, {"w", "watts"})) {
      out.watts = watts;
    } else if (i + 1 < words.size() && (words[i + 1] == "w" || words[i + 1] == "watts") && number_with(word, {""})) {
      out.watts = number_with(word, {""});
      ++i;
    } else if (number_with(word, {"x"}) && out.number.empty()) {
      continue;  // "8x"
    } else if (word.rfind("sxm", 0) == 0 || word.rfind("pcie", 0) == 0 || word.rfind("nvl", 0) == 0) {
      out.form = word[0] == 's' ? "sxm" : word[0] == 'p' ? "pcie" : "nvl";
    } else if (out.number.empty() && std::any_of(word.begin(), word.end(), digit)) {
      for (const std::string_view family : {"rtx", "tpu", "gaudi"})
        if (word.size() > family.size() && word.rfind(family, 0) == 0) word = word.substr(family.size());
      const auto first = std::find_if(word.begin(), word.end(), digit);
      const auto last = std::find_if_not(first, word.end(), digit);
      out.letters = std::string(word.begin(), first);
      out.number = std::string(first, last);
      out.suffix = std::string(last, word.end());
    } else {
      out.others.insert(word);
    }
  }
  return out;
}

Likeness likeness(const std::string& wanted, const std::string& device, std::optional<std::int64_t> gb) {
  const DeviceWords a = device_words(wanted), b = device_words(device);
  Likeness out;
  const std::string one = a.letters + a.number + a.suffix, other = b.letters + b.number + b.suffix;
  constexpr int kSame = 4, kButOthers = 3, kNumber = 2, kGeneration = 1;
  constexpr std::size_t kLeast = 3;
  out.prefix =
      std::distance(wanted.begin(), std::mismatch(wanted.begin(), wanted.end(), device.begin(), device.end()).first);
  if (a.number.empty() || b.number.empty()) {
    if (a.number == b.number && a.others == b.others && !a.others.empty()) out.model = kSame;  // "Trainium"
  } else if (one == other) {
    out.model = a.others == b.others ? kSame : kButOthers;
  } else if (a.letters == b.letters && a.number == b.number) {
    out.model = kNumber;
  } else if (one.substr(0, kLeast) == other.substr(0, kLeast) && std::min(one.size(), other.size()) > kLeast &&
             !a.letters.empty()) {
    out.model = kGeneration;
  }
  for (const std::string& word : b.others) out.words += a.others.count(word) != 0 ? 1 : -1;
  out.form = a.form.empty() || b.form.empty() || a.form == b.form;
  const std::optional<std::int64_t> size = a.gb ? a.gb : gb;
  if (size && b.gb) out.memory_apart = -std::abs(*size - *b.gb);
  return out;
}

}  // namespace orrery::sim
