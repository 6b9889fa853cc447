/// Compares names of models.
#include "models/names.h"

#include <cctype>
#include <cstddef>

namespace orrery::models {

namespace {

bool is_digit(const std::string& text, std::size_t at) {
  return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0;
}

bool is_point(const std::string& text, std::size_t at) {
  return text[at] == '.' && at > 0 && is_digit(text, at - 1) && is_digit(text, at + 1);
}

}  // namespace

std::string letters_of(const std::string& name) {
  std::string out;
  for (std::size_t at = 0; at < name.size(); ++at) {
    const auto c = static_cast<unsigned char>(name[at]);
    if (std::isalnum(c) != 0 || is_point(name, at)) out += static_cast<char>(std::tolower(c));
  }
  return out;
}

std::string without_minor_version(std::string name) {
  for (std::size_t at = 0; at < name.size(); ++at) {
    if (!is_point(name, at)) continue;
    std::size_t end = at + 1;
    while (is_digit(name, end)) ++end;
    const char unit = end < name.size() ? static_cast<char>(std::tolower(static_cast<unsigned char>(name[end]))) : ' ';
    if (unit != 'b' && unit != 'm' && unit != 't') return name.erase(at, end - at);
    at = end;
  }
  return name;
}

}  // namespace orrery::models
