// sluice_prefill: the prefill role.
#include "prefill_worker/describe.h"
#include "prefill_worker/prefill_instance.h"
#include "worker/worker_main.h"

int main(int argc, char** argv) {
  return sluice::worker::WorkerMain(sluice::prefill_worker::Describe(), sluice::prefill_worker::MakePrefillInstance,
                                    argc, argv);
}
