// Parses samples in Criteo's form: a line of text, or a record of int32.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "exec/data/clicks.h"

namespace orrery::exec {
namespace {

constexpr std::size_t kMostOfALine = 20;

class LineReader {
 public:
  LineReader(std::string_view text, const std::string& file, int line) : text_(text), file_(file), line_(line) {}

  bool next(std::string_view& field) {
    if (at_ > text_.size()) return false;
    first_ = at_;
    const std::size_t end = std::min(text_.find('\t', at_), text_.size());
    field = text_.substr(at_, end - at_);
    at_ = end + 1;
    return true;
  }
  void bad(const char* code, std::string message, std::string help, std::size_t length = 1) {
    if (found.size() >= kMostOfALine) return;
    base::Diagnostic one{base::Severity::error, code, {}, std::move(message), std::move(help), {}};
    one.where = {file_, line_, static_cast<int>(first_) + 1, static_cast<int>(std::max<std::size_t>(length, 1))};
    found.push_back(std::move(one));
  }
  base::Diagnostics found;

 private:
  std::string_view text_;
  const std::string& file_;
  int line_;
  std::size_t at_ = 0, first_ = 0;
};

float dense_value(double x) {
  return x > 0 ? static_cast<float>(std::log1p(x)) : 0.0F;
}

// An integer or a decimal number; NaN and infinities are refused.
bool read_dense(LineReader& in, std::string_view field, float& out) {
  out = 0;
  if (field.empty()) return true;
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size() || !std::isfinite(value)) {
    in.bad("E0661", fmt::format("a dense feature is a number, found {}", base::quoted(std::string(field))),
           "an empty field where the value is missing", field.size());
    return false;
  }
  out = dense_value(value);
  return true;
}

bool read_category(LineReader& in, std::string_view field, std::int64_t rows, std::int32_t& out) {
  out = 0;
  if (field.empty()) return true;
  constexpr int kHexadecimal = 16;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value, kHexadecimal);
  if (error != std::errc() || end != field.data() + field.size()) {
    in.bad("E0661", fmt::format("a category is a hexadecimal number, found {}", base::quoted(std::string(field))),
           "digits and letters a to f, without a sign or 0x; an empty field is value 0", field.size());
    return false;
  }
  out = static_cast<std::int32_t>(value % static_cast<std::uint64_t>(rows));
  return true;
}

}  // namespace

base::Diagnostics parse_click(std::string_view text, const std::string& file, int line,
                              const models::Recommender& model, const ClickBatch& sample) {
  LineReader in(text, file, line);
  const auto wanted = static_cast<std::size_t>(1 + model.dense_features + model.indices());
  const auto there = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\t')) + 1;
  std::string_view field;
  if (there != wanted) {
    // The position is where the first missing or first superfluous field would be.
    for (std::size_t i = 0; i <= std::min(there, wanted); ++i) (void)in.next(field);
    if (there < wanted)
      while (in.next(field)) {
      }
    in.bad("E0660",
           fmt::format("{} fields, but the model reads {}: the label, {} dense features, {} categories", there, wanted,
                       model.dense_features, model.indices()),
           there < wanted ? "the line is cut, or made for another model" : "the line is of another model");
    return std::move(in.found);
  }
  (void)in.next(field);
  if (field != "0" && field != "1")
    in.bad("E0661", fmt::format("the label is 0 or 1, found {}", base::quoted(std::string(field))),
           "1 where the sample was clicked on", field.size());
  sample.labels[0] = field == "1" ? 1.0F : 0.0F;
  for (float& value : sample.dense) (void)(in.next(field) && read_dense(in, field, value));
  std::size_t at = 0;
  for (const models::Table& table : model.tables)
    for (std::int64_t i = 0; i < table.multi_hot; ++i)
      (void)(in.next(field) && read_category(in, field, table.rows, sample.indices[at++]));
  return std::move(in.found);
}

std::int64_t record_fields(const models::Recommender& model) {
  return 1 + model.dense_features + model.indices();
}

base::Diagnostics parse_click_record(std::span<const std::int32_t> fields, const std::string& file, int record,
                                     const models::Recommender& model, const ClickBatch& sample) {
  base::Diagnostics found;
  const auto bad = [&](std::size_t field, std::string message, const char* help) {
    if (found.size() >= kMostOfALine) return;
    base::Diagnostic one{base::Severity::error, "E0661", {}, std::move(message), help, {}};
    one.where = {file, record, static_cast<int>(field) + 1, 1};
    found.push_back(std::move(one));
  };
  std::size_t at = 0;
  if (fields[0] != 0 && fields[0] != 1)
    bad(0, fmt::format("the label is 0 or 1, found {}", fields[0]),
        "records of int32 hold the label, dense features and categories; their length depends on the model");
  sample.labels[0] = static_cast<float>(fields[at++]);
  for (float& value : sample.dense) value = dense_value(fields[at++]);
  std::size_t index = 0;
  for (const models::Table& table : model.tables)
    for (std::int64_t i = 0; i < table.multi_hot; ++i, ++at) {
      if (fields[at] < 0)
        bad(at, fmt::format("a category must not be negative, found {}", fields[at]),
            "categories count from 0, as in the public DLRM's preprocessing");
      sample.indices[index++] = static_cast<std::int32_t>(fields[at] % table.rows);
    }
  return found;
}

}  // namespace orrery::exec
