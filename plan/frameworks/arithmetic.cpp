// A recursive descent, operators by rank.
#include "plan/frameworks/arithmetic.h"

#include <array>
#include <cctype>
#include <charconv>
#include <limits>

namespace orrery::plan {
namespace {

using Number = std::optional<std::int64_t>;
using TextOf = std::function<std::optional<std::string>(const std::string&)>;
constexpr int kMostNested = 40;
constexpr int kMostTerms = 10'000;  // of an expression and those that its variables hold

class Arithmetic {
 public:
  Arithmetic(std::string_view text, const TextOf& text_of, int depth, int& terms)
      : text_(text), text_of_(text_of), depth_(depth), terms_(terms) {}
  Number whole() {
    skip();
    if (at_ == text_.size()) return 0;  // as bash has it
    Number value = choice();
    skip();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool take(std::string_view sign) {
    skip();
    if (text_.substr(at_, sign.size()) != sign) return false;
    at_ += sign.size();
    return true;
  }
  Number choice() {
    if (++depth_ > kMostNested) return std::nullopt;
    const Number asked = ranked(0);
    Number value = asked;
    if (take("?")) {
      const Number yes = choice();
      if (!take(":")) return std::nullopt;
      const Number no = choice();
      value = !asked ? std::nullopt : *asked != 0 ? yes : no;
    }
    --depth_;
    return value;
  }
  /// Binary operators of one rank and all that bind tighter.
  Number ranked(std::size_t rank) {
    static constexpr std::array<std::array<std::string_view, 4>, 6> kSigns = {
        {{"||"}, {"&&"}, {"==", "!="}, {"<=", ">=", "<", ">"}, {"+", "-"}, {"*", "/", "%"}}};
    if (rank == kSigns.size()) return power();
    Number left = ranked(rank + 1);
    for (;;) {
      std::string_view sign;
      for (const std::string_view one : kSigns[rank]) {
        skip();
        if (one.empty() || (one == "*" && text_.substr(at_, 2) == "**")) continue;
        if (take(one)) {
          sign = one;
          break;
        }
      }
      if (sign.empty()) return left;
      const Number right = ranked(rank + 1);
      left = left && right ? of(*left, sign, *right) : std::nullopt;
    }
  }
  static Number of(std::int64_t a, std::string_view sign, std::int64_t b) {
    std::int64_t out = 0;
    if (sign == "||") return a != 0 || b != 0 ? 1 : 0;
    if (sign == "&&") return a != 0 && b != 0 ? 1 : 0;
    if (sign == "==") return a == b ? 1 : 0;
    if (sign == "!=") return a != b ? 1 : 0;
    if (sign == "<=") return a <= b ? 1 : 0;
    if (sign == ">=") return a >= b ? 1 : 0;
    if (sign == "<") return a < b ? 1 : 0;
    if (sign == ">") return a > b ? 1 : 0;
    if (sign == "+") return __builtin_add_overflow(a, b, &out) ? Number() : out;
    if (sign == "-") return __builtin_sub_overflow(a, b, &out) ? Number() : out;
    if (sign == "*") return __builtin_mul_overflow(a, b, &out) ? Number() : out;
    if (b == 0 || (b == -1 && a == std::numeric_limits<std::int64_t>::min())) return std::nullopt;
    return sign == "/" ? a / b : a % b;
  }
  Number power() {
    const Number base = unary();
    if (!take("**")) return base;
    if (++depth_ > kMostNested) return std::nullopt;
    const Number exponent = power();
    --depth_;
    if (!base || !exponent || *exponent < 0 || *exponent > 62) return std::nullopt;
    Number out = 1;
    for (std::int64_t i = 0; i < *exponent && out; ++i) out = of(*out, "*", *base);
    return out;
  }
  Number unary() {
    if (++depth_ > kMostNested) return std::nullopt;
    Number out;
    if (take("-")) {
      const Number value = unary();
      out = value ? of(0, "-", *value) : value;
    } else if (take("+")) {
      out = unary();
    } else if (text_.substr(at_, 2) != "!=" && take("!")) {
      const Number value = unary();
      out = value ? Number(*value == 0 ? 1 : 0) : value;
    } else {
      out = primary();
    }
    --depth_;
    return out;
  }
  Number primary() {
    if (++terms_ > kMostTerms) return std::nullopt;
    if (take("(")) {
      const Number value = choice();
      return take(")") ? value : std::nullopt;
    }
    skip();
    if (at_ >= text_.size()) return std::nullopt;
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (std::isdigit(c) != 0) {
      std::int64_t value = 0;
      const auto [end, failed] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      at_ = static_cast<std::size_t>(end - text_.data());
      return failed == std::errc() ? Number(value) : std::nullopt;
    }
    if (std::isalpha(c) == 0 && c != '_') {
      return std::nullopt;
    }
    std::string name;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      name += text_[at_++];
    const auto text = text_of_(name);
    if (!text || depth_ + 8 > kMostNested) return std::nullopt;
    return Arithmetic(*text, text_of_, depth_ + 8, terms_).whole();
  }

  std::string_view text_;
  const TextOf& text_of_;
  std::size_t at_ = 0;
  int depth_;
  int& terms_;
};

}  // namespace

std::optional<std::int64_t> arithmetic(std::string_view expression,
                                       const std::function<std::optional<std::string>(const std::string&)>& text_of) {
  int terms = 0;
  return Arithmetic(expression, text_of, 0, terms).whole();
}

}  // namespace orrery::plan
