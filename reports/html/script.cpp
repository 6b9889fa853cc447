/// Joins the charting library's modules in the page and starts one view per specification.
#include "reports/html/page.h"

namespace orrery::reports {

std::vector<std::string> chart_library_files() {
  std::vector<std::string> out;
  for (const char* part : {"util",      "time",       "format",     "loader",          "expression",     "statistics",
                           "dataflow",  "canvas",     "scale",      "scenegraph",      "event-selector", "selection",
                           "functions", "runtime",    "transforms", "view-transforms", "encode",         "parser",
                           "view",      "interpreter"})
    out.push_back(std::string("vega-") + part + ".min.js");
  return out;
}

namespace html {
namespace {

void replace_all(std::string& text, std::string_view what, std::string_view with) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
}

/// Makes JavaScript safe inside a <script> element. In it, these occur only in string literals and comments, where
/// the backslash changes nothing.
std::string embedded_script(std::string text) {
  replace_all(text, "</script", "<\\/script");
  replace_all(text, "<!--", "<\\!--");
  // The source maps are not in the page.
  if (const std::size_t map = text.rfind("//# sourceMappingURL="); map != std::string::npos) text.resize(map);
  return text;
}

// The modules are UMD: given `exports` and `require` they act as CommonJS modules. vega-functions asks for
// vega-selection by the plural. The interpreter evaluates expressions without eval, so that a strict policy holds.
constexpr const char* kJoin = R"js("use strict";
const parts = {};
const part = (name, body) => {
  const module = {exports: {}};
  body.call(globalThis, module, module.exports, (wanted) => parts[wanted] || parts[wanted.replace(/s$/, "")]);
  parts[name] = module.exports;
};
)js";
constexpr const char* kDraw = R"js(
for (const name of ["vega-transforms", "vega-view-transforms", "vega-encode"])
  Object.assign(parts["vega-dataflow"].transforms, parts[name]);
const views = {};
for (const spec of document.querySelectorAll("script.spec")) {
  const plot = document.getElementById(spec.dataset.plot), name = plot.getAttribute("aria-label");
  const parsed = parts["vega-parser"].parse(JSON.parse(spec.textContent), null, {ast: true});
  const view = new parts["vega-view"].View(parsed, {
    expr: parts["vega-interpreter"].expressionInterpreter, renderer: "svg", hover: true,
    container: plot
  });
  views[spec.dataset.plot] = view;
  // The view puts a role and a name of its own on the plot: back to the page's.
  view.description(name);
  plot.setAttribute("role", "img");
  plot.tabIndex = 0;
  view.runAsync();
}
)js";

// Pins rows, by box or by a click on their marks; and moves the timeline by keys.
constexpr const char* kAct = R"js(
for (const box of document.querySelectorAll(".pins")) {
  const view = views[box.dataset.plot], pins = [...box.querySelectorAll(".pin")], only = box.querySelector(".only");
  const show = () => {
    const pinned = pins.filter((p) => p.checked);
    view.signal("pinned", pinned.map((p) => Number(p.value))).runAsync();
    for (const pin of pins) pin.closest("tr").hidden = only.checked && pinned.length > 0 && !pin.checked;
  };
  box.addEventListener("change", show);
  view.addEventListener("click", (event, item) => {
    const pin = item && item.datum && pins[item.datum.pin];
    if (pin) { pin.checked = !pin.checked; show(); }
  });
  show();
}
for (const [id, view] of Object.entries(views)) {
  let whole;
  try { whole = view.signal("domain"); } catch { continue; }
  document.getElementById(id).addEventListener("keydown", (event) => {
    const [a, b] = view.signal("domain"), length = b - a;
    const [low, high] = whole;
    const to = {"+": [a + length / 4, b - length / 4], "-": [a - length / 2, b + length / 2], "0": whole,
      "ArrowLeft": [a - length / 4, b - length / 4], "ArrowRight": [a + length / 4, b + length / 4]}[event.key];
    if (!to) return;
    event.preventDefault();
    const size = Math.min(to[1] - to[0], high - low), begin = Math.max(low, Math.min(to[0], high - size));
    view.signal("domain", [begin, begin + size]).runAsync();
  });
}
)js";

}  // namespace

std::string script(const ChartLibrary& library) {
  const std::vector<std::string> files = chart_library_files();
  std::string out = "<script>\n";
  out += kJoin;
  for (std::size_t i = 0; i < files.size() && i < library.parts.size(); ++i) {
    const std::string name = files[i].substr(0, files[i].size() - std::string(".min.js").size());
    out += "part(\"" + name + "\", function (module, exports, require) {\n" + embedded_script(library.parts[i]) +
           "\n});\n";
  }
  out += kDraw;
  out += kAct;
  out += "</script>\n";
  return out;
}

}  // namespace html
}  // namespace orrery::reports
