/// Reads the output of nccl-tests.
#include "cost/network/nccl_tests.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "base/findings.h"
#include "base/units.h"
#include "base/yaml.h"
#include "clusters/import/text.h"

namespace orrery::cost {
namespace {

using clusters::Lines;
using clusters::whole_number;
using clusters::Word;

constexpr double kMicro = 1e-6;
constexpr double kMostMicroseconds = 1e10;
constexpr long long kMostRowBytes = 1LL << 50;
constexpr long long kMostRanks = 1 << 20;
constexpr const char* kHelp = "measure again with nccl-tests built with MPI=1, and give its whole output";

struct TestProgram {
  std::string_view name;
  Tested tested;
  bool modelled = true;
};
constexpr TestProgram kPrograms[] = {
    {"all_reduce", Tested::all_reduce},
    {"all_gather", Tested::all_gather},
    {"reduce_scatter", Tested::reduce_scatter},
    {"broadcast", Tested::broadcast},
    {"reduce", Tested::reduce},
    {"alltoallv", Tested::all_to_all, false},
    {"alltoall", Tested::all_to_all},
    {"sendrecv", Tested::send},
    {"gather", Tested::all_gather, false},
    {"scatter", Tested::reduce_scatter, false},
    {"hypercube", Tested::all_gather, false},
};

/// Bus over algorithm bandwidth, nccl-tests doc/PERFORMANCE.md.
double factor(Tested tested, double ranks) {
  switch (tested) {
    case Tested::all_reduce: return 2 * (ranks - 1) / ranks;
    case Tested::all_gather:
    case Tested::reduce_scatter:
    case Tested::all_to_all: return (ranks - 1) / ranks;
    case Tested::broadcast:
    case Tested::reduce:
    case Tested::send: return 1;
  }
  return 1;
}

/// The program named in "…/all_reduce_perf", "all_reduce_perf_mpi"; null if the word names none.
const TestProgram* program_in(std::string_view word) {
  const std::size_t end = word.find("_perf");
  if (end == std::string_view::npos) return nullptr;
  const TestProgram* best = nullptr;
  for (const TestProgram& program : kPrograms)
    if (word.substr(0, end).ends_with(program.name) && (best == nullptr || program.name.size() > best->name.size()))
      best = &program;
  return best;
}

/// The measurements in one group of columns.
struct Figures {
  double time = 0;                ///< us; 0: missing
  double algorithm = 0, bus = 0;  ///< GB/s
  double wrong = 0;
};

/// The data common to both formats, once read.
struct Raw {
  NcclTest test;
  const TestProgram* program = nullptr;
  std::vector<std::pair<double, double>> ratios;  ///< bus and algorithm bandwidths, against which ranks are checked
  base::Location where;                           ///< of the first row
  bool sums = false;                              ///< the operation reduces
};

/// Adds a row; false if it reports wrong results.
bool add_row(Raw& raw, double bytes, const Figures (&both)[2], const base::Location& where) {
  double sum = 0;
  int count = 0;
  bool right = true;
  for (const Figures& one : both) {
    right = right && !(one.wrong > 0);
    if (!(one.time > 0)) continue;
    sum += one.time * kMicro;
    ++count;
    if (one.algorithm > 1 && one.bus > 0) raw.ratios.push_back({one.bus, one.algorithm});
  }
  if (bytes > 0 && count > 0) raw.test.sizes.push_back({bytes, sum / count, where});
  return right;
}

/// Final checks: the operation, the ranks, and that the columns agree with them.
void conclude(Raw& raw, base::Findings& findings) {
  NcclTest& test = raw.test;
  const auto error = [&](const char* code, std::string message, std::string help) {
    findings.error(code, raw.where, std::move(message), std::move(help));
  };
  std::set<int> groups, ranks;
  for (const TestedRank& rank : test.ranks) {
    groups.insert(rank.group);
    if (!ranks.insert(rank.rank).second)
      return error("E0314", fmt::format("rank {} is listed twice: several programs wrote into this log", rank.rank),
                   kHelp);
  }
  if (test.ranks.empty()) return error("E0314", "the log lists no ranks", kHelp);
  if (*ranks.rbegin() + 1 != static_cast<int>(ranks.size()))
    return error("E0314", fmt::format("ranks go up to {}, but {} are listed", *ranks.rbegin(), ranks.size()), kHelp);
  if (groups.size() > 1)
    return error("E0314", "several groups of ranks were tested at once (NCCL_TESTS_SPLIT)",
                 "what one group reaches beside others is not a property of the links: measure without it");
  if (test.sizes.empty()) return error("E0314", "the log has no measured size", kHelp);
  const double p = static_cast<double>(test.ranks.size());
  if (p < 2) return error("E0314", "a single rank has nobody to communicate with", kHelp);
  // Bandwidths are printed with two decimals, so the largest are the most precise.
  const auto best = std::max_element(raw.ratios.begin(), raw.ratios.end());
  const double ratio = best == raw.ratios.end() ? 0 : best->first / best->second;
  const double rounding = ratio > 0 ? 0.002 + 0.01 / best->first + 0.01 / best->second : 0;
  const auto fits = [&](Tested tested) { return ratio == 0 || std::abs(ratio / factor(tested, p) - 1) < rounding; };
  if (raw.program == nullptr && raw.sums && p > 2 && ratio > 0 && fits(Tested::all_reduce))
    raw.program = &kPrograms[0];  // no other operation that sums moves twice its size
  if (raw.program == nullptr)
    return error("E0314", "the log does not say which operation was tested",
                 "put the program's name into the file's name, such as all_gather_perf.log");
  if (!raw.program->modelled)
    return error("E0314", fmt::format("{}_perf measures what Orrery does not model", raw.program->name),
                 "leave this log out");
  test.operation = raw.program->tested;
  if (!fits(test.operation))
    error("E0314",
          fmt::format("bus and algorithm bandwidth differ by a factor of {:.3f}, {} over {} ranks has {:.3f}", ratio,
                      name_of(test.operation), test.ranks.size(), factor(test.operation, p)),
          "the list of ranks is incomplete, or the log is another program's");
}

// ---- text

class TextReader {
 public:
  explicit TextReader(Lines& text) : text_(text), findings_(text.findings()) {}

  Raw read(const std::string& file) {
    raw_.test.file = file;
    raw_.where = {file, 1, 1, 1};
    for (int n = 1; n <= text_.count() && !base::is_full(findings_); ++n) read_line(n);
    if (raw_.program == nullptr) raw_.program = program_in(file);
    if (findings_.failed()) return std::move(raw_);
    if (columns_.empty()) {
      findings_.error("E0314", text_.end(), "the log has no table of results", kHelp);
      return std::move(raw_);
    }
    if (!finished_) {
      findings_.warning(
          "E0308", text_.end(),
          fmt::format("the log ends before the test does; its {} complete rows are used", raw_.test.sizes.size()));
    }
    conclude(raw_, findings_);
    return std::move(raw_);
  }

 private:
  /// The prefix that mpirun --tag-output and srun --label put before every line.
  static std::size_t tag(const std::vector<Word>& words) {
    if (words.empty()) return 0;
    const std::string_view first = words[0].text;
    if (first.starts_with('[') && (first.ends_with("<stdout>:") || first.ends_with("<stderr>:"))) return 1;
    long long ignored = 0;
    return first.ends_with(':') && whole_number(first.substr(0, first.size() - 1), ignored) ? 1 : 0;
  }

  void read_line(int n) {
    std::vector<Word> words = text_.words(n);
    // "[1,0]<stdout>:#" has no blank after the tag.
    if (!words.empty()) {
      const std::size_t end = words[0].text.find("<stdout>:");
      if (words[0].text.starts_with('[') && end != std::string_view::npos && end + 9 < words[0].text.size()) {
        words[0].byte += static_cast<int>(end) + 9;
        words[0].text.remove_prefix(end + 9);
      } else {
        words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(tag(words)));
      }
    }
    if (words.empty()) return;
    if (const std::string_view line = text_.line(n); line.find("Test NCCL failure") != std::string_view::npos ||
                                                     line.find("Test CUDA failure") != std::string_view::npos)
      return findings_.error("E0314", text_.place(words[0]), "the test failed", kHelp);
    if (words[0].text == "#") return read_comment(n, words);
    if (words[0].text.starts_with("#")) return;
    if (raw_.program == nullptr && columns_.empty())
      for (const Word& word : words)
        if (raw_.program == nullptr) raw_.program = program_in(word.text);  // the command, as echoed by a shell
    long long bytes = 0;
    if (!columns_.empty() && !finished_ && whole_number(words[0].text, bytes)) read_row(n, words, bytes);
  }

  void read_comment(int n, const std::vector<Word>& words) {
    if (words.size() < 2) return;
    if (words[1].text == "Rank") return read_rank(words);
    if (words[1].text == "size") return read_header(words);
    const std::string_view line = text_.line(n);
    if (line.find("Collective test starting:") != std::string_view::npos) raw_.program = program_in(words.back().text);
    if (line.find("Out of bounds values") != std::string_view::npos) {
      finished_ = true;
      if (words.back().text == "FAILED")
        findings_.error("E0313", text_.place(words.back()), "the test found wrong results",
                        "times of a collective that computes wrongly say nothing; look for a broken link or GPU");
    }
  }

  /// "#  Rank  0 Group  0 Pid 1234 on  host device  0 [0000:07:00] NVIDIA A100-SXM4-40GB"; older versions lack the
  /// group.
  void read_rank(const std::vector<Word>& words) {
    TestedRank rank;
    long long number = 0, group = 0, device = -1;
    bool sound = words.size() > 2 && whole_number(words[2].text, number) && number < kMostRanks;
    for (std::size_t i = 3; i + 1 < words.size(); ++i) {
      if (words[i].text == "Group" && i == 3)
        sound = sound && whole_number(words[i + 1].text, group) && group < kMostRanks;
      if (words[i].text == "on" && rank.host.empty()) rank.host = std::string(words[i + 1].text);
      if (words[i].text != "device") continue;
      sound = sound && whole_number(words[i + 1].text, device) && device < kMostRanks;
      for (std::size_t k = i + 3; k < words.size(); ++k)
        rank.device_name += (rank.device_name.empty() ? "" : " ") + std::string(words[k].text);
      break;
    }
    if (!sound || rank.host.empty() || device < 0)
      return findings_.error("E0307", text_.place(words[1]),
                             "a rank is such as `Rank 0 Group 0 Pid 1234 on host device 0 [0x07] name`",
                             "nccl-tests cuts lines with many ranks: use one GPU per process (-g 1)");
    rank.rank = static_cast<int>(number);
    rank.group = static_cast<int>(group);
    rank.device = static_cast<int>(device);
    raw_.test.ranks.push_back(std::move(rank));
  }

  void read_header(const std::vector<Word>& words) {
    std::vector<std::string> columns;
    for (std::size_t i = 1; i < words.size(); ++i)
      columns.emplace_back(words[i].text == "cputime" ? "time" : words[i].text);
    stamped_ = !columns.empty() && columns.back() == "timestamp";
    if (stamped_) columns.pop_back();
    if (std::count(columns.begin(), columns.end(), "time") != 2)
      return findings_.error("E0307", text_.place(words[1]),
                             "the table has no two columns of time, out-of-place and in-place", kHelp);
    if (!columns_.empty() && columns != columns_)
      return findings_.error("E0314", text_.place(words[1]), "a second table with other columns",
                             "put each test's output into a file of its own");
    columns_ = std::move(columns);
  }

  void read_row(int n, const std::vector<Word>& words, long long bytes) {
    const bool last = text_.end().line == n;
    if (words.size() < columns_.size() || (words.size() > columns_.size() && !stamped_)) {
      if (last) return;  // the log ends within this row: a warning says so
      return findings_.error("E0307", text_.place(words[0]),
                             fmt::format("the row has {} columns, the table {}", words.size(), columns_.size()),
                             "lines of several programs are mixed, or the log was edited");
    }
    if (raw_.test.sizes.empty()) raw_.where = text_.place(words[0]);
    Figures both[2];
    int at = -1;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::string& name = columns_[c];
      if (name == "redop") raw_.sums = words[c].text != "none";
      if (name == "time") ++at;
      double* const into = at < 0             ? nullptr
                           : name == "time"   ? &both[at].time
                           : name == "algbw"  ? &both[at].algorithm
                           : name == "busbw"  ? &both[at].bus
                           : name == "#wrong" ? &both[at].wrong
                                              : nullptr;
      if (into == nullptr || words[c].text == "N/A") continue;
      if (!base::parse_number(words[c].text, *into) || *into < 0 || *into > kMostMicroseconds) {
        if (last) return;
        return findings_.error(
            "E0307", text_.place(words[c]),
            fmt::format("{} must be a number, found {}", name, base::quoted(std::string(words[c].text))));
      }
    }
    if (bytes > kMostRowBytes)
      return findings_.error("E0307", text_.place(words[0]),
                             fmt::format("a size of {} bytes is more than any memory holds", bytes));
    if (!add_row(raw_, static_cast<double>(bytes), both, text_.place(words[0])))
      findings_.error("E0313", text_.place(words[0]), "results of this size were wrong",
                      "times of a collective that computes wrongly say nothing; look for a broken link or GPU");
  }

  Lines& text_;
  base::Findings& findings_;
  Raw raw_;
  std::vector<std::string> columns_;
  bool stamped_ = false, finished_ = false;
};

// ---- JSON

void read_figures(const base::Cursor& at, Figures& figures) {
  if (!at.exists()) return;
  const base::Cursor time = at.has("cpu_time") ? at.at("cpu_time") : at.at("time");
  figures.time = time.number(0, kMostMicroseconds);
  figures.algorithm = at.at("alg_bw").number(0, kMostMicroseconds);
  figures.bus = at.at("bus_bw").number(0, kMostMicroseconds);
  const base::Cursor wrong = at.optional("nwrong");
  if (wrong.exists()) figures.wrong = wrong.number(0, 1e18);
}

Raw read_json(const base::Cursor& root, const std::string& file) {
  Raw raw;
  raw.test.file = file;
  raw.where = root.where();
  (void)root.at("version").integer(1, 3, 1);
  for (const base::Cursor& one : root.optional("args").items())
    if (raw.program == nullptr) raw.program = program_in(one.scalar_text());
  if (raw.program == nullptr) raw.program = program_in(file);
  const base::Cursor config = root.at("config");
  const std::int64_t each =
      config.at("nthreads").integer(1, kMostRanks, 1) * config.at("ngpus").integer(1, kMostRanks, 1);
  // For a process with several GPUs only the first is listed (nccl-tests 2.17 to 2.19).
  for (const base::Cursor& one : config.at("devices").items()) {
    TestedRank rank;
    rank.rank = static_cast<int>(one.at("rank").integer(0, kMostRanks));
    rank.group = one.has("group") ? static_cast<int>(one.at("group").integer(0, kMostRanks)) : 0;
    rank.host = one.at("hostname").text();
    rank.device = static_cast<int>(one.at("device").integer(0, kMostRanks));
    rank.device_name = one.at("device_info").text();
    raw.test.ranks.push_back(std::move(rank));
  }
  const std::size_t listed = raw.test.ranks.size();
  const bool first_only = listed > 0 && each > 1 && each <= 64 &&
                          std::all_of(raw.test.ranks.begin(), raw.test.ranks.end(),
                                      [&](const TestedRank& r) { return r.rank % each == 0; });
  for (std::size_t i = 0; first_only && i < listed; ++i)
    for (std::int64_t k = 1; k < each; ++k) {
      TestedRank rank = raw.test.ranks[i];
      rank.rank += static_cast<int>(k);
      rank.device += static_cast<int>(k);
      raw.test.ranks.push_back(std::move(rank));
    }
  for (const base::Cursor& row : root.at("results").items()) {
    Figures both[2];
    read_figures(row.optional("out_of_place"), both[0]);
    read_figures(row.optional("in_place"), both[1]);
    const base::Cursor redop = row.optional("redop");
    raw.sums = redop.exists() && redop.text() != "none";
    const base::Cursor size = row.at("size");
    if (raw.test.sizes.empty()) raw.where = size.where();
    if (!add_row(raw, static_cast<double>(size.integer(0, kMostRowBytes)), both, size.where()))
      size.error("E0313", "results of this size were wrong",
                 "times of a collective that computes wrongly say nothing; look for a broken link or GPU");
    row.ignore();
  }
  const base::Cursor bounds = root.optional("out_of_bounds");
  if (bounds.exists() && bounds.at("count").integer(0, std::int64_t{1} << 62) > 0)
    bounds.at("count").error("E0313", "the test found wrong results",
                             "times of a collective that computes wrongly say nothing; look for a broken link or GPU");
  root.ignore();
  return raw;
}

}  // namespace

const char* name_of(Tested tested) {
  switch (tested) {
    case Tested::all_reduce: return "all_reduce";
    case Tested::all_gather: return "all_gather";
    case Tested::reduce_scatter: return "reduce_scatter";
    case Tested::broadcast: return "broadcast";
    case Tested::reduce: return "reduce";
    case Tested::all_to_all: return "all_to_all";
    case Tested::send: return "send";
  }
  return "?";
}

bool is_nccl_test(std::string_view text) {
  const auto has = [&](const char* what) { return text.find(what) != std::string_view::npos; };
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{') return has("\"nccl_version\"") || has("\"out_of_place\"");
  return has("# nThread ") || (has("algbw") && has("busbw")) || has("# Collective test starting:");
}

base::Result<NcclTest> parse_nccl_test(std::string_view text, std::string file) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{') {
    const base::Document document = base::Document::parse(text, file);
    if (!document.root().exists()) return base::fail(document.findings().all());
    Raw raw = read_json(document.root(), file);
    if (!document.findings().failed()) conclude(raw, document.findings());
    const base::Diagnostics found = document.close();
    if (document.findings().failed()) return base::fail(found);
    return std::move(raw.test);
  }
  Lines lines(text, file);
  Raw raw;
  if (lines.sound()) raw = TextReader(lines).read(file);
  if (lines.findings().failed()) return base::fail(lines.findings().all());
  raw.test.warnings = lines.findings().all();
  return std::move(raw.test);
}

}  // namespace orrery::cost
