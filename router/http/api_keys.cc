#include "router/http/api_keys.h"

#include <openssl/sha.h>

#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace sluice::router {
namespace {

constexpr size_t kLeastKeyBytes = 8;
constexpr absl::string_view kScheme = "bearer ";

}  // namespace

ApiKeys::Digest ApiKeys::DigestOf(std::string_view key) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

absl::StatusOr<ApiKeys> ApiKeys::Read(const std::string& path) {
  if (path.empty()) return ApiKeys();
  std::ifstream file(path);
  std::stringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::InvalidArgumentError(absl::StrCat("--api-keys: can't read ", path, ", or it is empty"));
  }
  return Parse(text.str(), path);
}

absl::StatusOr<ApiKeys> ApiKeys::Parse(std::string_view text, const std::string& name) {
  ApiKeys keys;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(std::string(text), '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    const auto bad = [&](absl::string_view what) {
      return absl::InvalidArgumentError(absl::StrCat("--api-keys: ", name, ":", number, ": ", what));
    };
    if (words.size() > 2) return bad("a line is KEY or KEY TENANT");
    if (words[0].size() < kLeastKeyBytes)
      return bad(absl::StrCat("a key has at least ", kLeastKeyBytes, " characters"));
    const std::string tenant(words.size() == 2 ? words[1] : "");
    if (!keys.tenants_.emplace(DigestOf(std::string(words[0])), tenant).second)
      return bad("this key was there already");
  }
  // Whoever names a file wants keys.
  if (keys.empty()) return absl::InvalidArgumentError(absl::StrCat("--api-keys: ", name, " has no key"));
  return keys;
}

std::optional<std::string> ApiKeys::Tenant(std::string_view given) const {
  const absl::string_view authorization(given.data(), given.size());
  if (authorization.size() <= kScheme.size() ||
      !absl::EqualsIgnoreCase(authorization.substr(0, kScheme.size()), kScheme)) {
    return std::nullopt;
  }
  const auto found =
      tenants_.find(DigestOf(std::string(absl::StripAsciiWhitespace(authorization.substr(kScheme.size())))));
  if (found == tenants_.end()) return std::nullopt;
  return found->second;
}

}  // namespace sluice::router
