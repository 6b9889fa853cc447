// Compares devices, cores, memory, disk, driver and worker with what a plan needs.
#include "apps/verbs/train/preflight.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/catalog.h"
#include "base/units.h"
#include "cost/estimate/estimate.h"
#include "cost/run/checkpoint.h"
#include "exec/probe/capabilities.h"
#include "exec/probe/gpus.h"
#include "exec/probe/memory.h"
#include "plan/schedule/place.h"

namespace orrery::apps {
namespace fs = std::filesystem;
namespace {

constexpr int kMostOnOne = 8;  // ranks on a core, or on a GPU; more are taken for a mistake

std::string amount_of(double bytes) {
  return base::human(base::Bytes{bytes});
}

class Checks {
 public:
  Checks(const LoadedPlan& loaded, const std::string& file, bool oversubscribe)
      : loaded_(loaded), file_(file), oversubscribe_(oversubscribe), ranks_(loaded.file.spec.mesh.ranks()) {}

  /// False: this machine cannot run the plan at all, and the rest need not be checked.
  bool devices(const exec::GpuReport& gpus) {
    const auto count = static_cast<int>(gpus.gpus.size());
    const std::string wants = fmt::format("{} x {}", ranks_, loaded_.file.cluster.device().name);
    if (count == 0) {
      note("devices", wants, "no GPU: " + gpus.reason, Need::Verdict::missing);
      say(base::Severity::error, "R0010", fmt::format("the plan is for {}, but this machine has no GPU", wants),
          "run it on a machine that has them, export it with `orrery export PLAN --as megatron`, or plan for this "
          "machine's cores with `cluster: localhost-2`");
      return false;
    }
    driver(gpus);
    const std::string& name = gpus.gpus.front().name;
    share("devices", wants, fmt::format("{} x {}", count, name), "GPU", count);
    return ranks_ <= kMostOnOne * count || oversubscribe_;
  }

  bool cores() {
    const int count = exec::usable_cores();
    share("cores", fmt::format("{}, one core each", base::count_of(ranks_, "rank")),
          base::count_of(count, "usable core"), "core", count);
    return ranks_ <= kMostOnOne * count || oversubscribe_;
  }

  /// Compares `has` bytes with what `ranks` of the plan's ranks need.
  void memory(double has, int ranks, const std::string& of) {
    if (has <= 0) return;
    const cost::Pricing pricing(std::make_shared<const clusters::Cluster>(loaded_.file.cluster), loaded_.stack, {});
    const double needs = ranks * needs_of_rank(pricing);
    const std::string wants = fmt::format("{} for {}", amount_of(needs), base::count_of(ranks, "rank"));
    const bool enough = needs <= has;
    note("memory", wants, fmt::format("{} of {}", amount_of(has), of),
         enough           ? Need::Verdict::ok
         : oversubscribe_ ? Need::Verdict::poor
                          : Need::Verdict::missing);
    if (enough) return;
    say(oversubscribe_ ? base::Severity::warning : base::Severity::error, "R0013",
        fmt::format("the run is predicted to need {}, but {} has {}", wants, of, amount_of(has)),
        loaded_.file.model.recommender
            ? "smaller tables, or tables on NVMe (`embedding: {tiers: ...}`), need less; --oversubscribe tries it "
              "anyway"
            : "fewer ranks, a smaller micro-batch or recomputation need less; --oversubscribe tries it anyway");
  }

  /// Bytes. Recommendation models have no closed form: what the placement of their buffers takes. On CPU ranks the
  /// memory of a device and of its host are one.
  [[nodiscard]] double needs_of_rank(const cost::Pricing& pricing) const {
    if (!loaded_.file.model.recommender)
      return cost::Estimator(std::make_shared<const models::Model>(loaded_.file.model), pricing)
          .memory_peak(loaded_.plan);
    const bool one_memory = loaded_.file.cluster.device().kind == clusters::DeviceKind::cpu;
    std::int64_t most = 0;
    for (const plan::RankClass& of : lower_for(loaded_.plan, loaded_.stack).classes) {
      const plan::Placement placed = plan::sizes_of(of);
      most = std::max(most, placed.arena_bytes + (one_memory ? placed.host.arena_bytes : 0));
    }
    return static_cast<double>(most) + pricing.software_memory().value;
  }

  /// Space for the checkpoints that are kept, and the one being written.
  void disk(const std::string& run) {
    std::error_code error;
    fs::path folder = fs::absolute(run, error);
    while (!fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
    const fs::space_info space = fs::space(folder, error);
    if (error) return;
    const std::vector<double> by_rank = cost::checkpoint_bytes_by_rank(lower_for(loaded_.plan, loaded_.stack));
    const double one = std::accumulate(by_rank.begin(), by_rank.end(), 0.0);
    const auto free = static_cast<double>(space.available);
    const bool fits = one <= free;
    note("disk", fmt::format("{} a checkpoint", amount_of(one)),
         fmt::format("{} free in {}", amount_of(free), folder.string()),
         fits ? Need::Verdict::ok : Need::Verdict::missing);
    if (!fits)
      say(base::Severity::error, "R0014",
          fmt::format("a checkpoint takes {}, but {} has {} free", amount_of(one), folder.string(), amount_of(free)),
          "choose another --run, or free some space");
  }

  void worker() {
    const fs::path path = program_folder() / "orrery-worker";
    const bool there = ::access(path.c_str(), X_OK) == 0;
    note("worker", "orrery-worker", there ? path.string() : "not beside the command",
         there ? Need::Verdict::ok : Need::Verdict::missing);
    if (!there)
      say(base::Severity::error, "R0004", path.string() + " does not exist",
          "install MPI and BLAS (scripts/install-packages demo) and build again");
  }

  [[nodiscard]] Preflight take() { return std::move(found_); }

 private:
  void note(std::string what, std::string needs, std::string found, Need::Verdict verdict) {
    found_.needs.push_back({std::move(what), std::move(needs), std::move(found), verdict});
  }
  void say(base::Severity severity, const char* code, std::string message, std::string help) {
    found_.findings.push_back({severity, code, {file_, 1, 1, 1}, std::move(message), std::move(help), {}});
  }

  void driver(const exec::GpuReport& gpus) {
    note("driver", "CUDA", fmt::format("CUDA {}", gpus.cuda_driver), Need::Verdict::ok);
    const std::string& planned = loaded_.file.cluster.device().name;
    const std::string& here = gpus.gpus.front().name;
    const double memory = loaded_.file.cluster.device().memory.value;
    if (static_cast<double>(gpus.gpus.front().memory_bytes) < 0.9 * memory)
      say(base::Severity::warning, "R0015",
          fmt::format("the plan is for {} with {}, but this machine has {} with {}", planned, amount_of(memory), here,
                      amount_of(static_cast<double>(gpus.gpus.front().memory_bytes))),
          "`orrery probe --backend cuda --cluster NAME` describes this machine; plan for that");
  }

  /// More ranks than places.
  void share(const char* what, const std::string& needs, const std::string& has, const char* place, int count) {
    if (ranks_ <= count) return note(what, needs, has, Need::Verdict::ok);
    const bool too_many = ranks_ > kMostOnOne * count;
    const bool refused = too_many && !oversubscribe_;
    note(what, needs, has, refused ? Need::Verdict::missing : Need::Verdict::poor);
    if (refused)
      say(base::Severity::error, "R0012",
          fmt::format("{} ranks on {}: more than {} on one", ranks_, base::count_of(count, place), kMostOnOne),
          "plan for fewer ranks, or use --oversubscribe if the time does not matter");
    else
      say(base::Severity::warning, "R0011",
          fmt::format("{} ranks share {}: measured times will mean little", ranks_, base::count_of(count, place)),
          fmt::format("`orrery plan JOB --gpus {}` plans for what is here", count));
  }

  const LoadedPlan& loaded_;
  const std::string& file_;
  bool oversubscribe_;
  int ranks_;
  Preflight found_;
};

const char* word_of(Need::Verdict verdict) {
  return verdict == Need::Verdict::ok ? "ok" : verdict == Need::Verdict::poor ? "poor" : "missing";
}

}  // namespace

bool Preflight::missing() const {
  return std::any_of(needs.begin(), needs.end(), [](const Need& one) { return one.verdict == Need::Verdict::missing; });
}

Preflight preflight(const LoadedPlan& loaded, const std::string& file, const std::string& run, bool oversubscribe) {
  Checks checks(loaded, file, oversubscribe);
  const int ranks = loaded.file.spec.mesh.ranks();
  checks.worker();
  if (loaded.file.cluster.device().kind != clusters::DeviceKind::cpu) {
    const exec::GpuReport gpus = exec::find_gpus();
    if (!checks.devices(gpus)) return checks.take();
    const auto count = static_cast<int>(gpus.gpus.size());
    checks.memory(static_cast<double>(gpus.gpus.front().memory_bytes), (ranks + count - 1) / count, "a GPU here");
  } else {
    if (!checks.cores()) return checks.take();
    checks.memory(exec::memory_here().bytes, ranks, "this machine");
  }
  checks.disk(run);
  return checks.take();
}

reports::Table preflight_table(const Preflight& found) {
  reports::Table table;
  table.title = "Before the run";
  table.columns = {{"", reports::Align::left},
                   {"is", reports::Align::left},
                   {"the plan needs", reports::Align::left},
                   {"here", reports::Align::left}};
  for (const Need& one : found.needs) table.rows.push_back({one.what, word_of(one.verdict), one.needs, one.found});
  return table;
}

nlohmann::json preflight_json(const Preflight& found) {
  nlohmann::json out = nlohmann::json::array();
  for (const Need& one : found.needs)
    out.push_back({{"what", one.what}, {"verdict", word_of(one.verdict)}, {"needs", one.needs}, {"found", one.found}});
  return out;
}

}  // namespace orrery::apps
