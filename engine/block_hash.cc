#include "engine/block_hash.h"

namespace sluice::engine {
namespace {

// Two lanes that absorb words with different constants; each absorption is a bijection of the lane for a given word.
constexpr uint64_t Absorb(uint64_t state, uint64_t word, uint64_t multiplier) {
  uint64_t x = (state ^ word) * multiplier;
  x ^= x >> 32;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 29);
}

constexpr BlockHash Absorb(const BlockHash& state, uint64_t word) {
  // The lanes see each other, so that a collision in one is not a collision in both.
  const uint64_t hi = Absorb(state.hi + 0x9e3779b97f4a7c15u, word, 0xbf58476d1ce4e5b9u);
  return {hi, Absorb(state.lo ^ hi, word + 0xd1b54a32d192ed03u, 0xd6e8feb86659fd93u)};
}

BlockHash AbsorbText(BlockHash state, std::string_view text) {
  state = Absorb(state, text.size());
  for (const char c : text) state = Absorb(state, uint8_t(c));
  return state;
}

}  // namespace

std::string BlockHash::Bytes() const {
  std::string bytes(16, '\0');
  for (int i = 0; i < 8; ++i) {
    bytes[i] = char(hi >> (56 - 8 * i));
    bytes[8 + i] = char(lo >> (56 - 8 * i));
  }
  return bytes;
}

BlockHash RootHash(std::string_view model_hash, std::string_view adapter, std::string_view numerics,
                   std::string_view salt) {
  BlockHash state;
  for (const std::string_view part : {model_hash, adapter, numerics, salt}) state = AbsorbText(state, part);
  return state;
}

BlockHash ChainHash(const BlockHash& parent, std::span<const int32_t> tokens) {
  BlockHash state = Absorb(parent, tokens.size());
  for (const int32_t token : tokens) state = Absorb(state, uint32_t(token));
  return state;
}

std::vector<BlockHash> HashBlocks(const BlockHash& root, std::span<const int32_t> tokens, int block_size) {
  std::vector<BlockHash> hashes;
  BlockHash parent = root;
  for (size_t begin = 0; begin + size_t(block_size) <= tokens.size(); begin += size_t(block_size)) {
    parent = ChainHash(parent, tokens.subspan(begin, size_t(block_size)));
    hashes.push_back(parent);
  }
  return hashes;
}

}  // namespace sluice::engine
