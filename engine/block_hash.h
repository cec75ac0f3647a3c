// Names of full KV blocks: a 128-bit hash chained over the blocks before it, so that equal names mean equal prefixes.
//
// A chain starts from a root that covers everything that decides the KV besides the tokens: model, adapter, numerics
// and the tenant's salt. Routers compute the same names without a model. Not cryptographic: whoever finds a name also
// compares the tokens (prefix_cache.h).
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::engine {

struct BlockHash {
  uint64_t hi = 0;
  uint64_t lo = 0;
  auto operator<=>(const BlockHash&) const = default;

  std::string Bytes() const;  // 16 bytes, big-endian: the form on the wire
};

struct HashOfBlockHash {
  size_t operator()(const BlockHash& hash) const { return size_t(hash.lo); }
};

BlockHash RootHash(std::string_view model_hash, std::string_view adapter, std::string_view numerics,
                   std::string_view salt);

// The name of the block that holds `tokens` and follows `parent`.
BlockHash ChainHash(const BlockHash& parent, std::span<const int32_t> tokens);

// Names of all full blocks of `tokens`, in order.
std::vector<BlockHash> HashBlocks(const BlockHash& root, std::span<const int32_t> tokens, int block_size);

}  // namespace sluice::engine
