/// The report's style sheet: colours for light and dark pages and for print.
#include "reports/html/page.h"

namespace orrery::reports::html {

// Hues stay distinct under the common kinds of colour blindness because they differ in lightness too (blue pair light
// and dark, orange, violet, grey); see Okabe and Ito, "Color Universal Design", 2008.
const char* style() {
  return R"css(
:root {
  color-scheme: light dark;
  --paper: #ffffff; --page: #f5f6f8; --ink: #1c2430; --muted: #5d6877; --grid: #e6e9ee; --axis: #b4bcc8;
  --lane: #f2f4f7; --idle: #f6dfdb; --edge: #1c243040;
  --line: #dfe3e9; --accent: #2c5aa0; --good: #1f7a4d; --bad: #b3401f; --limit: #b3261e;
  --forward: #86b6e8; --backward: #2c5aa0; --recompute: #5fb3b3; --optimizer: #7b5ea7; --communication: #e8912d;
  --communication-2: #f2b872; --communication-3: #b8680f; --communication-4: #8c4a2f; --copies: #8a7fd1;
  --contention: #b8396f; --waiting: #cfd5dd; --imbalance: #b5a184; --other: #97a1af;
  --on-forward: #16233a; --on-backward: #ffffff;
  --m-parameters: #2c5aa0; --m-optimizer_states: #7b5ea7; --m-gradients: #86b6e8; --m-activations: #5fb3b3;
  --m-workspace: #c9b458; --m-communication: #e8912d; --m-input: #97a1af; --m-scalars: #6c7786; --m-software: #cfd5dd;
  --m-fragmentation: #e0b4a8;
}
@media (prefers-color-scheme: dark) { :root {
  --paper: #171c24; --page: #0f1319; --ink: #e6eaf0; --muted: #9aa6b6; --grid: #29313d; --axis: #4a5565;
  --lane: #1d232d; --idle: #4b2c2c; --edge: #e6eaf038;
  --line: #2a323e; --accent: #82b1ee; --good: #5cc08d; --bad: #ef8a62; --limit: #ff7b6e;
  --forward: #9cc6f2; --backward: #4a80cf; --recompute: #5fb3b3; --optimizer: #a286cf; --communication: #f0a04b;
  --communication-2: #f6c78d; --communication-3: #c67a24; --communication-4: #a9633f; --copies: #9d93e0;
  --contention: #c4487d; --waiting: #5a6575; --imbalance: #a08a69; --other: #8d98a6;
  --on-forward: #0e1828; --on-backward: #ffffff;
  --m-parameters: #4a80cf; --m-optimizer_states: #a286cf; --m-gradients: #9cc6f2; --m-workspace: #cdbb6a;
  --m-communication: #f0a04b; --m-input: #77828f; --m-scalars: #9aa6b6; --m-software: #5a6575;
  --m-fragmentation: #9c6f63;
} }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink); line-height: 1.5; font-size: 15px;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
}
main { max-width: 1120px; margin: 0 auto; padding: 40px 24px 64px; }
header { margin-bottom: 28px; }
.eyebrow { color: var(--muted); font-size: 13px; letter-spacing: .08em; text-transform: uppercase; margin: 0 0 4px; }
h1 { font-size: 30px; line-height: 1.2; margin: 0; font-weight: 650; overflow-wrap: anywhere; letter-spacing: -.01em; }
header p.lead { color: var(--muted); margin: 8px 0 0; max-width: 75ch; }
h2 { font-size: 19px; margin: 0 0 4px; font-weight: 620; overflow-wrap: anywhere; letter-spacing: -.005em; }
h3 { font-size: 14px; margin: 18px 0 6px; font-weight: 600; }
section, figure { background: var(--paper); border: 1px solid var(--line); border-radius: 10px; padding: 22px 24px;
margin: 0 0 20px; }
figure > p, section > p { color: var(--muted); margin: 0 0 12px; max-width: 85ch; font-size: 14px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(162px, 1fr)); gap: 12px; margin: 0 0 20px;
padding: 0; list-style: none; }
.tiles li { background: var(--paper); border: 1px solid var(--line); border-radius: 10px; padding: 13px 14px; }
.tiles .name { color: var(--muted); font-size: 13px; display: block; }
.tiles .value { font-size: 22px; font-weight: 620; letter-spacing: -.02em; font-variant-numeric: tabular-nums;
display: block; line-height: 1.4; white-space: nowrap; }
.tiles .note { color: var(--muted); font-size: 13px; display: block; }
p.words { margin: 0 0 12px; max-width: 85ch; }
p.words + section, p.words + figure { margin-top: 20px; }
code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .93em; overflow-wrap: anywhere; }
h2.full { margin: 36px 0 14px; font-size: 22px; }
section ul { margin: 0 0 14px; padding-left: 20px; font-size: 14px; max-width: 100ch; }
section li { margin: 0 0 3px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 0 0 8px; padding: 0; list-style: none; font-size: 13px;
  color: var(--ink); }
.legend li { display: flex; align-items: center; gap: 7px; }
.legend svg { flex: none; display: block; }
.plot { width: 100%; min-height: 60px; }
.plot svg { display: block; max-width: 100%; height: auto; -webkit-user-select: none; user-select: none; }
.plot text { font-variant-numeric: tabular-nums; }
.plot:focus-visible { outline: 2px solid var(--accent); outline-offset: 3px; border-radius: 3px; }
.pins label { font-size: 13px; color: var(--muted); display: inline-flex; gap: 6px; align-items: center; }
.pins input { accent-color: var(--accent); width: 16px; height: 16px; margin: 2px; }
.pins .scroll { max-height: 460px; overflow: auto; }
a.save { color: var(--accent); font-size: 13px; }
details { margin-top: 10px; }
summary { color: var(--accent); cursor: pointer; font-size: 13px; width: max-content; }
summary:focus-visible { outline: 2px solid var(--accent); outline-offset: 3px; border-radius: 3px; }
.scroll { overflow-x: auto; margin-top: 8px; background-color: var(--paper); background-repeat: no-repeat;
  background-image: linear-gradient(90deg, var(--paper) 40%, transparent),
    linear-gradient(270deg, var(--paper) 40%, transparent), linear-gradient(90deg, var(--edge), transparent),
    linear-gradient(270deg, var(--edge), transparent);
  background-position: left, right, left, right; background-size: 36px 100%, 36px 100%, 14px 100%, 14px 100%;
  background-attachment: local, local, scroll, scroll; }
table { border-collapse: collapse; font-size: 13px; min-width: 40%; }
caption { text-align: left; font-weight: 600; padding: 6px 0; }
th { text-align: left; font-weight: 600; color: var(--muted); border-bottom: 1px solid var(--axis);
vertical-align: bottom; }
th, td { padding: 5px 14px 5px 0; }
td { white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; }
th:first-child:not(.n), td:first-child:not(.n) { white-space: normal; min-width: min(14ch, 30vw); }
.pins th:first-child, .pins td:first-child { min-width: 0; }
td .w { display: block; min-width: min(26ch, 60vw); white-space: normal; }
td { border-bottom: 1px solid var(--line); vertical-align: top; }
tbody tr:last-child td { border-bottom: 0; }
th.n, td.n { text-align: right; font-variant-numeric: tabular-nums; }
td.b { min-width: 140px; }
td.b span { display: block; height: 9px; margin-top: 5px; background: var(--backward); border-radius: 2px; }
p.note { color: var(--muted); font-size: 13px; margin: 6px 0 0; overflow-wrap: anywhere; }
.prov td { overflow-wrap: anywhere; white-space: normal; min-width: min(16ch, 40vw); }
footer { color: var(--muted); font-size: 13px; }
@media (max-width: 640px) {
  main { padding: 20px 10px; } section, figure { padding: 16px 14px; } h1 { font-size: 24px; }
  th, td { padding-right: 10px; }
  /* Sources are long: each row becomes lines below each other. */
  .prov thead { display: none; } .prov table, .prov tr, .prov td { display: block; min-width: 0; }
  .prov td { border: 0; padding: 1px 0; text-align: left; color: var(--muted); } .prov td:empty { display: none; }
  .prov td:first-child { padding-top: 8px; font-weight: 600; color: var(--ink); }
  .prov td:last-child { padding-bottom: 8px; border-bottom: 1px solid var(--line); }
}
@page { margin: 12mm; }
@media print {
  :root { --page: #fff; } body { font-size: 12px; } main { max-width: none; padding: 0; }
  section, figure { break-inside: avoid; border: 0; padding: 8px 0; } summary { display: none; }
  .pins .scroll { max-height: none; } .pins label, a.save { display: none; }
  /* Paper does not scroll: wide tables are smaller, and their cells take several lines. */
  .scroll, .pins .scroll { overflow: visible; background-image: none; }
  table { font-size: 9px; min-width: 0; } th, td { padding: 3px 7px 3px 0; overflow-wrap: break-word; }
  td, th { white-space: normal; }
  td .w, td.b, .prov td, th:first-child:not(.n), td:first-child:not(.n) { min-width: 0; }
  tr { break-inside: avoid; } h2, h3, caption { break-after: avoid; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
)css";
}

}  // namespace orrery::reports::html
