/// The matrix of `nvidia-smi topo -m`: which GPUs NVLinks connect, and which GPUs and NICs share PCIe switches.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "clusters/import/readers.h"
#include "clusters/limits.h"

namespace orrery::clusters {
namespace {

constexpr std::size_t kMostColumns = 1024;  // GPUs and NICs per node

enum class Relation { self, nvlink, one_switch, switches, host_bridge, numa, system };

struct Cell {
  Relation relation = Relation::self;
  int links = 0;
  Word word;
};

struct Row {
  Word label;
  bool gpu = false;
  std::vector<Cell> cells;
  std::string cpus, numa;  ///< affinities; empty if unknown
};

bool is_gpu(std::string_view label) {
  long long ignored = 0;
  return label.starts_with("GPU") && whole_number(label.substr(3), ignored);
}

/// Disjoint sets, with path compression.
class Groups {
 public:
  explicit Groups(std::size_t size) : parent_(size) { std::iota(parent_.begin(), parent_.end(), std::size_t{0}); }
  std::size_t find(std::size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(std::size_t a, std::size_t b) { parent_[std::max(find(a), find(b))] = std::min(find(a), find(b)); }

 private:
  std::vector<std::size_t> parent_;
};

class TopoMatrixReader {
 public:
  explicit TopoMatrixReader(Lines& text) : text_(text), findings_(text.findings()) {}

  std::optional<FoundNode> read() {
    const int header = find_header();
    if (header == 0) {
      findings_.error("E0301", {findings_.file(), 1, 1, 1}, "no line begins with the column GPU0",
                      "give the whole output of `nvidia-smi topo -m`");
      return std::nullopt;
    }
    int next = header + 1;
    while (rows_.size() < columns_.size() && next <= text_.count()) {
      if (!text_.words(next).empty()) read_row(next);
      if (findings_.failed()) return std::nullopt;
      ++next;
    }
    if (rows_.size() < columns_.size()) {
      findings_.error("E0308", text_.end(),
                      fmt::format("the matrix has {} columns and only {} rows", columns_.size(), rows_.size()),
                      "the output was cut: capture it again");
      return std::nullopt;
    }
    read_legend(next);
    check_symmetry();
    if (findings_.failed()) return std::nullopt;
    FoundNode node = conclude();
    if (findings_.failed()) return std::nullopt;
    return node;
  }

 private:
  int find_header() {
    for (int n = 1; n <= text_.count(); ++n) {
      const std::vector<Word> words = text_.words(n);
      if (words.empty() || words[0].text != "GPU0") continue;
      if (words.size() > 1 && words[1].text == "X") return 0;  // a row without its header
      for (const Word& word : words) {
        if (word.text == "CPU") {
          affinities_ = true;
          numa_ = text_.line(n).find("NUMA Affinity") != std::string_view::npos;
          break;
        }
        columns_.push_back(word);
      }
      check_columns();
      return n;
    }
    return 0;
  }

  void check_columns() {
    if (columns_.size() > kMostColumns)
      return findings_.error("E0307", text_.place(columns_.front()), fmt::format("more than {} columns", kMostColumns));
    std::map<std::string_view, int> seen;
    int gpus = 0;
    for (const Word& column : columns_) {
      if (!seen.emplace(column.text, 1).second)
        findings_.error("E0306", text_.place(column),
                        fmt::format("two columns are called {}", base::quoted(std::string(column.text))));
      if (!is_gpu(column.text)) continue;
      if (column.text != fmt::format("GPU{}", gpus))
        findings_.error(
            "E0307", text_.place(column),
            fmt::format("expected the column GPU{}, found {}", gpus, base::quoted(std::string(column.text))));
      ++gpus;
    }
  }

  void read_row(int line) {
    const std::vector<Word> words = text_.words(line);
    const Word& expected = columns_[rows_.size()];
    if (words[0].text != expected.text) {
      findings_.error(
          "E0307", text_.place(words[0]),
          fmt::format("expected the row of {}, found {}", expected.text, base::quoted(std::string(words[0].text))),
          "rows follow the order of the columns");
      return;
    }
    Row row{words[0], is_gpu(words[0].text), {}, {}, {}};
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (c + 1 >= words.size()) {
        const bool last = text_.end().line == line;
        findings_.error(last ? "E0308" : "E0307", text_.place(line, text_.line(line).size(), 1),
                        fmt::format("the row of {} has {} cells, the header {} columns", expected.text,
                                    words.size() - 1, columns_.size()),
                        last ? "the output was cut: capture it again" : "");
        return;
      }
      row.cells.push_back(read_cell(words[c + 1]));
    }
    const std::size_t after = columns_.size() + 1;
    if (affinities_ && row.gpu && words.size() > after && words[after].text != "N/A") row.cpus = words[after].text;
    long long ignored = 0;
    if (numa_ && row.gpu && words.size() > after + 1 && whole_number(words[after + 1].text, ignored))
      row.numa = words[after + 1].text;
    rows_.push_back(std::move(row));
  }

  Cell read_cell(const Word& word) {
    static const std::map<std::string_view, Relation> words = {
        {"X", Relation::self},          {"PIX", Relation::one_switch}, {"PXB", Relation::switches},
        {"PHB", Relation::host_bridge}, {"NODE", Relation::numa},      {"SYS", Relation::system},
        {"SOC", Relation::system}};
    if (const auto found = words.find(word.text); found != words.end()) return {found->second, 0, word};
    long long links = 0;
    if (word.text.starts_with("NV") && whole_number(word.text.substr(2), links) && links >= 1 && links <= kMostParts)
      return {Relation::nvlink, static_cast<int>(links), word};
    findings_.error("E0307", text_.place(word),
                    fmt::format("unknown relation {}", base::quoted(std::string(word.text))),
                    "known are X, NV1 and more, PIX, PXB, PHB, NODE, SYS");
    return {Relation::system, 0, word};
  }

  /// "NIC0: mlx5_0" below "NIC Legend:".
  void read_legend(int from) {
    bool inside = false;
    for (int n = from; n <= text_.count(); ++n) {
      const std::vector<Word> words = text_.words(n);
      if (words.size() == 2 && words[0].text == "NIC" && words[1].text == "Legend:") inside = true;
      if (!inside || words.size() != 2 || !words[0].text.ends_with(':')) continue;
      names_[std::string(words[0].text.substr(0, words[0].text.size() - 1))] = std::string(words[1].text);
    }
  }

  void check_symmetry() {
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        const Cell &here = rows_[i].cells[j], &there = rows_[j].cells[i];
        if ((here.relation == Relation::self) != (i == j)) {
          findings_.error("E0306", text_.place(here.word),
                          fmt::format("{} and {} are {} device", rows_[i].label.text, rows_[j].label.text,
                                      i == j ? "the same" : "not the same"),
                          "X must be on the diagonal and nowhere else");
        } else if (here.relation != there.relation || here.links != there.links) {
          findings_.error(
              "E0306", text_.place(here.word),
              fmt::format("{} to {} is {}, but {} to {} is {} (line {})", rows_[i].label.text, rows_[j].label.text,
                          here.word.text, rows_[j].label.text, rows_[i].label.text, there.word.text, there.word.line),
              "the matrix must be symmetric: capture it again");
        } else if (here.relation == Relation::nvlink && !(rows_[i].gpu && rows_[j].gpu)) {
          findings_.error("E0306", text_.place(here.word), "NVLinks join GPUs only");
        }
      }
    }
  }

  /// Sockets: by NUMA node if every GPU states one, else by CPU affinity, else by which pairs do not cross the system.
  std::vector<std::string> cpu_names() {
    std::vector<std::string> names(rows_.size());
    const auto all = [&](std::string Row::*said) {
      return std::all_of(rows_.begin(), rows_.end(), [&](const Row& row) { return !row.gpu || !(row.*said).empty(); });
    };
    if (all(&Row::numa) || all(&Row::cpus)) {
      const auto said = all(&Row::numa) ? &Row::numa : &Row::cpus;
      for (std::size_t i = 0; i < rows_.size(); ++i) names[i] = rows_[i].*said;
      return names;
    }
    Groups groups(rows_.size());
    for (std::size_t i = 0; i < rows_.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) {
        const Relation relation = rows_[i].cells[j].relation;
        if (relation != Relation::system && relation != Relation::nvlink) groups.join(i, j);
      }
    for (std::size_t i = 0; i < rows_.size(); ++i)
      if (rows_[i].gpu) names[i] = std::to_string(groups.find(i));
    return names;
  }

  FoundNode conclude() {
    FoundNode node;
    node.where = text_.place(columns_.front());
    std::vector<std::string> names = cpu_names();
    place_nics(names);
    Groups switches(rows_.size());
    for (std::size_t i = 0; i < rows_.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) {
        const Cell& cell = rows_[i].cells[j];
        if (cell.relation == Relation::one_switch || cell.relation == Relation::switches) switches.join(i, j);
        if (cell.relation == Relation::nvlink) node.edges.push_back({gpu_number(j), gpu_number(i), cell.links});
      }
    std::sort(node.edges.begin(), node.edges.end(), [](const MeshEdge& a, const MeshEdge& b) {
      return std::pair{a.a, a.b} < std::pair{b.a, b.b};
    });
    std::map<std::string, int> cpus;
    std::map<std::size_t, BridgeId> bridges;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const auto [cpu, new_cpu] = cpus.emplace(names[i], static_cast<int>(cpus.size()));
      if (new_cpu) node.cpus.push_back({names[i], {}, {}, 0, 0});
      const auto [bridge, new_bridge] = bridges.emplace(switches.find(i), BridgeId(bridges.size()));
      if (new_bridge) node.bridges.push_back({{}, cpu->second, 0});
      if (node.bridges[bridge->second].cpu != cpu->second)
        findings_.error("E0306", text_.place(rows_[i].label),
                        fmt::format("{} shares a PCIe switch with a device of another NUMA node", rows_[i].label.text));
      if (rows_[i].gpu) {
        FoundGpu gpu;
        gpu.number = static_cast<int>(node.gpus.size());
        gpu.cpu = cpu->second;
        gpu.bridge = bridge->second;
        gpu.where = text_.place(rows_[i].label);
        node.gpus.push_back(std::move(gpu));
      } else {
        FoundNic nic;
        const auto named = names_.find(std::string(rows_[i].label.text));
        nic.name = named == names_.end() ? std::string(rows_[i].label.text) : named->second;
        nic.cpu = cpu->second;
        nic.bridge = bridge->second;
        nic.where = text_.place(rows_[i].label);
        node.nics.push_back(std::move(nic));
      }
    }
    return node;
  }

  /// Puts a NIC on the NUMA node of a GPU that it reaches without crossing the system; otherwise on one of its own.
  void place_nics(std::vector<std::string>& names) {
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (rows_[i].gpu) continue;
      Relation nearest = Relation::system;
      names[i] = "?";
      for (std::size_t j = 0; j < rows_.size(); ++j) {
        const Relation relation = rows_[i].cells[j].relation;
        if (!rows_[j].gpu || relation >= nearest) continue;
        nearest = relation;
        names[i] = names[j];
      }
    }
  }

  int gpu_number(std::size_t row) const {
    return static_cast<int>(std::count_if(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(row),
                                          [](const Row& r) { return r.gpu; }));
  }

  Lines& text_;
  base::Findings& findings_;
  std::vector<Word> columns_;
  std::vector<Row> rows_;
  std::map<std::string, std::string> names_;
  bool affinities_ = false, numa_ = false;
};

}  // namespace

std::optional<FoundNode> read_topo_matrix(Lines& text) {
  return TopoMatrixReader(text).read();
}

}  // namespace orrery::clusters
