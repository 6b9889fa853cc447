/// The timeline as a Gantt chart: predicted above measured on one time axis, a row per rank, computation in a tall lane
/// and each communication stream in a thin one.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/units.h"
#include "reports/html/chart.h"
#include "reports/html/chart_template.h"

namespace orrery::reports::html {
namespace {

// Rows of a panel; beyond that evenly chosen. A row with four streams is 55 pixels high: 16 of them fill a screen.
constexpr std::size_t kMostRanks = 16;
// A browser needs 0.2 s more for each further thousand (docs/measurements.md, Drawing a timeline): a page with this
// many stands after 2.5 s, one with twice as many after 5 s. They are enough for each pass of 300 micro-batches forward
// and backward on 16 ranks; passes are what the chart is about, so messages take the sixth that is left.
constexpr std::size_t kMostBars = 12000;  // of the chart
constexpr double kOfCompute = 5. / 6;     // of these bars, for passes

/// What may be drawn as one: spans of the same kind and micro-batch with a gap below `gap`; and spans of any kind with
/// such gaps that together are shorter than `length`. A gap grows more slowly than a length, so that waits remain
/// visible where there are too many spans to draw each.
struct Resolution {
  double gap = 0, length = 0;  ///< seconds
};

struct Bar {
  int rank = 0;
  plan::Stream stream{};
  std::int32_t micro_batch = -1;
  double from = 0, to = 0;          ///< seconds
  std::map<SpanKind, double> busy;  ///< seconds of the spans within
  std::int64_t bytes = 0;
  int count = 1;
  std::set<std::string> parts;
  [[nodiscard]] bool mixed() const { return busy.size() > 1; }
};

struct Panel {
  const plan::Schedule* schedule = nullptr;
  std::string title;
  std::vector<int> ranks;
  std::vector<Bar> bars;
  double end = 0;
  [[nodiscard]] bool mixed() const {
    return std::any_of(bars.begin(), bars.end(), [](const Bar& bar) { return bar.mixed(); });
  }
};

void append(std::vector<Bar>& bars, Bar bar, const Resolution& resolution) {
  if (!bars.empty() && bars.back().rank == bar.rank && bars.back().stream == bar.stream) {
    Bar& last = bars.back();
    const bool same = last.busy.size() == 1 && last.busy.begin()->first == bar.busy.begin()->first &&
                      last.micro_batch == bar.micro_batch;
    if (bar.from - last.to < resolution.gap && (same || bar.to - last.from < resolution.length)) {
      last.to = bar.to;
      for (const auto& [activity, seconds] : bar.busy) last.busy[activity] += seconds;
      if (last.micro_batch != bar.micro_batch) last.micro_batch = -1;
      last.bytes += bar.bytes;
      last.count += bar.count;
      last.parts.merge(bar.parts);
      return;
    }
  }
  bars.push_back(std::move(bar));
}

/// Bars of one rank: of its computation, or of its messages.
std::vector<Bar> bars_of(const std::vector<plan::Span>& spans, const plan::Schedule& schedule,
                         const Resolution& resolution, bool compute) {
  std::vector<Bar> bars;
  for (const plan::Span& s : spans) {
    const plan::Step& step = step_of(s, schedule);
    if ((step.stream == plan::Stream::compute) != compute) continue;
    const SpanKind activity = span_kind_of(step);
    const bool communicates = activity == SpanKind::communication;
    const std::int64_t bytes = communicates ? step.message_bytes(schedule.class_of(s.rank).buffers) : 0;
    if (communicates && s.start > s.ready) {
      const std::map<SpanKind, double> waiting{{SpanKind::waiting, s.start - s.ready}};
      append(bars, {s.rank, step.stream, s.micro_batch, s.ready, s.start, waiting, 0, 1, {}}, resolution);
    }
    const std::map<SpanKind, double> busy{{activity, s.end - s.start}};
    append(bars, {s.rank, step.stream, s.micro_batch, s.start, s.end, busy, bytes, 1, {step.part}}, resolution);
  }
  return bars;
}

std::vector<int> evenly_chosen(const std::vector<int>& ranks, std::size_t most) {
  if (ranks.size() <= most) return ranks;
  std::vector<int> out;
  for (std::size_t i = 0; i < most; ++i) out.push_back(ranks[i * (ranks.size() - 1) / (most - 1)]);
  return out;
}

/// As fine as `most` boxes allow: first every pass by itself. A bar of several kinds takes a box for each.
std::vector<Bar> bars_within(std::size_t most, const std::vector<std::vector<plan::Span>>& ranks,
                             const plan::Schedule& schedule, double end, bool compute) {
  const double finest = end / 2000;
  for (double length = 0;; length = std::max(finest, 2 * length)) {
    const Resolution resolution{std::sqrt(finest * std::max(finest, length)), length};
    std::vector<Bar> out;
    std::size_t boxes = 0;
    for (const auto& of_rank : ranks) {
      std::vector<Bar> bars = bars_of(of_rank, schedule, resolution, compute);
      for (const Bar& bar : bars) boxes += bar.busy.size();
      out.insert(out.end(), std::make_move_iterator(bars.begin()), std::make_move_iterator(bars.end()));
    }
    if (boxes <= most || length > end) return out;
  }
}

/// The most that one of several panels may show.
struct Room {
  std::size_t ranks = kMostRanks, bars = kMostBars;
};

Panel panel_of(const plan::Timeline& timeline, const plan::Schedule& schedule, const Room& room) {
  Panel panel;
  panel.schedule = &schedule;
  const bool measured = timeline.origin == plan::Origin::measured;
  const int iteration = typical_iteration(timeline);
  panel.ranks = evenly_chosen(ranks_of(timeline, schedule, measured), room.ranks);
  std::vector<std::vector<plan::Span>> spans;
  for (const int rank : panel.ranks) {
    spans.push_back(spans_of(timeline, schedule, rank, iteration));
    for (const plan::Span& s : spans.back()) panel.end = std::max(panel.end, s.end);
  }
  const auto of_compute = static_cast<std::size_t>(kOfCompute * static_cast<double>(room.bars));
  panel.bars = bars_within(of_compute, spans, schedule, panel.end, true);
  const std::vector<Bar> messages = bars_within(room.bars - of_compute, spans, schedule, panel.end, false);
  panel.bars.insert(panel.bars.end(), messages.begin(), messages.end());
  // A predicted step is a little longer than its spans, by what the software does between steps.
  const double whole = measured ? panel.end : std::max(panel.end, timeline.step_time);
  panel.end = whole;
  panel.title = fmt::format("{} — {}{}", measured ? "Measured" : "Predicted", time_text(whole),
                            measured ? fmt::format(", step {}", iteration + 1) : "");
  return panel;
}

std::string row_name(int rank, const plan::Schedule& schedule) {
  return schedule.classes.size() > 1 ? fmt::format("rank {} · stage {}", rank, schedule.class_of(rank).stage)
                                     : fmt::format("rank {}", rank);
}

std::string tip_of(const Bar& bar, const Unit& unit) {
  std::string text;
  for (const auto& [activity, seconds] : bar.busy)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(activity), time_text(seconds));
  if (bar.micro_batch >= 0) text += fmt::format(" · micro-batch {}", bar.micro_batch + 1);
  text += fmt::format("\n{:.4g} – {:.4g} {}", bar.from * unit.factor, bar.to * unit.factor, unit.name);
  if (bar.count > 1) text += fmt::format(", {} steps", bar.count);
  std::string parts;
  for (const std::string& part : bar.parts) parts += (parts.empty() ? "" : ", ") + part;
  if (!parts.empty()) text += "\n" + parts;
  if (bar.bytes > 0) text += " · " + base::human(base::Bytes{static_cast<double>(bar.bytes)});
  return bar.stream == plan::Stream::compute ? text : text + "\nstream: " + plan::name_of(bar.stream);
}

/// The streams other than compute that any panel uses, one thin lane each.
std::vector<plan::Stream> thin_streams(const std::vector<Panel>& panels) {
  std::set<plan::Stream> streams;
  for (const Panel& panel : panels)
    for (const Bar& bar : panel.bars)
      if (bar.stream != plan::Stream::compute) streams.insert(bar.stream);
  return {streams.begin(), streams.end()};
}

json values_of(const Panel& panel, const std::vector<plan::Stream>& thin, const Unit& unit) {
  const plan::Schedule& schedule = *panel.schedule;
  json values = json::array();
  for (const Bar& bar : panel.bars) {
    const auto lane = std::find(thin.begin(), thin.end(), bar.stream);
    const bool compute = lane == thin.end();
    const json value = {{"row", row_name(bar.rank, schedule)},
                        {"a", std::round(bar.from * unit.factor * 1e6) / 1e6},
                        {"b", std::round(bar.to * unit.factor * 1e6) / 1e6},
                        {"lane", compute ? 0 : lane - thin.begin() + 1},
                        {"tip", tip_of(bar, unit)}};
    double all = 0, above = 0;
    for (const auto& [activity, seconds] : bar.busy) all += seconds;
    for (const auto& [activity, seconds] : bar.busy) {
      json part = value;
      part["c"] = colour_of(activity);
      part["y"] = all > 0 ? above / all : 0;
      part["h"] = bar.mixed() && all > 0 ? seconds / all : 1;
      above += seconds;
      if (compute && bar.micro_batch >= 0 && !bar.mixed()) part["label"] = std::to_string(bar.micro_batch + 1);
      values.push_back(std::move(part));
    }
  }
  return values;
}

/// Seconds by activity and rank, as the table behind the chart.
Table table_of(const Panel& panel) {
  static constexpr SpanKind kShown[] = {SpanKind::forward,   SpanKind::backward, SpanKind::recompute,
                                        SpanKind::optimizer, SpanKind::other,    SpanKind::communication,
                                        SpanKind::waiting};
  Table table;
  table.title = panel.title;
  table.columns.push_back({"rank", Align::left});
  for (const SpanKind a : kShown) table.columns.push_back({name_of(a), Align::right});
  for (const int rank : panel.ranks) {
    auto& row = table.rows.emplace_back();
    row.push_back(row_name(rank, *panel.schedule));
    for (const SpanKind a : kShown) {
      double sum = 0;
      for (const Bar& bar : panel.bars) {
        const auto found = bar.busy.find(a);
        if (bar.rank == rank && found != bar.busy.end()) sum += found->second;
      }
      row.push_back(sum > 0 ? time_text(sum) : "—");
    }
  }
  table.notes.push_back(
      "Communication and waiting may overlap with compute, so a row can add up to more than the step.");
  return table;
}

Chart chart_of(const std::vector<Panel>& panels) {
  double end = 0;
  for (const Panel& panel : panels) end = std::max(end, panel.end);
  const Unit unit = time_unit(end);
  const std::vector<plan::Stream> thin = thin_streams(panels);
  Chart chart;
  chart.text =
      "One training step on one time axis. Each rank has a tall lane for compute, numbered by micro-batch, and a thin "
      "lane for each communication stream. Drag to zoom, double-click to reset; with the keyboard + and −, arrows and "
      "0.";
  std::set<SpanKind> used;
  for (const Panel& panel : panels)
    for (const Bar& bar : panel.bars)
      for (const auto& [activity, seconds] : bar.busy) used.insert(activity);
  if (std::any_of(panels.begin(), panels.end(), [](const Panel& panel) { return panel.mixed(); }))
    chart.text +=
        " Where there are too many spans to draw each, a bar stands for several and is divided from top to bottom by "
        "the time of each kind.";
  for (const SpanKind activity : used) chart.legend.push_back({name_of(activity), colour_of(activity)});
  chart.legend.push_back({"idle: bubbles, and waits for messages", "var(--idle)"});
  for (const Panel& panel : panels)
    chart.description += fmt::format("{}, {}. ", panel.title, count_text(std::ssize(panel.ranks), "rank"));

  json rows = json::array();
  std::vector<std::string> labels;
  for (const Panel& panel : panels) {
    const std::size_t above = labels.size();
    json ranks = json::array();
    for (const int rank : panel.ranks) {
      labels.push_back(row_name(rank, *panel.schedule));
      ranks.push_back(labels.back());
    }
    rows.push_back({{"place", rows.size()},
                    {"above", above},
                    {"title", panel.title},
                    {"ranks", std::move(ranks)},
                    {"end", panel.end * unit.factor},
                    {"spans", values_of(panel, thin, unit)}});
    chart.data.push_back(table_of(panel));
  }
  const double whole = end * unit.factor;
  chart.spec = chart_spec("timeline", {{"panels", std::move(rows)}},
                          {{"left", label_width(labels)},
                           {"lanes", thin.size()},
                           {"title", "time in the step (" + unit.name + ")"},
                           {"end", whole},
                           {"domain", {0, whole}}});
  return chart;
}

}  // namespace

Chart timeline_chart(const ReportData& data) {
  std::vector<Panel> panels;
  const Room room{kMostRanks, kMostBars / (data.predicted && data.measured ? 2 : 1)};
  if (data.predicted) panels.push_back(panel_of(*data.predicted, *data.schedule, room));
  if (data.measured) panels.push_back(panel_of(*data.measured, *data.schedule, room));
  Chart chart = chart_of(panels);
  chart.title = panels.size() == 2 ? "Timeline, predicted and measured" : "Timeline";
  return chart;
}

std::optional<Chart> compared_timelines_chart(const std::vector<Compared>& all) {
  constexpr std::size_t kMostPanels = 6, kRanksOfAPanel = 4;
  const std::vector<std::string> names = short_names(all);
  std::vector<Panel> panels;
  for (std::size_t i = 0; i < all.size() && panels.size() < kMostPanels; ++i) {
    if (!all[i].timeline || !all[i].schedule) continue;
    panels.push_back(panel_of(*all[i].timeline, *all[i].schedule, {kRanksOfAPanel, kMostBars / kMostPanels}));
    panels.back().title.insert(0, names[i] + " · ");
  }
  if (panels.size() < 2) return std::nullopt;
  Chart chart = chart_of(panels);
  chart.title = "Timelines beside each other";
  chart.text += fmt::format(" At most {} ranks of each, of the first {}.", kRanksOfAPanel, kMostPanels);
  return chart;
}

}  // namespace orrery::reports::html
