// The secret that the processes of a cluster share, and what they prove with it when they meet.
//
// A proof is HMAC-SHA256 over a purpose and what the two speak about (incarnations, epochs), so the secret never goes
// over the wire and a proof is worth nothing for another purpose, another pair or another life of a process. Who reads
// along can repeat a proof to the same process: against that, and to hide what is sent, there is TLS
// (proto/transport_security.h).
//
// Without a key nothing is asked for and everybody belongs; the proofs are made all the same, and a peer that has a key
// refuses them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sluice {

class ClusterKey {
 public:
  static constexpr size_t kLeastBytes = 16;
  static constexpr size_t kProofBytes = 32;

  ClusterKey() = default;  // none
  explicit ClusterKey(std::string secret) : secret_(std::move(secret)) {}

  // A file's content without white space at its end; an empty path is no key. The error names the file.
  static absl::StatusOr<ClusterKey> Read(const std::string& path);

  bool empty() const { return secret_.empty(); }

  // [kProofBytes]
  std::string Proof(std::string_view purpose, std::initializer_list<uint64_t> numbers,
                    std::string_view bytes = "") const;

  // `bytes` made unreadable without the key, or readable again: the same call does both. Each (purpose, numbers) may
  // hide one text only. Without a key it changes nothing.
  std::string Mask(std::string_view purpose, std::initializer_list<uint64_t> numbers, std::string bytes) const;

  // Whether `proof` is that of the same key; always true without one. Takes the same time for every wrong proof.
  bool Accepts(std::string_view proof, std::string_view purpose, std::initializer_list<uint64_t> numbers,
               std::string_view bytes = "") const;

 private:
  std::string secret_;
};

}  // namespace sluice
