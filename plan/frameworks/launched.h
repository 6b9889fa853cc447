#pragma once
/// How many processes a command starts: the numbers of torchrun, deepspeed, srun, mpirun and of `#SBATCH` lines.
#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "plan/frameworks/settings.h"
#include "plan/frameworks/shell.h"
#include "plan/spec/words.h"

namespace orrery::plan {

/// 0: it is not said.
struct Launched {
  int ranks = 0, per_node = 0;
};

/// Processes and GPUs that are asked for; 0: not said.
struct Asked {
  std::int64_t nodes = 0, per_node = 0, tasks = 0, gpus = 0;
};

/// "8", "2-4" (the least), "1:4" and "gpu:a100:8" (the last); 0: it cannot be told.
[[nodiscard]] inline std::int64_t launched_number(std::string_view word) {
  word = word.substr(0, word.find(','));
  word = word.substr(word.find_last_of(':') + 1);  // npos + 1 is 0
  word = word.substr(0, word.find('-'));
  double value = 0;
  if (!read_number(word, value) || value < 1 || value > static_cast<double>(kMostRanks)) return 0;
  return static_cast<std::int64_t>(value);
}

/// What a word asks for where the words of a launcher are `names`: "--nodes=4", "--nodes 4", "-N4", "-N 4". Whether it
/// is one of them; then `value` is 0 if the number cannot be told.
[[nodiscard]] inline bool launcher_option(const std::vector<std::string>& words, std::size_t at,
                                          std::initializer_list<std::string_view> names, std::int64_t& value) {
  const std::string_view word = words[at];
  for (const std::string_view name : names) {
    if (!word.starts_with(name)) continue;
    const std::string_view rest = word.substr(name.size());
    const bool is_short = name.size() == 2;
    if (rest.empty())
      value = at + 1 < words.size() ? launched_number(words[at + 1]) : 0;
    else if (rest.front() == '=')
      value = launched_number(rest.substr(1));
    else if (is_short && std::isdigit(static_cast<unsigned char>(rest.front())) != 0)
      value = launched_number(rest);
    else
      continue;
    return true;
  }
  return false;
}

/// Slurm's words, which srun and `#SBATCH` lines share.
inline void slurm_option(const std::vector<std::string>& words, std::size_t at, Asked& tasks, Asked& devices) {
  std::int64_t value = 0;
  if (launcher_option(words, at, {"--nodes", "-N"}, value)) tasks.nodes = devices.nodes = value;
  if (launcher_option(words, at, {"--ntasks", "-n"}, value)) tasks.tasks = value;
  if (launcher_option(words, at, {"--ntasks-per-node"}, value)) tasks.per_node = value;
  if (launcher_option(words, at, {"--gpus-per-node"}, value)) devices.per_node = value;
  if (launcher_option(words, at, {"--gres"}, value) && value > 0) {
    const std::string& where = words[at].size() > 6 ? words[at] : words[at + 1];
    if (where.find("gpu") != std::string::npos) devices.per_node = value;
  }
  if (launcher_option(words, at, {"--gpus", "-G"}, value)) devices.gpus = value;
}

/// The words of `#SBATCH` lines.
[[nodiscard]] inline std::vector<std::string> batch_words(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t line = 0; line < text.size();) {
    const std::size_t end = std::min(text.find('\n', line), text.size());
    const std::string_view one = text.substr(line, end - line);
    line = end + 1;
    if (!one.starts_with("#SBATCH")) continue;
    std::string word;
    for (const char c : one.substr(7)) {
      if (c == '#') break;  // a comment
      if (std::isspace(static_cast<unsigned char>(c)) == 0) {
        word += c;
      } else if (!word.empty()) {
        out.push_back(std::move(word));
        word.clear();
      }
    }
    if (!word.empty()) out.push_back(std::move(word));
  }
  return out;
}

/// torchrun's own numbers win over srun's, which start it once a node; where srun or mpirun starts the program itself,
/// their tasks are the ranks.
[[nodiscard]] inline Launched launched_by(const std::vector<TracedText>& command, std::string_view script) {
  Asked own, tasks, devices, batch;  // of torchrun and deepspeed; of srun and mpirun; GPUs; of `#SBATCH` lines
  const std::vector<std::string> lines = batch_words(script);
  for (std::size_t i = 0; i < lines.size(); ++i) slurm_option(lines, i, batch, devices);
  std::vector<std::string> words;
  for (const TracedText& one : command) words.push_back(one.text);
  enum { nobody, slurm, mpi, torch } tool = nobody;
  bool starts_itself = false, has_own = false, knows_nodes = true;
  for (std::size_t i = 0; i < words.size() && !words[i].ends_with(".py"); ++i) {
    const std::string name = words[i].substr(words[i].find_last_of('/') + 1);
    if (name == "srun") tool = slurm, starts_itself = true;
    if (name == "mpirun" || name == "mpiexec") tool = mpi, starts_itself = true;
    if (name == "torchrun" || name == "deepspeed" || name == "torch.distributed.run" ||
        name == "torch.distributed.launch")
      tool = torch, has_own = true;
    std::int64_t value = 0;
    if (launcher_option(words, i, {"--nnodes", "--num_nodes"}, value)) {
      has_own = true, own.nodes = value;
      knows_nodes = value > 0;
    }
    if (launcher_option(words, i, {"--nproc_per_node", "--nproc-per-node", "--num_gpus"}, value))
      has_own = true, own.per_node = value;
    if (tool == slurm) slurm_option(words, i, tasks, devices);
    if (tool == mpi) {
      if (launcher_option(words, i, {"-np", "--np", "-n", "--n"}, value)) tasks.tasks = value;
      if (launcher_option(words, i, {"-N", "-npernode", "--npernode", "-ppn"}, value)) tasks.per_node = value;
    }
  }
  const std::int64_t nodes = own.nodes > 0     ? own.nodes
                             : tasks.nodes > 0 ? tasks.nodes
                             : batch.nodes > 0 ? batch.nodes
                                               : 0;
  if (devices.per_node == 0 && devices.gpus > 0 && nodes > 0 && devices.gpus % nodes == 0)
    devices.per_node = devices.gpus / nodes;
  std::int64_t ranks = 0, per_node = 0;
  const auto by_node = [&](std::int64_t each) {
    per_node = each;
    ranks = each * (nodes > 0 ? nodes : knows_nodes ? 1 : 0);
  };
  if (has_own) {
    if (own.per_node > 0)
      by_node(own.per_node);
    else
      by_node(std::max(devices.per_node, batch.per_node));
    // nodes that only a run can tell, of so many GPUs in all
    if (ranks == 0) ranks = devices.gpus;
  } else if (starts_itself && tasks.tasks > 0) {
    ranks = tasks.tasks;
    per_node = tasks.per_node > 0 ? tasks.per_node : nodes > 0 && ranks % nodes == 0 ? ranks / nodes : 0;
  } else if (starts_itself && tasks.per_node > 0) {
    by_node(tasks.per_node);
  } else if (starts_itself && batch.tasks > 0) {
    ranks = batch.tasks;
    per_node = nodes > 0 && ranks % nodes == 0 ? ranks / nodes : 0;
  } else if (devices.gpus > 0) {
    ranks = devices.gpus, per_node = devices.per_node;
  } else {
    by_node(std::max(devices.per_node, batch.per_node));
    if (ranks == 0) ranks = batch.tasks;
  }
  if (ranks > kMostRanks) return {};
  return {static_cast<int>(ranks), static_cast<int>(per_node)};
}

}  // namespace orrery::plan
