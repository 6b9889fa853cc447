// Keys by their rows.
#include "plan/frameworks/key_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace orrery::plan {
namespace {

std::set<std::string, std::less<>> megatron_flags() {
  std::set<std::string, std::less<>> out;
  for (const Setting& one : megatron_settings_table()) out.insert(one.key);
  return out;
}

std::string as_flag(std::string_view key) {
  std::string out(key);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

/// Whether the value is one of these words, in whatever letters.
bool is_word(const Given& at, std::initializer_list<std::string_view> words) {
  if (at.values.size() != 1) return false;
  std::string text = at.values.front().text;
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::find(words.begin(), words.end(), text) != words.end();
}

}  // namespace

bool is_true(const Given& at) {
  return is_word(at, {"true", "yes", "on"});
}
bool is_false(const Given& at) {
  return is_word(at, {"false", "no", "off"});
}

bool KeysAsFlags::take(const Given& at) {
  return named(at) || worded(at) || passed(at) || same_name(at);
}

void KeysAsFlags::add(const Given& at, const std::string& flag, std::vector<GivenValue> values) {
  into_.given.push_back({flag, at.where, std::move(values), at.said});
}

bool KeysAsFlags::named(const Given& at) {
  for (const NamedKey& one : table_.named) {
    if (at.said != one.key) continue;
    if (one.as == KeyAs::value)
      add(at, one.flag, at.values);
    else if (one.as == KeyAs::where_true ? is_true(at) : is_false(at))
      add(at, one.flag, {});
    else if (!(one.as == KeyAs::where_true ? is_false(at) : is_true(at)))
      add(at, one.flag, at.values);  // neither: the flag's reader says so
    return true;
  }
  return false;
}

bool KeysAsFlags::worded(const Given& at) {
  bool has_words = false;
  for (const WordedKey& one : table_.worded) {
    if (at.said != one.key) continue;
    has_words = true;
    if (at.values.size() != 1 || at.values.front().text != one.word) continue;
    std::string_view flags = one.flags;
    while (!flags.empty()) {
      const std::string_view flag = flags.substr(0, flags.find(','));
      flags.remove_prefix(std::min(flags.size(), flag.size() + 1));
      const std::size_t space = flag.find(' ');
      std::vector<GivenValue> values;
      if (space != flag.npos) values.push_back({std::string(flag.substr(space + 1)), at.values.front().where});
      add(at, std::string(flag.substr(0, space)), std::move(values));
    }
    return true;
  }
  if (has_words) into_.left.emplace_back(at, "its value is none that is known here");
  return has_words;
}

bool KeysAsFlags::same_name(const Given& at) {
  if (!table_.section) return false;
  const std::string_view section = *table_.section;
  if (!at.said.starts_with(section) || at.said.find('.', section.size()) != std::string::npos) return false;
  const std::string flag = as_flag(at.said.substr(section.size()));
  static const std::set<std::string, std::less<>> kFlags = megatron_flags();
  if (!kFlags.contains(flag)) return false;
  if (is_true(at))
    add(at, flag, {});
  else if (!is_false(at))
    add(at, flag, at.values);
  return true;
}

bool KeysAsFlags::passed(const Given& at) {
  for (const PassedKeys& reason : table_.passed)
    for (const char* const key : reason.keys) {
      const std::string_view begin = key;
      const bool prefix = begin.ends_with('.') || begin.ends_with('_');
      if (prefix ? !at.said.starts_with(begin) : at.said != begin && !at.said.starts_with(std::string(begin) + "."))
        continue;
      // What is off does not move anything.
      const bool is_off = is_false(at) || is_word(at, {"0", "0.0"});
      if (reason.matters && !is_off) {
        into_.left.emplace_back(at, reason.because);
      } else if (!begin.ends_with('.')) {
        into_.passed.emplace_back(at, reason.because);
      } else if (sections_.insert(key).second) {  // a section is named once
        into_.passed.emplace_back(at, reason.because);
        into_.passed.back().first.said = std::string(begin) + "*";
      }
      return true;
    }
  return false;
}

}  // namespace orrery::plan
