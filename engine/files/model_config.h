// What a decoder is built from: the hyperparameters of a model, independent of the file format they came from.
//
// A new architecture is a row in engine/files/architectures.cc that fills this struct, plus a new layer kind in
// engine/model where its layers differ in kind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace sluice::engine {

struct ModelConfig {
  std::string architecture;  // as the file names it: "llama"
  std::string name;          // for people: "Smollm2 135M ..."
  int num_layers = 0;
  int hidden = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int ffn = 0;
  int vocab = 0;
  int context_length = 0;  // positions the model was trained for
  int window = 0;          // a token sees that many, itself included; 0: all before it
  float rms_eps = 1e-5f;
  double rope_theta = 10000.0;
  int rotary_dim = 0;  // leading dims of a head that rotate
  kernels::RopeStyle rope_style = kernels::RopeStyle::kInterleaved;
  std::vector<float> rope_factors;  // [rotary_dim / 2] divisors of the frequencies, or empty (tensor rope_freqs.weight)
  kernels::MlpActivation activation = kernels::MlpActivation::kSilu;
  float embed_scale = 1.0f;
};

}  // namespace sluice::engine
