// Flags of the worker, parsed by hand: the command line library is heavy and used only by the command.
#include "apps/worker/options.h"

#include <charconv>
#include <cmath>
#include <functional>
#include <map>

namespace orrery::worker {
namespace {

bool read_number(const std::string& text, std::int64_t low, std::int64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && out >= low;
}

bool read_unsigned(const std::string& text, std::uint64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

bool read_temperature(const std::string& text, double& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(out) && out >= 0;
}

bool read_steps(const std::string& text, std::set<std::int64_t>& out) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::int64_t step = 0;
    if (!read_number(text.substr(begin, end - begin), 1, step)) return false;
    out.insert(step);
    begin = end + 1;
  }
  return true;
}

}  // namespace

const char* usage() {
  return "usage: mpiexec -n RANKS orrery-worker --plan FILE --run DIR [--steps N] [--backend cpu|cuda] [--threads K]\n"
         "         [--resume|--overwrite] [--no-checkpoint] [--checkpoint-every N] [--checkpoint-interval SECONDS]\n"
         "         [--keep N] [--hash-every N] [--on-spike warn|stop] [--dump-gradients STEP,STEP…] [--run-id TEXT]\n"
         "         [--transport mpi|threads] [--deadline SECONDS] [--recompute-whole-layer] [--progress-thread]\n"
         "         [--serial] [--check-memory] [--no-graphs] [--no-queued-messages] [--no-repeat]\n"
         "   or: orrery-worker --sample --run DIR [--prompt TEXT] [--tokens N] [--temperature T] [--top-k K] [--seed "
         "S]\n"
         "         [--tokenizer PATH] [--threads K]\n"
         "   or: mpiexec -n RANKS orrery-worker --probe [--backend cpu|cuda] [--budget SECONDS] [--most-bytes N]\n"
         "         [--stream-bytes N] [--transport mpi|threads]\n";
}

base::Result<Options> parse_options(int count, char** arguments) {
  Options o;
  std::int64_t threads = 0;
  std::int64_t deadline = o.deadline.count();
  std::int64_t interval = o.checkpoint_interval.count();
  const auto text = [](std::string& into) {
    return [&into](const std::string& v) {
      into = v;
      return !v.empty();
    };
  };
  const auto whole = [](std::int64_t& into, std::int64_t low) {
    return [&into, low](const std::string& v) { return read_number(v, low, into); };
  };
  const std::map<std::string, std::function<bool(const std::string&)>> valued = {
      {"--plan", text(o.plan)},
      {"--run", text(o.run)},
      {"--run-id", text(o.run_id)},
      {"--backend", text(o.backend)},
      {"--transport", text(o.transport)},
      {"--steps", whole(o.steps, 1)},
      {"--threads", whole(threads, 1)},
      {"--checkpoint-every", whole(o.checkpoint_every, 1)},
      {"--checkpoint-interval", whole(interval, 0)},
      {"--keep", whole(o.keep, 1)},
      {"--hash-every", [&o](const std::string& v) { return read_number(v, 0, o.hash_every.emplace()); }},
      {"--on-spike",
       [&o](const std::string& v) {
         o.stop_on_spike = v == "stop";
         return v == "stop" || v == "warn";
       }},
      {"--deadline", whole(deadline, 1)},
      {"--prompt", text(o.text.prompt)},
      {"--tokenizer", text(o.text.tokenizer)},
      {"--tokens", whole(o.text.tokens, 0)},
      {"--top-k", whole(o.text.top_k, 1)},
      {"--seed", [&o](const std::string& v) { return read_unsigned(v, o.text.seed); }},
      {"--temperature", [&o](const std::string& v) { return read_temperature(v, o.text.temperature); }},
      {"--budget", whole(o.budget_s, 1)},
      {"--most-bytes", whole(o.most_bytes, 1)},
      {"--stream-bytes", whole(o.stream_bytes, 1)},
      {"--dump-gradients", [&o](const std::string& v) { return read_steps(v, o.dump_gradients); }}};
  const std::map<std::string, std::function<void()>> flags = {
      {"--resume", [&o] { o.resume = true; }},
      {"--overwrite", [&o] { o.overwrite = true; }},
      {"--probe", [&o] { o.probe = true; }},
      {"--sample", [&o] { o.sample = true; }},
      {"--no-checkpoint", [&o] { o.checkpoint = false; }},
      {"--progress-thread", [&o] { o.progress_thread = true; }},
      {"--no-graphs", [&o] { o.graphs = false; }},
      {"--no-queued-messages", [&o] { o.queue_messages = false; }},
      {"--no-repeat", [&o] { o.repeat = false; }},
      {"--recompute-whole-layer", [&o] { o.recompute_whole_layer = true; }},
      {"--zero-gradients", [&o] { o.zero_gradients = true; }},
      {"--serial", [&o] { o.serial = true; }},
      {"--check-memory", [&o] { o.check_memory = true; }}};
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    if (const auto flag = flags.find(name); flag != flags.end()) {
      flag->second();
      continue;
    }
    const auto option = valued.find(name);
    if (option == valued.end()) return base::fail("E0630", "unknown option " + name, usage());
    if (i + 1 >= count || !option->second(arguments[i + 1]))
      return base::fail("E0630", name + " needs a valid value", usage());
    ++i;
  }
  o.threads = static_cast<int>(std::min<std::int64_t>(threads, 4096));
  o.deadline = std::chrono::seconds(deadline);
  o.checkpoint_interval = std::chrono::seconds(std::min<std::int64_t>(interval, std::int64_t{1} << 30));
  if (o.backend != "cpu" && o.backend != "cuda")
    return base::fail("E0630", "--backend is cpu or cuda, found " + o.backend);
  if (o.resume && o.overwrite) return base::fail("E0630", "--resume and --overwrite exclude each other", usage());
  if (o.transport != "mpi" && o.transport != "threads")
    return base::fail("E0630", "--transport is mpi or threads, found " + o.transport);
  if (o.probe) return o;
  if (o.sample && !o.run.empty()) return o;
  if (o.plan.empty() || o.run.empty()) return base::fail("E0630", "--plan and --run are needed", usage());
  return o;
}

}  // namespace orrery::worker
