#include "proto/cluster_key.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cerrno>
#include <fstream>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace sluice {

absl::StatusOr<ClusterKey> ClusterKey::Read(const std::string& path) {
  if (path.empty()) return ClusterKey();
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read the cluster key ", path));
  std::string secret((std::istreambuf_iterator<char>(file)), {});
  absl::StripTrailingAsciiWhitespace(&secret);
  if (secret.size() < kLeastBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the cluster key ", path, " has ", secret.size(),
                                                   " bytes; at least ", kLeastBytes,
                                                   " are needed (openssl rand -hex 32 makes one)"));
  }
  return ClusterKey(std::move(secret));
}

std::string ClusterKey::Proof(std::string_view purpose, std::initializer_list<uint64_t> numbers,
                              std::string_view bytes) const {
  std::string message(purpose);
  message.push_back('\0');
  for (const uint64_t number : numbers) {
    for (int shift = 0; shift < 64; shift += 8) message.push_back(char(number >> shift & 0xff));
  }
  message.append(bytes);
  std::string proof(kProofBytes, '\0');
  unsigned size = 0;
  CHECK(HMAC(EVP_sha256(), secret_.data(), int(secret_.size()), reinterpret_cast<const unsigned char*>(message.data()),
             message.size(), reinterpret_cast<unsigned char*>(proof.data()), &size) != nullptr &&
        size == kProofBytes);
  return proof;
}

// A stream of proofs, each for its place, as the pad.
std::string ClusterKey::Mask(std::string_view purpose, std::initializer_list<uint64_t> numbers,
                             std::string bytes) const {
  if (empty()) return bytes;
  std::string pad;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const size_t place = i % kProofBytes;
    if (place == 0) pad = Proof(purpose, numbers, absl::StrCat("pad ", i));
    bytes[i] = char(bytes[i] ^ pad[place]);
  }
  return bytes;
}

bool ClusterKey::Accepts(std::string_view proof, std::string_view purpose, std::initializer_list<uint64_t> numbers,
                         std::string_view bytes) const {
  if (empty()) return true;
  const std::string due = Proof(purpose, numbers, bytes);
  return proof.size() == due.size() && CRYPTO_memcmp(proof.data(), due.data(), due.size()) == 0;
}

}  // namespace sluice
