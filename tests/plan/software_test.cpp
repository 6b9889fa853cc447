/// The `software:` part of a job: how the software of a run was set up.
#include "plan/spec/software.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/spec/job.h"

namespace orrery::plan {
namespace said_software_test {

using ::testing::HasSubstr;

std::string job_text(const std::string& more, const std::string& precision = "bf16") {
  return "model: tiny-gpt\ncluster: localhost-2\nbatch: 8\nprecision: " + precision + "\n" + more;
}

Software said(const std::string& more, const std::string& precision = "bf16") {
  const auto job = parse_job(job_text(more, precision), "job.yaml");
  EXPECT_TRUE(job.has_value()) << (job ? "" : base::render(job.error(), false));
  return job ? job->software : Software();
}

std::string error_of(const std::string& more, const std::string& precision = "bf16") {
  const auto job = parse_job(job_text(more, precision), "job.yaml");
  EXPECT_FALSE(job.has_value()) << more;
  return job ? "" : base::render(job.error(), false);
}

TEST(SaidSoftware, OfAJobIsWrittenAsItIsRead) {
  EXPECT_EQ(said(""), Software());
  const std::string text =
      "software: {compiled: false, rms_norm: composed, attention_kernel: flash-3, cross_entropy: upcast, moment_bits: "
      "8, "
      "reduce_dtype: fp32, cpu_offloading_layers: 20, gemm_rate_of: generic-eager}\n";
  const Software software = said(text);
  EXPECT_EQ(software.compiled, false);
  EXPECT_EQ(software.rms_norm, NormKernel::composed);
  EXPECT_EQ(software.attention_kernel, AttentionKernel::flash_3);
  EXPECT_EQ(software.cross_entropy, LossKernel::upcast);
  EXPECT_EQ(software.moment_bits, 8);
  EXPECT_EQ(software.cpu_offloading_layers, 20);
  EXPECT_EQ(software.gemm_rate_of, "generic-eager");
  const auto job = parse_job(job_text(text), "job.yaml");
  ASSERT_TRUE(job);
  const auto again = parse_job(write_job(*job), "again.yaml");
  ASSERT_TRUE(again) << base::render(again.error(), false);
  EXPECT_EQ(again->software, software);
  EXPECT_EQ(software_text(said("software: {autocast: true, moment_bits: 16}\n")), "autocast: true, moment_bits: 16");
}

TEST(SaidSoftware, EveryKeyIsWrittenAndReadByOneTable) {
  Software all;
  all.compiled = all.autocast = all.tuned_gemms = all.fp8_param_gather = all.master_weights = false;
  all.padding_mask = all.expandable_segments = all.scatter_gather = all.overlap_exchange = all.cuda_graphs = false;
  all.router_fusion = all.slow_network = all.fused_optimizer = true;
  all.operators = OperatorCode::fused, all.attention_kernel = AttentionKernel::cudnn;
  all.rms_norm = NormKernel::fused, all.cross_entropy = LossKernel::compiled, all.fp8_recipe = Fp8Recipe::mxfp8;
  all.gradient_dtype = all.reduce_dtype = ReduceType::bf16, all.token_dispatcher = TokenDispatcher::hybridep;
  all.moment_bits = 32, all.cpu_offloading_layers = 3, all.gemm_rate_of = "generic-eager";
  EXPECT_EQ(software_lines(all).size(), std::tuple_size_v<decltype(kSoftwareFields)>);
  std::string text = "software:\n";
  for (const auto& [key, value] : software_lines(all)) text += "  " + key + ": " + value + "\n";
  EXPECT_EQ(said(text, "fp8"), all);
}

TEST(SaidSoftware, WithImpossibleValuesIsRefusedAtItsPlace) {
  EXPECT_THAT(error_of("software: {compiled: perhaps}\n"), HasSubstr("job.yaml:5:22"));
  EXPECT_THAT(error_of("software: {attention_kernel: flash-9}\n"), HasSubstr("flash-3"));
  EXPECT_THAT(error_of("software: {moment_bits: 12}\n"), HasSubstr("job.yaml:5:25"));
  EXPECT_THAT(error_of("software: {cpu_offloading_layers: -1}\n"), HasSubstr("E0105"));
  EXPECT_THAT(error_of("software: {compild: true}\n"), HasSubstr("compiled"));
  EXPECT_THAT(error_of("compiled: false\n"), HasSubstr("software: {compiled: false}"));
  EXPECT_THAT(error_of("software: {torch_compile: true}\n"), HasSubstr("`compiled`"));
}

TEST(SaidSoftware, ThatContradictsItselfOrThePrecisionIsRefused) {
  EXPECT_THAT(error_of("software: {fp8_recipe: mxfp8}\n"), HasSubstr("job.yaml:5:24"));
  EXPECT_EQ(said("software: {fp8_recipe: mxfp8}\n", "fp8").fp8_recipe, Fp8Recipe::mxfp8);
  EXPECT_THAT(error_of("software: {fp8_param_gather: true}\n"), HasSubstr("E0121"));
  EXPECT_THAT(error_of("software: {attention_kernel: flash-2}\nplan: {flash: false}\n"), HasSubstr("job.yaml:5:30"));
  EXPECT_THAT(error_of("software: {attention_kernel: math}\nplan: {flash: true}\n"), HasSubstr("E0121"));
  EXPECT_EQ(said("software: {attention_kernel: math}\nplan: {flash: false}\n").attention_kernel, AttentionKernel::math);
  EXPECT_THAT(error_of("software: {reduce_dtype: fp32}\nplan: {compression: {gradients: bf16}}\n"),
              HasSubstr("job.yaml:5:26"));
  EXPECT_THAT(error_of("software: {reduce_dtype: fp32}\nplan: {compression: {gradients: [none, bf16]}}\n"),
              HasSubstr("E0121"));
  EXPECT_EQ(said("software: {reduce_dtype: bf16}\nplan: {compression: {gradients: bf16}}\n").reduce_dtype,
            ReduceType::bf16);
  EXPECT_THAT(error_of("software: {padding_mask: true, attention_kernel: flash-2}\n"), HasSubstr("E0121"));
  EXPECT_THAT(error_of("software: {compiled: true, rms_norm: composed}\n"), HasSubstr("compiled: false"));
  EXPECT_THAT(error_of("software: {compiled: true, operators: transformers}\n"), HasSubstr("E0121"));
}

}  // namespace said_software_test
}  // namespace orrery::plan
