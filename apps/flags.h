#pragma once
/// What a verb tells CLI11 about its arguments and flags. CLI11 is slow to compile: apps/flags.cpp and
/// apps/command_line.cpp alone include it.
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace orrery::apps {

/// One flag or argument. Its functions return the flag, so that calls can be chained.
class Flag {
 public:
  explicit Flag(CLI::Option& option) : option_(&option) {}

  /// Its value in the help: "N", "a|b".
  Flag value(const char* shown);
  /// Numbers from `low` to `high` only.
  template <class Number>
  Flag range(Number low, Number high) {
    if constexpr (std::is_floating_point_v<Number>)
      return reals(low, high);
    else
      return integers(low, high);
  }
  /// One of these words only.
  Flag one_of(const std::vector<std::string>& words);
  /// A count such as 300B, 1.5T or 300e9, of at least 1: a k is 1,000.
  Flag count();
  /// A sequence's length, such as 8192 or 8k, of at least 1: a k is 1,024, as in the names of models.
  Flag length();
  /// KEY=VALUE; the key is words joined by dots.
  Flag setting();
  /// NAME=VALUE; the name is anything, the value may be empty.
  Flag named_value();
  /// Not without a word: '' would be read as if the flag were not there.
  Flag not_empty();
  Flag required();
  Flag needs(const Flag& other);
  Flag needs(const char* other);
  Flag excludes(const Flag& other);
  Flag excludes(const char* other);
  /// Each use of the flag takes one value, not all words that follow.
  Flag one_each();
  /// Values may be joined by commas.
  Flag by_commas();

 private:
  Flag integers(std::int64_t low, std::int64_t high);
  Flag reals(double low, double high);

  CLI::Option* option_;
};

/// The arguments and flags of the command, or of one verb. What is read goes into variables that must live as long as
/// CLI11's record of them.
class Flags {
 public:
  explicit Flags(CLI::App& app) : app_(&app) {}

  /// A flag without a value.
  Flag flag(const char* names, bool& into, const char* says);
  Flag flag(const char* names, std::function<void()> then, const char* says);
  /// A flag with a value ("-o,--output"), or an argument ("JOB"). `Value`: std::string, int, std::int64_t,
  /// std::uint64_t, double, vectors of strings and integers, optional numbers.
  template <class Value>
  Flag option(const char* names, Value& into, const char* says);

 private:
  CLI::App* app_;
};

/// --set, which changes values of a job.
void add_settings(Flags flags, std::vector<std::string>& settings);
/// --calibration, files of coefficients.
void add_calibrations(Flags flags, std::vector<std::string>& files);

}  // namespace orrery::apps
