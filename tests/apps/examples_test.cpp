// The examples of the help: each is what somebody may type who has the files that it names.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace examples_test {

namespace fs = std::filesystem;

const fs::path kSource = ORRERY_SOURCE_DIR;

/// What the command line `line` says, as a shell takes it apart: single quotes hold words together. Comments begin
/// behind two blanks; what follows a pipe or a redirection is the shell's.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> out;
  bool quoted = false, open = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (!quoted && (line.compare(i, 2, "  ") == 0 || line[i] == '>' || line[i] == '|')) break;
    if (line[i] == '\'') {
      quoted = !quoted;
    } else if (line[i] == ' ' && !quoted) {
      open = false;
    } else {
      if (!open) out.emplace_back();
      open = true;
      out.back() += line[i];
    }
  }
  return out;
}

/// All lines of all verbs that begin with `orrery`.
std::vector<std::string> examples() {
  const std::string man = orrery({"help", "--man"}).out;
  std::set<std::string> verbs;
  const std::regex heading("\n\\.SS \"orrery ([a-z]+)");
  for (std::sregex_iterator at(man.begin(), man.end(), heading), end; at != end; ++at) verbs.insert((*at)[1]);
  std::vector<std::string> out;
  for (const std::string& verb : verbs) {
    const std::string help = orrery({"help", verb}).out;
    const std::regex line("\n  (orrery [^\n]*)");
    for (std::sregex_iterator at(help.begin(), help.end(), line), end; at != end; ++at) out.push_back((*at)[1]);
  }
  return out;
}

/// The files that the examples name, each made as the help of its verb says, and nothing else.
class Examples : public ::testing::Test {
 protected:
  Examples() {
    folder_.file("job.yaml", "model: gpt2-124m\ncluster: hgx-h100\nbatch: 512\nsequence: 1024\nprecision: bf16\n");
    fs::create_directory_symlink(kSource / "examples", at("examples"));
    made({"plan", "job.yaml", "--gpus", "8", "-o", "plan.yaml"});
    made({"plan", "job.yaml", "--gpus", "8", "--pick", "2", "-o", "other.yaml"});
    made({"export", "plan.yaml", "--as", "megatron", "-o", "train.sh"});
    fs::copy_file(at("plan.yaml"), at("a.yaml"));
    fs::copy_file(at("other.yaml"), at("b.yaml"));
    folder_.file("predicted.json", orrery({"simulate", "plan.yaml", "--json"}, {.folder = folder_.path()}).out);
    fs::create_directories(at("runs"));
    fs::copy(kSource / "reports/gallery/inputs/runs/data2-1", at("runs/first"));
    fs::copy_file(kSource / "reports/gallery/inputs/calibration.yaml", at("calibration.yaml"));
    fs::copy_file(kSource / "tests/validation/published/chimera_li_hoefler_sc21.yaml", at("mine.yaml"));
    fs::copy_file(kSource / "tests/clusters/import/fixtures/dgx-a100.nccl.xml", at("topology.xml"));
    fs::copy_file(kSource / "tests/clusters/import/fixtures/eight-rails.ib.txt", at("fabric.txt"));
    folder_.file("all_reduce.log", std::regex_replace(text_of(kSource / "tests/cost/fixtures/all_reduce_8xa100.log"),
                                                      std::regex("NVIDIA A100-SXM4-80GB"), "NVIDIA H100 80GB HBM3"));
    folder_.file("config.json",
                 R"({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,)"
                 R"( "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,)"
                 R"( "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "tie_word_embeddings": false})");
    std::string table =
        "id,family,layers,hidden,heads,vocab,seq_len,gpus,gpu_type,tp,pp,dp,micro_batch,global_batch,"
        "precision_kind,recompute_kind,iter_time_s\n";
    for (const char* one : {"2,1,8,1,256,bf16,none,9.3", "4,1,4,1,256,bf16,none,10.4", "8,1,2,1,256,bf16,none,18.2"})
      table += std::string("t") + one[0] + ",llama,32,4096,32,32000,4096,16,H100-SXM5-80GB," + one + "\n";
    folder_.file("mine.csv", table);
  }
  [[nodiscard]] fs::path at(const std::string& name) const { return folder_.path() / name; }
  void made(const std::vector<std::string>& words) const {
    const Ran ran = orrery(words, {.folder = folder_.path()});
    EXPECT_EQ(ran.exit_code, 0) << words.front() << ran.err;
  }
  Scratch folder_;
};

TEST_F(Examples, OfTheHelpRunAsTheyStand) {
  const bool trains = fs::exists(fs::path(ORRERY_BINARY).parent_path() / "orrery-worker");
  std::size_t ran = 0;
  for (const std::string& line : examples()) {
    std::vector<std::string> words = words_of(line);
    ASSERT_GE(words.size(), 2U) << line;
    words.erase(words.begin());
    if (words == std::vector<std::string>{"validate"}) continue;  // minutes; tests of its own
    if (words.front() == "train" && !trains) continue;
    if (words.front() == "init" && words.size() == 1) words.emplace_back("mine-to-be.yaml");  // job.yaml is there
    if (words.front() == "train") {
      words[1] = (at("runs/first") / "plan.yaml").string();  // for this machine
      if (std::find(words.begin(), words.end(), "--resume") == words.end()) words[3] = "runs/new";
    }
    if (words.front() != "schema" && words.front() != "help") words.emplace_back("--dry-run");
    const Ran one = orrery(words, {.folder = folder_.path()});
    // What a run leaves behind for export is its checkpoint, which the kept one has not.
    const bool no_checkpoint = words.front() == "export" && words[1] == "runs/first";
    EXPECT_EQ(one.exit_code, no_checkpoint ? 3 : 0) << line << "\n" << one.err;
    ++ran;
  }
  EXPECT_GE(ran, 30U);
}

}  // namespace examples_test
}  // namespace orrery::tests
