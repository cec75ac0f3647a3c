// Shards of a reshard plan on the wire.
#pragma once

#include "kvtransfer/reshard_plan.h"
#include "proto/transfer.pb.h"

namespace sluice::kvtransfer {

inline void ToProto(const KvShards& shards, google::protobuf::RepeatedPtrField<v1::KvShard>& to) {
  for (const KvShard& shard : shards) {
    v1::KvShard& out = *to.Add();
    out.set_layer_begin(shard.layer_begin);
    out.set_layer_end(shard.layer_end);
    out.set_head_begin(shard.head_begin);
    out.set_head_end(shard.head_end);
  }
}

inline KvShards FromProto(const google::protobuf::RepeatedPtrField<v1::KvShard>& from) {
  KvShards shards;
  for (const v1::KvShard& in : from) {
    shards.push_back({in.layer_begin(), in.layer_end(), in.head_begin(), in.head_end()});
  }
  return shards;
}

}  // namespace sluice::kvtransfer
