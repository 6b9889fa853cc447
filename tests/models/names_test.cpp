/// Names of models: a minor version is none of the shape's, a size is.
#include "models/names.h"

#include <gtest/gtest.h>

namespace orrery::models {
namespace names_test {

TEST(ModelNames, AreComparedByTheirLettersAndNumbers) {
  EXPECT_EQ(letters_of("Llama 3 8B"), letters_of("llama3-8b"));
  EXPECT_EQ(letters_of("Qwen2.5-7B"), letters_of("qwen2.5 7b"));
  EXPECT_NE(letters_of("GPT-3 1.75B"), letters_of("gpt3-175b"));
  EXPECT_EQ(letters_of("v. 2"), "v2");
}

TEST(ModelNames, LoseAMinorVersionButNoSize) {
  EXPECT_EQ(without_minor_version("Llama-3.1-8B"), "Llama-3-8B");
  EXPECT_EQ(without_minor_version("Llama 3.3 70B Instruct"), "Llama 3 70B Instruct");
  EXPECT_EQ(without_minor_version("GPT-3 1.75B"), "GPT-3 1.75B");
  EXPECT_EQ(without_minor_version("Pythia 6.9b"), "Pythia 6.9b");
  EXPECT_EQ(without_minor_version("gpt2"), "gpt2");
}

}  // namespace names_test
}  // namespace orrery::models
