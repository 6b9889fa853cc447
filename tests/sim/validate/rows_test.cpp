/// Rows in other forms: tables of comma-separated text, lists too long to be read at once, one's own runs.
#include "sim/validate/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/validate/row_fields.h"

namespace orrery::sim {
namespace rows_test {

using ::testing::HasSubstr;

std::string said(const base::Result<std::vector<Row>>& read) {
  return read ? std::string() : base::render(read.error(), false);
}

TEST(CsvRows, HaveTheirKeysInTheFirstLine) {
  const auto read = parse_rows(
      "id,gpus,layers,micro_batch,sequence_parallel,iter_time_s,peak_mem_gib,notes\r\n"
      "a,16,24.0,varies,True,1.5,30,\"says \"\"fast\"\", or so\"\r\n"
      "\r\n"
      ",8,12,2,false,,,\r\n",
      "runs.csv", Origin::own);
  ASSERT_TRUE(read.has_value()) << said(read);
  ASSERT_EQ(read->size(), 2U);
  const Row& first = read->at(0);
  EXPECT_EQ(first.setup.id, "a");
  EXPECT_EQ(first.setup.layers, 24) << "as tables of numbers print it";
  EXPECT_FALSE(first.setup.micro_batch.has_value());
  EXPECT_EQ(first.setup.sequence_parallel, true);
  EXPECT_DOUBLE_EQ(*first.measured.seconds, 1.5);
  EXPECT_DOUBLE_EQ(*first.measured.memory_bytes, 30.0 * 1024 * 1024 * 1024);
  EXPECT_EQ(first.setup.kind, "training");
  EXPECT_TRUE(first.setup.verified);
  EXPECT_EQ(read->at(1).setup.id, "line 4");
  EXPECT_EQ(read->at(1).setup.line, 4);
  EXPECT_FALSE(read->at(1).measured.seconds.has_value());
}

TEST(CsvRows, SayWhereTheyCannotBeTakenApart) {
  EXPECT_THAT(said(parse_rows("id,gpus,layers\na,16,-3\n", "runs.csv")), HasSubstr("runs.csv:2:6"));
  EXPECT_THAT(said(parse_rows("id,gpus\na,16,3\n", "runs.csv")), HasSubstr("runs.csv:2:6"));
  EXPECT_THAT(said(parse_rows("id,gpus\n\"a,16\n", "runs.csv")), HasSubstr("do not close"));
  EXPECT_THAT(said(parse_rows("gpus,gpus\n8,8\n", "runs.csv")), HasSubstr("twice"));
  EXPECT_THAT(said(parse_rows("", "runs.csv")), HasSubstr("V05"));
  EXPECT_THAT(said(parse_rows("results:\n- id: a\n", "runs.csv")), HasSubstr("`gpus`"));
}

TEST(Rows, ReadNumbersAsPeopleWriteThem) {
  const auto sequence = [](const std::string& text) {
    const auto read = parse_rows("results:\n- {id: a, seq_len: \"" + text + "\"}\n", "rows.yaml");
    return read ? read->at(0).setup.sequence : std::optional<std::int64_t>(-1);
  };
  EXPECT_EQ(sequence("4k"), 4096);
  EXPECT_EQ(sequence("128K"), 131072);
  EXPECT_EQ(sequence("131,072"), 131072);
  EXPECT_EQ(sequence("8_192"), 8192);
  EXPECT_EQ(sequence("4,09"), std::nullopt) << "no thousands";
  EXPECT_EQ(sequence("k"), std::nullopt);
}

TEST(OwnRows, NeedNotSayThatTheyAreVerifiedTrainingRuns) {
  const std::string text =
      "results:\n- {id: a, gpus: 8}\n- {id: b, oom: true}\n- {id: c, kind: memory, verified: false}\n";
  const auto own = parse_rows(text, "rows.yaml", Origin::own);
  ASSERT_TRUE(own.has_value()) << said(own);
  EXPECT_EQ(own->at(0).setup.kind, "training");
  EXPECT_TRUE(own->at(0).setup.verified);
  EXPECT_EQ(own->at(1).setup.kind, kOutOfMemory);
  EXPECT_EQ(own->at(2).setup.kind, "memory");
  EXPECT_FALSE(own->at(2).setup.verified);
  EXPECT_EQ(parse_rows(text, "rows.yaml")->at(0).setup.kind, "") << "of others it must be stated";
}

TEST(OwnRows, AreThoseWithoutAKindThatStateAStepTimeOrDied) {
  const auto read = parse_rows(
      "id,kind,verified,gpus,iter_time_s,oom\na,,,8,1.5,\nb,,,8,,true\nc,,,8,,\nd,training,,8,1.5,\ne,,false,8,1.5,\n",
      "runs.csv", Origin::published);
  ASSERT_TRUE(read.has_value()) << said(read);
  EXPECT_EQ(read->at(0).setup.kind, "training");
  EXPECT_TRUE(read->at(0).setup.verified);
  EXPECT_EQ(read->at(1).setup.kind, kOutOfMemory);
  EXPECT_EQ(read->at(2).setup.kind, "") << "nothing to compare with";
  EXPECT_FALSE(read->at(3).setup.verified) << "a row that states its kind states whether it is verified";
  EXPECT_FALSE(read->at(4).setup.verified);
}

std::string warned(const std::string& text, const std::string& file, Origin origin = Origin::own) {
  base::Diagnostics warnings;
  const auto rows = parse_rows(text, file, origin, &warnings);
  EXPECT_TRUE(rows.has_value()) << said(rows);
  return base::render(warnings, false);
}

TEST(OwnRows, SayWhichOfTheirNumbersAreNotRead) {
  const std::string text =
      warned("id,gpus,iter_time_s,tp,seq_len,oom\na,8,7.9s,1,4k,\nb,8,9.1,1.5,long,maybe\n", "runs.csv");
  EXPECT_NE(text.find("warning[V06]: `iter_time_s` is `7.9s`, which is not a number: the row is read without it\n"
                      " --> runs.csv:2:5\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("write 7.9: the key says the unit"), std::string::npos) << text;
  EXPECT_NE(text.find("`tp` is `1.5`, which is not a whole number"), std::string::npos) << text;
  EXPECT_NE(text.find("`seq_len` is `long`, which is not a number"), std::string::npos) << text;
  EXPECT_NE(text.find("`oom` is `maybe`, which is not true or false"), std::string::npos) << text;
  const std::string other = warned("id,gpus,iter_time_s,oom,mla.q_lora\na,8,3100ms,no,1536\nb,8,,maybe,\n", "runs.csv");
  EXPECT_EQ(other.find("write 3100"), std::string::npos) << other;
  EXPECT_NE(other.find("write it in seconds, digits alone"), std::string::npos) << other;
  EXPECT_EQ(other.find("`no`"), std::string::npos) << other;
  EXPECT_EQ(other.find("`oom` is `maybe`"), other.rfind("`oom` is `maybe`")) << "once: " << other;
  EXPECT_EQ(other.find("is no key of rows"), std::string::npos) << "columns with a dot are read: " << other;
  EXPECT_EQ(warned("id,gpus,iter_time_s\na,8,\nb,8,unknown\nc,8,null\n", "runs.csv"), "") << "not stated";
  EXPECT_EQ(warned("id,source,gpus,iter_time_s\na,s,8,varies\n", "runs.csv", Origin::published), "") << "of others";
}

TEST(OwnRows, AreThoseWithoutASourceToo) {
  const auto validated = [](const std::string& text, const char* file) {
    return warned(text, file, Origin::published);
  };
  EXPECT_NE(validated("id,gpus,mbs\na,8,1\n", "runs.csv").find("here it is called `micro_batch`"), std::string::npos);
  EXPECT_EQ(validated("id,source,gpus,mbs\na,s,8,1\n", "runs.csv"), "");
  EXPECT_NE(validated("results:\n- {id: a, gpus: 8, mbs: 1}\n", "r.yaml").find("`micro_batch`"), std::string::npos);
  EXPECT_EQ(validated("results:\n- {id: a, source: s, gpus: 8, mbs: 1}\n", "r.yaml"), "");
  for (const std::string nothing : {"", "null", "unknown"}) {
    const std::string row = "results:\n- id: a\n  source: " + nothing + "\n  gpus: 8\n  mbs: 1\n";
    EXPECT_NE(validated(row, "r.yaml").find("`micro_batch`"), std::string::npos) << nothing;
    const std::string table = "id,source,gpus,mbs\na,s,8,1\nb," + nothing + ",8,1\n";
    EXPECT_NE(validated(table, "runs.csv").find("`micro_batch`"), std::string::npos) << nothing;
  }
  const std::string mixed = validated("id,source,gpus,iter_time_s\na,s,8,varies\nb,,8,long\n", "runs.csv");
  EXPECT_EQ(mixed.find("`varies`"), std::string::npos) << "another's: " << mixed;
  EXPECT_NE(mixed.find("`iter_time_s` is `long`, which is not a number"), std::string::npos) << mixed;
}

TEST(OwnRows, SayWhichOfTheirKeysAreNotRead) {
  const std::string text = warned("id,gpus,step_time,layerz,notes\na,8,7.9,2,x\n", "runs.csv");
  EXPECT_NE(text.find("warning[V06]: `step_time` is no key of rows: it is not read\n --> runs.csv:1:9\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("here it is called `iter_time_s`"), std::string::npos) << text;
  EXPECT_NE(text.find("did you mean `layers`?"), std::string::npos) << text;
  EXPECT_NE(text.find("`notes` is no key of rows"), std::string::npos) << text;
  const std::string sizes = warned("id,gpus,iter_time_s,d_ff,n_kv_head,depth\na,8,7.9,1,2,3\n", "runs.csv");
  for (const char* ours : {"ffn_hidden", "kv_heads", "layers"})
    EXPECT_NE(sizes.find("here it is called `" + std::string(ours) + "`"), std::string::npos) << "as of a model";
  const std::string list = warned(
      "results:\n- {id: a, gpus: 8, notes: x, hidden_size: 64}\n"
      "- {id: b, gpus: 8, hidden_size: 64}\n- {id: c, gpu: x, gpu_type: H100}\n",
      "runs.yaml");
  EXPECT_NE(list.find("`hidden_size` is no key of rows"), std::string::npos) << list;
  EXPECT_EQ(list.find("`hidden_size` is no key"), list.rfind("`hidden_size` is no key")) << list;
  EXPECT_EQ(list.find("V06"), list.rfind("V06")) << "once, and of lists, whose rows have notes, nothing else: " << list;
}

std::string long_list(std::size_t rows, const std::string& last) {
  std::string text = "# measured\nresults:\n";
  for (std::size_t i = 0; i < rows; ++i) {
    text += "- id: r" + std::to_string(i) + "\n  gpus: 8\n  notes: |\n    - not a row\n\n    of its own\n";
    for (int k = 0; k < 40; ++k) text += "  extra_" + std::to_string(k) + ": 1\n";
  }
  return text + last + "other: {}\n";
}

// 200,000 values are what a document may have; measurement files have more.
TEST(LongLists, AreReadAPartAtATime) {
  constexpr std::size_t kRows = 6000, kLines = 46;
  const auto read = parse_rows(long_list(kRows, ""), "rows.yaml");
  ASSERT_TRUE(read.has_value()) << said(read);
  ASSERT_EQ(read->size(), kRows);
  EXPECT_EQ(read->at(0).setup.line, 3);
  EXPECT_EQ(read->at(kRows - 1).setup.id, "r5999");
  EXPECT_EQ(read->at(kRows - 1).setup.line, static_cast<int>(3 + kLines * (kRows - 1)));
  const auto wrong = parse_rows(long_list(kRows, "- id: last\n  layers: -1\n"), "rows.yaml");
  ASSERT_FALSE(wrong.has_value());
  EXPECT_THAT(said(wrong), HasSubstr("rows.yaml:" + std::to_string(4 + kLines * kRows) + ":11"));
}

TEST(LongLists, HaveAnEnd) {
  std::string text = "results:\n";
  for (std::size_t i = 0; i <= kMostRows; ++i) text += "- id: a\n";
  EXPECT_THAT(said(parse_rows(text, "rows.yaml")), HasSubstr("E0108"));
}

}  // namespace rows_test
}  // namespace orrery::sim
