// The live page of a router: the files of router/page/, which the build embeds. Nothing of it needs an API key: the
// page has no data of its own and asks for them with the key that a person gives it.
#pragma once

#include <map>
#include <string>

#include "router/http/options.h"

namespace sluice::router {

// "/", and what it loads from /page/.
std::map<std::string, HttpResource> PageResources();

}  // namespace sluice::router
