// A name of the machine, equal for processes that can share memory: the machine id (or this boot's), the host name and
// the IPC namespace, hashed.
#pragma once

#include <string>

namespace sluice::worker {

std::string HostId();

}  // namespace sluice::worker
