// timeline.json: a head, the steps of each rank class by name, and one row per span.
#include "plan/schedule/timeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "base/ensure.h"
#include "base/json.h"
#include "plan/spec/fields.h"

namespace orrery::plan {
namespace {

using base::JsonReader;

constexpr const char* kTimelineVersion = "1.0";
constexpr double kMostSeconds = 1e9;
constexpr std::int64_t kMostIndex = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kColumns = 8;
constexpr std::size_t kOperatorCells = 6;
const std::array<const char*, kColumns> kColumnNames = {"rank",        "iteration", "entry",   "step",
                                                        "micro_batch", "ready_s",   "start_s", "end_s"};

// ---- writing

using Out = std::back_insert_iterator<std::string>;

template <class T>
std::string json_text(const FieldInfo& field, const T& value) {
  const std::string text = value_text(field, value);
  return std::is_enum_v<T> ? base::json_quoted(text) : text;
}

// Fields at their default are left out.
void write_spec(Out out, const PlanSpec& s) {
  const PlanSpec defaults;
  std::string open;
  const char* comma = "{";
  const auto close = [&] {
    if (!std::exchange(open, "").empty()) fmt::format_to(out, "}}");
  };
  for_each_field(kFields, [&](const auto& field) {
    if (open != field.group) close();
    if ((!field.always || *field.group != '\0') && field.of(s) == field.of(defaults)) return;
    if (open != field.group) {
      fmt::format_to(out, "{}\"{}\":", comma, field.group);
      comma = "{";
      open = field.group;
    }
    fmt::format_to(out, "{}\"{}\":{}", comma, field.key, json_text(field, field.of(s)));
    comma = ",";
  });
  close();
  fmt::format_to(out, "}}");
}

void write_step(Out out, const Step& step, const Buffers& buffers) {
  const bool moves = step.kind != StepKind::compute;
  fmt::format_to(out, "{{\"kind\":\"{}\",\"stream\":\"{}\",\"phase\":\"{}\",\"part\":{},\"layer\":{},\"bytes\":{}}}",
                 step.kind == StepKind::collective ? name_of(step.collective) : name_of(step.kind),
                 name_of(step.stream), name_of(step.phase), base::json_quoted(step.part), step.layer.written(),
                 moves ? step.message_bytes(buffers) : 0);
}

// Writes what the indices in the rows mean, for readers without a schedule.
void write_classes(Out out, const Schedule& schedule) {
  const char* next_class = "";
  for (const RankClass& c : schedule.classes) {
    fmt::format_to(out, "{}\n {{\"stage\":{},\"program\":[", next_class, c.stage);
    next_class = ",";
    const char* comma = "";
    for (const Entry& entry : c.program) {
      fmt::format_to(out, "{}[{},{}]", comma, entry.block, entry.micro_batch);
      comma = ",";
    }
    fmt::format_to(out, "],\"blocks\":[");
    const char* next_block = "";
    for (const Block& block : c.blocks) {
      fmt::format_to(out, "{}\n  {{\"name\":{},\"steps\":[", next_block, base::json_quoted(block.name));
      next_block = ",";
      const char* next_step = "";
      for (const Step& step : block.steps) {
        fmt::format_to(out, "{}", next_step);
        write_step(out, step, c.buffers);
        next_step = ",";
      }
      fmt::format_to(out, "]}}");
    }
    fmt::format_to(out, "]}}");
  }
}

// Writes the operators' places in the classes above, and their times.
void write_operators(Out out, const std::vector<OperatorTime>& operators) {
  if (operators.empty()) return;
  fmt::format_to(out, ",\n\"operator_columns\":[\"class\",\"block\",\"step\",\"operator\",\"count\",\"mean_s\"],");
  fmt::format_to(out, "\n\"operators\":[");
  const char* comma = "";
  for (const OperatorTime& o : operators) {
    fmt::format_to(out, "{}\n[{},{},{},{},{},{}]", comma, o.rank_class, o.block, o.step, o.op, o.count, o.seconds);
    comma = ",";
  }
  fmt::format_to(out, "\n]");
}

// ---- reading

template <class Enum>
Enum word_of(JsonReader& in, const std::vector<std::string>& words) {
  const std::string found = in.text();
  const auto it = std::find(words.begin(), words.end(), found);
  if (it == words.end()) {
    if (!in.failed()) in.error(fmt::format("must be one of {}, found {}", fmt::join(words, ", "), base::quoted(found)));
    return Enum{};
  }
  return static_cast<Enum>(it - words.begin());
}

template <class T>
T read_value(JsonReader& in, const FieldInfo& field) {
  if constexpr (std::is_same_v<T, models::DType>) {
    return kPrecisions.at(word_of<std::size_t>(in, kPrecisionWords));
  } else if constexpr (std::is_same_v<T, bool>) {
    return in.boolean();
  } else if constexpr (std::is_enum_v<T>) {
    return word_of<T>(in, *field.words);
  } else if constexpr (std::is_same_v<T, double>) {
    return in.number(field.low, field.high);
  } else {
    const auto low = static_cast<std::int64_t>(field.low), high = static_cast<std::int64_t>(field.high);
    if constexpr (kIsRows<T>) {
      std::vector<typename T::Cell> rows;
      for (in.open_array(); in.item();) rows.push_back({in.text(), {}});
      auto order = T::parse_rows(rows);
      if (!order && !in.failed()) in.error(order.error().front().message);
      return order ? std::move(*order) : T{};
    } else if constexpr (kIsList<T>) {
      T values;
      for (in.open_array(); in.item();) values.push_back(in.integer(low, high));
      return values;
    } else {
      return static_cast<T>(in.integer(low, high));
    }
  }
}

// Earlier versions wrote absent values as -1.
void read_fields(JsonReader& in, const std::string& group, PlanSpec& s) {
  in.open_object();
  for (std::string key; in.key(key);) {
    bool known = false;
    for_each_field(kFields, [&](const auto& field) {
      using T = typename std::remove_cvref_t<decltype(field)>::Value;
      if (known || group != field.group || key != field.key) return;
      known = true;
      auto& member = field.of(s);
      FieldInfo info = field;
      if (is_absent(member)) info.low = -1;
      const T value = read_value<T>(in, info);
      if constexpr (std::is_arithmetic_v<T>)
        if (is_absent(member) && value < static_cast<T>(field.low)) return;
      member = value;
    });
    for_each_field(kFields, [&](const auto& field) {
      if (known || !group.empty() || key != field.group) return;
      known = true;
      read_fields(in, key, s);
    });
    if (!known) in.skip();
  }
}

PlanSpec read_spec(JsonReader& in) {
  PlanSpec s;
  read_fields(in, "", s);
  std::int64_t ranks = 1;
  for (const int one : {s.mesh.data, s.mesh.tensor, s.mesh.pipeline, s.mesh.context, s.mesh.expert}) {
    ranks *= one;
    if (ranks > kMostRanks) in.error(fmt::format("the degrees multiply to more than {} ranks", kMostRanks));
    if (in.failed()) return {};
  }
  return s;
}

// Position of each of our columns in a row; a row may have others.
struct Columns {
  std::array<int, kColumns> at{};
  std::size_t count = 0;
};

std::optional<Columns> read_columns(JsonReader& in) {
  Columns columns;
  columns.at.fill(-1);
  for (in.open_array(); in.item(); ++columns.count) {
    const std::string name = in.text();
    const auto it = std::find(kColumnNames.begin(), kColumnNames.end(), name);
    if (it == kColumnNames.end()) continue;
    int& place = columns.at[static_cast<std::size_t>(it - kColumnNames.begin())];
    if (place >= 0) in.error(fmt::format("column {} is given twice", base::quoted(name)));
    place = static_cast<int>(columns.count);
  }
  for (std::size_t i = 0; i < kColumns; ++i) {
    if (columns.at[i] < 0) in.error(fmt::format("column `{}` is missing", kColumnNames[i]));
  }
  if (in.failed()) return std::nullopt;
  return columns;
}

void read_cell(JsonReader& in, std::size_t column, Span& span) {
  const auto index = [&in](std::int64_t low) { return static_cast<std::int32_t>(in.integer(low, kMostIndex)); };
  const auto seconds = [&in] { return in.number(-kMostSeconds, kMostSeconds); };
  switch (column) {
    case 0: span.rank = static_cast<std::int32_t>(in.integer(0, kMostRanks - 1)); return;
    case 1: span.iteration = index(0); return;
    case 2: span.at.entry = index(0); return;
    case 3: span.at.step = index(0); return;
    case 4: span.micro_batch = index(-1); return;
    case 5: span.ready = seconds(); return;
    case 6: span.start = seconds(); return;
    case 7: span.end = seconds(); return;
    default: in.skip();
  }
}

void read_rows(JsonReader& in, const Columns& columns, std::vector<Span>& spans) {
  std::vector<std::size_t> meaning(columns.count, kColumns);
  for (std::size_t i = 0; i < kColumns; ++i) meaning[static_cast<std::size_t>(columns.at[i])] = i;
  for (in.open_array(); in.item();) {
    Span span;
    std::size_t cells = 0;
    for (in.open_array(); in.item(); ++cells) {
      read_cell(in, cells < meaning.size() ? meaning[cells] : kColumns, span);
    }
    if (cells != columns.count) in.error(fmt::format("a row of {} values under {} columns", cells, columns.count));
    spans.push_back(span);
  }
}

std::vector<OperatorTime> read_operators(JsonReader& in) {
  std::vector<OperatorTime> out;
  for (in.open_array(); in.item();) {
    OperatorTime o;
    std::size_t cells = 0;
    const auto index = [&in] { return static_cast<std::int32_t>(in.integer(0, kMostIndex)); };
    for (in.open_array(); in.item(); ++cells) switch (cells) {
        case 0: o.rank_class = index(); break;
        case 1: o.block = index(); break;
        case 2: o.step = index(); break;
        case 3: o.op = index(); break;
        case 4: o.count = in.integer(1, kMostIndex); break;
        case 5: o.seconds = in.number(0, kMostSeconds); break;
        default: in.skip();
      }
    if (cells < kOperatorCells)
      in.error(fmt::format("an operator of {} values, {} are expected", cells, kOperatorCells));
    out.push_back(o);
  }
  return out;
}

void read_version(JsonReader& in) {
  const std::string version = in.text();
  if (!in.failed() && version.rfind("1.", 0) != 0)
    in.error(fmt::format("this version does not read format_version {}", base::quoted(version)));
}

}  // namespace

std::string write_timeline(const Timeline& timeline, const Schedule& schedule) {
  std::string text;
  Out out = std::back_inserter(text);
  fmt::format_to(out, "{{\"format_version\":\"{}\",\n\"origin\":\"{}\",\n\"plan\":", kTimelineVersion,
                 timeline.origin == Origin::predicted ? "predicted" : "measured");
  write_spec(out, timeline.spec);
  fmt::format_to(out, ",\n\"step_time_s\":{},\n\"oversubscribed\":{},\n\"classes\":[", timeline.step_time,
                 timeline.oversubscribed);
  write_classes(out, schedule);
  fmt::format_to(out, "],\n\"columns\":[\"{}\"],\n\"rows\":[", fmt::join(kColumnNames, "\",\""));
  const char* comma = "";
  for (const Span& s : timeline.spans) {
    ENSURE(std::isfinite(s.ready) && std::isfinite(s.start) && std::isfinite(s.end), "rank {}: {} {} {}", s.rank,
           s.ready, s.start, s.end);
    fmt::format_to(out, "{}\n[{},{},{},{},{},{},{},{}]", comma, s.rank, s.iteration, s.at.entry, s.at.step,
                   s.micro_batch, s.ready, s.start, s.end);
    comma = ",";
  }
  text += "\n]";
  write_operators(out, timeline.operators);
  text += "}\n";
  return text;
}

base::Result<Timeline> parse_timeline(std::string_view text, std::string file) {
  JsonReader in(text, std::move(file));
  Timeline t;
  std::optional<Columns> columns;
  std::vector<std::string> missing = {"format_version", "origin", "plan", "step_time_s", "columns", "rows"};
  in.open_object();
  for (std::string key; in.key(key);) {
    missing.erase(std::remove(missing.begin(), missing.end(), key), missing.end());
    if (key == "format_version")
      read_version(in);
    else if (key == "origin")
      t.origin = word_of<Origin>(in, {"predicted", "measured"});
    else if (key == "plan")
      t.spec = read_spec(in);
    else if (key == "step_time_s")
      t.step_time = in.number(0, kMostSeconds);
    else if (key == "oversubscribed")
      t.oversubscribed = in.boolean();
    else if (key == "columns")
      columns = read_columns(in);
    else if (key == "operators")
      t.operators = read_operators(in);
    else if (key == "rows" && columns)
      read_rows(in, *columns, t.spans);
    else if (key == "rows")
      in.error("`columns` must come before `rows`");
    else
      in.skip();
  }
  in.finish();
  if (!in.failed() && !missing.empty()) in.error(fmt::format("missing: {}", fmt::join(missing, ", ")), "E0102");
  if (in.failed()) return base::fail(in.errors());
  return t;
}

}  // namespace orrery::plan
