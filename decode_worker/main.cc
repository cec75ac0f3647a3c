// sluice_decode: the decode role, and role `both`, which computes the prompts itself.
#include "decode_worker/decode_instance.h"
#include "decode_worker/describe.h"
#include "worker/worker_main.h"

int main(int argc, char** argv) {
  return sluice::worker::WorkerMain(sluice::decode_worker::Describe(), sluice::decode_worker::MakeDecodeInstance, argc,
                                    argv);
}
