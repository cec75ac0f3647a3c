#include "engine/files/content_hash.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "glog/logging.h"

namespace sluice::engine {
namespace {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    CHECK(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }

  void Bytes(const void* data, size_t size) { CHECK_EQ(EVP_DigestUpdate(context_.get(), data, size), 1); }

  void Number(uint64_t value) {
    std::array<uint8_t, 8> bytes;
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = uint8_t(value >> (8 * i));
    Bytes(bytes.data(), bytes.size());
  }

  void Text(std::string_view text) {
    Number(text.size());
    Bytes(text.data(), text.size());
  }

  std::string Hex() {
    std::string digest(EVP_MAX_MD_SIZE, '\0');
    unsigned size = 0;
    CHECK_EQ(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()), &size), 1);
    digest.resize(size);
    return absl::BytesToHexString(digest);
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

std::string HashTensors(std::span<const GgufTensor> tensors) {
  std::vector<const GgufTensor*> order;
  for (const GgufTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) { return a->name < b->name; });
  Sha256 hash;
  for (const GgufTensor* tensor : order) {
    hash.Text(tensor->name);
    hash.Text(kernels::Info(tensor->data.type).name);
    hash.Number(uint64_t(tensor->data.rows));
    hash.Number(uint64_t(tensor->data.cols));
    hash.Bytes(tensor->data.data, tensor->bytes);
  }
  return hash.Hex();
}

}  // namespace sluice::engine
