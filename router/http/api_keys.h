// The keys with which clients may use the API. Pure, but for reading their file.
//
// Promises: a key is compared by its digest, so that the time that takes tells nothing about it; keys are in no message
// and in no log. Without keys everybody may.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace sluice::router {

class ApiKeys {
 public:
  ApiKeys() = default;

  // One key a line, `KEY` or `KEY TENANT`; what begins with # is a comment. An error names the file and its line. An
  // empty path: no keys.
  static absl::StatusOr<ApiKeys> Read(const std::string& path);
  static absl::StatusOr<ApiKeys> Parse(std::string_view text, const std::string& name);

  bool empty() const { return tenants_.empty(); }

  // The tenant of the key in "Bearer KEY"; it may be empty. Nothing: no such key.
  std::optional<std::string> Tenant(std::string_view authorization) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  static Digest DigestOf(std::string_view key);

  absl::flat_hash_map<Digest, std::string> tenants_;
};

}  // namespace sluice::router
