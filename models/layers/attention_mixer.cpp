// Attention as one of the mixers.
#include "models/layers/attention_notes.h"
#include "models/layers/mixers.h"

namespace orrery::models {

MixerTraits attention_mixer() {
  return {.mixer = Mixer::attention,
          .word = "attention",
          .letter = '*',
          .title = "attention",
          .titles = "attention",
          .core = OpKind::attention,
          .notes = [](LinearNotes& to) -> std::unique_ptr<MixerNotes> { return std::make_unique<Attention>(to); }};
}

}  // namespace orrery::models
