#include "engine/model/testing/naive_forward.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/dequant.h"
#include "kernels/dtype.h"

namespace sluice::engine {
namespace {

std::vector<double> Times(const std::vector<std::vector<double>>& w, const std::vector<double>& x) {
  std::vector<double> y(w.size(), 0.0);
  for (size_t n = 0; n < w.size(); ++n) {
    for (size_t k = 0; k < x.size(); ++k) y[n] += w[n][k] * x[k];
  }
  return y;
}

std::vector<double> RmsNorm(const std::vector<double>& x, const std::vector<double>& weight, double eps) {
  double squares = 0;
  for (double v : x) squares += v * v;
  const double scale = 1 / std::sqrt(squares / double(x.size()) + eps);
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * weight[i];
  return y;
}

void Add(std::vector<double>& x, const std::vector<double>& y) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

double Activate(double x, kernels::MlpActivation activation) {
  if (activation == kernels::MlpActivation::kSilu) return x / (1 + std::exp(-x));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

}  // namespace

NaiveModel::NaiveModel(const ModelFile* file) : file_(file), config_(file->config()) {
  embedding_ = Load("token_embd.weight");
  head_ = Load("output.weight");
  if (head_.empty()) head_ = embedding_;
  output_norm_ = Load("output_norm.weight").at(0);
  for (int i = 0; i < config_.num_layers; ++i) {
    const auto tensor = [&](const char* name) { return Load(absl::StrCat("blk.", i, ".", name, ".weight")); };
    blocks_.push_back({tensor("attn_norm").at(0), tensor("ffn_norm").at(0), tensor("attn_q"), tensor("attn_k"),
                       tensor("attn_v"), tensor("attn_output"), tensor("ffn_gate"), tensor("ffn_up"),
                       tensor("ffn_down")});
  }
}

NaiveModel::Matrix NaiveModel::Load(const std::string& name) const {
  const kernels::HostTensor* tensor = file_->Find(name);
  if (tensor == nullptr) return {};
  Matrix matrix(tensor->rows);
  std::vector<float> row(tensor->cols);
  const char* bytes = static_cast<const char*>(tensor->data);
  for (int64_t r = 0; r < tensor->rows; ++r) {
    kernels::DequantizeRow(tensor->type, bytes + r * kernels::RowBytes(tensor->type, tensor->cols), tensor->cols,
                           row.data());
    matrix[r].assign(row.begin(), row.end());
  }
  return matrix;
}

NaiveModel::Vector NaiveModel::Rotate(const Vector& heads, int num_heads, int position) const {
  Vector out = heads;
  const int pairs = config_.rotary_dim / 2;
  for (int h = 0; h < num_heads; ++h) {
    for (int i = 0; i < pairs; ++i) {
      double angle = position / std::pow(config_.rope_theta, 2.0 * i / config_.rotary_dim);
      if (!config_.rope_factors.empty()) angle /= config_.rope_factors[i];
      const bool interleaved = config_.rope_style == kernels::RopeStyle::kInterleaved;
      const int a = h * config_.head_dim + (interleaved ? 2 * i : i);
      const int b = h * config_.head_dim + (interleaved ? 2 * i + 1 : i + pairs);
      out[a] = heads[a] * std::cos(angle) - heads[b] * std::sin(angle);
      out[b] = heads[a] * std::sin(angle) + heads[b] * std::cos(angle);
    }
  }
  return out;
}

NaiveModel::Vector NaiveModel::Attend(const Vector& q, const Matrix& keys, const Matrix& values) const {
  const int dim = config_.head_dim, group = config_.num_heads / config_.num_kv_heads;
  Vector out(q.size(), 0.0);
  for (int h = 0; h < config_.num_heads; ++h) {
    const int kv = h / group;
    Vector score(keys.size(), 0.0);
    for (size_t t = 0; t < keys.size(); ++t) {
      for (int d = 0; d < dim; ++d) score[t] += q[h * dim + d] * keys[t][kv * dim + d];
      score[t] /= std::sqrt(double(dim));
    }
    const double max = *std::max_element(score.begin(), score.end());
    double sum = 0;
    for (double& s : score) sum += s = std::exp(s - max);
    for (size_t t = 0; t < values.size(); ++t) {
      for (int d = 0; d < dim; ++d) out[h * dim + d] += score[t] / sum * values[t][kv * dim + d];
    }
  }
  return out;
}

void NaiveModel::AddAttention(const Block& block, Matrix& x) const {
  Matrix keys, values;
  for (size_t t = 0; t < x.size(); ++t) {
    const Vector h = RmsNorm(x[t], block.attn_norm, config_.rms_eps);
    keys.push_back(Rotate(Times(block.k, h), config_.num_kv_heads, int(t)));
    values.push_back(Times(block.v, h));
    const Vector q = Rotate(Times(block.q, h), config_.num_heads, int(t));
    Add(x[t], Times(block.o, Attend(q, keys, values)));
  }
}

void NaiveModel::AddMlp(const Block& block, Matrix& x) const {
  for (Vector& row : x) {
    const Vector h = RmsNorm(row, block.ffn_norm, config_.rms_eps);
    Vector gate = Times(block.gate, h);
    const Vector up = Times(block.up, h);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = Activate(gate[i], config_.activation) * up[i];
    Add(row, Times(block.down, gate));
  }
}

std::vector<std::vector<double>> NaiveModel::Forward(std::span<const int32_t> tokens) const {
  Matrix x;
  for (int32_t token : tokens) {
    x.push_back(embedding_.at(token));
    for (double& v : x.back()) v *= config_.embed_scale;
  }
  for (const Block& block : blocks_) {
    AddAttention(block, x);
    AddMlp(block, x);
  }
  for (Vector& row : x) row = Times(head_, RmsNorm(row, output_norm_, config_.rms_eps));
  return x;
}

}  // namespace sluice::engine
