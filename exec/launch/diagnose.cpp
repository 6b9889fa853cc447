// Finds out what happened to a dead, stopped or late rank, from what it has left.
#include "exec/launch/diagnose.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

#include "exec/launch/process_tree.h"

namespace orrery::exec {
namespace {

constexpr std::chrono::milliseconds kTogether{5};  // closer ends have no known order: the launcher takes longer

std::string signal_text(int number) {
  const char* name = sigabbrev_np(number);
  return name ? fmt::format("signal {} (SIG{})", number, name) : fmt::format("signal {}", number);
}

std::string name_of_rank(const RankLine& line) {
  return line.rank ? fmt::format("rank {}", *line.rank) : fmt::format("the rank of process {}", line.process);
}

/// The number of a rank at its failure; of one that has not said it, -1.
int shown(std::optional<int> rank) {
  return rank.value_or(-1);
}

/// "in training step 3, during X", or what is known.
std::string where(const Recorded& at) {
  if (at.step == 0) return fmt::format("while {}", name_of(at.phase));
  std::string text = fmt::format("in training step {}", at.step);
  if (at.phase == RankPhase::saving) text += ", while saving";
  if (at.last.empty()) return text;
  // The message that has begun and not ended, else the latest.
  const RecordedMessage& last = at.last.back();
  text += fmt::format(", {} {}", last.ended ? "after" : "during", last.what);
  return last.micro_batch < 0 ? text : text + fmt::format(", micro-batch {}", last.micro_batch);
}

bool cleaned_up(int status) {
  return WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM);
}

std::string how(const RankLine& line, std::optional<int> status) {
  if (line.exited_with) return fmt::format("ended with exit code {} before the run was done", *line.exited_with);
  if (status && WIFSIGNALED(*status)) return "was killed by " + signal_text(WTERMSIG(*status));
  if (status && WEXITSTATUS(*status) != 0)
    return fmt::format("ended with exit code {} before the run was done", WEXITSTATUS(*status));
  // A rank that calls exit reports it; one that a signal kills cannot.
  return "ended without a message, as after SIGKILL or _exit,";
}

}  // namespace

std::vector<RankAtFailure> look_at(const Lifelines& lines, std::size_t most) {
  std::vector<RankAtFailure> out;
  for (const auto& line : lines.ranks())
    out.push_back(
        {line->rank, line->process, line->gone ? '\0' : state_of_process(line->process), line->recorder.read(most)});
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return out;
}

std::vector<int> wait_statuses_in(const std::string& line) {
  constexpr std::string_view kWords = "Exit codes: ";
  std::size_t at = line.find(kWords);
  if (line.rfind("[mpiexec", 0) != 0 || at == std::string::npos) return {};
  std::vector<int> out;
  for (at += kWords.size(); at < line.size();) {
    if (line[at] == '[') at = line.find(']', at);  // the host's ranks follow
    if (at == std::string::npos) break;
    if (line[at] < '0' || line[at] > '9') {
      ++at;
      continue;
    }
    int status = 0;
    const auto [end, error] = std::from_chars(line.data() + at, line.data() + line.size(), status);
    if (error != std::errc()) return {};
    out.push_back(status);
    at = static_cast<std::size_t>(end - line.data());
  }
  return out;
}

std::string who_died(const Lifelines& lines, const std::vector<int>& statuses) {
  std::vector<const RankLine*> gone;
  for (const auto& line : lines.ranks())
    if (line->gone && !line->done_with) gone.push_back(line.get());
  if (gone.empty()) return {};
  const auto first = (*std::min_element(gone.begin(), gone.end(), [](const RankLine* a, const RankLine* b) {
                       return a->gone_at < b->gone_at;
                     }))->gone_at;
  const auto status_of = [&](const RankLine& line) -> std::optional<int> {
    if (!line.rank || static_cast<std::size_t>(*line.rank) >= statuses.size()) return std::nullopt;
    return statuses[static_cast<std::size_t>(*line.rank)];
  };
  std::vector<const RankLine*> suspects;
  for (const RankLine* line : gone)
    if (line->gone_at - first <= kTogether) suspects.push_back(line);
  // The launcher kills the others in the same moment: if some were not killed by it, these are to blame.
  const auto by_itself = [&](const RankLine* line) {
    const auto status = status_of(*line);
    return line->exited_with || (status && *status != 0 && !cleaned_up(*status));
  };
  if (suspects.size() > 1 && std::any_of(suspects.begin(), suspects.end(), by_itself))
    suspects.erase(std::remove_if(suspects.begin(), suspects.end(), std::not_fn(by_itself)), suspects.end());
  std::vector<std::string> said;
  for (const RankLine* line : suspects)
    said.push_back(
        fmt::format("{} {} {}", name_of_rank(*line), how(*line, status_of(*line)), where(line->recorder.read(1))));
  return fmt::format("{}", fmt::join(said, "; "));
}

std::string who_holds_up(const std::vector<RankAtFailure>& ranks) {
  std::vector<std::string> said;
  for (const RankAtFailure& one : ranks)
    if (one.state == 'T' || one.state == 't')
      said.push_back(fmt::format("rank {} (process {}) is stopped by a signal {}", shown(one.rank), one.process,
                                 where(one.recorded)));
  if (!said.empty()) return fmt::format("{}", fmt::join(said, "; "));
  std::size_t waiting = 0;
  for (const RankAtFailure& one : ranks) waiting += one.recorded.waiting_for.empty() ? 0 : 1;
  if (waiting == 0) return {};
  for (const RankAtFailure& one : ranks)
    if (one.state != '\0' && one.recorded.waiting_for.empty())
      said.push_back(fmt::format("rank {} (process {}) does not reach what others wait for: {:.1f} s {}",
                                 shown(one.rank), one.process, one.recorded.in_step_s, where(one.recorded)));
  if (!said.empty()) return fmt::format("{}", fmt::join(said, "; "));
  for (const RankAtFailure& one : ranks) said.push_back("waits for " + one.recorded.waiting_for);
  return fmt::format("each rank waits for another: {}", fmt::join(said, "; "));
}

std::string write_failure(const std::string& reason, const std::vector<RankAtFailure>& ranks) {
  nlohmann::ordered_json json;
  json["format_version"] = "1.0";
  json["reason"] = reason;
  json["ranks"] = nlohmann::ordered_json::array();
  for (const RankAtFailure& one : ranks) {
    nlohmann::ordered_json rank = {{"rank", shown(one.rank)},
                                   {"process", one.process},
                                   {"process_state", one.state == '\0' ? "gone" : std::string(1, one.state)},
                                   {"phase", name_of(one.recorded.phase)},
                                   {"step", one.recorded.step},
                                   {"in_step_s", one.recorded.in_step_s},
                                   {"waiting_for", one.recorded.waiting_for},
                                   {"waiting_s", one.recorded.waiting_s}};
    rank["messages"] = nlohmann::ordered_json::array();
    for (const RecordedMessage& message : one.recorded.last)
      rank["messages"].push_back({{"s_ago", message.begun_s_ago},
                                  {"what", message.what},
                                  {"step", message.step},
                                  {"micro_batch", message.micro_batch},
                                  {"event", message.ended ? "ended" : "began"}});
    json["ranks"].push_back(std::move(rank));
  }
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace orrery::exec
