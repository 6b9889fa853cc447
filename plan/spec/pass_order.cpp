// Reads tables of passes and proves that they do not deadlock.
#include "plan/spec/pass_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/units.h"

namespace orrery::plan {
namespace {

constexpr const char* kOrderCode = "E0124";
constexpr const char* kCellForm = "a virtual stage, one of F, B, I and W, and a micro-batch, such as 0F3";
constexpr std::int64_t kMostPasses = 1 << 22;
constexpr std::int32_t kMostCellNumber = 1 << 20;
constexpr std::size_t kMostOrderFindings = 10;
constexpr std::array<char, 4> kPassLetters = {'F', 'B', 'I', 'W'};  // in the order of Pass::Kind

std::string cell_text(const Pass& pass) {
  return fmt::format("{}{}{}", pass.stage, kPassLetters[static_cast<std::size_t>(pass.kind)], pass.micro_batch);
}

std::string_view trimmed_cell(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\"";  // PyTorch's writer may quote
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// Digits only, and a number that fits.
std::optional<std::int32_t> cell_number(std::string_view text) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < 0 || value > kMostCellNumber)
    return std::nullopt;
  return value;
}

}  // namespace

class PassOrderReader {
 public:
  void begin_rank() { table_.ranks.emplace_back(), where_.emplace_back(); }

  void cell(std::string_view text, const base::Location& where) {
    const auto rank = static_cast<std::int32_t>(table_.ranks.size()) - 1;
    const std::size_t letter = text.find_first_not_of("0123456789");
    const auto* const kind = letter == std::string_view::npos
                                 ? kPassLetters.end()
                                 : std::find(kPassLetters.begin(), kPassLetters.end(), text[letter]);
    const auto stage = letter == 0 ? std::optional(rank) : cell_number(text.substr(0, letter));
    const auto micro_batch = letter == std::string_view::npos ? std::nullopt : cell_number(text.substr(letter + 1));
    if (kind == kPassLetters.end() || !stage || !micro_batch) {
      const bool message = text.find("SEND") != text.npos || text.find("RECV") != text.npos ||
                           text.find("SHARD") != text.npos || text.find("REDUCE") != text.npos;
      return error(where, fmt::format("{} is not a pass", base::quoted(std::string(text))),
                   message ? "leave messages out: Orrery places them itself"
                           : fmt::format("a cell is {}; write passes that overlap one after the other", kCellForm));
    }
    if (++passes_ > kMostPasses)
      return error(where, fmt::format("more than {} passes", kMostPasses), "use fewer micro-batches");
    table_.ranks.back().push_back({static_cast<Pass::Kind>(kind - kPassLetters.begin()), *stage, *micro_batch});
    where_.back().push_back(where);
  }

  base::Result<PassOrder> finish(const base::Location& whole) {
    if (ok()) measure(whole);
    if (ok()) count();
    if (ok()) walk();
    if (!ok()) return base::fail(std::move(found_));
    PassOrder order;
    order.table_ = std::make_shared<const PassOrder::Table>(std::move(table_));
    return order;
  }

 private:
  [[nodiscard]] bool ok() const { return found_.empty(); }
  [[nodiscard]] int ranks() const { return static_cast<int>(table_.ranks.size()); }

  void error(const base::Location& where, std::string message, std::string help) {
    if (found_.size() >= kMostOrderFindings) return;
    found_.push_back({base::Severity::error, kOrderCode, where, std::move(message), std::move(help), {}});
  }
  template <class Visit>
  void each(const Visit& visit) {
    for (std::size_t r = 0; r < table_.ranks.size(); ++r)
      for (std::size_t i = 0; i < table_.ranks[r].size(); ++i) visit(table_.ranks[r][i], r, where_[r][i]);
  }

  // Finds the number of stages, chunks and micro-batches, and which rank has which stage.
  void measure(const base::Location& whole) {
    if (ranks() < 2)
      return error(whole,
                   fmt::format("an order for {}, but a pipeline has at least two", base::count_of(ranks(), "rank")),
                   "write a row for each rank");
    bool inputs = false, weights = false;
    each([&](const Pass& pass, std::size_t, const base::Location&) {
      places_ = std::max(places_, pass.stage + 1);
      table_.micro_batches = std::max<std::int64_t>(table_.micro_batches, pass.micro_batch + 1);
      inputs |= pass.kind == Pass::Kind::input_gradient;
      weights |= pass.kind == Pass::Kind::weight_gradient;
    });
    if (places_ % ranks() != 0)
      return error(whole, fmt::format("{} virtual stages on {} ranks", places_, ranks()),
                   "every rank needs the same number of virtual stages, numbered from 0");
    if (static_cast<std::int64_t>(places_) * table_.micro_batches > kMostPasses)
      return error(whole, fmt::format("{} virtual stages and {} micro-batches", places_, table_.micro_batches),
                   "numbers count from 0 without gaps");
    table_.chunks = places_ / ranks();
    if (!inputs && weights)  // B of the zero-bubble papers
      for (std::vector<Pass>& rank : table_.ranks)
        for (Pass& pass : rank)
          if (pass.kind == Pass::Kind::backward) pass.kind = Pass::Kind::input_gradient;
    bool straight = true, folded = table_.chunks == 2;
    each([&](const Pass& pass, std::size_t rank, const base::Location&) {
      straight &= pass.stage % ranks() == static_cast<std::int32_t>(rank);
      folded &= (pass.stage < ranks() ? pass.stage : 2 * ranks() - 1 - pass.stage) == static_cast<std::int32_t>(rank);
    });
    table_.folds = folded && !straight;
    if (straight || folded) return;
    each([&](const Pass& pass, std::size_t rank, const base::Location& where) {
      if (pass.stage % ranks() != static_cast<std::int32_t>(rank))
        error(where, fmt::format("virtual stage {} on rank {}", pass.stage, rank),
              fmt::format("stages go down the ranks, again and again (stage s on rank s mod {}), or with two per rank "
                          "down and up again",
                          ranks()));
    });
  }

  // Every pass occurs once, and after the passes of the same stage that it needs.
  void count() {
    enum : std::uint8_t { forward = 1, input = 2, weight = 4 };
    const auto m = static_cast<std::size_t>(table_.micro_batches);
    std::vector<std::uint8_t> done(static_cast<std::size_t>(places_) * m, 0);
    each([&](const Pass& pass, std::size_t, const base::Location& where) {
      std::uint8_t& have = done[static_cast<std::size_t>(pass.stage) * m + static_cast<std::size_t>(pass.micro_batch)];
      const std::uint8_t makes = pass.kind == Pass::Kind::forward          ? forward
                                 : pass.kind == Pass::Kind::input_gradient ? input
                                 : pass.kind == Pass::Kind::backward       ? input | weight
                                                                           : weight;
      const std::uint8_t needs = pass.kind == Pass::Kind::forward           ? 0
                                 : pass.kind == Pass::Kind::weight_gradient ? input
                                                                            : forward;
      if ((have & makes) != 0)
        error(where, fmt::format("{} occurs twice", cell_text(pass)), "each micro-batch passes each stage once");
      else if ((have & needs) != needs)
        error(where, fmt::format("{} comes before the pass that it depends on", cell_text(pass)),
              "a micro-batch's passes on a stage are F, then B, or F, then I, then W");
      have |= makes;
    });
    for (std::size_t i = 0; i < done.size() && ok(); ++i) {
      if (done[i] == (forward | input | weight)) continue;
      const auto stage = static_cast<int>(i / m);
      const char letter = (done[i] & forward) == 0 ? 'F' : (done[i] & input) == 0 ? 'B' : 'W';
      const auto rank =
          static_cast<std::size_t>(table_.folds && stage >= ranks() ? 2 * ranks() - 1 - stage : stage % ranks());
      error(where_[rank].empty() ? where_[0][0] : where_[rank].back(),
            fmt::format("{}{}{} is missing on rank {}", stage, letter, i % m, rank),
            "every virtual stage has a forward and a backward pass of every micro-batch");
    }
  }

  // Runs all ranks together: does any wait for a pass that no rank can reach?
  void walk() {
    const auto m = static_cast<std::size_t>(table_.micro_batches);
    std::vector<bool> made(2 * static_cast<std::size_t>(places_) * m, false);
    const auto at = [&](bool forward, std::int32_t stage, std::int32_t micro_batch) {
      return (static_cast<std::size_t>((forward ? 0 : places_) + stage)) * m + static_cast<std::size_t>(micro_batch);
    };
    std::vector<std::size_t> next(table_.ranks.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < next.size(); ++r)
        for (; next[r] < table_.ranks[r].size(); ++next[r], moved = true) {
          const Pass& pass = table_.ranks[r][next[r]];
          if (pass.kind == Pass::Kind::weight_gradient) continue;
          const bool forward = pass.kind == Pass::Kind::forward;
          const std::int32_t from = pass.stage + (forward ? -1 : 1);
          if (from >= 0 && from < places_ && !made[at(forward, from, pass.micro_batch)]) break;
          made[at(forward, pass.stage, pass.micro_batch)] = true;
        }
    }
    for (std::size_t r = 0; r < next.size(); ++r)
      if (next[r] < table_.ranks[r].size())
        error(where_[r][next[r]],
              fmt::format(
                  "rank {} waits for ever at {}: the pass that makes its input comes after a pass that waits for it", r,
                  cell_text(table_.ranks[r][next[r]])),
              "move the pass that makes its input to an earlier turn");
  }

  PassOrder::Table table_;
  std::vector<std::vector<base::Location>> where_;
  std::int32_t places_ = 0;
  std::int64_t passes_ = 0;
  base::Diagnostics found_;
};

base::Result<PassOrder> PassOrder::parse_csv(std::string_view text, const std::string& file) {
  PassOrderReader reader;
  int line = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view row = text.substr(begin, end - begin);
    begin = end + 1;
    ++line;
    if (trimmed_cell(row).empty() || trimmed_cell(row).front() == '#') continue;
    reader.begin_rank();
    for (std::size_t at = 0; at <= row.size();) {
      const std::size_t comma = std::min(row.find(',', at), row.size());
      const std::string_view raw = row.substr(at, comma - at), cell = trimmed_cell(raw);
      const auto column =
          static_cast<int>(at + (cell.empty() ? 0 : static_cast<std::size_t>(cell.data() - raw.data())));
      if (!cell.empty()) reader.cell(cell, {file, line, column + 1, static_cast<int>(cell.size())});
      at = comma + 1;
    }
  }
  return reader.finish({file, 1, 1, 1});
}

base::Result<PassOrder> PassOrder::parse_rows(const std::vector<Cell>& rows) {
  PassOrderReader reader;
  for (const Cell& row : rows) {
    reader.begin_rank();
    for (std::size_t at = 0; at < row.text.size();) {
      const std::size_t space = std::min(row.text.find(' ', at), row.text.size());
      if (space > at) reader.cell(std::string_view(row.text).substr(at, space - at), row.where);
      at = space + 1;
    }
  }
  return reader.finish(rows.empty() ? base::Location{} : rows.front().where);
}

std::vector<std::string> PassOrder::rows() const {
  std::vector<std::string> out;
  if (!table_) return out;
  for (const std::vector<Pass>& rank : table_->ranks) {
    std::string& row = out.emplace_back();
    for (const Pass& pass : rank) row += (row.empty() ? "" : " ") + cell_text(pass);
  }
  return out;
}

bool PassOrder::operator==(const PassOrder& other) const {
  if (table_ == other.table_) return true;
  return table_ && other.table_ && *table_ == *other.table_;
}

}  // namespace orrery::plan
