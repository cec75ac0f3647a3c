#include "kernels/conformance/reference.h"

#include <algorithm>
#include <cmath>

namespace sluice::kernels::conformance {
namespace {

using Vec = std::vector<double>;

Vec Floats(const Matrix& m, int64_t row) {
  const std::vector<float> v = m.Row(row);
  return Vec(v.begin(), v.end());
}

Vec Times(const Matrix& w, const Vec& x) {
  Vec y;
  for (int64_t n = 0; n < w.rows; ++n) {
    const Vec row = Floats(w, n);
    double sum = 0;
    for (size_t k = 0; k < x.size(); ++k) sum += row[k] * x[k];
    y.push_back(sum);
  }
  return y;
}

void Add(Vec& to, const Vec& from) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

Vec Norm(const Vec& x, const Matrix& weight, double eps) {
  double sum = 0;
  for (double v : x) sum += v * v;
  const double scale = 1 / std::sqrt(sum / double(x.size()) + eps);
  Vec y = Floats(weight, 0);
  for (size_t i = 0; i < x.size(); ++i) y[i] *= x[i] * scale;
  return y;
}

void Rope(Vec& heads, const TinyShape& s, const Vec& cos_sin) {
  const int pairs = s.rotary_dim / 2;
  for (size_t h = 0; h + size_t(s.head_dim) <= heads.size(); h += size_t(s.head_dim)) {
    for (int i = 0; i < pairs; ++i) {
      const bool split = s.rope == RopeStyle::kHalfSplit;
      double& a = heads[h + size_t(split ? i : 2 * i)];
      double& b = heads[h + size_t(split ? i + pairs : 2 * i + 1)];
      const double c = cos_sin[size_t(i)], sn = cos_sin[size_t(pairs + i)], a0 = a;
      a = a0 * c - b * sn;
      b = a0 * sn + b * c;
    }
  }
}

double Act(MlpActivation activation, double x) {
  if (activation == MlpActivation::kSilu) return x / (1 + std::exp(-x));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

Vec Slice(const Vec& v, int begin, int count) {
  return Vec(v.begin() + begin, v.begin() + begin + count);
}

// Attention of the newest position over all of `keys` and `values`, [position][kv_dim].
Vec AllHeads(const TinyShape& s, const Vec& q, const std::vector<Vec>& keys, const std::vector<Vec>& values) {
  Vec out;
  for (int h = 0; h < s.heads; ++h) {
    const int kv = h / (s.heads / s.kv_heads) * s.head_dim;
    std::vector<Vec> k, v;
    for (size_t j = 0; j < keys.size(); ++j) {
      k.push_back(Slice(keys[j], kv, s.head_dim));
      v.push_back(Slice(values[j], kv, s.head_dim));
    }
    const Vec head = ReferenceAttention(Slice(q, h * s.head_dim, s.head_dim), k, v, 1 / std::sqrt(double(s.head_dim)));
    out.insert(out.end(), head.begin(), head.end());
  }
  return out;
}

}  // namespace

std::vector<double> ReferenceAttention(const Vec& q, const std::vector<Vec>& keys, const std::vector<Vec>& values,
                                       double scale) {
  Vec weights;
  double top = -INFINITY;
  for (const Vec& k : keys) {
    double score = 0;
    for (size_t d = 0; d < q.size(); ++d) score += q[d] * k[d];
    weights.push_back(score * scale);
    top = std::max(top, weights.back());
  }
  double sum = 0;
  for (double& w : weights) sum += w = std::exp(w - top);
  Vec out(q.size());
  for (size_t j = 0; j < keys.size(); ++j) {
    for (size_t d = 0; d < q.size(); ++d) out[d] += weights[j] / sum * values[j][d];
  }
  return out;
}

std::vector<Vec> ReferenceLogits(const TinyWeights& w, const std::vector<int32_t>& tokens) {
  const TinyShape& s = w.shape;
  std::vector<std::vector<Vec>> keys(size_t(s.layers)), values(size_t(s.layers));  // [layer][position]
  std::vector<Vec> logits;
  for (size_t position = 0; position < tokens.size(); ++position) {
    Vec x = Floats(w.embedding, tokens[position]);
    for (double& v : x) v *= 1.5;
    const Vec cos_sin = Floats(w.rope, int64_t(position));
    for (size_t i = 0; i < w.layers.size(); ++i) {
      const TinyWeights::Layer& l = w.layers[i];
      const Vec h = Norm(x, l.norm1, w.eps);
      Vec q = Times(l.wq, h), k = Times(l.wk, h), v = Times(l.wv, h);
      if (s.bias) {
        Add(q, Floats(l.bq, 0));
        Add(k, Floats(l.bk, 0));
        Add(v, Floats(l.bv, 0));
      }
      Rope(q, s, cos_sin);
      Rope(k, s, cos_sin);
      keys[i].push_back(k);
      values[i].push_back(v);
      Add(x, Times(l.wo, AllHeads(s, q, keys[i], values[i])));
      const Vec h2 = Norm(x, l.norm2, w.eps);
      Vec gate = Times(l.gate, h2);
      const Vec up = Times(l.up, h2);
      for (size_t n = 0; n < gate.size(); ++n) gate[n] = Act(s.activation, gate[n]) * up[n];
      Add(x, Times(l.down, gate));
    }
    logits.push_back(Times(w.embedding, Norm(x, w.final_norm, w.eps)));
  }
  return logits;
}

}  // namespace sluice::kernels::conformance
