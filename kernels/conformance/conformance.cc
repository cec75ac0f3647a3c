#include "kernels/conformance/conformance.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/conformance/checks.h"

namespace sluice::kernels::conformance {
namespace {

class CheckTest : public testing::Test {
 public:
  CheckTest(const Check& check, std::shared_ptr<const Subject> subject) : check_(check), subject_(std::move(subject)) {}
  void TestBody() override { check_.run(*subject_); }

 private:
  const Check check_;
  const std::shared_ptr<const Subject> subject_;
};

}  // namespace

std::vector<Check> AllChecks() {
  std::vector<Check> all;
  for (const auto& list : {BatchInvarianceChecks, VerificationRowChecks, SharedBlockChecks, BlockTableChecks,
                           HeadRowChecks, VariantChecks, NearReferenceChecks, RefusalChecks}) {
    std::vector<Check> checks = list();
    all.insert(all.end(), checks.begin(), checks.end());
  }
  return all;
}

bool RegisterConformance(std::vector<Subject> subjects) {
  for (Subject& moved : subjects) {
    const auto subject = std::make_shared<const Subject>(std::move(moved));
    for (const Check& check : AllChecks()) {
      testing::RegisterTest(check.suite, absl::StrCat(check.name, "/", subject->name).c_str(), nullptr, nullptr,
                            __FILE__, __LINE__,
                            [check, subject]() -> testing::Test* { return new CheckTest(check, subject); });
    }
  }
  return true;
}

}  // namespace sluice::kernels::conformance
