// DeepSpeed's JSON is refused with a reason, or what is read of it is a plan's parts.
#include "plan/frameworks/import.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(deepspeed_json) {
  orrery::plan::RunQuestion question;
  question.ranks = 8;
  question.model = "some";
  question.find_model = [](const std::string&) {
    orrery::models::Model model;
    model.layers = 8, model.hidden = 64, model.heads = model.kv_heads = 4, model.head_dim = 16, model.vocab = 64;
    model.max_sequence = 64;
    return orrery::base::Result<orrery::models::Model>(model);
  };
  const auto run =
      orrery::plan::import_run({{std::string(text), "fuzz", orrery::plan::RunFormat::deepspeed}}, question);
  if (!run) {
    orrery::fuzz::must(!run.error().empty(), "a refusal says why");
    (void)orrery::base::render(run.error(), true);
    return;
  }
  orrery::fuzz::must(run->spec.mesh.data >= 1 && run->spec.shape.batch >= 1, "a plan has replicas and a batch");
  (void)orrery::base::render(run->warnings, true);
}
