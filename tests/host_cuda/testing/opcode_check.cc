#include "tests/host_cuda/testing/opcode_check.h"

#include "tests/host_cuda/engine/grid.h"

namespace host_cuda::testing {
namespace {

constexpr u32 kThreads = 128;  // a block, as the snippets know

// What one thread of a snippet has.
struct Record {
  u64 input[3];
  u64 result;
};

// Every combination of the inputs' edge values, and room for the last block's idle threads.
std::vector<Record> Combinations(const OpcodeCase& which, size_t* n) {
  std::vector<std::vector<unsigned char>> edges;
  *n = 1;
  for (const TypeOfCase* type : which.inputs) {
    edges.push_back(type->edges());
    *n *= edges.back().size() / type->size;
  }
  std::vector<Record> records((*n + kThreads - 1) / kThreads * kThreads);
  size_t repeat = 1;
  for (size_t k = 0; k < edges.size(); ++k) {
    const size_t size = which.inputs[k]->size, count = edges[k].size() / size;
    for (size_t i = 0; i < records.size(); ++i) {
      std::memcpy(&records[i].input[k], &edges[k][i / repeat % count * size], size);
    }
    repeat *= count;
  }
  return records;
}

void Check(const OpcodeCase& which) {
  size_t n = 0;
  std::vector<Record> records = Combinations(which, &n);
  const Record* const params = records.data();
  const Kernel* kernel = FindKernel(which.kernel);
  ASSERT_NE(kernel, nullptr);
  ASSERT_EQ(RunGrid(*kernel, Launch{{static_cast<u32>(records.size() / kThreads), 1, 1}, {kThreads, 1, 1}, 0},
                    reinterpret_cast<const unsigned char*>(&params)),
            "");
  for (size_t i = 0; i < n; ++i) {
    u64 expected = 0;
    which.meaning(records[i].input, &expected);
    if (which.result->same(&records[i].result, &expected)) continue;
    std::string arguments;
    for (size_t k = 0; k < which.inputs.size(); ++k) arguments += which.inputs[k]->print(&records[i].input[k]) + " ";
    FAIL() << which.ptx << " of " << arguments << "gives " << which.result->print_result(&records[i].result) << ", not "
           << which.result->print_result(&expected);
  }
}

class CaseTest : public ::testing::Test {
 public:
  explicit CaseTest(const OpcodeCase& which) : which_(which) {}
  void TestBody() override { Check(which_); }

 private:
  const OpcodeCase& which_;
};

}  // namespace

bool RegisterCases(const char* suite, std::span<const OpcodeCase> cases) {
  for (const OpcodeCase& which : cases) {
    ::testing::RegisterTest(suite, which.kernel, nullptr, nullptr, __FILE__, __LINE__,
                            [&which]() -> ::testing::Test* { return new CaseTest(which); });
  }
  return true;
}

}  // namespace host_cuda::testing
