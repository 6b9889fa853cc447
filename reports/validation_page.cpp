/// The page of `validate --html`.
#include <fmt/core.h>

#include <cmath>
#include <limits>

#include "base/units.h"
#include "reports/html/page.h"
#include "reports/validation.h"

namespace orrery::reports {
namespace {

std::string tiles(const cost::Validation& v) {
  std::string out;
  if (v.time.count > 0) {
    out += html::tile("Step time", percent(v.time.median),
                      "median error over " + count_text(static_cast<std::int64_t>(v.time.count), "row"));
    out += html::tile("Nine of ten rows", percent(v.time.p90), "are nearer than this");
  }
  if (v.memory.count > 0)
    out += html::tile("Peak memory", percent(v.memory.median),
                      "median error over " + count_text(static_cast<std::int64_t>(v.memory.count), "row"));
  if (const RegretSummary r = regret_of(v.groups); r.groups > 0)
    out += html::tile("Regret", fmt::format("{:.2f}", r.median),
                      fmt::format("median over {} groups of plans, worst {:.2f}", r.groups, r.worst));
  if (v.cross_validation && v.cross_validation->left_out.count > 0) {
    out += html::tile(
        "Left out", percent(v.cross_validation->left_out.median),
        fmt::format("median error on rows not fitted, in-sample {}", percent(v.cross_validation->in_sample.median)));
    out += html::tile("Inside the interval", percent(v.cross_validation->inside),
                      "of rows left out of the fit; the aim is 80 %");
  }
  return out.empty() ? out : "<ul class=\"tiles\">\n" + out + "</ul>\n";
}

std::string section(const std::string& title, const std::string& text, Table table) {
  table.title.clear();
  return "<section>\n<h2>" + html::escaped(title) + "</h2>\n<p>" + html::prose(text) + "</p>\n" +
         html::table_html(table) + "</section>\n";
}

}  // namespace

std::string validation_html(const cost::Validation& v, const std::vector<cost::HeadlineResult>& headlines,
                            const ChartLibrary& library) {
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  const bool drawn = !library.parts.empty();
  std::string body = tiles(v);
  int number_of_figure = 0;
  if (v.time.count > 0) {
    body += html::figure_html(html::published_scatter(v), ++number_of_figure, drawn);
    body += html::figure_html(html::sources_chart(v), ++number_of_figure, drawn);
    body += section("By software", "How many of a stack's numbers were fitted to measured rows, beside its errors.",
                    stacks_table(v));
    body += section("Worst rows first", "All rows with a measured step time.", worst_rows_table(v, kAll));
  }
  if (Table table = unmeasured_table(v, kAll); !table.rows.empty())
    body += section("Without a measured time", "Rows that state none: the predictions alone.", std::move(table));
  if (Table table = fits_table(v, kAll); !table.notes.empty())
    body += section("Do they fit memory?", "Rows that are told wrongly, the surest first.", std::move(table));
  if (!v.groups.empty())
    body +=
        section("Which plan wins",
                "Rows that differ only in plan: what trusting the prediction would have cost over the measured best.",
                groups_table(v, kAll));
  if (v.cross_validation)
    body += section(
        "In-sample and left out",
        "The stacks' numbers fitted again without each source, or without each model if a stack has only one source.",
        folds_table(*v.cross_validation));
  if (!headlines.empty())
    body += section("Headlines", "What the sources are known for, by simulation.", headlines_table(headlines));
  if (!v.left_out.empty())
    body += section("Left out of the comparison", "Rows that are not predicted, and why.", left_out_table(v));
  return html::page_html(
      "Predictions and published runs",
      fmt::format("{} predicted, {} left out.", count_text(std::ssize(v.rows), "row"), v.left_out.size()), body,
      library);
}

}  // namespace orrery::reports
