// Words, and values in them.
#include "plan/spec/dlrm_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace orrery::plan {
namespace {

template <class T>
bool read_number(std::string_view text, T& out) {
  const char* const last = text.data() + text.size();
  const auto [end, failed] = std::from_chars(text.data(), last, out);
  return failed == std::errc() && end == last;
}

bool begins_argument(const DlrmWord& word) {
  return word.text.rfind("--", 0) == 0;
}

}  // namespace

std::vector<DlrmWord> dlrm_words(std::string_view text) {
  std::vector<DlrmWord> out;
  DlrmWord word;
  bool open = false;
  char quote = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ' ';
    const bool space = c == ' ' || c == '\t' || c == '\n' || c == '\\';
    if (quote == 0 && (space || i == text.size())) {
      if (open) out.push_back(std::move(word));
      word = {};
      open = false;
      continue;
    }
    if (!open) word.column = static_cast<int>(i) + 1;
    open = true;
    if (quote != 0 && c == quote)
      quote = 0;
    else if (quote == 0 && (c == '"' || c == '\''))
      quote = c;
    else if (i < text.size())
      word.text += c;
  }
  if (open) out.push_back(std::move(word));  // a quote that is never closed
  return out;
}

DlrmWords::DlrmWords(std::string_view text, std::span<const DlrmWord> words, DlrmScript script)
    : text_(text), script_(script) {
  const std::span<const DlrmArgument> known = dlrm_arguments(script);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const DlrmWord& word = words[i];
    Given given{"", word.column, static_cast<int>(word.text.size())};
    if (!begins_argument(word)) {
      error("E0140", given, fmt::format("{} belongs to no argument", base::quoted(word.text)), "--key=value");
      continue;
    }
    const std::size_t equals = std::min(word.text.find('='), word.text.size());
    const std::string name = word.text.substr(2, equals - 2);
    const auto argument =
        std::find_if(known.begin(), known.end(), [&](const DlrmArgument& one) { return name == one.name; });
    const bool last = i + 1 == words.size() || begins_argument(words[i + 1]);
    if (argument == known.end()) {
      error("E0140", given, fmt::format("the benchmark has no argument {}", base::quoted("--" + name)),
            fmt::format("arguments are those of facebookresearch/dlrm's {}", name_of(script)));
      if (equals == word.text.size() && !last) ++i;
      continue;
    }
    if (equals < word.text.size()) {
      given.value = word.text.substr(equals + 1);
    } else if (!argument->flag) {
      if (last) {
        error("E0140", given, fmt::format("--{} has no value", name), "--key=value");
        continue;
      }
      given.value = words[++i].text;
    }
    if (argument->fate == DlrmFate::refused) refuse(*argument, given);
    given_[name] = std::move(given);
  }
}

void DlrmWords::refuse(const DlrmArgument& argument, const Given& given) {
  if (argument.usual != nullptr && given.value == argument.usual) return;
  error("E0141", given, fmt::format("--{}: not supported here: {}", argument.name, argument.why),
        "leave it out; the model that is trained then differs");
}

void DlrmWords::error(const char* code, const Given& at, std::string message, std::string help) {
  base::Diagnostic one{base::Severity::error, code, {}, std::move(message), std::move(help), std::string(text_)};
  one.where = {"--dlrm", 1, at.column, at.width};
  found_.push_back(std::move(one));
}

base::Diagnostics DlrmWords::findings() const {
  base::Diagnostics out = found_;
  std::stable_sort(out.begin(), out.end(), [](const base::Diagnostic& a, const base::Diagnostic& b) {
    return a.where.column < b.where.column;
  });
  return out;
}

const DlrmWords::Given* DlrmWords::given(const char* name) const {
  const auto at = given_.find(name);
  return at == given_.end() ? nullptr : &at->second;
}

DlrmWords::Given DlrmWords::at(const char* name) const {
  const Given* const found = given(name);
  return found != nullptr ? *found : Given{};
}

std::string DlrmWords::text(const char* name, const char* usual) const {
  const Given* const found = given(name);
  return found != nullptr ? found->value : usual;
}

std::int64_t DlrmWords::integer(const char* name, std::int64_t usual, std::int64_t low, std::int64_t high) {
  const Given* const found = given(name);
  std::int64_t value = usual;
  if (found == nullptr || (read_number(found->value, value) && value >= low && value <= high)) return value;
  error("E0140", *found,
        fmt::format("--{} is a number from {} to {}, found {}", name, low, high, base::quoted(found->value)), "");
  return usual;
}

double DlrmWords::number(const char* name, double usual, double low, double high) {
  const Given* const found = given(name);
  double value = usual;
  if (found == nullptr || (read_number(found->value, value) && value >= low && value <= high)) return value;
  error("E0140", *found,
        fmt::format("--{} is a number from {} to {}, found {}", name, low, high, base::quoted(found->value)), "");
  return usual;
}

std::vector<std::int64_t> DlrmWords::sizes(const char* name, const char* usual, char separator) {
  const std::string all = text(name, usual);
  std::vector<std::int64_t> out;
  for (std::size_t begin = 0; begin <= all.size();) {
    const std::size_t end = std::min(all.find(separator, begin), all.size());
    std::int64_t value = 0;
    if (!read_number(std::string_view(all).substr(begin, end - begin), value) || value < 1) {
      const bool dash = separator == '-';
      error("E0140", at(name),
            fmt::format("--{} is sizes with {} between them, found {}", name, dash ? "dashes" : "commas",
                        base::quoted(all)),
            dash ? "512-256-64" : "512,256,64");
      return {};
    }
    out.push_back(value);
    begin = end + 1;
  }
  return out;
}

std::string DlrmWords::word(const char* name, const char* usual, std::initializer_list<const char*> known,
                            const char* help) {
  const std::string value = text(name, usual);
  if (std::find(known.begin(), known.end(), value) != known.end()) return value;
  error("E0141", at(name), fmt::format("--{}={}: not supported here", name, value), help);
  return *known.begin();
}

base::Result<DlrmCommand> DlrmWords::finish(DlrmCommand command) const {
  if (failed()) return base::fail(findings());
  if (std::string none = without_effect(); !none.empty()) command.notes.push_back(std::move(none));
  return command;
}

std::string DlrmWords::without_effect() const {
  std::vector<std::string> names;
  for (const DlrmArgument& one : dlrm_arguments(script_))
    if (one.fate == DlrmFate::without_effect && has(one.name)) names.push_back(fmt::format("--{}", one.name));
  return names.empty() ? std::string() : fmt::format("Without effect here: {}.", fmt::join(names, ", "));
}

}  // namespace orrery::plan
