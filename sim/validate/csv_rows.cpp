/// Rows of comma-separated text.
#include <fmt/format.h>

#include <map>
#include <utility>

#include "base/findings.h"
#include "base/yaml.h"
#include "sim/validate/row_fields.h"

namespace orrery::sim {

namespace {

struct Cell {
  std::string text;
  base::Location where;
};

std::string trimmed(const std::string& text) {
  const std::size_t from = text.find_first_not_of(" \t"), to = text.find_last_not_of(" \t");
  return from == std::string::npos ? std::string() : text.substr(from, to - from + 1);
}

/// Splits lines into cells. A quoted cell may contain separators, line ends and doubled quotes.
class CsvText {
 public:
  CsvText(std::string_view text, base::Findings& findings) : text_(text), findings_(&findings) {
    constexpr std::string_view kMark = "\xEF\xBB\xBF";  // byte-order mark, as spreadsheets write it
    if (text_.substr(0, kMark.size()) == kMark) text_.remove_prefix(kMark.size());
  }

  [[nodiscard]] bool ended() const { return at_ >= text_.size(); }

  std::vector<Cell> line() {
    std::vector<Cell> cells;
    do {
      cells.push_back(cell());
    } while (!ended() && text_[at_ - 1] == ',');
    // A separator at the end of the file is followed by an empty cell.
    if (ended() && !text_.empty() && text_.back() == ',' && !last_quoted_) cells.push_back({"", place()});
    return cells;
  }

 private:
  [[nodiscard]] base::Location place() const {
    return findings_->location(line_, static_cast<int>(at_ - line_begin_), 1);
  }

  void next() {
    if (text_[at_++] == '\n') {
      ++line_;
      line_begin_ = at_;
    }
  }

  /// Reads one cell and moves past the separator or line end.
  Cell cell() {
    Cell out{"", place()};
    last_quoted_ = !ended() && text_[at_] == '"';
    if (last_quoted_) {
      next();
      while (!ended() && !(text_[at_] == '"' && (at_ + 1 == text_.size() || text_[at_ + 1] != '"'))) {
        if (text_[at_] == '"') next();
        out.text += text_[at_];
        next();
      }
      if (ended())
        findings_->error("V05", out.where, "the quotes that begin here do not close", "double a quote within quotes");
      else
        next();
      if (!ended() && text_[at_] != ',' && text_[at_] != '\n' && text_[at_] != '\r')
        findings_->error("V05", place(), "text behind closing quotes", "a separator or the end of the line");
    }
    std::string bare;
    while (!ended() && text_[at_] != ',' && text_[at_] != '\n') {
      bare += text_[at_];
      next();
    }
    if (!bare.empty() && bare.back() == '\r') bare.pop_back();
    if (!last_quoted_) out.text = trimmed(bare);
    if (!ended()) next();
    return out;
  }

  std::string_view text_;
  base::Findings* findings_;
  std::size_t at_ = 0, line_begin_ = 0;
  int line_ = 1;
  bool last_quoted_ = false;
};

class CsvFields : public RowFields {
 public:
  CsvFields(const std::map<std::string, std::size_t>& columns, const std::vector<Cell>& cells, base::Findings& findings,
            bool own)
      : RowFields(findings, own), columns_(&columns), cells_(&cells) {}
  [[nodiscard]] std::string text(const char* key) const override {
    const Cell* cell = of(key);
    return cell ? cell->text : std::string();
  }
  [[nodiscard]] base::Location where(const char* key) const override {
    const Cell* cell = of(key);
    return cell ? cell->where : cells_->front().where;
  }
  [[nodiscard]] int line() const override { return cells_->front().where.line; }

 private:
  [[nodiscard]] const Cell* of(const char* key) const {
    const auto found = columns_->find(key);
    return found == columns_->end() || found->second >= cells_->size() ? nullptr : &(*cells_)[found->second];
  }
  const std::map<std::string, std::size_t>* columns_;
  const std::vector<Cell>* cells_;
};

}  // namespace

base::Result<std::vector<Row>> parse_csv_rows(std::string_view text, const std::string& file, Origin origin,
                                              base::Diagnostics* warnings) {
  base::Findings findings(file, text);
  CsvText csv(text, findings);
  std::map<std::string, std::size_t> columns;
  std::vector<Row> rows;
  std::vector<Cell> keys;
  std::size_t width = 0;
  const bool told = warnings != nullptr;
  if (!csv.ended()) {
    keys = csv.line();
    width = keys.size();
    for (std::size_t i = 0; i < keys.size(); ++i)
      if (!keys[i].text.empty() && !columns.emplace(keys[i].text, i).second)
        findings.error("V05", keys[i].where, fmt::format("the column `{}` occurs twice", keys[i].text),
                       "keep one of them");
  }
  // Before the rows' own warnings: of a long file only the first are shown.
  bool keys_told = false;
  const auto tell_of_keys = [&] {
    if (std::exchange(keys_told, true)) return;
    std::vector<std::string> names;
    for (const Cell& key : keys) names.push_back(key.text);
    for (const Cell& key : keys) warn_of_key(key.text, names, key.where, true, findings);
  };
  if (told && (origin == Origin::own || columns.count("source") == 0)) tell_of_keys();
  if (columns.count("gpus") == 0)
    findings.error("V05", {file, 1, 1, 1}, "the first line has no column `gpus`",
                   width == 1 && text.find_first_of(";\t") < text.find('\n')
                       ? "cells are separated by commas"
                       : "the first line must hold the keys of rows, such as "
                         "`layers,hidden,heads,seq_len,gpus,tp,pp,dp,…`");
  while (!csv.ended() && !findings.failed()) {
    const std::vector<Cell> cells = csv.line();
    if (cells.size() == 1 && cells.front().text.empty()) continue;  // an empty line
    if (cells.size() > width)
      findings.error("V05", cells[width].where, fmt::format("{} cells, but {} columns", cells.size(), width),
                     "put a cell that holds a separator in quotes");
    const bool own =
        told && (origin == Origin::own || CsvFields(columns, cells, findings, false).stated("source").empty());
    if (own) tell_of_keys();
    rows.push_back(row_of(CsvFields(columns, cells, findings, own), origin));
    Setup& setup = rows.back().setup;
    if (setup.id.empty()) setup.id = fmt::format("line {}", setup.line);
    if (rows.size() > kMostRows) return too_many_rows(file);
  }
  if (findings.failed()) {
    findings.sort();
    return base::fail(findings.all());
  }
  findings.sort();
  if (warnings != nullptr) warnings->insert(warnings->end(), findings.all().begin(), findings.all().end());
  return rows;
}

}  // namespace orrery::sim
