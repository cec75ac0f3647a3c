// Whether bytes are a message of a type, with an answer that names the field where they are not. Pure.
//
// Protobuf's parser is lenient: a known field with the wrong wire type lands among the unknown fields and the message
// looks as if it were absent; a string that is not UTF-8 fails the whole message without naming it. A client deserves
// to hear which field it got wrong. Fields that the type does not know are let through, as compatibility asks.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/descriptor.h"

namespace sluice::router {

// INVALID_ARGUMENT: "sampling.temperature: ..." or, for bytes that are no message at all, the type's name.
absl::Status CheckWire(const google::protobuf::Descriptor& type, const std::string& bytes);

}  // namespace sluice::router
