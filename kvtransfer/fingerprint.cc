#include "kvtransfer/fingerprint.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/message_differencer.h"

namespace sluice::kvtransfer {
namespace {

template <typename T>
absl::Status Same(const char* what, const T& prefill, const T& decode) {
  if (prefill == decode) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("these workers can't exchange KV: ", what, " is ", prefill,
                                                    " at prefill and ", decode, " at decode"));
}

}  // namespace

absl::Status CheckFit(const v1::Fingerprint& p, const v1::Fingerprint& d) {
  for (const absl::Status& s :
       {Same("protocol version", p.protocol_version(), d.protocol_version()),
        Same("model hash", p.model_hash(), d.model_hash()), Same("numerics", p.numerics(), d.numerics()),
        Same("KV dtype", p.kv_dtype(), d.kv_dtype()), Same("block size", p.block_size(), d.block_size()),
        Same("layout version", p.layout_version(), d.layout_version()),
        Same("number of layer groups", p.layer_groups_size(), d.layer_groups_size())}) {
    if (!s.ok()) return s;
  }
  for (int i = 0; i < p.layer_groups_size(); ++i) {
    if (!google::protobuf::util::MessageDifferencer::Equals(p.layer_groups(i), d.layer_groups(i))) {
      return absl::FailedPreconditionError(absl::StrCat("these workers can't exchange KV: layer group ", i, " is {",
                                                        p.layer_groups(i).ShortDebugString(), "} at prefill and {",
                                                        d.layer_groups(i).ShortDebugString(), "} at decode"));
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice::kvtransfer
