// Opens tokens and masks, on every rank alike.
#include "exec/run/run_data.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "exec/data/click_generator.h"
#include "exec/data/encode_data.h"
#include "exec/state/agreement.h"
#include "plan/spec/recommender_rules.h"

namespace orrery::exec {
namespace {

template <class T>
base::Result<bool> whether(const base::Result<T>& result) {
  return result ? base::Result<bool>(true) : base::Result<bool>(base::fail(result.error()));
}

// Every rank draws its own samples. Those of the evaluation follow those of the training.
RunData generated(const plan::Plan& plan, const plan::Training& training) {
  const plan::GeneratedSamples& drawn = *training.generated;
  const std::int64_t batch = plan.spec().shape.batch;
  const auto batches = [&](std::int64_t first, std::int64_t count, plan::DataOrder order) {
    return Batches(std::make_shared<const ClickGenerator>(*plan.model().recommender, first, count, drawn.seed), order,
                   training.seed, batch);
  };
  RunData out{batches(0, drawn.samples, training.order), std::nullopt};
  if (training.evaluation)
    out.held_out = batches(drawn.samples, training.evaluation->batches * batch, plan::DataOrder::sequential);
  return out;
}

// Every rank reads the file itself, with the same result.
base::Result<RunData> open_clicks(const plan::Plan& plan, const plan::Training& training, Transport& transport) {
  if (base::Diagnostics refused = plan::refused_training(training); !refused.empty())
    return base::fail(std::move(refused));
  const models::Recommender& model = *plan.model().recommender;
  if (training.generated) return generated(plan, training);
  const auto batches = [&](const std::string& path, plan::DataOrder order) -> base::Result<Batches> {
    auto file = ClickFile::open(path, model, training.bad_lines, training.categories);
    if (auto all = agreed(transport, whether(file)); !all) return base::fail(all.error());
    return Batches(std::move(*file), order, training.seed, plan.spec().shape.batch);
  };
  auto data = batches(training.data, training.order);
  if (!data) return base::fail(data.error());
  RunData out{std::move(*data), std::nullopt};
  if (!training.evaluation) return out;
  auto held_out = batches(training.evaluation->data, plan::DataOrder::sequential);
  if (!held_out) return base::fail(held_out.error());
  out.held_out = std::move(*held_out);
  return out;
}

std::optional<base::Diagnostic> short_data(const plan::Training& training, const plan::PlanSpec& spec,
                                           const Batches& batches, std::int64_t steps) {
  // The last token is only a target.
  const double wanted =
      static_cast<double>(steps) * static_cast<double>(spec.shape.batch) * static_cast<double>(spec.shape.sequence) +
      (batches.clicks() != nullptr ? 0 : 1);
  const auto there = static_cast<double>(batches.size());
  if (wanted <= there) return std::nullopt;
  return base::Diagnostic{
      base::Severity::warning,
      "E0614",
      {training.generated ? "training.data" : training.data, 0, 0, 1},
      fmt::format("{} {} for a run of {} steps that reads {:.0f}, so they are read {:.1f} times", batches.size(),
                  traits_of(batches.format()).pieces, steps, wanted, wanted / there),
      "give more data, or train fewer steps",
      {}};
}

std::optional<base::Diagnostic> skipped_data(const Batches& batches) {
  const std::int64_t skipped = batches.bad_lines().value_or(0);
  if (skipped == 0) return std::nullopt;
  const base::Diagnostic first = batches.clicks()->first_bad().front();
  return base::Diagnostic{base::Severity::warning,
                          "E0663",
                          first.where,
                          fmt::format("{} of {} lines of the training data are skipped, the first because: {}", skipped,
                                      skipped + batches.clicks()->size(), first.message),
                          "with bad_lines: refuse they end the run",
                          {}};
}

}  // namespace

base::Diagnostics data_warnings(const plan::Training& training, const plan::PlanSpec& spec, const Batches& batches,
                                std::int64_t steps) {
  base::Diagnostics out;
  for (auto& one : {skipped_data(batches), short_data(training, spec, batches, steps)})
    if (one) out.push_back(*one);
  return out;
}

base::Result<RunData> open_data(const plan::Plan& plan, const plan::Training& training, Transport& transport,
                                const std::filesystem::path& run) {
  if (base::Diagnostics refused = plan::refused_data(plan.model(), training); !refused.empty())
    return base::fail(std::move(refused));
  if (training.data.empty() && !training.generated)
    return base::fail("E0610", "the plan's job names no training data", "add training.data to the job");
  if (plan.model().recommender) return open_clicks(plan, training, transport);
  const auto encode = [&] { return job_tokens(training, plan.model().vocab, run); };
  base::Result<JobTokens> tokens = JobTokens{};
  if (transport.rank() == 0) tokens = encode();
  if (auto all = agreed(transport, whether(tokens)); !all) return base::fail(all.error());
  if (transport.rank() != 0) tokens = encode();  // finds what rank 0 has encoded
  auto stream = tokens ? TokenStream::open(tokens->data) : base::Result<TokenStream>(base::fail(tokens.error()));
  if (auto all = agreed(transport, whether(stream)); !all) return base::fail(all.error());
  const plan::PlanSpec& spec = plan.spec();
  const bool masked = plan.model().masked_fraction > 0;
  const auto masking =
      masked ? masking_of(plan.model(), spec.shape.sequence, training, *stream) : base::Result<Masking>(Masking{});
  if (auto all = agreed(transport, whether(masking)); !all) return base::fail(all.error());
  const auto batches = [&](TokenStream from, plan::DataOrder order) {
    Batches out(std::move(from), order, training.seed, spec.shape.batch, spec.shape.sequence, plan.model().vocab);
    if (masked) out.mask(*masking);
    return out;
  };
  RunData data{batches(std::move(*stream), training.order), std::nullopt};
  if (!training.evaluation) return data;
  auto held_out = TokenStream::open(tokens->held_out);
  if (auto all = agreed(transport, whether(held_out)); !all) return base::fail(all.error());
  data.held_out = batches(std::move(*held_out), plan::DataOrder::sequential);
  return data;
}

}  // namespace orrery::exec
