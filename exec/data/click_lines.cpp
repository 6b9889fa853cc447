// Parses samples in Criteo's form: a line of text, or a record of int32.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
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
  /// `at`: characters from the beginning of the last field.
  void bad(const char* code, std::string message, std::string help, std::size_t length = 1, std::size_t at = 0) {
    if (found.size() >= kMostOfALine) return;
    base::Diagnostic one{base::Severity::error, code, {}, std::move(message), std::move(help), {}};
    one.where = {file_, line_, static_cast<int>(first_ + at) + 1, static_cast<int>(std::max<std::size_t>(length, 1))};
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

/// A table, its number, and what categories are.
struct Categorical {
  const models::Table& table;
  std::size_t number;
  plan::Categories categories;

  [[nodiscard]] bool has(std::uint64_t category) const {
    return categories == plan::Categories::hashed || category < static_cast<std::uint64_t>(table.rows);
  }
  [[nodiscard]] std::string lacks(std::uint64_t category) const {
    return fmt::format("row {} of table {}, which has {}", category, number, table.rows);
  }
  /// The row of a category that it has.
  [[nodiscard]] std::int32_t row(std::uint64_t category) const {
    return static_cast<std::int32_t>(category % static_cast<std::uint64_t>(table.rows));
  }
};

constexpr const char* kLacksHelp = "rows count from 0; `categories: hashed` takes a category modulo its table's rows";

/// A category and its weight, at `at` characters from the field's beginning.
void read_category(LineReader& in, std::string_view text, std::size_t at, const Categorical& of, LookupWriter& out) {
  const models::Table& table = of.table;
  float weight = 1;
  const std::size_t colon = text.find(':');
  if (table.pooling == models::Pooling::weighted && colon != std::string_view::npos) {
    const std::string_view number = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), weight);
    if (error != std::errc() || end != number.data() + number.size() || !std::isfinite(weight))
      in.bad("E0661", fmt::format("a category's weight is a number, found {}", base::quoted(std::string(number))),
             "1f:0.5; a category without a weight has 1", number.size(), at + colon + 1);
    text = text.substr(0, colon);
  }
  std::uint64_t value = 0;
  if (!text.empty() || table.varies()) {
    constexpr int kHexadecimal = 16;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, kHexadecimal);
    if (error != std::errc() || end != text.data() + text.size())
      in.bad("E0661", fmt::format("a category is a hexadecimal number, found {}", base::quoted(std::string(text))),
             !text.empty() && text.find(':') != std::string_view::npos
                 ? "weights belong to a table of pooling: weighted"
             : table.varies() ? "digits and letters a to f, without a sign or 0x; commas between categories"
                              : "digits and letters a to f, without a sign or 0x; an empty field is value 0",
             text.size(), at);
    else if (!of.has(value))
      in.bad("E0661", of.lacks(value), kLacksHelp, text.size(), at);
  }
  out.add(of.row(value), weight);
}

std::string bag_lengths(const models::Table& table) {
  return *table.fewest == 0 ? fmt::format("at most {}", table.multi_hot)
                            : fmt::format("{} to {}", *table.fewest, table.multi_hot);
}

// One field with all of a bag's categories.
void read_bag(LineReader& in, std::string_view field, const Categorical& of, LookupWriter& out) {
  const models::Table& table = of.table;
  const std::int64_t count = field.empty() ? 0 : std::count(field.begin(), field.end(), ',') + 1;
  if (count < *table.fewest || count > table.multi_hot)
    return in.bad("E0661",
                  fmt::format("{} for table {}, whose bags have {}",
                              count == 0   ? "no category"
                              : count == 1 ? "1 category"
                                           : fmt::format("{} categories", count),
                              of.number, bag_lengths(table)),
                  count == 0 ? "`fewest: 0` of the table allows empty bags; `bad_lines: skip` leaves such samples out"
                             : "the model says how many: fewest and multi_hot",
                  field.size());
  for (std::size_t at = 0; count > 0 && at <= field.size();) {
    const std::size_t end = std::min(field.find(',', at), field.size());
    read_category(in, field.substr(at, end - at), at, of, out);
    at = end + 1;
  }
}

/// Fields of a line for a table.
std::int64_t fields_of(const models::Table& table) {
  return table.varies() ? 1 : table.multi_hot;
}

}  // namespace

std::int64_t words_of_sample(const models::Recommender& model) {
  return model.indices() * model.lookup_words();
}

void LookupWriter::add(std::int32_t index, float weight) {
  to_[at_++] = index;
  if (words_ == 2) to_[at_++] = std::bit_cast<std::int32_t>(weight);
}

void LookupWriter::end(const models::Table& table) {
  const std::size_t behind = begun_ + static_cast<std::size_t>(table.multi_hot) * words_;
  if (table.pooling == models::Pooling::mean && table.weighs()) {
    const auto weight = std::bit_cast<std::int32_t>(static_cast<float>(words_) / static_cast<float>(at_ - begun_));
    for (std::size_t at = begun_; at < at_; at += words_) to_[at + 1] = weight;
  }
  while (at_ < behind) add(-1, 0);
  begun_ = at_;
}

base::Diagnostics parse_click(std::string_view text, const std::string& file, int line,
                              const models::Recommender& model, plan::Categories categories, const ClickBatch& sample) {
  LineReader in(text, file, line);
  std::int64_t of_tables = 0;
  for (const models::Table& table : model.tables) of_tables += fields_of(table);
  const auto wanted = static_cast<std::size_t>(1 + model.dense_features + of_tables);
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
                       model.dense_features, of_tables),
           there < wanted ? "the line is cut, or made for another model" : "the line is of another model");
    return std::move(in.found);
  }
  (void)in.next(field);
  if (field != "0" && field != "1")
    in.bad("E0661", fmt::format("the label is 0 or 1, found {}", base::quoted(std::string(field))),
           "1 where the sample was clicked on", field.size());
  sample.labels[0] = field == "1" ? 1.0F : 0.0F;
  for (float& value : sample.dense) (void)(in.next(field) && read_dense(in, field, value));
  LookupWriter out(model, sample.indices);
  for (std::size_t t = 0; t < model.tables.size(); ++t) {
    const models::Table& table = model.tables[t];
    const Categorical of{table, t, categories};
    for (std::int64_t i = 0; i < fields_of(table) && in.next(field); ++i)
      table.varies() ? read_bag(in, field, of, out) : read_category(in, field, 0, of, out);
    out.end(table);
  }
  return std::move(in.found);
}

std::int64_t record_fields(const models::Recommender& model) {
  std::int64_t fields = 1 + model.dense_features;
  for (const models::Table& table : model.tables)
    fields += table.multi_hot * (table.pooling == models::Pooling::weighted ? 2 : 1);
  return fields;
}

base::Diagnostics parse_click_record(std::span<const std::int32_t> fields, const std::string& file, int record,
                                     const models::Recommender& model, plan::Categories categories,
                                     const ClickBatch& sample) {
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
  LookupWriter out(model, sample.indices);
  for (std::size_t t = 0; t < model.tables.size(); ++t) {
    const models::Table& table = model.tables[t];
    const Categorical of{table, t, categories};
    const auto room = static_cast<std::size_t>(table.multi_hot);
    const std::span<const std::int32_t> bag = fields.subspan(at, room);
    std::size_t length = room;
    if (table.varies()) length = static_cast<std::size_t>(std::find(bag.begin(), bag.end(), -1) - bag.begin());
    if (static_cast<std::int64_t>(length) < table.fewest.value_or(0))
      bad(at + length, fmt::format("a bag of {} for table {}, whose bags have {}", length, t, bag_lengths(table)),
          "`fewest` of the table allows shorter bags; `bad_lines: skip` leaves such samples out");
    for (std::size_t i = 0; i < room; ++i) {
      const bool behind = i >= length;
      if (behind ? bag[i] != -1 : bag[i] < 0)
        bad(at + i,
            behind ? fmt::format("a category behind the end of its bag, which is a -1: {}", bag[i])
                   : fmt::format("a category must not be negative, found {}", bag[i]),
            behind ? "-1 in all fields behind a bag's last category"
                   : "categories count from 0, as in the public DLRM's preprocessing");
      if (behind || bag[i] < 0) continue;
      const auto category = static_cast<std::uint64_t>(bag[i]);
      if (!of.has(category)) bad(at + i, of.lacks(category), kLacksHelp);
      float weight = 1;
      if (table.pooling == models::Pooling::weighted) weight = std::bit_cast<float>(fields[at + room + i]);
      if (!std::isfinite(weight))
        bad(at + room + i, "a category's weight is a finite number", "fp32, as many as the bag has room for");
      out.add(of.row(category), weight);
    }
    out.end(table);
    at += room * (table.pooling == models::Pooling::weighted ? 2 : 1);
  }
  return found;
}

}  // namespace orrery::exec
