// timeline.json: a head, the steps of each rank class in words, and one row a span.
#include "plan/timeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <optional>

#include "base/ensure.h"
#include "base/json.h"
#include "plan/words.h"

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

void write_spec(Out out, const PlanSpec& s) {
  const auto place = [](Space space) { return kSpaceWords[static_cast<std::size_t>(space)]; };
  fmt::format_to(
      out,
      "{{\"data\":{},\"tensor\":{},\"pipeline\":{},\"context\":{},\"expert\":{},\"virtual_stages\":{},"
      "\"layers_per_stage\":[{}],\"micro_batch\":{},\"schedule\":\"{}\",\"zero_stage\":{},\"recompute\":\"{}\","
      "\"recompute_layers\":{},\"sequence_parallel\":{},\"flash\":{},\"vocab_multiple\":{},\"batch\":{},\"sequence\":{}"
      ",\"precision\":\"{}\"",
      s.data, s.tensor, s.pipeline, s.context, s.expert, s.virtual_stages, fmt::join(s.layers_per_stage, ","),
      s.micro_batch, name_of(s.order), s.zero_stage, name_of(s.recompute), s.recompute_layers, s.sequence_parallel,
      s.flash, s.vocab_multiple, s.batch, s.sequence, models::name_of(s.precision));
  if (s.overlap_gradients) fmt::format_to(out, ",\"overlap_gradients\":true");
  if (s.zero_group > 0) fmt::format_to(out, ",\"zero_group\":{}", s.zero_group);
  if (s.loss_chunks > 1) fmt::format_to(out, ",\"loss_chunks\":{}", s.loss_chunks);
  if (s.optimizer != OptimizerKind::adamw) fmt::format_to(out, ",\"optimizer\":\"{}\"", name_of(s.optimizer));
  if (!s.momentum) fmt::format_to(out, ",\"momentum\":false");
  if (s.rounding != Rounding::nearest) fmt::format_to(out, ",\"rounding\":\"{}\"", name_of(s.rounding));
  if (s.offload != Offload{})
    fmt::format_to(
        out, ",\"offload\":{{\"activations\":\"{}\",\"optimizer\":\"{}\",\"parameters\":\"{}\",\"prefetch\":{}}}",
        place(s.offload.activations), place(s.offload.optimizer), place(s.offload.parameters), s.offload.prefetch);
  fmt::format_to(out, "}}");
}

void write_step(Out out, const Step& step, const std::vector<Buffer>& buffers) {
  const bool moves = step.kind != StepKind::compute;
  fmt::format_to(out, "{{\"kind\":\"{}\",\"stream\":\"{}\",\"phase\":\"{}\",\"part\":{},\"layer\":{},\"bytes\":{}}}",
                 step.kind == StepKind::collective ? name_of(step.collective) : name_of(step.kind),
                 name_of(step.stream), name_of(step.phase), base::json_quoted(step.part), step.layer,
                 moves ? step.message_bytes(buffers) : 0);
}

// What the indices of the rows mean, for readers that have no schedule.
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

// Places of operators in the classes above, and what each took.
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
    if (!in.failed())
      in.error(fmt::format("one of {} is expected, found {}", fmt::join(words, ", "), base::quoted(found)));
    return Enum{};
  }
  return static_cast<Enum>(it - words.begin());
}

Offload read_offload(JsonReader& in) {
  Offload o;
  in.open_object();
  for (std::string key; in.key(key);) {
    if (key == "activations")
      o.activations = word_of<Space>(in, kSpaceWords);
    else if (key == "optimizer")
      o.optimizer = word_of<Space>(in, kSpaceWords);
    else if (key == "parameters")
      o.parameters = word_of<Space>(in, kSpaceWords);
    else if (key == "prefetch")
      o.prefetch = static_cast<int>(in.integer(1, kMostPrefetch));
    else
      in.skip();
  }
  return o;
}

PlanSpec read_spec(JsonReader& in) {
  PlanSpec s;
  const auto degree = [&in](std::int64_t low, std::int64_t high) { return static_cast<int>(in.integer(low, high)); };
  in.open_object();
  for (std::string key; in.key(key);) {
    if (key == "data")
      s.data = degree(1, kMostRanks);
    else if (key == "tensor")
      s.tensor = degree(1, kMostRanks);
    else if (key == "pipeline")
      s.pipeline = degree(1, kMostRanks);
    else if (key == "context")
      s.context = degree(1, kMostRanks);
    else if (key == "expert")
      s.expert = degree(1, kMostRanks);
    else if (key == "virtual_stages")
      s.virtual_stages = degree(1, kMostLayers);
    else if (key == "micro_batch")
      s.micro_batch = in.integer(1, kMostBatch);
    else if (key == "schedule")
      s.order = word_of<Order>(in, kOrderWords);
    else if (key == "zero_stage")
      s.zero_stage = degree(0, 3);
    else if (key == "zero_group")
      s.zero_group = degree(0, kMostRanks);
    else if (key == "loss_chunks")
      s.loss_chunks = in.integer(1, kMostLossChunks);
    else if (key == "recompute")
      s.recompute = word_of<Recompute>(in, kRecomputeWords);
    else if (key == "recompute_layers")
      s.recompute_layers = in.integer(-1, kMostLayers);
    else if (key == "sequence_parallel")
      s.sequence_parallel = in.boolean();
    else if (key == "flash")
      s.flash = in.boolean();
    else if (key == "vocab_multiple")
      s.vocab_multiple = in.integer(1, 1 << 16);
    else if (key == "batch")
      s.batch = in.integer(1, kMostBatch);
    else if (key == "sequence")
      s.sequence = in.integer(1, kMostSequence);
    else if (key == "precision")
      s.precision = kPrecisions.at(word_of<std::size_t>(in, kPrecisionWords));
    else if (key == "overlap_gradients")
      s.overlap_gradients = in.boolean();
    else if (key == "offload")
      s.offload = read_offload(in);
    else if (key == "optimizer")
      s.optimizer = word_of<OptimizerKind>(in, kOptimizerWords);
    else if (key == "momentum")
      s.momentum = in.boolean();
    else if (key == "rounding")
      s.rounding = word_of<Rounding>(in, kRoundingWords);
    else if (key == "layers_per_stage") {
      for (in.open_array(); in.item();) s.layers_per_stage.push_back(in.integer(0, kMostLayers));
    } else
      in.skip();
  }
  std::int64_t ranks = 1;
  for (const int one : {s.data, s.tensor, s.pipeline, s.context, s.expert}) {
    ranks *= one;
    if (ranks > kMostRanks) in.error(fmt::format("the degrees multiply to more than {} ranks", kMostRanks));
    if (in.failed()) return {};
  }
  return s;
}

// Where each of our columns stands in a row; others may stand between them.
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
    in.error(fmt::format("format_version {} is not read by this version", base::quoted(version)));
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
      in.error("`columns` must stand before `rows`");
    else
      in.skip();
  }
  in.finish();
  if (!in.failed() && !missing.empty()) in.error(fmt::format("missing: {}", fmt::join(missing, ", ")), "E0102");
  if (in.failed()) return base::fail(in.errors());
  return t;
}

}  // namespace orrery::plan
