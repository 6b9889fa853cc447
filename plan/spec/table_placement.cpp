// Text form of table placements.
#include "plan/spec/table_placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/printable.h"
#include "base/units.h"
#include "plan/spec/job.h"

namespace orrery::plan {
namespace {

constexpr int kMostRank = 1 << 24;
constexpr std::size_t kMostRanksOfTable = 1 << 20;

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const std::size_t begin = text.find_first_not_of(' ');
    if (begin == std::string_view::npos) break;
    text.remove_prefix(begin);
    const std::size_t end = std::min(text.find(' '), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return words;
}

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value >= kMostRank) return std::nullopt;
  return value;
}

// "3" or "0-7", appended to `ranks`.
bool add_ranks(std::string_view word, std::vector<int>& ranks) {
  const std::size_t dash = word.find('-');
  const auto first = number(word.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : number(word.substr(dash + 1));
  if (!first || !last || *last < *first) return false;
  if (ranks.size() + static_cast<std::size_t>(*last - *first) >= kMostRanksOfTable) return false;
  for (int rank = *first; rank <= *last; ++rank) ranks.push_back(rank);
  return true;
}

std::optional<TableTier> parse_tier(std::string_view text) {
  const std::vector<std::string_view> words = words_of(text);
  if (words.empty()) return std::nullopt;
  TableTier tier;
  if (words[0] == "host")
    tier.space = Space::host;
  else if (words[0] == "nvme")
    tier.space = Space::nvme;
  else
    return words[0] == "device" && words.size() == 1 ? std::optional(tier) : std::nullopt;
  if (words.size() == 1) return tier;
  double bytes = 0;
  std::string why;
  const std::string size(text.substr(static_cast<std::size_t>(words[1].data() - text.data())));
  constexpr double kMostBytes = 1e15;
  if (!base::parse_quantity(size.substr(0, size.find_last_not_of(' ') + 1), base::UnitKind::bytes, bytes, why))
    return std::nullopt;
  if (bytes < 1 || bytes > kMostBytes) return std::nullopt;
  tier.cache = static_cast<std::int64_t>(bytes);
  return tier;
}

std::optional<TablePlace> parse(std::string_view text) {
  const std::vector<std::string_view> words = words_of(text);
  if (words.empty()) return std::nullopt;
  TablePlace place;
  std::size_t next = 1;
  int rows = 0;
  if (words[0] == "replicated") {
    place.replicated = true;
    return words.size() == 1 ? std::optional(place) : std::nullopt;
  }
  if (words[0] == "grid" && words.size() > 2) {
    const std::size_t by = words[1].find('x');
    if (by == std::string_view::npos) return std::nullopt;
    const auto columns = number(words[1].substr(0, by)), parts = number(words[1].substr(by + 1));
    if (!columns || !parts || *columns < 1 || *parts < 1) return std::nullopt;
    place.columns = *columns;
    rows = *parts;
    next = 2;
  } else if (words[0] != "whole" && words[0] != "row" && words[0] != "column") {
    return std::nullopt;
  }
  for (; next < words.size(); ++next)
    if (!add_ranks(words[next], place.ranks)) return std::nullopt;
  const auto count = static_cast<std::int64_t>(place.ranks.size());
  if (words[0] == "column") place.columns = static_cast<int>(count);
  const std::int64_t wanted = words[0] == "whole"  ? 1
                              : words[0] == "grid" ? std::int64_t{place.columns} * rows
                                                   : std::max<std::int64_t>(count, 1);
  return count == wanted ? std::optional(place) : std::nullopt;
}

}  // namespace

TablePlacement::TablePlacement(std::vector<TablePlace> places)
    : places_(std::make_shared<const std::vector<TablePlace>>(std::move(places))) {}

base::Result<TablePlacement> TablePlacement::parse_rows(const std::vector<Cell>& rows) {
  std::vector<TablePlace> places;
  base::Diagnostics found;
  for (const Cell& row : rows) {
    if (auto place = parse(row.text))
      places.push_back(std::move(*place));
    else
      found.push_back(
          {base::Severity::error,
           "E0126",
           row.where,
           fmt::format("{} is not a place for a table", base::quoted(row.text)),
           "`replicated`, `whole 3`, `row 0-7`, `column 0 2 4`, or `grid 2x4 0-7`: 2 parts of columns, each "
           "of 4 of rows",
           {}});
  }
  if (!found.empty()) return base::fail(std::move(found));
  return places.empty() ? TablePlacement() : TablePlacement(std::move(places));
}

const std::vector<TablePlace>& TablePlacement::places() const {
  static const std::vector<TablePlace> kNone;
  return places_ ? *places_ : kNone;
}

std::vector<std::string> TablePlacement::rows() const {
  std::vector<std::string> out;
  for (const TablePlace& place : places()) out.push_back(text_of(place));
  return out;
}

TableTiers::TableTiers(std::vector<TableTier> tiers)
    : tiers_(std::make_shared<const std::vector<TableTier>>(std::move(tiers))) {}

base::Result<TableTiers> TableTiers::parse_rows(const std::vector<Cell>& rows) {
  std::vector<TableTier> tiers;
  base::Diagnostics found;
  for (const Cell& row : rows) {
    if (auto tier = parse_tier(row.text)) {
      tier->where = row.where;
      tiers.push_back(*tier);
      continue;
    }
    found.push_back({base::Severity::error,
                     "E0127",
                     row.where,
                     fmt::format("{} is not a memory for a table", base::quoted(row.text)),
                     "`device`, `host`, `nvme`, or with the size of the cache on the device: `host 64 MiB`",
                     {}});
  }
  if (!found.empty()) return base::fail(std::move(found));
  return tiers.empty() ? TableTiers() : TableTiers(std::move(tiers));
}

const std::vector<TableTier>& TableTiers::tiers() const {
  static const std::vector<TableTier> kNone;
  return tiers_ ? *tiers_ : kNone;
}

std::vector<std::string> TableTiers::rows() const {
  std::vector<std::string> out;
  for (const TableTier& tier : tiers()) {
    out.emplace_back(tier.space == Space::device ? "device" : name_of(tier.space));
    if (tier.cache > 0) out.back() += " " + base::quantity_text(static_cast<double>(tier.cache), base::UnitKind::bytes);
  }
  return out;
}

bool TableTiers::operator==(const TableTiers& other) const {
  return tiers_ == other.tiers_ || tiers() == other.tiers();
}

bool TablePlacement::operator==(const TablePlacement& other) const {
  return places_ == other.places_ || places() == other.places();
}

std::string text_of(const TablePlace& place) {
  if (place.replicated) return "replicated";
  const int rows = place.row_parts();
  std::string out = place.ranks.size() == 1 ? "whole"
                    : place.columns == 1    ? "row"
                    : rows == 1             ? "column"
                                            : fmt::format("grid {}x{}", place.columns, rows);
  for (std::size_t i = 0; i < place.ranks.size();) {
    std::size_t run = 1;
    while (i + run < place.ranks.size() && place.ranks[i + run] == place.ranks[i] + static_cast<int>(run)) ++run;
    out += run > 1 ? fmt::format(" {}-{}", place.ranks[i], place.ranks[i] + static_cast<int>(run) - 1)
                   : fmt::format(" {}", place.ranks[i]);
    i += run;
  }
  return out;
}

}  // namespace orrery::plan
