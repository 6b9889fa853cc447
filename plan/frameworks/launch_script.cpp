// Finds the command that trains in scripts, and tells its own flags from those of what launches it.
#include "plan/frameworks/launch_script.h"

#include <fmt/format.h>

#include <cctype>
#include <map>
#include <set>

#include "plan/frameworks/launched.h"
#include "plan/frameworks/shell.h"

namespace orrery::plan {
namespace {

constexpr std::size_t kMostScript = std::size_t{1} << 20;

bool begins_flag(const std::string& word) {
  return word.size() > 2 && word.starts_with("--") && std::isalpha(static_cast<unsigned char>(word[2])) != 0;
}

const std::set<std::string_view>& megatron_keys() {
  static const std::set<std::string_view> all = [] {
    std::set<std::string_view> out;
    for (const Setting& one : megatron_settings_table()) out.insert(one.key);
    return out;
  }();
  return all;
}

int known_flags(const std::vector<TracedText>& words) {
  int out = 0;
  for (const TracedText& one : words)
    if (begins_flag(one.text)) out += megatron_keys().contains(one.text.substr(2, one.text.find('=') - 2)) ? 1 : 0;
  return out;
}

/// Arguments of torchrun, deepspeed, srun and mpirun, which stand before the program.
const std::set<std::string, std::less<>> kLauncher = {"nproc_per_node",
                                                      "nproc-per-node",
                                                      "nnodes",
                                                      "node_rank",
                                                      "node-rank",
                                                      "master_addr",
                                                      "master-addr",
                                                      "master_port",
                                                      "master-port",
                                                      "rdzv_endpoint",
                                                      "rdzv-endpoint",
                                                      "rdzv_backend",
                                                      "rdzv-backend",
                                                      "rdzv_id",
                                                      "rdzv-id",
                                                      "max_restarts",
                                                      "max-restarts",
                                                      "tee",
                                                      "num_nodes",
                                                      "num_gpus",
                                                      "hostfile",
                                                      "force_multi",
                                                      "include",
                                                      "exclude",
                                                      "ntasks",
                                                      "ntasks-per-node",
                                                      "nodes",
                                                      "gpus-per-node",
                                                      "jobid",
                                                      "wait",
                                                      "kill-on-bad-exit",
                                                      "no_python",
                                                      "no_local_rank",
                                                      "launcher",
                                                      "bind_cores_to_rank",
                                                      "role",
                                                      "log_dir",
                                                      "log-dir",
                                                      "redirects",
                                                      "rdzv_conf",
                                                      "standalone",
                                                      "local-addr",
                                                      "local_addr",
                                                      "container-image",
                                                      "container-mounts",
                                                      "export",
                                                      "cpu-bind",
                                                      "mpi",
                                                      "label",
                                                      "unbuffered",
                                                      "output",
                                                      "error",
                                                      "gres"};

/// The flags of a command, with what belongs to its launcher apart.
struct CommandLine {
  std::vector<Given> flags, launcher;  ///< numbers of the latter are read by launched_by
  std::vector<GivenValue> stray;       ///< words that nothing is known of: variables that are set nowhere
};

/// Places of a text's bytes, as place_in finds them, in one pass over the text.
class Places {
 public:
  Places(std::string_view text, const std::string& file) : file_(file), places_(text.size() + 1) {
    int line = 1, column = 1;
    for (std::size_t i = 0; i <= text.size(); ++i) {
      places_[i] = {line, column};
      if (i == text.size()) break;
      const bool ends = text[i] == '\n';
      const bool begins = i + 1 == text.size() || (static_cast<unsigned char>(text[i + 1]) & 0xC0U) != 0x80U;
      line += ends ? 1 : 0;
      column = ends ? 1 : column + (begins ? 1 : 0);
    }
  }
  [[nodiscard]] base::Location at(std::size_t offset) const {
    const auto [line, column] = places_[std::min(offset, places_.size() - 1)];
    return {file_, line, column, 1};
  }

 private:
  const std::string& file_;
  std::vector<std::pair<int, int>> places_;
};

CommandLine command_line(const std::vector<TracedText>& words, std::string_view text, const std::string& file) {
  CommandLine out;
  const Places places(text, file);
  std::size_t program = 0;
  for (std::size_t i = 0; i < words.size(); ++i)
    if (words[i].text.ends_with(".py")) {
      program = i;
      break;
    }
  std::vector<Given>* into = nullptr;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const TracedText& word = words[i];
    const auto where = [&](std::size_t at) {
      return places.at(word.from.empty() ? 0 : word.from[std::min(at, word.from.size() - 1)]);
    };
    if (begins_flag(word.text)) {
      const std::size_t equals = word.text.find('=');
      Given one{word.text.substr(2, equals == std::string::npos ? equals : equals - 2), where(0), {}};
      one.where.length = static_cast<int>(one.key.size()) + 2;
      if (equals != std::string::npos)
        one.values.push_back(
            {word.text.substr(equals + 1), where(equals + 1), hole_in(std::string_view(word.text).substr(equals + 1))});
      into = (i < program && kLauncher.contains(one.key)) ||
                     (kLauncher.contains(one.key) && !megatron_keys().contains(one.key))
                 ? &out.launcher
             : i < program ? nullptr
                           : &out.flags;
      if (into != nullptr) into->push_back(std::move(one));
      continue;
    }
    const std::string missing = hole_in(word.text);
    GivenValue value{word.text, where(0), missing};
    value.where.length = std::max(1, static_cast<int>(missing.empty() ? word.text.size() : missing.size()));
    const bool whole = !missing.empty() && word.text.size() == missing.size() + 2;
    if (i == program && program > 0) {
      into = nullptr;
    } else if (into == nullptr || into->empty()) {
      if (i > program && whole) out.stray.push_back(std::move(value));
    } else if (whole && !into->back().values.empty()) {
      if (into == &out.flags) out.stray.push_back(std::move(value));
    } else {
      into->back().values.push_back(std::move(value));
    }
  }
  return out;
}

base::Diagnostics no_command(const ShellScript& script, const RunFile& file) {
  if (!script.sourced.empty())
    return {run_problem("E0651", place_in(file.text, file.name, script.sourced.front().second),
                        fmt::format("this script launches nothing itself: it leaves that to {}",
                                    base::quoted(file_name(script.sourced.front().first))),
                        fmt::format("give that file too: orrery import {} {}", file_name(file.name),
                                    file_name(script.sourced.front().first)))};
  return {run_problem("E0651", {file.name, 1, 1, 1},
                      file.text.empty() ? "the file is empty" : "no command here trains with Megatron-LM's flags",
                      "a launch script of pretrain_gpt.py, or its arguments (--num-layers 12 …)")};
}

}  // namespace

base::Result<ScriptSettings> script_settings(const std::vector<RunFile>& scripts, const RunQuestion& question) {
  std::map<std::string, std::string> others;
  for (const RunFile& one : scripts) {
    if (one.text.size() > kMostScript)
      return base::fail(
          {run_problem("E0651", {one.name, 1, 1, 1}, "the file is longer than a launch script, 1 MiB", "")});
    others[file_name(one.name)] = one.text;
  }
  base::Diagnostics refused;
  for (const RunFile& file : scripts) {
    std::map<std::string, std::string> rest = others;
    rest.erase(file_name(file.name));
    ShellScript script = read_shell(file.text, file.name, question.set, rest);
    if (!script.errors.empty()) return base::fail(std::move(script.errors));
    ScriptSettings out;
    const ShellCommand* best = nullptr;
    int most = 2;  // fewer known flags are another program's
    for (const ShellCommand& one : script.commands)
      if (const int known = known_flags(one.words); known > most) most = known, best = &one;
    std::vector<TracedText> words;
    if (best != nullptr) words = best->words;
    if (best == nullptr) {  // a file of arguments: each line is a command of its own
      for (const ShellCommand& one : script.commands)
        if (begins_flag(one.words.front().text)) words.insert(words.end(), one.words.begin(), one.words.end());
      if (known_flags(words) < 3) words.clear();
    }
    if (words.empty()) {  // what its variables hold, where the command is out of reach
      std::string names;
      for (const auto& [name, value] : script.variables) {
        std::vector<TracedText> own;
        std::size_t begin = 0;
        for (std::size_t at = 0; at <= value.text.size(); ++at) {
          const bool space = at == value.text.size() || std::isspace(static_cast<unsigned char>(value.text[at])) != 0;
          if (!space) continue;
          if (at > begin) own.push_back(value.part(begin, at));
          begin = at + 1;
        }
        if (known_flags(own) == 0) continue;
        names += (names.empty() ? "" : ", ") + name;
        words.insert(words.end(), own.begin(), own.end());
      }
      if (known_flags(words) < 3) words.clear();
      if (!words.empty()) out.assumed.push_back("no command was found; the flags are those of the variables " + names);
    }
    if (words.empty()) {
      const base::Diagnostics why = no_command(script, file);
      refused.insert(refused.end(), why.begin(), why.end());
      continue;
    }
    CommandLine line = command_line(words, file.text, file.name);
    out.given = std::move(line.flags);
    out.stray = std::move(line.stray);
    const Launched launched = launched_by(words, file.text);
    out.ranks = launched.ranks, out.per_node = launched.per_node;
    for (const Given& one : out.given)
      if (one.key == "deepspeed_config" && !one.values.empty()) {
        const auto found = script.documents.find(one.values.front().text);
        out.configured.reset();
        if (found == script.documents.end()) {
          out.configured = one.values.front();
          continue;
        }
        const TracedText& body = found->second;
        const int line_of = body.from.empty() ? 1 : place_in(file.text, file.name, body.from.front()).line;
        out.deepspeed.assign(static_cast<std::size_t>(line_of) - 1, '\n');
        for (std::size_t i = 0; i < body.text.size(); ++i)
          if (body.text[i] != kHole) out.deepspeed += body.text[i];
      }
    return out;
  }
  return base::fail(std::move(refused));
}

}  // namespace orrery::plan
