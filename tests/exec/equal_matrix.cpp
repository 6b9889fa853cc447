// The matrix: every way of splitting, and every pair of ways, that leaves the mathematics as it is, against the serial
// run of the same model: 20 steps in fp32 on threads. Prints a row a case and a table an axis; exit code 5 on a miss.
// scripts/verify-matrix builds and runs it; the suite runs each axis alone.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "plan/schedule/rehearse.h"
#include "tests/exec/families.h"
#include "tests/exec/training.h"

namespace orrery::exec::testing {
namespace {

constexpr double kBound = 1e-5;
constexpr int kMostRanks = 8;
constexpr int kOk = 0, kUsage = 2, kCheckFailed = 5;

using plan::Order;
using plan::PlanSpec;
using plan::Recompute;
using plan::Space;

/// Axes of one slot exclude each other; slots are applied in this order.
enum class Slot {
  batch,
  pipeline,
  tensor,
  context,
  data,
  zero,
  overlap,
  recompute,
  core,
  activations,
  states,
  values,
  progress,
  layers
};

struct Axis {
  const char* name;
  Slot slot;
  void (*set)(Trial&);
};

void at_least_two(int& degree) {
  degree = std::max(degree, 2);
}
void pipeline(Trial& t, Order order, int stages, int chunks) {
  t.spec.stages.order = order;
  t.spec.mesh.pipeline = stages;
  t.spec.stages.virtual_stages = chunks;
}
void tensor(Trial& t, int ways, bool sequence) {
  t.spec.mesh.tensor = ways;
  t.spec.mesh.sequence_parallel = sequence;
}
void zero(Trial& t, int stage) {
  if (t.spec.mesh.context == 1) at_least_two(t.spec.mesh.data);
  t.spec.states.zero_stage = stage;
}
// Two sub-groups of two replicas each.
void zero_in_groups(Trial& t, int stage) {
  t.spec.mesh.data = std::max(t.spec.mesh.data, 4 / t.spec.mesh.context);
  t.spec.states.zero_stage = stage;
  t.spec.states.zero_group = 2;
}
void recompute(Trial& t, Recompute what, std::optional<std::int64_t> layers) {
  t.spec.recomputation.what = what;
  t.spec.recomputation.layers = layers;
  if (what == Recompute::selective) t.spec.numerics.flash = false;
}
// Of four blocks on 2 or 4 places; the first of four has the embedding alone.
void uneven(Trial& t) {
  at_least_two(t.spec.mesh.pipeline);
  if (t.spec.places() == 2)
    t.spec.stages.layers_per_stage = {1, 3};
  else
    t.spec.stages.layers_per_stage = {0, 1, 2, 1};
}
void ends_as_layers(Trial& t) {
  if (t.spec.mesh.pipeline == 1) t.spec.mesh.pipeline = 4;
  t.spec.stages.ends_as_layers = true;
}

const std::vector<Axis>& axes() {
  static const std::vector<Axis> all = {
      {"micro-batch 2", Slot::batch, [](Trial& t) { t.spec.shape.micro_batch = 2; }},
      {"gpipe", Slot::pipeline, [](Trial& t) { pipeline(t, Order::gpipe, 2, 1); }},
      {"1f1b", Slot::pipeline, [](Trial& t) { pipeline(t, Order::one_f_one_b, 2, 1); }},
      {"1f1b 4 stages", Slot::pipeline, [](Trial& t) { pipeline(t, Order::one_f_one_b, 4, 1); }},
      {"interleaved", Slot::pipeline, [](Trial& t) { pipeline(t, Order::one_f_one_b, 2, 2); }},
      {"zb-h1", Slot::pipeline, [](Trial& t) { pipeline(t, Order::zb_h1, 2, 1); }},
      {"zb-h2", Slot::pipeline, [](Trial& t) { pipeline(t, Order::zb_h2, 2, 1); }},
      {"zb-v", Slot::pipeline, [](Trial& t) { pipeline(t, Order::zb_v, 2, 2); }},
      {"dualpipe-v", Slot::pipeline, [](Trial& t) { pipeline(t, Order::dualpipe_v, 2, 2); }},
      {"dualpipe", Slot::pipeline, [](Trial& t) { pipeline(t, Order::dualpipe, 2, 2); }},
      {"tensor 2", Slot::tensor, [](Trial& t) { tensor(t, 2, false); }},
      {"tensor 4", Slot::tensor, [](Trial& t) { tensor(t, 4, false); }},
      {"sequence 2", Slot::tensor, [](Trial& t) { tensor(t, 2, true); }},
      {"sequence 4", Slot::tensor, [](Trial& t) { tensor(t, 4, true); }},
      {"context 2", Slot::context, [](Trial& t) { t.spec.mesh.context = 2; }},
      {"context 4", Slot::context, [](Trial& t) { t.spec.mesh.context = 4; }},
      {"data 2", Slot::data, [](Trial& t) { t.spec.mesh.data = 2; }},
      {"data 4", Slot::data, [](Trial& t) { t.spec.mesh.data = 4; }},
      {"zero 1", Slot::zero, [](Trial& t) { zero(t, 1); }},
      {"zero 2", Slot::zero, [](Trial& t) { zero(t, 2); }},
      {"zero 3", Slot::zero, [](Trial& t) { zero(t, 3); }},
      {"zero 1 in groups", Slot::zero, [](Trial& t) { zero_in_groups(t, 1); }},
      {"zero 3 in groups", Slot::zero, [](Trial& t) { zero_in_groups(t, 3); }},
      {"overlap gradients", Slot::overlap,
       [](Trial& t) {
         if (t.spec.mesh.context == 1) at_least_two(t.spec.mesh.data);
         t.spec.states.overlap_gradients = true;
       }},
      {"recompute full", Slot::recompute, [](Trial& t) { recompute(t, Recompute::full, {}); }},
      {"checkpoints in parts", Slot::recompute,
       [](Trial& t) {
         recompute(t, Recompute::full, {});
         at_least_two(t.spec.mesh.tensor);
         t.spec.recomputation.partition_checkpoints = true;
       }},
      {"recompute 1 layer", Slot::recompute, [](Trial& t) { recompute(t, Recompute::full, 1); }},
      {"recompute selective", Slot::recompute, [](Trial& t) { recompute(t, Recompute::selective, {}); }},
      {"unfused attention", Slot::core, [](Trial& t) { t.spec.numerics.flash = false; }},
      {"activations on host", Slot::activations, [](Trial& t) { t.spec.offload.activations = Space::host; }},
      {"activations, prefetch 2", Slot::activations,
       [](Trial& t) { t.spec.offload.activations = Space::host, t.spec.offload.prefetch = 2; }},
      {"optimizer on host", Slot::states, [](Trial& t) { t.spec.offload.optimizer = Space::host; }},
      {"optimizer on NVMe", Slot::states, [](Trial& t) { t.spec.offload.optimizer = Space::nvme; }},
      {"parameters on host", Slot::values, [](Trial& t) { t.spec.offload.parameters = Space::host; }},
      {"parameters on NVMe", Slot::values, [](Trial& t) { t.spec.offload.parameters = Space::nvme; }},
      {"progress thread", Slot::progress,
       [](Trial& t) {
         if (t.spec.mesh.ranks() == 1) t.spec.mesh.data = 2;
         t.progress = Communication::Progress::thread;
       }},
      {"uneven stages", Slot::layers, uneven},
      {"ends as layers", Slot::layers, ends_as_layers},
  };
  return all;
}

// Four thin blocks; every degree up to 4 divides heads, key/value heads and widths.
Trial gpt_trial() {
  Trial trial = golden_trial("cosine_clipped");
  trial.training.initial_weights.clear();
  trial.training.order = plan::DataOrder::shuffled;
  trial.model.layers = 4;
  trial.spec.shape.micro_batch = 1;
  return trial;
}
Trial llama_trial() {
  Trial trial = gpt_trial();
  models::Model& m = trial.model;
  testing::make_llama(m);
  m.heads = 8;
  m.head_dim = 4;
  m.kv_heads = 4;
  return trial;
}
// With its two heads, of masked tokens and of next sentences.
Trial bert_trial() {
  Trial trial = golden_bert();
  trial.training.initial_weights.clear();
  trial.training.order = plan::DataOrder::shuffled;
  trial.model.layers = 4;
  trial.spec.shape.micro_batch = 1;
  return trial;
}
// BERT's encoder, which sees both ways, under the head that the others have: for parts of sequences, which masked data
// is not cut into.
Trial encoder_trial() {
  Trial trial = gpt_trial();
  testing::make_encoder(trial.model);
  return trial;
}

struct Named {
  const char* name;
  Trial (*make)();
};
const std::vector<Named> kModels = {
    {"gpt", gpt_trial}, {"llama", llama_trial}, {"bert", bert_trial}, {"encoder", encoder_trial}};

struct Case {
  std::vector<const Axis*> axes;
  Trial trial;
  [[nodiscard]] std::string name() const {
    std::string text;
    for (const Axis* axis : axes) text += (text.empty() ? "" : " + ") + std::string(axis->name);
    return text;
  }
};

struct Options {
  std::vector<std::string> models = {"gpt", "llama", "bert"};
  bool alone = false, list = false;
  int part = 1, parts = 1;
  double dropout = 0;
  std::string only, write;  ///< write: plan files of each axis alone go to this folder, and nothing runs
};

bool same_run(const Trial& a, const Trial& b) {
  return a.spec == b.spec && a.progress == b.progress;
}

std::vector<Case> cases_of(const Trial& serial, const Options& options) {
  std::vector<Case> out;
  const auto add = [&](std::vector<const Axis*> parts) {
    std::stable_sort(parts.begin(), parts.end(), [](const Axis* a, const Axis* b) { return a->slot < b->slot; });
    Case one{parts, serial};
    for (const Axis* axis : parts) axis->set(one.trial);
    // A pair may be what one of the two is already (ZeRO with its data parallelism).
    if (std::none_of(out.begin(), out.end(), [&](const Case& c) { return same_run(c.trial, one.trial); }))
      out.push_back(std::move(one));
  };
  for (const Axis& a : axes()) add({&a});
  if (!options.alone)
    for (const Axis& a : axes())
      for (const Axis& b : axes())
        if (a.slot < b.slot) add({&a, &b});
  std::erase_if(out, [&](const Case& c) { return c.name().find(options.only) == std::string::npos; });
  return out;
}

enum class Verdict { equal, different, refused, left_out };
struct Row {
  Verdict verdict = Verdict::different;
  double loss = 0, first = 0, last = 0;
  std::string why;  ///< code and message of a refusal; what else is wrong
};

std::string code_in(const std::string& rendered) {
  const std::size_t from = rendered.find('['), to = rendered.find(']');
  return from == std::string::npos || to == std::string::npos ? "?" : rendered.substr(from + 1, to - from - 1);
}
std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

std::string wrong_memory(const Outcome& run) {
  for (std::size_t rank = 0; rank < run.memory.size(); ++rank) {
    const plan::Placement& p = run.placements[rank];
    const auto differs = [&](const ArenaUse& use, std::int64_t arena, std::int64_t live, const char* where) {
      // Kinds of slabs that share a pool have the room of the largest: the topmost may be of a smaller kind.
      const bool extent = use.peak_extent <= arena && use.peak_extent * 50 >= arena * 49;
      return extent && use.peak_live == live ? std::string()
                                             : fmt::format("rank {} used {} of {} bytes {}, {} of {} live", rank,
                                                           use.peak_extent, arena, where, use.peak_live, live);
    };
    for (const std::string& text :
         {differs(run.memory[rank], p.arena_bytes, p.peak_live_bytes, "of the device"),
          differs(run.host_memory[rank], p.host.arena_bytes, p.host.peak_live_bytes, "of the host"),
          differs(run.file_memory[rank], p.nvme.arena_bytes, p.nvme.peak_live_bytes, "of files")})
      if (!text.empty()) return text;
  }
  return {};
}

Row judged(const Outcome& run, const Outcome& serial) {
  Row row;
  row.loss = loss_distance(run, serial);
  row.first = relative_distance(run.gradients.at(0), serial.gradients.at(0));
  row.last = relative_distance(run.gradients.at(19), serial.gradients.at(19));
  row.why = wrong_memory(run);
  // Not "above the bound": what is no number is not equal.
  if (row.loss <= kBound && row.first <= kBound && row.last <= kBound && row.why.empty()) row.verdict = Verdict::equal;
  return row;
}

Row run_case(const Case& one, const Outcome& serial) {
  if (one.trial.spec.mesh.ranks() > kMostRanks)
    return {Verdict::left_out, 0, 0, 0, fmt::format("{} ranks", one.trial.spec.mesh.ranks())};
  try {
    (void)plan_of(one.trial);
  } catch (const std::exception& error) {
    return {Verdict::refused, 0, 0, 0, code_in(error.what()) + " " + first_line(error.what())};
  }
  try {
    const plan::Schedule schedule = plan::lower(plan_of(one.trial));
    base::Diagnostics faults = plan::check(schedule);
    if (faults.empty()) faults = plan::rehearse(schedule);
    if (!faults.empty()) return {Verdict::different, 0, 0, 0, first_line(base::render(faults, false))};
    return judged(train(one.trial), serial);
  } catch (const std::exception& error) {
    return {Verdict::different, 0, 0, 0, first_line(error.what())};
  }
}

/// What is printed of an axis: alone, and the worst of its pairs.
struct Line {
  Row alone;
  int pairs = 0, equal = 0;
  double loss = 0, gradient = 0;
  std::map<std::string, int> refused;
};

struct Tally {
  std::map<std::string, Line> lines;
  std::map<std::string, std::string> refusals;  ///< by code: the first one's words
  int equal = 0, different = 0, refused = 0, left_out = 0;

  void note(const Case& one, const Row& row) {
    switch (row.verdict) {
      case Verdict::equal: ++equal; break;
      case Verdict::different: ++different; break;
      case Verdict::refused: ++refused; break;
      case Verdict::left_out: ++left_out; break;
    }
    const std::string code = row.verdict == Verdict::refused ? row.why.substr(0, row.why.find(' ')) : "ranks";
    if (row.verdict == Verdict::refused)
      refusals.try_emplace(code, fmt::format("{} ({})", row.why.substr(row.why.find(": ") + 2), one.name()));
    for (const Axis* axis : one.axes) {
      Line& line = lines[axis->name];
      if (one.axes.size() == 1) {
        line.alone = row;
      } else if (row.verdict == Verdict::refused || row.verdict == Verdict::left_out) {
        ++line.refused[code];
      } else {
        ++line.pairs;
        line.equal += row.verdict == Verdict::equal ? 1 : 0;
        line.loss = std::max(line.loss, row.loss);
        line.gradient = std::max({line.gradient, row.first, row.last});
      }
    }
  }
};

void print_row(const Case& one, const Row& row, double seconds) {
  const std::string name = fmt::format("{:<44} {:>2} ranks", one.name(), one.trial.spec.mesh.ranks());
  switch (row.verdict) {
    case Verdict::refused: fmt::print("  {}  refused    {}\n", name, row.why); break;
    case Verdict::left_out: fmt::print("  {}  left out   {}\n", name, row.why); break;
    case Verdict::equal:
    case Verdict::different:
      fmt::print("  {}  {}  loss {:.1e}  gradient {:.1e} {:.1e}  {:.1f} s  {}\n", name,
                 row.verdict == Verdict::equal ? "equal    " : "DIFFERENT", row.loss, row.first, row.last, seconds,
                 row.why);
  }
  std::fflush(stdout);
}

void print_table(const char* model, const Tally& tally) {
  fmt::print(
      "\n| {}: axis | alone: loss | gradient, steps 1 and 20 | pairs equal | their worst loss | gradient | refused |\n"
      "|---|---|---|---|---|---|---|\n",
      model);
  for (const Axis& axis : axes()) {
    const auto found = tally.lines.find(axis.name);
    if (found == tally.lines.end()) continue;
    const Line& line = found->second;
    std::string refused;
    for (const auto& [code, count] : line.refused)
      refused += fmt::format("{}{} {}", refused.empty() ? "" : ", ", count, code);
    const std::string alone =
        line.alone.verdict == Verdict::refused
            ? line.alone.why.substr(0, line.alone.why.find(' ')) + " | "
            : fmt::format("{:.1e} | {:.1e}, {:.1e}", line.alone.loss, line.alone.first, line.alone.last);
    fmt::print("| {} | {} | {} of {} | {:.1e} | {:.1e} | {} |\n", axis.name, alone, line.equal, line.pairs, line.loss,
               line.gradient, refused);
  }
  fmt::print("\n{}: {} equal, {} different, {} refused, {} of more than {} ranks\n", model, tally.equal,
             tally.different, tally.refused, tally.left_out, kMostRanks);
  for (const auto& [code, words] : tally.refusals) fmt::print("  {}  {}\n", code, words);
}

/// Returns how many cases differ.
int run_model(const Named& model, const Options& options) {
  Trial base = model.make();
  base.model.dropout = {options.dropout, options.dropout, options.dropout};
  Outcome serial;
  try {
    serial = train(base);
  } catch (const std::exception& error) {
    fmt::print("{}: its serial run failed: {}\n", model.name, first_line(error.what()));
    return 1;
  }
  Tally tally;
  const std::vector<Case> cases = cases_of(base, options);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (static_cast<int>(i) % options.parts != options.part - 1) continue;
    const auto begin = std::chrono::steady_clock::now();
    const Row row = run_case(cases[i], serial);
    print_row(cases[i], row, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    tally.note(cases[i], row);
  }
  print_table(model.name, tally);
  return tally.different;
}

// The command masks words of a text, whose bytes come before [CLS], [SEP] and [MASK]; the golden tokens have no words.
Trial for_the_command(const Named& model, const std::filesystem::path& folder) {
  Trial trial = model.make();
  if (trial.model.masked_fraction <= 0) return trial;
  const std::filesystem::path text = std::filesystem::absolute(folder) / "text.txt";
  std::ofstream out(text);
  for (int line = 0; line < 1000; ++line)
    out << fmt::format("Planet {} goes round in {} days, and {} moons round it. ", line, line * line % 977, line % 7);
  trial.training.data = text.string();
  trial.model.vocab = 256 + 3;
  return trial;
}

// For the command: plans that carry all they need, as `orrery train --verify-serial` takes them.
int write_plans(const Named& model, const Options& options) {
  Options alone = options;
  alone.alone = true;
  for (const Case& one : cases_of(for_the_command(model, options.write), alone)) {
    std::string name = one.name();
    std::replace(name.begin(), name.end(), ' ', '-');
    try {
      std::ofstream(std::filesystem::path(options.write) / fmt::format("{}-{}.yaml", model.name, name))
          << plan_text(one.trial);
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}: {}\n", name, first_line(error.what()));
    }
  }
  return 0;
}

int usage(const char* wrong) {
  fmt::print(
      stderr,
      "equal_matrix: {}\nusage: equal_matrix [--models gpt,llama,bert,encoder] [--alone] [--only TEXT] [--part I/N] "
      "[--list] [--write FOLDER] [--dropout RATE]\n",
      wrong);
  return kUsage;
}

int main_of(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const bool more = i + 1 < count;
    if (word == "--alone") {
      options.alone = true;
    } else if (word == "--list") {
      options.list = true;
    } else if (word == "--only" && more) {
      options.only = words[++i];
    } else if (word == "--dropout" && more) {
      options.dropout = std::strtod(words[++i], nullptr);
    } else if (word == "--write" && more) {
      options.write = words[++i];
    } else if (word == "--part" && more) {
      if (std::sscanf(words[++i], "%d/%d", &options.part, &options.parts) != 2 || options.part < 1 ||
          options.part > options.parts)
        return usage("--part wants I/N, I from 1");
    } else if (word == "--models" && more) {
      options.models.clear();
      std::string list = words[++i];
      for (char* name = std::strtok(list.data(), ","); name != nullptr; name = std::strtok(nullptr, ","))
        options.models.emplace_back(name);
    } else {
      return usage(words[i]);
    }
  }
  int different = 0;
  for (const std::string& name : options.models) {
    const auto model = std::find_if(kModels.begin(), kModels.end(), [&](const Named& m) { return name == m.name; });
    if (model == kModels.end()) return usage(("no model " + name).c_str());
    if (options.list) {
      for (const Case& one : cases_of(model->make(), options)) fmt::print("{}: {}\n", name, one.name());
    } else if (!options.write.empty()) {
      different += write_plans(*model, options);
    } else {
      different += run_model(*model, options);
    }
  }
  return different == 0 ? kOk : kCheckFailed;
}

}  // namespace
}  // namespace orrery::exec::testing

int main(int count, char** words) {
  return orrery::exec::testing::main_of(count, words);
}
