// Flags and arguments by CLI11.
#include "apps/flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "base/result.h"
#include "base/units.h"

namespace orrery::apps {
namespace {

/// Turns "300e9", "300B" or "1.5T" into a number's digits; returns what is wrong if it is not a count.
std::string as_count(std::string& text) {
  std::string digits = text;
  double factor = 1;
  if (const auto unit = std::string("kKmMbBgGtT").find(text.empty() ? ' ' : text.back()); unit != std::string::npos) {
    constexpr double kFactors[] = {1e3, 1e6, 1e9, 1e9, 1e12};
    factor = kFactors[unit / 2];
    digits.pop_back();
  }
  while (!digits.empty() && digits.back() == ' ') digits.pop_back();
  double number = 0;
  constexpr double kMost = 1e18;
  if (!base::parse_number(digits, number) || number * factor < 1 || number * factor > kMost)
    return fmt::format("{} is not a count of at least 1; write 300B, 1.5T, 300e9 or 512", base::quoted(text));
  constexpr double kExact = 9007199254740992;  // above it, not every whole number is one
  const double count = number * factor;
  text = count == std::floor(count) && count < kExact ? fmt::format("{:.0f}", count) : fmt::format("{:.17g}", count);
  return {};
}

/// Turns "8k" into 8192; returns what is wrong if it is no length of a sequence.
std::string as_length(std::string& text) {
  constexpr double kKilo = 1024, kMost = 1e12;
  std::string digits = text;
  double factor = 1;
  if (const auto unit = std::string("kKmM").find(text.empty() ? ' ' : text.back()); unit != std::string::npos) {
    factor = unit < 2 ? kKilo : kKilo * kKilo;
    digits.pop_back();
  }
  double number = 0;
  const bool any = base::parse_number(digits, number);
  const double length = number * factor;
  if (!any || length < 1 || length > kMost || length != std::floor(length))
    return fmt::format("{} is no length of a sequence; write 8192, or 8k for it", base::quoted(text));
  text = fmt::format("{:.0f}", length);
  return {};
}

/// What is wrong with a whole number; empty: nothing.
std::string as_integer(const std::string& text, std::int64_t low, std::int64_t high) {
  std::int64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure == std::errc{} && end == text.data() + text.size() && number >= low && number <= high) return {};
  return fmt::format("{} is not a whole number from {} to {}, written in digits", base::quoted(text), low, high);
}

std::string as_real(const std::string& text, double low, double high) {
  double number = 0;
  if (base::parse_number(text, number) && number >= low && number <= high) return {};
  return fmt::format("{} is not a number from {:g} to {:g}, such as 0.5 or 2e9", base::quoted(text), low, high);
}

/// Makes the text the one of these words that it must be; else what is wrong, with the one that was probably meant.
std::string none_of(std::string& text, const std::vector<std::string>& words) {
  if (std::find(words.begin(), words.end(), text) != words.end()) return {};
  const auto letters = [](std::string word) {  // "AllReduce" and "all-reduce" mean all_reduce
    std::erase_if(word, [](unsigned char c) { return std::isalnum(c) == 0; });
    std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
    return word;
  };
  for (const std::string& word : words)
    if (letters(word) == letters(text)) {
      text = word;
      return {};
    }
  const std::string near = base::did_you_mean(text, words);
  return fmt::format("{} is not one of {}{}", base::quoted(text), fmt::join(words, ", "),
                     near.empty() ? "" : fmt::format("; did you mean `{}`?", near));
}

/// "plan.tensor=4": keys joined by dots. Returns what is wrong.
std::string not_a_setting(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string key = text.substr(0, equals);
  if (equals == std::string::npos || key.empty() || key.front() == '.' || key.back() == '.' ||
      key.find("..") != std::string::npos)
    return "`" + text + "` is no KEY=VALUE";
  return {};
}

}  // namespace

Flag Flag::value(const char* shown) {
  option_->option_text(shown);
  return *this;
}

Flag Flag::integers(std::int64_t low, std::int64_t high) {
  option_->check(CLI::Validator([=](std::string& text) { return as_integer(text, low, high); }, ""));
  return *this;
}

Flag Flag::reals(double low, double high) {
  option_->check(CLI::Validator([=](std::string& text) { return as_real(text, low, high); }, ""));
  return *this;
}

Flag Flag::one_of(const std::vector<std::string>& words) {
  option_->transform(CLI::Validator([=](std::string& text) { return none_of(text, words); }, ""));
  return *this;
}

Flag Flag::count() {
  option_->transform(CLI::Validator(as_count, ""));
  return *this;
}

Flag Flag::length() {
  option_->transform(CLI::Validator(as_length, ""));
  return *this;
}

Flag Flag::setting() {
  option_->check(CLI::Validator([](std::string& text) { return not_a_setting(text); }, ""));
  return *this;
}

Flag Flag::named_value() {
  option_->check(CLI::Validator(
      [](std::string& text) {
        const std::size_t equals = text.find('=');
        return equals == 0 || equals == std::string::npos ? "expected NAME=VALUE, found " + text : std::string();
      },
      ""));
  return *this;
}

Flag Flag::not_empty() {
  option_->check(CLI::Validator(
      [](std::string& text) {
        return text.find_first_not_of(" \t\n") == std::string::npos ? std::string("the value is empty") : std::string();
      },
      ""));
  return *this;
}

Flag Flag::required() {
  option_->required();
  return *this;
}

Flag Flag::needs(const Flag& other) {
  option_->needs(other.option_);
  return *this;
}

Flag Flag::needs(const char* other) {
  option_->needs(std::string(other));
  return *this;
}

Flag Flag::excludes(const Flag& other) {
  option_->excludes(other.option_);
  return *this;
}

Flag Flag::excludes(const char* other) {
  option_->excludes(std::string(other));
  return *this;
}

Flag Flag::one_each() {
  option_->allow_extra_args(false);
  return *this;
}

Flag Flag::by_commas() {
  option_->delimiter(',');
  return *this;
}

Flag Flags::flag(const char* names, bool& into, const char* says) {
  return Flag(*app_->add_flag(names, into, says));
}

Flag Flags::flag(const char* names, std::function<void()> then, const char* says) {
  return Flag(*app_->add_flag_callback(names, std::move(then), says));
}

template <class Value>
Flag Flags::option(const char* names, Value& into, const char* says) {
  return Flag(*app_->add_option(names, into, says));
}

template Flag Flags::option(const char*, std::string&, const char*);
template Flag Flags::option(const char*, int&, const char*);
template Flag Flags::option(const char*, std::int64_t&, const char*);
template Flag Flags::option(const char*, std::uint64_t&, const char*);
template Flag Flags::option(const char*, double&, const char*);
template Flag Flags::option(const char*, std::vector<std::string>&, const char*);
template Flag Flags::option(const char*, std::vector<int>&, const char*);
template Flag Flags::option(const char*, std::vector<std::int64_t>&, const char*);
template Flag Flags::option(const char*, std::optional<std::int64_t>&, const char*);
template Flag Flags::option(const char*, std::optional<double>&, const char*);

void add_settings(Flags flags, std::vector<std::string>& settings) {
  flags.option("--set", settings, "Set a value of the job by its key: plan.tensor=4; may be repeated")
      .setting()
      .one_each()
      .value("KEY=VALUE");
}

void add_calibrations(Flags flags, std::vector<std::string>& files) {
  flags.option("--calibration", files, "Fitted coefficients to use; may be repeated, the last one wins")
      .one_each()
      .value("FILE");
}

}  // namespace orrery::apps
